"""The command line: which step runs, what goes to which stream, and the exit status.

Steps are imported by the command that needs them, so that `--help` and early errors are instant.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

import splitter
from splitter.cli_errors import BAD_INPUT, DONE, INTERNAL, INTERRUPTED, NOTHING_SPLIT, folder_of, reported

if TYPE_CHECKING:
    from splitter.compile import Weighing
    from splitter.ir import Plan
    from splitter.trace_process import Child

NOT_CURRENT = INTERNAL  # what a build takes for a failure

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    help="Split a PyTorch training script into a worker program for CPU hosts and a trainer with the same batches.",
)

Script = Annotated[Path, typer.Argument(metavar="SCRIPT", help="The training script.")]
Args = Annotated[list[str] | None, typer.Argument(metavar="-- ARGS", help="The script's own arguments.")]
Streams = Annotated[int | None, typer.Option("--streams", min=1, metavar="N", help="As if the script had said num_workers=N.")]
Workers = Annotated[
    str | None,
    typer.Option("--workers", metavar="SPEC", help="Where workers are: local:N, host:port,..., dns:///name:port."),
]

Static = Annotated[bool, typer.Option("--static", help="Run nothing of the script; the cut is at the loader.")]
Samples = Annotated[int, typer.Option("--samples", min=2, metavar="K", help="Samples of each loader to run.")]
Price = Annotated[
    float | None, typer.Option("--price", min=0.0, max=1e9, metavar="US", help="What a KiB that crosses costs, in trainer-microseconds.")
]
Again = Annotated[bool, typer.Option("--again", help="Run samples also when nothing has changed since the last time.")]
ModelPrefix = Annotated[bool, typer.Option("--model-prefix", help="Move what the model's forward does first with its inputs alone.")]
FinishOn = Annotated[
    Literal["cpu", "device"], typer.Option("--finish-on", help="Where the trainer does the transforms that the cut leaves it.")
]

BundlePath = Annotated[
    Path | None,
    typer.Option("--bundle", metavar="PATH", help="Write the worker with its local modules to a folder too, or to one .pyz file."),
]


def _compiled(script: Path, streams: int | None, model_prefix: bool = False, finish_on: str = "cpu") -> Plan:
    """The plan of a script. Its findings are printed; ends with status 3 when nothing can be split."""
    from splitter import console
    from splitter.compile import compile_script

    plan = compile_script(script, streams=streams, model_prefix=model_prefix, on_device=finish_on == "device")
    print(console.findings(plan, str(folder_of(script)), colour=sys.stderr.isatty()), end="", file=sys.stderr)
    return plan


def _how(samples: int, price: float | None, again: bool) -> Weighing:
    from splitter.compile import Weighing

    return Weighing(samples=samples, price=price, again=again)


def _weighed(plan: Plan, script: Path, args: list[str] | None, how: Weighing, out: Path, child: Child | None) -> Plan:
    """The plan with the cheapest cut, chosen by running samples; a line for each loader whose samples can't be run."""
    from splitter import console
    from splitter.compile import weigh
    from splitter.finish_on import on_cpu
    from splitter.prefix_choice import choices
    from splitter.progress import sampling

    if not sys.platform.startswith("linux"):
        print("splitter: note: samples are run on Linux only; the cut stays at the loader", file=sys.stderr)
        return choices(plan)[-1]
    with sampling() as progress:
        made = weigh(plan, script, args or (), how, out, progress, child)
    print(console.weighed(plan, made, str(folder_of(script)), colour=sys.stderr.isatty()), end="", file=sys.stderr)
    for feed in made.feeds:
        if feed.uncut is not None:
            print(console.printable(f"splitter: note: {feed.name}: the cut stays at the loader: {feed.uncut}"), file=sys.stderr)
    for name, why in on_cpu(made):
        print(console.printable(f"splitter: note: {name}: finished on the CPU: {why}"), file=sys.stderr)
    return made


def _nothing_split(plan: Plan) -> typer.Exit:
    count = len(plan.feeds)
    what = {0: "there is no loader", 1: "the loader stays as it is"}.get(count, f"all {count} loaders stay as they are")
    print(f"splitter: nothing was split, {what}; no file was written", file=sys.stderr)
    return typer.Exit(NOTHING_SPLIT)


@app.callback(invoke_without_command=True)
def main(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)] = False,
) -> None:
    if version:
        print(f"splitter {splitter.__version__}")
        raise typer.Exit(DONE)


@app.command()
@reported
def transform(
    script: Script,
    args: Args = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Write here, not beside the script.")] = None,
    diff: Annotated[bool, typer.Option("--diff", help="Show what changes in the script, on standard output.")] = False,
    streams: Streams = None,
    json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON, and nothing else there.")] = False,
    bundle: BundlePath = None,
    static: Static = False,
    samples: Samples = 16,
    price: Price = None,
    again: Again = False,
    model_prefix: ModelPrefix = False,
    finish_on: FinishOn = "cpu",
) -> None:
    """Write the worker and trainer programs of SCRIPT, with a report, beside it."""
    if diff and json:
        raise typer.BadParameter("--diff and --json both want standard output; give one of them")
    if bundle is not None and bundle.resolve() in {script.parent.resolve(), (out or script.parent).resolve()}:
        raise typer.BadParameter(f"--bundle {bundle}: give another folder than the one of the script or of the generated files")
    _not_static(static, model_prefix, finish_on)
    folder = script.parent if out is None else out
    from splitter.trace_process import early

    with early(script, args or (), folder, not static, again) as child:
        plan = _compiled(script, streams, model_prefix, finish_on)
        if plan.split and not static:
            plan = _weighed(plan, script, args, _how(samples, price, again), folder, child)
    from splitter import console
    from splitter.diff import coloured
    from splitter.emit import emit
    from splitter.plan_json import plan_json
    from splitter.run import relative
    from splitter.write import write

    emitted = emit(plan, None if out is None else relative(script.parent, out))
    if plan.split:
        write(emitted, folder)
    bundled = _write_bundle(plan, script.parent, bundle) if plan.split and bundle is not None else ""
    if json:
        print(plan_json(plan), end="")
    if not plan.split:
        raise _nothing_split(plan)
    if diff:
        _print_diff(emitted.diff, coloured)
    if not json:
        stream = sys.stderr if diff else sys.stdout
        console.table(plan, str(folder_of(script)), stream)
        names = ", ".join(file.name for file in emitted.files)
        where = "" if folder == Path() else f" to {folder}"
        print(console.printable(f"wrote {names}{where}{bundled}"), file=stream)


def _write_bundle(plan: Plan, root: Path, path: Path) -> str:
    """Write the bundle, say what it lacks, and return what was written, for the last line of `transform`."""
    from splitter import console
    from splitter.bundle import bundle, write_bundle

    bundled = bundle(plan, root)
    write_bundle(plan, bundled, path)
    for place in bundled.reads_file:
        said = f"{place} reads __file__, which is inside {path} there; files that it finds by it are not in the bundle"
        print(console.printable(f"splitter: note: {said}"), file=sys.stderr)
    return f"; {', '.join(file.name for file in bundled.files)} to {path}"


def _print_diff(diff: str, coloured: Callable[[str], object]) -> None:
    if not sys.stdout.isatty():
        print(diff, end="")
        return
    from rich.console import Console

    Console(highlight=False, soft_wrap=True).print(coloured(diff), end="")


@app.command()
@reported
def check(
    scripts: Annotated[list[Path], typer.Argument(metavar="SCRIPT...", help="The training scripts.")],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Where the generated files are, if not beside the script.")
    ] = None,
    streams: Streams = None,
) -> None:
    """Say whether the generated files of each SCRIPT are current; print what `transform` would change in them."""
    statuses = set()
    for script in scripts:
        try:
            _check_one(script=script, out=out, streams=streams)
        except typer.Exit as ended:
            if ended.exit_code == INTERRUPTED:
                raise
            statuses.add(ended.exit_code)
    raise typer.Exit(next(status for status in (BAD_INPUT, NOT_CURRENT, NOTHING_SPLIT, DONE) if status in statuses))


@reported
def _check_one(*, script: Path, out: Path | None, streams: int | None) -> None:
    """Ends with the status of one script."""
    from splitter import console
    from splitter.compile import compile_script, weighed_before
    from splitter.current import compare
    from splitter.emit import emit
    from splitter.profile import asked_for_device, asked_for_prefix
    from splitter.run import relative

    folder = script.parent if out is None else out
    prefix, device = asked_for_prefix(script, folder), asked_for_device(script, folder)
    plan = weighed_before(compile_script(script, streams=streams, model_prefix=prefix, on_device=device), folder)
    if not plan.split:
        print(console.findings(plan, str(folder_of(script)), colour=sys.stderr.isatty()), end="", file=sys.stderr)
        print(console.printable(f"splitter: {script}: no loader can be split any more"), file=sys.stderr)
        raise typer.Exit(NOTHING_SPLIT)
    emitted = emit(plan, None if out is None else relative(script.parent, out))
    try:
        found = compare(emitted, script.parent if out is None else out)
    except OSError as error:
        raise typer.BadParameter(f"can't read {error.filename}: {error.strerror}") from None
    if not found:
        print(console.printable(f"{script}: the generated files are current"))
        raise typer.Exit(DONE)
    sys.stdout.flush()
    sys.stdout.buffer.write(found.diff.encode("utf-8", "surrogateescape"))
    sys.stdout.buffer.flush()
    print(console.printable(f"splitter: {script}: {found}; run splitter transform again"), file=sys.stderr)
    raise typer.Exit(NOT_CURRENT)


@app.command()
@reported
def run(script: Script, args: Args = None, workers: Workers = None, streams: Streams = None) -> None:
    """Split SCRIPT in a temporary place and run it with workers on this machine."""
    _linux_only()
    from splitter.run import execute, leave, temporary

    plan = _compiled(script, streams)
    if not plan.split:
        raise _nothing_split(plan)
    environment = dict(os.environ) if workers is None else {**os.environ, "SPLITTER_WORKERS": workers}
    with temporary(plan, script.parent) as trainer:
        status = execute(trainer, args or (), environment)
    raise typer.Exit(leave(status))


@app.command()
@reported
def verify(
    script: Script,
    args: Args = None,
    batches: Annotated[int, typer.Option("--batches", min=1, metavar="K", help="Batches of a loader to compare.")] = 24,
    epochs: Annotated[int, typer.Option("--epochs", min=1, metavar="E", help="Epochs of a loader to compare.")] = 1,
    workers: Workers = None,
    streams: Streams = None,
    static: Static = False,
    samples: Samples = 16,
    price: Price = None,
    model_prefix: ModelPrefix = False,
    finish_on: FinishOn = "cpu",
) -> None:
    """Run SCRIPT and its split side by side and compare batches and random-number generators."""
    _linux_only()
    _not_static(static, model_prefix, finish_on)
    from splitter.trace_process import early

    with early(script, args or (), script.parent, not static) as child:
        plan = _compiled(script, streams, model_prefix, finish_on)
        if not plan.split:
            raise _nothing_split(plan)
        if not static:
            plan = _weighed(plan, script, args, _how(samples, price, False), script.parent, child)
    from splitter.head_text import recorded
    from splitter.run import temporary
    from splitter.verify import verify as compare

    with temporary(plan, script.parent) as trainer:
        result = compare(
            script,
            trainer,
            args or (),
            batches=batches,
            epochs=epochs,
            workers=workers,
            python=sys.executable,
            package=plan.package,
            heads=recorded(plan, script.parent),
            moved=plan.prefix.moved if plan.prefix is not None else None,
        )
    print(result)
    raise typer.Exit(DONE if result.identical else INTERNAL)


@app.command()
@reported
def show(
    script: Script,
    after: Annotated[str, typer.Option("--after", metavar="STEP", help="read, find, effects, slice, trace, cut or emit.")],
    args: Args = None,
    streams: Streams = None,
    samples: Samples = 16,
    price: Price = None,
    finish_on: FinishOn = "cpu",
) -> None:
    """Print what the compiler knows about SCRIPT after one of its steps; trace and cut run samples, with ARGS."""
    from splitter.show import RUN, STEPS, show_weighed
    from splitter.show import show as shown

    if after not in STEPS:
        raise typer.BadParameter(f"there is no step {after!r}; the steps are {', '.join(STEPS)}")
    if after not in RUN:
        print(shown(script, after, streams=streams), end="")
        return
    from splitter.trace_process import early

    with early(script, args or (), script.parent) as child:
        plan = _compiled(script, streams, finish_on=finish_on)
        if not plan.split:
            raise _nothing_split(plan)
        plan = _weighed(plan, script, args, _how(samples, price, False), script.parent, child)
    print(show_weighed(plan, after), end="")


@app.command()
@reported
def explain(code: Annotated[str, typer.Argument(metavar="CODE", help="A code such as S303 or R101.")]) -> None:
    """Say what a code means and what to do about it."""
    from splitter import console

    text = console.explained(code.upper())
    if text is None:
        raise typer.BadParameter(f"there is no code {code}; there are {', '.join(console.known_codes())}")
    print(text, end="")


@app.command()
@reported
def top(
    workers: Annotated[str, typer.Argument(metavar="HOST:PORT,...", help="Workers to look at.")],
    once: Annotated[bool, typer.Option("--once", help="Print one table and end.")] = False,
) -> None:
    """Watch workers: a live table of sessions, streams, batches per second, queue and memory.

    Token and certificates are taken from the environment, as the trainer does.
    """
    from splitter.top import AddressError, watch
    from splitter_runtime.errors import ConfigError

    try:
        answered = watch(workers, os.environ, once=once)
    except AddressError as error:
        raise typer.BadParameter(str(error)) from None
    except ConfigError as error:
        print(f"splitter: {error}", file=sys.stderr)
        raise typer.Exit(BAD_INPUT) from None
    raise typer.Exit(DONE if answered else INTERNAL)


def _not_static(static: bool, model_prefix: bool, finish_on: str) -> None:
    for given, name in ((model_prefix, "--model-prefix"), (finish_on == "device", "--finish-on device")):
        if static and given:
            raise typer.BadParameter(f"{name} is checked on samples, and --static runs none; give one of them")


def _linux_only() -> None:
    if not sys.platform.startswith("linux"):
        print("splitter: split programs run on Linux only; `splitter transform` works here too", file=sys.stderr)
        raise typer.Exit(BAD_INPUT)
