"""What came of the model prefix when samples ran, for the plan and for people.

every feed kept its bits      the plan as it is: 64 bytes a sample cross instead of 40
one bit was another           the plan without the prefix, and a note: S425
"""

from __future__ import annotations

from dataclasses import replace

from splitter.ir import Diagnostic, Fragment, Plan, Profile, Span, Tail
from splitter.prefix_json import tried_of
from splitter.prefix_types import Prefix
from splitter.splice import Grid


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
            return replace(choice, diagnostics=(*choice.diagnostics, *note), tails=_free_tails(choice))
        note = note or (reason,)
    raise AssertionError("a plan without a prefix has no reason against it")


def _free_tails(plan: Plan) -> tuple[Tail, ...]:
    """The tails that the trainer may still run: what the worker gives to forward has to be finished."""
    fed = {name for feed in plan.feeds for name in [plan.builder_of(feed)] if plan.prefix is not None and feed.name in plan.prefix.moved}
    return tuple(tail for tail in plan.tails if tail.builder not in fed)


def _reason(plan: Plan, choice: Plan, profile: Profile) -> Diagnostic | None:
    """Why a choice can't be made; None when it can."""
    if choice.prefix is None:
        return None
    tried, reasons = tried_of(replace(choice, profile=profile)), dict(profile.reasons)
    for feed in choice.prefix.feeds:
        found = tried.get(feed.feed)
        if found is None:
            why = reasons.get(feed.feed, "the script did not iterate a loader in time")
            return _finding(plan, choice.prefix, f"no batch of `{feed.feed}` was seen: {why}", 0)
        if found.reason is not None:
            return _finding(plan, choice.prefix, found.reason, found.where)
    return None


def _finding(plan: Plan, prefix: Prefix, why: str, line: int) -> Diagnostic:
    body = prefix.body
    text = next(source.text for source in (plan.script, *plan.modules) if source.path == body.path)
    grid, number = Grid(text), line or body.first
    span = Span(body.path, number, len(grid.indent(number)), number, len(grid.line(number)))
    return Diagnostic("S425", span, (("why", why),))


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
