"""speedscope's JSON: one profile of type "sampled", each stack once with its weight."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from zfstrace.flame.errors import FlameError
from zfstrace.stacks import KINDS, UNKNOWN, Stacks, fold, unfold
from zfstrace.strict import strict_zip

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_SCALES = {"nanoseconds": 1, "microseconds": 1_000, "milliseconds": 10**6, "seconds": 10**9}
# The format has no field for the kind: it is in the free text that names the exporter.
_EXPORTER = "zfstune flame, "


def dump(stacks: Stacks) -> Iterator[str]:
    """The file, in pieces."""
    ids: dict[str, int] = {}
    order = sorted(stacks.counts)
    for stack in order:
        for name in unfold(stack):
            ids.setdefault(name, len(ids))
    head = {
        "$schema": _SCHEMA,
        "name": stacks.title,
        "exporter": _EXPORTER + stacks.kind,
        "activeProfileIndex": 0,
        "shared": {"frames": [{"name": name} for name in ids]},
    }
    profile = {
        "type": "sampled",
        "name": stacks.title,
        "unit": "nanoseconds" if stacks.unit == "ns" else "none",
        "startValue": 0,
        "endValue": stacks.total,
        "weights": [stacks.counts[stack] for stack in order],
    }
    yield json.dumps(head)[:-1] + ',\n"profiles": [' + json.dumps(profile)[:-1] + ', "samples": ['
    for i, stack in enumerate(order):
        numbers = ",".join([str(ids[name]) for name in unfold(stack)])
        yield f"{',' if i else ''}\n[{numbers}]"
    yield "\n]}]}\n"


def load(text: str, name: str) -> Stacks:
    """The sum of all sampled profiles of a file. Times become ns, other units samples. Raises
    FlameError."""
    try:
        file = json.loads(text)
        profiles = [p for p in file["profiles"] if p["type"] == "sampled"]
        if not profiles:
            raise FlameError(
                f"cannot read {name}: it has no profile of type sampled", "export it as folded"
            )
        units = {profile["unit"] for profile in profiles}
        if len(units) > 1:
            raise FlameError(
                f"cannot read {name}: its profiles have different units", "keep those with one unit"
            )
        unit = units.pop()
        return Stacks(
            kind=_kind(file.get("exporter")),
            unit="ns" if unit in _SCALES else "samples",
            title=str(file.get("name") or profiles[0].get("name") or ""),
            counts=_counts(file["shared"]["frames"], profiles, _SCALES.get(unit, 1)),
        )
    except (
        ValueError,
        KeyError,
        IndexError,
        TypeError,
        AttributeError,
        RecursionError,
        OverflowError,
    ) as error:
        why = f"{type(error).__name__} {error}"
        raise FlameError(f"{name} is not a speedscope file: {why}") from None


def _kind(exporter: object) -> str:
    match = re.fullmatch(re.escape(_EXPORTER) + "(.*)", str(exporter))
    return match[1] if match and match[1] in KINDS else "other"


def _counts(frames: list[Any], profiles: list[Any], scale: int) -> dict[str, int]:
    names = [fold([str(frame["name"])]) for frame in frames]
    counts: dict[str, float] = {}
    for profile in profiles:
        samples, weights = profile["samples"], profile["weights"]
        for sample, weight in strict_zip(samples, weights):
            if min(sample, default=0) < 0:
                raise ValueError("a frame has a negative number")
            stack = ";".join([names[i] for i in sample]) or UNKNOWN
            counts[stack] = counts.get(stack, 0) + weight * scale
    return {stack: round(weight) for stack, weight in counts.items() if round(weight) > 0}
