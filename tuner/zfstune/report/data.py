"""The numbers in a session's JSON for the report and the table; any part of it may be absent."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from zfstrace.hist import Hist, index
from zfstrace.types import Json
from zfstune.experiment.objective import Objective

SIDES = (("before", "A"), ("after", "B"))


@dataclass(frozen=True)
class Pair:
    """Two adjacent blocks, one under each set of values. ratio is after / before."""

    phase: str
    trial: int | None
    ratio: float


def finite(value: object) -> float | None:
    """The value as a finite number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        found = float(value)
    except OverflowError:  # a whole number of hundreds of digits
        return None
    return found if math.isfinite(found) else None


def listed(session: Json, name: str) -> list[Json]:
    """The objects in the list with this name; [] without such a list."""
    found = session.get(name)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def mapped(session: Json, name: str) -> dict[str, Any]:
    """The object with this name; {} without one."""
    found = session.get(name)
    return found if isinstance(found, dict) else {}


def objective(session: Json) -> Objective | None:
    """The objective of the session; None if it cannot be parsed."""
    try:
        return Objective.parse(str(session.get("objective")))
    except ValueError:
        return None


def judged(session: Json, block: Json) -> float | None:
    """The value by which a block is judged, in the unit of the objective; None if unknown."""
    wanted = objective(session)
    metrics = {name: finite(value) for name, value in mapped(block, "metrics").items()}
    try:
        cost = wanted.value({k: v for k, v in metrics.items() if v is not None}) if wanted else None
    except (ValueError, OverflowError):
        return None
    if cost is None or wanted is None or not cost > 0:
        return None
    # a throughput, not its inverse
    return cost if any(one.less_is_better for one, _ in wanted.weights) else 1 / cost


def blocks(session: Json) -> list[Json]:
    """The measured blocks in order of time."""
    found = [
        one
        for one in listed(session, "blocks")
        if one.get("label") in ("A", "B") and finite(one.get("start_s")) is not None
    ]
    return sorted(found, key=lambda one: float(one["start_s"]))


def in_force(block: Json) -> str:
    """``A`` if the old values were in force, else ``B``: always A in the A/A phase, always B in the
    ablation, which compares two candidates."""
    return {"aa": "A", "ablation": "B"}.get(str(block.get("phase")), str(block["label"]))


def pairs(session: Json, phase: str) -> list[Pair]:
    """Adjacent blocks with different labels, each block in at most one pair."""
    found: list[Pair] = []
    last: Json | None = None
    for block in blocks(session):
        if block.get("phase") != phase:
            continue
        place = block.get("trial")
        if last is None or last.get("trial") != place or last["label"] == block["label"]:
            last = block
            continue
        a, b = (last, block) if last["label"] == "A" else (block, last)
        before, after = judged(session, a), judged(session, b)
        if before and after:
            found.append(Pair(phase, place, after / before))
        last = None
    return found


def typical(session: Json, metric: str | None = None) -> tuple[float | None, float | None]:
    """(before, after): a metric, by default the objective, of the median block of the confirmation;
    None where there is none."""
    found = []
    for _, label in SIDES:
        values = [
            value
            for block in blocks(session)
            if block.get("phase") == "confirm" and block["label"] == label
            if (value := _value(session, block, metric)) is not None
        ]
        found.append(median(values) if values else None)
    return found[0], found[1]


def _value(session: Json, block: Json, metric: str | None) -> float | None:
    return (
        judged(session, block) if metric is None else finite(mapped(block, "metrics").get(metric))
    )


def histogram(session: Json, side: str) -> Hist:
    """The fsyncs of the confirmation, ``before`` or ``after``; empty without any."""
    buckets: dict[int, int] = {}
    count = total = highest = 0
    for low, high, n in _rows(mapped(session, "histograms").get(side)):
        buckets[index(low)] = buckets.get(index(low), 0) + n
        count += n
        total += n * (low + high) // 2
        highest = max(highest, high)
    return Hist(count, total, highest, buckets)


def _rows(rows: object) -> Iterator[tuple[int, int, int]]:
    for row in rows if isinstance(rows, (list, tuple)) else ():
        if isinstance(row, (list, tuple)) and len(row) == 3:
            values = [finite(value) for value in row]
            if None not in values:
                low, high, n = (int(value or 0) for value in values)
                if n > 0 and high >= low >= 0:
                    yield low, high, n


def stage_times(session: Json, side: str) -> dict[str, float]:
    """Stage -> ns in the mean fsync of the confirmation; shares (of 1) if the number of fsyncs is
    unknown."""
    totals = {
        str(stage.get("name")): finite(stage.get("total_ns")) or 0.0
        for stage in listed(mapped(session, "stages"), side)
    }
    count = histogram(session, side).count
    divisor = float(count) or sum(totals.values())
    return {name: ns / divisor for name, ns in totals.items()} if divisor else {}


def phases(session: Json) -> list[tuple[str, float, float]]:
    """(phase, from, to) in seconds since the session began, in order of time."""
    found: list[tuple[str, float, float]] = []
    for block in blocks(session):
        start = float(block["start_s"])
        settle = finite(block.get("settle_s")) or 0.0
        end = start + (finite(block.get("seconds")) or 0.0)
        phase = str(block.get("phase"))
        if found and found[-1][0] == phase:
            found[-1] = (phase, found[-1][1], end)
        else:
            found.append((phase, max(0.0, start - settle), end))
    return found


def survival(hist: Hist) -> tuple[list[float], list[float]]:
    """Upper bounds of the buckets in ns, and the shares of fsyncs that took longer; ends before the
    share becomes 0."""
    times: list[float] = []
    shares: list[float] = []
    left = hist.count
    for low, high, n in hist.rows():
        if not times:
            times.append(float(max(1, low)))
            shares.append(1.0)
        left -= n
        if left <= 0:
            # the slowest fsync: its own share is the end of the curve
            times.append(float(high))
            shares.append(n / hist.count)
            break
        times.append(float(high))
        shares.append(left / hist.count)
    return times, shares


def coarse(hist: Hist, per_octave: int = 5) -> dict[int, float]:
    """Step of a logarithmic scale -> share of fsyncs; step n begins at 2^(n / per_octave) ns."""
    found: dict[int, float] = {}
    for low, high, n in hist.rows():
        step = math.floor(math.log2(max(1.0, (low + high) / 2)) * per_octave)
        found[step] = found.get(step, 0.0) + n / hist.count
    return found


def thinned(rows: Sequence[Json], most: int, by: str) -> list[Json]:
    """At most this many rows: of each stretch the one with the highest value of by, so that no peak
    is lost."""
    if len(rows) <= most:
        return list(rows)
    step = -(-len(rows) // most)
    return [
        max(rows[i : i + step], key=lambda row: finite(row.get(by)) or 0.0)
        for i in range(0, len(rows), step)
    ]
