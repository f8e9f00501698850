"""The compiler, as a table of contents.

train.py -> read -> find -> plan (effects, slice) -> weigh (trace, cut, finish, finish_on) -> emit -> worker, trainer, report
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from splitter.find import find
from splitter.ir import Plan
from splitter.ir_cut import Profile
from splitter.plan import plan
from splitter.read import read

if TYPE_CHECKING:
    from splitter.trace import Progress
    from splitter.trace_process import Child


def compile_script(script: Path, *, streams: int | None = None, model_prefix: bool = False, on_device: bool = False) -> Plan:
    """Read a script and decide what of it goes where. Writes nothing and runs nothing of the script.

    Args:
        script: the program that starts the training.
        streams: treat loaders with num_workers=0 as if the script had said num_workers=streams.
        model_prefix: move the start of the model's forward as well; `weigh` checks it on samples, and takes it back where bits differ.
        on_device: have batches finished on their device, where `weigh` leaves something of them to the trainer and the loops allow it.

    Raises:
        InputError: the script can't be read (S101-S103).
    """
    program = read(script)
    found = find(program)
    return plan(found, streams=streams, model_prefix=model_prefix, on_device=on_device)


@dataclass(frozen=True)
class Weighing:
    """How to record and cut. `samples` of each feed within `seconds`; `price` of a KiB, in trainer-microseconds (None: the default)."""

    samples: int = 16
    seconds: float = 20.0
    price: float | None = None
    again: bool = False  # also when there is a profile


def weigh(
    plan: Plan, script: Path, arguments: Sequence[str], how: Weighing, out: Path, progress: Progress, waiting: Child | None = None
) -> Plan:
    """Run samples of the script's own code, in a process of its own, and cut each feed where it costs least. `out`: the split's folder.

    A profile in `out` is taken when it is of this text, these arguments, samples and library versions, and complete. Feeds that can't be
    run stay cut at the loader, and say why in `Feed.uncut`. `waiting` is a child of `trace` that has been started before, if any.
    """
    # Not at the top: networkx is a large import, and other commands need no cut. Here, and not later, since a child is busy now.
    from splitter.cut import DEFAULT_PRICE
    from splitter.profile import profile_key, stored
    from splitter.trace import trace

    price = DEFAULT_PRICE if how.price is None else how.price
    key = profile_key(plan, arguments, how.samples)
    known = None if how.again else stored(plan, out)
    seen = known is not None and (plan.prefix is None or bool(known.prefix))
    if known is not None and seen and known.key == key and not known.reasons:
        return _chosen(plan, replace(known, price=price))
    traced = trace(plan, script, arguments, samples=how.samples, seconds=how.seconds, progress=progress, waiting=waiting)
    split = {feed.name for feed in plan.feeds if feed.status == "split"}
    feeds = tuple((name, feed.graph, feed.tried) for name, feed in traced.feeds if feed.graph is not None)
    reasons = tuple((name, reason) for name, reason in traced.reasons.items() if name in split)
    heads = tuple((name, feed.head) for name, feed in traced.feeds if feed.graph is not None and feed.head is not None)
    return _chosen(plan, Profile(key, price, feeds, reasons, heads, traced.prefix))


def _chosen(plan: Plan, profile: Profile) -> Plan:
    """The plan with the cheapest cut, as much of the model's forward on the worker as may be there, and finished where that was asked."""
    made = _cut(plan, profile)
    if plan.finish_on == "cpu":
        return made
    from splitter.finish_on import finish_on_device

    return finish_on_device(made)


def _cut(plan: Plan, profile: Profile) -> Plan:
    from splitter.finish import parted
    from splitter.prefix_choice import choices, settled, unless_finished

    if plan.prefix is None:
        return parted(plan, profile)
    return unless_finished(plan, parted(settled(plan, profile), profile), parted(choices(plan)[-1], profile))


def weighed_before(plan: Plan, out: Path) -> Plan:
    """The plan as `weigh` has made it when it wrote to `out`; as it is when it hasn't. Runs nothing."""
    from splitter.prefix_choice import choices
    from splitter.profile import stored

    profile = stored(plan, out)
    if profile is None:
        return choices(plan)[-1]
    return _chosen(plan, profile)
