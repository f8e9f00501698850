"""Plans made by hand: spans and fragments are found by the text that they cover."""

from __future__ import annotations

from splitter.ir import Builder, Feed, Fragment, HandleEdit, LoaderEdit, Note, Plan, Removal, SourceFile, Span, WorkerModule
from splitter.splice import Grid

DIGEST = "sha256:52b0c4e1"

PHOTOS = '''"""Train on a folder of images."""
import argparse
import os

import torch
import torchvision.datasets as datasets

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("data")


def main():
    args = parser.parse_args()

    # Data loading code
    traindir = os.path.join(args.data, "train")

    train_dataset = datasets.ImageFolder(
        traindir,
        size=args.size,
    )

    train_loader = torch.utils.data.DataLoader(
        train_dataset, batch_size=args.batch_size,
        num_workers=args.workers)  # keep the GPU busy
    for x in train_loader:
        pass


if __name__ == "__main__":
    main()
'''


class Script:
    """A source file whose places are named by their text."""

    def __init__(self, text: str, module: str = "__main__", path: str = "train.py", encoding: str = "utf-8", bom: bool = False):
        self.file = SourceFile(module, path, text, encoding, bom)
        self.grid = Grid(text)

    def span(self, text: str, nth: int = 0) -> Span:
        at = -1
        for _ in range(nth + 1):
            at = self.file.text.index(text, at + 1)
        line, end_line = self.grid.line_at(at), self.grid.line_at(at + len(text) - 1)
        column, end = at - self.grid.starts[line - 1], at + len(text) - self.grid.starts[end_line - 1]
        return Span(self.file.path, line, column, end_line, end)

    def lines(self, text: str) -> Fragment:
        span = self.span(text)
        return Fragment(self.file.path, span.line, span.end_line)

    def handle(self, text: str, builder: str = "train", environment: tuple[str, ...] = (), residence="moved") -> HandleEdit:
        return HandleEdit(self.file.module, self.span(text), builder, environment, residence)

    def loader(self, text: str, callee: str = "DataLoader", **given) -> LoaderEdit:
        call = self.span(text)
        width = len(callee)
        return LoaderEdit(self.file.module, call, Span(call.path, call.line, call.column, call.line, call.column + width), **given)

    def removal(self, text: str) -> Removal:
        return Removal(self.file.module, self.lines(text))


def feed(script: Script, text: str, name: str = "train", **given) -> Feed:
    values = {"origin": None, "role": "train", "status": "split", "code": None, "why": (), **given}
    return Feed(name, script.span(text), **values)


def plan(script: Script, modules: tuple[Script, ...] = (), **given) -> Plan:
    values = {
        "digest": DIGEST,
        "needs": (),
        "worker": WorkerModule(),
        "handles": (),
        "loaders": (),
        "removals": (),
        "feeds": (),
        **given,
    }
    return Plan(script.file, tuple(module.file for module in modules), **values)


def photos(text: str = PHOTOS, **given) -> Plan:
    """The plan of PHOTOS: one moved dataset."""
    script = Script(text)
    newline = script.grid.newline
    made = newline.join(["datasets.ImageFolder(", "        traindir,", "        size=args.size,", "    )"])
    call = newline.join(
        ["torch.utils.data.DataLoader(", "        train_dataset, batch_size=args.batch_size,", "        num_workers=args.workers)"]
    )
    environment = ("args.data", "args.size")
    directory = 'traindir = os.path.join(args.data, "train")'
    builder = Builder("dataset", "train", "train", environment, (), (script.lines(directory),), script.span(made), stateless=True)
    values = {
        "worker": WorkerModule(
            imports=(script.lines("import os"), script.lines("import torchvision.datasets as datasets")), builders=(builder,)
        ),
        "handles": (script.handle(made, environment=environment),),
        "loaders": (script.loader(call, "torch.utils.data.DataLoader"),),
        "removals": (script.removal(directory),),
        "feeds": (
            feed(
                script,
                call,
                origin=script.span(made),
                residence="moved",
                stateless=True,
                environment=environment,
                streams="args.workers",
                moved=(script.lines(directory), script.lines(made)),
            ),
        ),
        "notes": (Note(script.span("for x in train_loader"), "for x in train_loader", "the loop stays"),),
        **given,
    }
    return plan(script, **values)
