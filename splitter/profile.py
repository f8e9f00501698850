"""What was recorded of a script's feeds: run now, or read from the plan that stands beside its split.

    transform train.py -- DIR      runs 16 samples of each loader, and keeps what it saw in train_split.json
    transform train.py -- DIR      again: text, arguments and versions are the same, so nothing is run
    check train.py                 the same, whatever the arguments were

So two transforms of one text give the same files, though no two runs take the same time.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os.path
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from splitter.graph_json import graph_from, graph_json
from splitter.ir import Plan
from splitter.ir_cut import Profile, Tried, TriedHead
from splitter.prefix_choice import choices
from splitter.prefix_json import tried_from

LIBRARIES = ("torch", "torchvision", "numpy", "Pillow")


def profile_key(plan: Plan, arguments: Sequence[str], samples: int) -> str:
    """What a profile is of: text, arguments, samples, versions."""
    versions = []
    for library in LIBRARIES:
        try:
            versions.append(importlib.metadata.version(library))
        except importlib.metadata.PackageNotFoundError:
            versions.append("")
    parts = [plan.digest, sys.version, *versions, str(samples), *arguments]
    return f"sha256:{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]}"


def stored(plan: Plan, out: Path) -> Profile | None:
    """The profile in the plan that was written to `out` for this text; None when there is none, or none that can be read."""
    stem = os.path.splitext(os.path.basename(plan.script.path))[0]
    try:
        value = json.loads((out / f"{stem}_split.json").read_bytes())
        fields = value["profile"]
        if value["digest"] not in [each.digest for each in choices(plan)] or fields is None:
            return None
        feeds = tuple((name, graph_from(feed["graph"]), tuple(map(_tried_from, feed["tails"]))) for name, feed in fields["feeds"].items())
        reasons = tuple((str(name), str(reason)) for name, reason in fields["reasons"].items())
        heads = tuple((str(name), _head_from(head)) for name, head in fields["heads"].items())
        prefix = tuple((str(name), tuple(map(tried_from, tried))) for name, tried in fields.get("model_prefix", {}).items())
        return Profile(str(fields["key"]), float(fields["price"]), feeds, reasons, heads, prefix)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def asked_for_prefix(script: Path, out: Path) -> bool:
    """Whether the split in `out` was written with --model-prefix."""
    try:
        return "model_prefix" in json.loads((out / f"{script.stem}_split.json").read_bytes())
    except (OSError, ValueError, TypeError):
        return False


def asked_for_device(script: Path, out: Path) -> bool:
    """Whether the split in `out` was written with --finish-on device."""
    try:
        return bool(json.loads((out / f"{script.stem}_split.json").read_bytes())["finish_on"] == "device")
    except (OSError, ValueError, TypeError, KeyError):
        return False


def profile_json(profile: Profile | None) -> dict[str, object] | None:
    """A profile as plain data, for train_split.json."""
    if profile is None:
        return None
    feeds = {name: {"graph": graph_json(graph), "tails": [_tried_json(each) for each in tried]} for name, graph, tried in profile.feeds}
    heads = {name: {"batch": head.batch, "stay": [list(one) for one in head.stay]} for name, head in profile.heads}
    prefix = {"model_prefix": {name: [asdict(each) for each in tried] for name, tried in profile.prefix}} if profile.prefix else {}
    fields = {"key": profile.key, "price": profile.price, "feeds": feeds, "reasons": dict(profile.reasons), "heads": heads}
    return {**fields, **prefix}


def _head_from(fields: dict[str, object]) -> TriedHead:
    batch, stay = fields["batch"], fields["stay"]
    if not isinstance(batch, str) or not isinstance(stay, list):
        raise ValueError("a head that isn't one")
    return TriedHead(batch, tuple((int(number), str(why)) for number, why in stay))


def _tried_json(tried: Tried | None) -> dict[str, object] | None:
    if tried is None:
        return None
    device = [list(each) for each in tried.device]
    return {"template": tried.template, "whole": list(tried.whole), "half": list(tried.half), "arrays": tried.arrays, "device": device}


def _tried_from(fields: dict[str, object] | None) -> Tried | None:
    if fields is None:
        return None
    template, whole, half = fields["template"], fields["whole"], fields["half"]
    if not isinstance(template, str) or not isinstance(whole, list) or not isinstance(half, list):
        raise ValueError("a tail that isn't one")
    device = fields["device"]
    if not isinstance(device, list):
        raise ValueError("a tail that isn't one")
    seen = tuple((int(first), bool(halved), str(why)) for first, halved, why in device)
    return Tried(template, tuple(map(int, whole)), tuple(map(int, half)), bool(fields["arrays"]), seen)
