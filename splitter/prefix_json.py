"""The model prefix as JSON can hold it, for the process that runs samples and for train_split.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from splitter.ir import Fragment, Plan, Span
from splitter.prefix_types import Constant, Prefix, PrefixFeed, PrefixTried


def prefix_fields(prefix: Prefix) -> dict[str, Any]:
    """All of a prefix; `prefix_from` reads it."""
    return asdict(prefix)


def prefix_from(fields: Mapping[str, Any]) -> Prefix:
    feeds = tuple(
        PrefixFeed(
            feed["feed"],
            tuple((name, key) for name, key in feed["places"]),
            feed["device"],
            tuple(Constant(**{**each, "span": Span(**each["span"]) if each["span"] else None}) for each in feed["constants"]),
        )
        for feed in fields["feeds"]
    )
    first, last = fields["statements"]
    results = tuple((result, parameter) for result, parameter in fields["results"])
    return Prefix(fields["rank"], fields["module"], fields["owner"], Fragment(**fields["body"]), (first, last), results, feeds)


def tried_from(fields: Mapping[str, Any]) -> PrefixTried:
    """What came of a prefix. KeyError, ValueError or TypeError when the fields are others."""
    reason = fields["reason"]
    return PrefixTried(int(fields["before"]), int(fields["after"]), None if reason is None else str(reason), int(fields["where"]))


def tried_of(plan: Plan) -> dict[str, PrefixTried]:
    """What came of a plan's prefix, by feed."""
    if plan.prefix is None or plan.profile is None:
        return {}
    return {name: tried[plan.prefix.rank] for name, tried in plan.profile.prefix if plan.prefix.rank < len(tried)}


def shown(plan: Plan) -> dict[str, object]:
    """The prefix for people and programs: {"model_prefix": {...}}, null when nothing of a model moved; nothing when nobody asked for it."""
    if plan.prefix is None:
        return {"model_prefix": None} if plan.model_prefix else {}
    prefix = plan.prefix
    tried = tried_of(plan)
    feeds = {
        feed.feed: {
            "places": dict(feed.places),
            "bytes_per_sample_before": tried[feed.feed].before if feed.feed in tried else None,
            "bytes_per_sample": tried[feed.feed].after if feed.feed in tried else None,
        }
        for feed in prefix.feeds
    }
    return {
        "model_prefix": {
            "model": prefix.owner,
            "path": prefix.body.path,
            "first_line": prefix.body.first,
            "last_line": prefix.body.last,
            "results": {parameter: result for result, parameter in prefix.results},
            "feeds": feeds,
        }
    }
