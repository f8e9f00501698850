"""What came of the model prefix when samples ran, for the plan and for people.

every feed kept its bits      the plan as it is: 64 bytes a sample cross instead of 40
one bit was another           the plan without the prefix, and a note: S425
"""

from __future__ import annotations

from dataclasses import replace

from splitter.ir import Diagnostic, Fragment, Plan, Span
from splitter.ir_cut import Profile
from splitter.prefix_json import tried_of
from splitter.prefix_types import Prefix
from splitter.splice import Grid

WAY = "keep it to operations on integers, casts, look-ups and layout, whose bits are the same everywhere"


def choices(plan: Plan) -> list[Plan]:
    """The plan, and those to take in its place when bits differ: with less and less of forward, at last with nothing of it."""
    return [plan] if plan.without is None else [plan, *choices(plan.without)]


def settled(plan: Plan, profile: Profile) -> Plan:
    """The plan with as much of forward on the worker as was seen to give the same there, on a batch of every feed that the model gets.

    Why it is not more is a finding, S425, of the plan that is chosen.
    """
    note: tuple[Diagnostic, ...] = ()
    for choice in choices(plan):
        reason = _reason(plan, choice, profile)
        if reason is None:
            return replace(choice, diagnostics=(*choice.diagnostics, *note))
        note = note or (reason,)
    raise AssertionError("a plan without a prefix has no reason against it")


def unless_finished(plan: Plan, moved: Plan, plain: Plan) -> Plan:
    """The plan with the prefix moved; the one without when that has the trainer finish samples that the model gets: they are smaller."""
    if moved.prefix is None:
        return moved
    finished = _builders(moved) & {handle.builder for handle in plain.handles if handle.finish is not None}
    if not finished:
        return moved
    why = f"the trainer finishes the samples of `{min(finished)}`, which are larger then, and forward needs them finished"
    way = "do the last transforms in forward, too, or make crossing cheaper (--price)"
    return replace(plain, diagnostics=(*plain.diagnostics, _finding(plan, moved.prefix, why, way=way)))


def _builders(plan: Plan) -> set[str]:
    """The datasets whose samples the model gets through its prefix."""
    return {plan.builder_of(feed) for feed in plan.feeds if plan.prefix is not None and feed.name in plan.prefix.moved}


def _reason(plan: Plan, choice: Plan, profile: Profile) -> Diagnostic | None:
    """Why a choice can't be made; None when it can."""
    if choice.prefix is None:
        return None
    tried, reasons = tried_of(replace(choice, profile=profile)), dict(profile.reasons)
    for feed in choice.prefix.feeds:
        found = tried.get(feed.feed)
        if found is None:
            why = reasons.get(feed.feed, "the script did not iterate a loader in time")
            return _finding(plan, choice.prefix, f"no batch of `{feed.feed}` was seen: {why}", way="make the model before the first loop")
        if found.reason is not None:
            return _finding(plan, choice.prefix, found.reason, found.where)
    return None


def _finding(plan: Plan, prefix: Prefix, why: str, line: int = 0, way: str = WAY) -> Diagnostic:
    body = prefix.body
    text = next(source.text for source in (plan.script, *plan.modules) if source.path == body.path)
    grid, number = Grid(text), line or body.first
    span = Span(body.path, number, len(grid.indent(number)), number, len(grid.line(number)))
    return Diagnostic("S425", span, (("why", why), ("way", way)))


def bytes_line(plan: Plan, prefix: Prefix) -> str:
    """`40 bytes a sample cross as `features`, 64 as `rows`.` for each feed; empty when no sample ran."""
    tried = tried_of(plan)
    found = [(feed.feed, tried[feed.feed]) for feed in prefix.feeds if feed.feed in tried]
    said = {(each.before, each.after) for _, each in found}
    if not found:
        return ""
    before, after = (", ".join(f"`{name}`" for name in sorted(names)) for names in zip(*((p, r) for r, p in prefix.results), strict=True))
    if len(said) == 1:
        (one, other), *_ = said
        return f"{other:,} bytes a sample cross as {after}, where {before} took {one:,}"
    each = (f"{other.after:,} where it took {other.before:,} (`{name}`)" for name, other in found)
    return f"bytes a sample that cross as {after} in the place of {before}: {', '.join(each)}"


def prefix_line(plan: Plan) -> str:
    """What moved, in one line."""
    prefix = plan.prefix
    if prefix is None:
        return ""
    where: Fragment = prefix.body
    said = bytes_line(plan, prefix)
    return f"the start of {prefix.owner}.forward ({where}) runs on the worker{f'; {said}' if said else ''}"
