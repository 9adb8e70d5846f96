"""Summarizes reads and writes by dataset name, and by pool."""

from __future__ import annotations

from collections.abc import Sequence

from zfstrace.host import Host
from zfstrace.read import ReadCounts, ReadRow
from zfstrace.summary import NAMELESS_NOTE, OTHERS_NOTE, Key, Span, latency, name_of, wanted
from zfstrace.types import OTHERS


def pool_sum(counts: Sequence[ReadCounts], host: Host, pool: str) -> ReadCounts:
    """The sum of a pool's datasets, and of what belongs to no known pool."""
    total = ReadCounts(pool, 0, (0, 0), False)
    for one in counts:
        if one.busy and wanted(name_of(one, host, pool), pool, None):
            total = total.merge(one)
    return total


def rows(
    counts: Sequence[ReadCounts],
    host: Host,
    span: Span,
    pool: str | None = None,
    dataset: str | None = None,
    *,
    timed: bool = True,
) -> list[ReadRow]:
    """A row for each dataset with reads or writes, by pool, busiest first. Limited to a pool or
    dataset when given; what has no name is included."""
    found: dict[Key, ReadCounts] = {}
    for one in counts:
        key = name_of(one, host, pool)
        if one.busy and wanted(key, pool, dataset):
            found[key] = found[key].merge(one) if key in found else one
    made = [_row(key, one, span, timed) for key, one in found.items()]
    return sorted(made, key=_order)


def _order(row: ReadRow) -> tuple[bool, str, int, int, str]:
    busy_ns = sum(
        one.mean * n for one, n in ((row.read, row.reads), (row.write, row.writes)) if one
    )
    return row.pool is None, row.pool or "", -busy_ns, -row.reads - row.writes, row.dataset


def _row(key: Key, one: ReadCounts, span: Span, timed: bool) -> ReadRow:
    reads = one.hit.merge(one.miss)
    name = key[1] or ""
    return ReadRow(
        span.time,
        span.duration_ns,
        key[0],
        name,
        reads.count,
        reads.size,
        one.hit.count if timed else None,
        one.miss.count if timed else None,
        one.hit.count / reads.count if timed and reads.count else None,
        latency(reads.latency),
        latency(one.hit.latency),
        latency(one.miss.latency),
        one.miss.size if timed else None,
        one.write.count,
        one.write.size,
        latency(one.write.latency),
        one.held if timed else None,
        one.held_ns if timed else None,
        one.errors if timed else None,
        "trace" if timed else "kstat",
        OTHERS_NOTE if name == OTHERS else NAMELESS_NOTE if name[:1] == "<" else None,
        span.losses,
    )
