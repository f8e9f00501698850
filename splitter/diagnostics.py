"""The table of codes: what each finding says and what the user can do.

A code is never used for another meaning. S1xx: bad input. S2xx: the loader or its dataset was not understood. S3xx: understood, and a
split could change what the script does. S4xx: warnings and notes of a split that was made. S9xx: a fault of splitter itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from splitter.ir import Diagnostic, Severity


@dataclass(frozen=True)
class Rule:
    """One code: `message` may name arguments in braces; `hint` says what to do. `examples` has a script for it."""

    severity: Severity
    title: str
    message: str
    hint: str


CODES: dict[str, Rule] = {
    "S101": Rule("error", "no such file", "there is no file {path}", "check the path"),
    "S102": Rule("error", "not a file", "{path} is a folder", "give the script that starts the training"),
    "S103": Rule(
        "error", "not Python", "{path} can't be parsed: {reason}", "run it with Python first; splitter reads what this Python reads"
    ),
    "S104": Rule(
        "error",
        "no loader",
        "no torch DataLoader is constructed in {path} or in the local modules that it imports",
        "give the script that constructs the loaders",
    ),
    "S105": Rule("error", "can't write", "can't write to {path}: {reason}", "choose another folder with --out"),
    "S201": Rule(
        "error",
        "origin not found",
        "the dataset of this loader comes from {what}, which can't be followed to a constructor",
        "construct the dataset in the script, or in a helper function that returns it",
    ),
    "S202": Rule(
        "error",
        "not torch's loader",
        "{what} is not torch.utils.data.DataLoader",
        "it may stay as it is; {way}",
    ),
    "S203": Rule(
        "error",
        "loader arguments",
        "the loader's {what} can't be read from the script",
        "write the arguments out in the call",
    ),
    "S301": Rule(
        "error",
        "uses the model",
        "the dataset or collate function uses {what}, a model of the training process, whose weights a worker can't follow",
        "do that step in the training loop, on the batch",
    ),
    "S302": Rule(
        "error",
        "uses a device",
        "the dataset or collate function uses a device: {what}",
        "keep the data on the CPU there and move the batch in the training loop",
    ),
    "S303": Rule(
        "error",
        "torch is seeded in the main process",
        "num_workers is 0 and the dataset calls {what}, which seeds the generators of the main process's accelerators, too",
        "draw from a torch.Generator of your own, set num_workers in the script, or pass --streams N: as if the script had said so",
    ),
    "S304": Rule(
        "error",
        "dataset changed by the trainer",
        "the script does this with the dataset, which can't be sent to a worker: {what}",
        "use a method of the dataset with plain arguments (numbers, strings, lists), such as set_epoch",
    ),
    "S305": Rule(
        "error",
        "not plain data",
        "the dataset or collate function needs {name}, which is {what} and can't be sent to a worker",
        "build it inside the dataset, from plain values (numbers, strings, paths, tensors)",
    ),
    "S306": Rule(
        "error",
        "not repeatable",
        "the moved code depends on {what}, which is not the same in another process",
        "compute it once in the script and pass it to the dataset as a value, or sort it",
    ),
    "S307": Rule(
        "error",
        "gradient through the batch",
        "the dataset holds a tensor that requires a gradient: {what}",
        "look it up in the training loop, by the index that the dataset returns",
    ),
    "S308": Rule(
        "error",
        "order depends on timing",
        "in_order=False: the order of this loader's batches depends on timing, so no split can keep it",
        "remove in_order=False",
    ),
    "S310": Rule(
        "error",
        "batch is the dataset's own memory",
        "the loop writes into a batch ({what}) which may be the dataset's own memory",
        "write into a copy: x = x.clone()",
    ),
    "S311": Rule(
        "error",
        "global changed later",
        "the moved code reads {name}, which the script changes again at line {line}",
        "pass the value to the dataset when it is made, or set it with a method of the dataset",
    ),
    "S313": Rule(
        "error",
        "shared file position",
        "the dataset opens a file in its constructor ({what}) and worker processes would share its position",
        "open the file on first use, in __getitem__",
    ),
    "S314": Rule(
        "error",
        "writes a global that the trainer reads",
        "the moved code changes {name}, which the script reads at line {line}",
        "return the value from the dataset instead",
    ),
    "S315": Rule(
        "error",
        "module with side effects",
        "the dataset needs {name} from {path}, which does more than define things when it is imported (line {line})",
        'put that code under `if __name__ == "__main__":` or into a function',
    ),
    "S316": Rule(
        "error",
        "random setup",
        "the dataset is built from {name}, a live object whose statement draws random numbers: it can't be sent, or made twice",
        "draw inside the dataset's constructor, or make it a tensor, an array or a list",
    ),
    "S317": Rule(
        "error",
        "shared line",
        "a statement that would be copied to the worker shares line {line} with one that stays",
        "write one statement to a line",
    ),
    "S318": Rule(
        "error",
        "loader handed over",
        "the loader is handed to {what}, which may take it apart and build another one from its dataset",
        "iterate over the loader in the script itself",
    ),
    "S319": Rule(
        "error",
        "library setting",
        "the script changes a library that the moved code uses in a way that can't be repeated on a worker: {what}",
        "do it at the top level of the script, before the dataset is made, with constants",
    ),
    "S401": Rule(
        "warning", "order of a listing", "{what} lists files in an order that another host may not have", "sort it: sorted({what})"
    ),
    "S421": Rule("note", "model prefix: not fed by loaders alone", "the start of forward stays in the model: {what}", "{way}"),
    "S422": Rule("note", "model prefix: none", "nothing of forward moves: it {what}", "{way}"),
    "S423": Rule(
        "note",
        "model prefix: no constant",
        "the start of forward stays in the model: it reads {name}, which is {why}",
        "give it its value in the constructor, from plain values, and nowhere else; make a table a buffer with persistent=False",
    ),
    "S424": Rule(
        "note",
        "model prefix: model not followed",
        "the start of forward stays in the model: {what} {why}",
        "make the model in the script and call it in loops over loaders, without a wrapper or a hook",
    ),
    "S425": Rule(
        "note",
        "model prefix: not the same on the worker",
        "what forward does from here on stays in the model: {why}",
        "{way}",
    ),
    "S901": Rule(
        "error", "internal error", "step {step} failed on {path}: {reason}", "please report it with the script; nothing was written"
    ),
}


def message(diagnostic: Diagnostic) -> str:
    """The finding in one sentence."""
    return CODES[diagnostic.code].message.format(**dict(diagnostic.arguments))


def severity(diagnostic: Diagnostic) -> Severity:
    return CODES[diagnostic.code].severity


def hint(diagnostic: Diagnostic) -> str:
    return CODES[diagnostic.code].hint.format_map(_Lenient(diagnostic.arguments))


class _Lenient(dict[str, str]):
    """Hints name arguments only now and then; braces that belong to code stay."""

    def __missing__(self, key: str) -> str:
        return "{" + key + "}"
