"""What of an interval's rows is kept: a bounded number, without what is the same in each.

A host can have thousands of datasets, and of processes that wait. The views give the busiest first,
and txgs as they end.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from zfstrace.types import OTHERS, Json
from zfstune.record.triggers import Rows
from zfstune.term.units import MS

# A single fsync or commit that takes this long is reported.
SLOW_NS = 100 * MS
# Of each view and interval.
MOST_ROWS: Mapping[str, int] = {"txg": 32, "throttle": 16, "device": 64}
MOST = 24
# Single operations: the slowest.
MOST_SLOW = 50
_SLOW = ("slow_fsync", "light_window")
# Pools with a sum of the processes that are not among the rows.
_MOST_SUMS = 8
# Of each row, and long: which probes there are, and buckets that nobody adds up again. lost is the
# sum of losses.
_LEFT = frozenset(("probes", "histogram", "losses"))
_DIGITS = 4


@dataclass(frozen=True)
class Pick:
    """left_out is how many rows of each view are not among the records."""

    records: Sequence[Json]
    left_out: Mapping[str, int] = field(default_factory=dict)


def picked(rows: Rows) -> Pick:
    """The rows of one interval, smaller and no more than a few."""
    records: list[Json] = []
    left_out: dict[str, int] = {}
    slow: list[Json] = []
    for view, found in rows.items():
        most = MOST_ROWS.get(view, MOST)
        plain = [row for row in found if row.get("type") not in _SLOW]
        slow += [row for row in found if row.get("type") in _SLOW]
        kept = _summed(plain, most) if view == "throttle" else _first(plain, most)
        records += map(compact, kept)
        if len(kept) < len(plain) and view != "throttle":
            left_out[view] = len(plain) - len(kept)
    slowest = heapq.nlargest(MOST_SLOW, slow, key=_took)
    if len(slowest) < len(slow):
        left_out["single operations"] = len(slow) - len(slowest)
    return Pick([*records, *map(compact, slowest)], left_out)


def _first(rows: Sequence[Json], most: int) -> Sequence[Json]:
    """At most so many: pools before datasets, since each has its datasets' sum; of txgs those with
    the longest syncs."""
    if len(rows) <= most:
        return rows
    if rows[0].get("type") == "txg":
        return heapq.nlargest(most, rows, key=lambda row: row.get("sync_ns") or 0)
    return sorted(rows, key=lambda row: bool(row.get("dataset")))[:most]


def _summed(rows: Sequence[Json], most: int) -> Sequence[Json]:
    """So many processes that waited for the throttle, and for each pool the sum of the others: how
    many threads it holds up is in the sum of all. p50 and p99 are the highest of theirs."""
    sums: dict[str, Json] = {}
    for row in rows[most:]:
        pool = row["pool"] if row["pool"] in sums or len(sums) < _MOST_SUMS else ""
        one = sums.get(pool)
        if one is None:
            sums[pool] = {**row, "pool": pool, "pid": 0, "comm": OTHERS}
        else:
            sums[pool] = {**one, **_both(one, row)}
    return [*rows[:most], *sums.values()]


def _both(one: Json, other: Json) -> Json:
    def sum_of(kind: str, what: str, mine: int) -> int:
        its: int = other["kinds"][kind][what]
        return max(mine, its) if what == "max_ns" else mine + its

    kinds = {
        kind: {what: sum_of(kind, what, n) for what, n in values.items()}
        for kind, values in one["kinds"].items()
    }
    sums = {name: one[name] + other[name] for name in ("count", "total_ns")}
    highest = {name: max(one[name], other[name]) for name in ("p50", "p99", "max")}
    return {**sums, **highest, "kinds": kinds}


def _took(row: Json) -> int:
    return int(row.get("total_ns") or (row.get("cause") or {}).get("total_ns") or 0)


def compact(row: Json) -> Json:
    """The row without what is long, and with shares of four digits."""
    return {name: _short(value) for name, value in row.items() if name not in _LEFT}


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, _DIGITS)
    if isinstance(value, dict):
        return {name: _short(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_short(one) for one in value]
    return value
