"""What came of the model prefix when samples ran, for the plan and for people.

every feed kept its bits      the plan as it is: 64 bytes a sample cross instead of 40
one bit was another           the plan without the prefix, and a note: S425
"""

from __future__ import annotations

from dataclasses import replace

from splitter.ir import Diagnostic, Fragment, Plan, Profile, Span
from splitter.prefix_types import Prefix
from splitter.splice import Grid


def settled(plan: Plan, profile: Profile) -> Plan:
    """The plan with the start of forward on the worker, when it was seen on a batch of every feed that it gives the same there."""
    if plan.prefix is None or plan.without is None:
        return plan
    tried, reasons = dict(profile.prefix), dict(profile.reasons)
    for feed in plan.prefix.feeds:
        found = tried.get(feed.feed)
        if found is None:
            return _without(
                plan, plan.without, f"of `{feed.feed}` no batch was made: {reasons.get(feed.feed, 'the script did not iterate it')}"
            )
        if found.reason is not None:
            return _without(plan, plan.without, found.reason, found.where)
    return plan


def _without(plan: Plan, plain: Plan, why: str, line: int = 0) -> Plan:
    assert plan.prefix is not None
    body = plan.prefix.body
    text = next(source.text for source in (plan.script, *plan.modules) if source.path == body.path)
    grid, number = Grid(text), line or body.first
    span = Span(body.path, number, len(grid.indent(number)), number, len(grid.line(number)))
    return replace(plain, diagnostics=(*plain.diagnostics, Diagnostic("S425", span, (("why", why),))))


def bytes_line(plan: Plan, prefix: Prefix) -> str:
    """`40 bytes a sample cross as `features`, 64 as `rows`.` for each feed; empty when no sample ran."""
    tried = dict(plan.profile.prefix) if plan.profile is not None else {}
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
