"""Summarizes the kernel's counts per slot by pool and by dataset.

A dataset may have several slots, one after the other, or a second one for operations that are known
only by their superblock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Optional

from zfstrace.hist import Hist
from zfstrace.host import Host
from zfstrace.stages import KINDS, NAMES
from zfstrace.strict import strict_zip
from zfstrace.types import (
    OTHERS,
    DatasetCounts,
    FsyncSummary,
    Identified,
    Latency,
    Losses,
    Probe,
    StageSummary,
)

OTHERS_NOTE = "datasets that found no room of their own, summed"
NAMELESS_NOTE = "the dataset was gone before its name was read"

Key = tuple[Optional[str], Optional[str]]


@dataclass(frozen=True)
class Span:
    """The common part of all summaries of an interval. time is its end, ISO 8601, UTC."""

    time: str
    duration_ns: int
    losses: Losses
    probes: tuple[Probe, ...]


def since(now: Sequence[DatasetCounts], earlier: Sequence[DatasetCounts]) -> list[DatasetCounts]:
    """What each dataset did between two states of one session, by index."""
    old = len(earlier)
    return [_subtract(d, earlier[i]) if i < old else d for i, d in enumerate(now)]


def _subtract(now: DatasetCounts, earlier: DatasetCounts) -> DatasetCounts:
    if now.total.count < earlier.total.count:
        # another dataset has the slot now
        return now
    return replace(
        now,
        commits=now.commits - earlier.commits,
        errors=now.errors - earlier.errors,
        no_zil=now.no_zil - earlier.no_zil,
        kinds=tuple(a - b for a, b in strict_zip(now.kinds, earlier.kinds)),
        total=now.total.subtract(earlier.total),
        stages=tuple(a.subtract(b) for a, b in strict_zip(now.stages, earlier.stages)),
    )


def _add(one: DatasetCounts, other: DatasetCounts) -> DatasetCounts:
    return replace(
        one,
        commits=one.commits + other.commits,
        errors=one.errors + other.errors,
        no_zil=one.no_zil + other.no_zil,
        kinds=tuple(a + b for a, b in strict_zip(one.kinds, other.kinds)),
        total=one.total.merge(other.total),
        stages=tuple(a.merge(b) for a, b in strict_zip(one.stages, other.stages)),
    )


def name_of(counts: Identified, host: Host, limit: str | None) -> Key:
    """(pool, dataset) of a slot; limit is the pool to which the trace is limited."""
    if counts.rest:
        return counts.pool or limit, OTHERS
    name = host.dataset_name(counts.pool, counts.objset, counts.dev)
    if name:
        return counts.pool or name.split("/", 1)[0].split("@", 1)[0], name
    if counts.objset:
        return counts.pool or None, f"<objset 0x{counts.objset:x}>"
    if counts.dev != (0, 0):
        return counts.pool or None, f"<device {counts.dev[0]}:{counts.dev[1]}>"
    return counts.pool or None, "<unknown>"


def wanted(key: Key, pool: str | None, dataset: str | None) -> bool:
    """Whether a name belongs to the given pool or dataset. The kernel passes what it cannot
    identify; if that has no name here either, it is shown."""
    if pool and key[0] not in (pool, None):
        return False
    return not dataset or key[1] == dataset or (key[1] or "<").startswith("<")


def summarize(
    slots: Iterable[DatasetCounts],
    host: Host,
    span: Span,
    pool: str | None = None,
    dataset: str | None = None,
) -> list[FsyncSummary]:
    """Per pool a summary with dataset None, followed by its datasets, busiest first.

    Limited to a pool or dataset when given; operations whose pool is unknown are included. A pool
    of the host (or the given one) without operations has a summary with count 0. With a dataset
    there is no summary for its pool.
    """
    datasets = _by_name(slots, host, pool, dataset)
    if dataset is not None:
        datasets.setdefault((dataset.split("/", 1)[0], dataset), None)
    pools: dict[str | None, DatasetCounts | None] = {}
    if dataset is None:
        pools = dict.fromkeys([pool] if pool else host.pools())
        for (name, _), counts in datasets.items():
            if counts:
                sum_so_far = pools.get(name)
                pools[name] = _add(sum_so_far, counts) if sum_so_far else counts
    rows = [_summary((name, None), counts, span) for name, counts in pools.items()]
    # the counts of a pool may be those of its only dataset
    same = {id(counts): row for counts, row in strict_zip(pools.values(), rows) if counts}
    rows += [_summary(key, counts, span, same.get(id(counts))) for key, counts in datasets.items()]
    return sorted(rows, key=_order)


def _order(row: FsyncSummary) -> tuple[bool, str, bool, int, str]:
    time_ns = sum(stage.total_ns for stage in row.stages)
    is_dataset = row.dataset is not None
    return row.pool is None, row.pool or "", is_dataset, -time_ns, row.dataset or ""


def _by_name(
    slots: Iterable[DatasetCounts], host: Host, pool: str | None, dataset: str | None
) -> dict[Key, DatasetCounts | None]:
    found: dict[Key, DatasetCounts | None] = {}
    for counts in slots:
        if not (counts.total.count or counts.commits or counts.errors):
            continue
        key = name_of(counts, host, pool)
        if not wanted(key, pool, dataset):
            continue
        before = found.get(key)
        found[key] = _add(before, counts) if before else counts
    return found


def _summary(
    key: Key, counts: DatasetCounts | None, span: Span, same: FsyncSummary | None = None
) -> FsyncSummary:
    """same is a summary of the same counts under another name."""
    dataset = key[1] or ""
    note = OTHERS_NOTE if dataset == OTHERS else NAMELESS_NOTE if dataset[:1] == "<" else None
    if same is not None:
        return replace(same, pool=key[0], dataset=key[1], note=note)
    if counts is None:
        counts = DatasetCounts(
            "", 0, (0, 0), False, 0, 0, 0, (0,) * len(KINDS), Hist(), (Hist(),) * len(NAMES)
        )
    return FsyncSummary(
        pool=key[0],
        dataset=key[1],
        time=span.time,
        duration_ns=span.duration_ns,
        count=counts.total.count,
        errors=counts.errors,
        commits=counts.commits,
        no_zil=counts.no_zil,
        kinds=dict(strict_zip(KINDS, counts.kinds)),
        latency=latency(counts.total),
        stages=tuple(_stage(name, hist) for name, hist in strict_zip(NAMES, counts.stages)),
        histogram=counts.total.rows(),
        losses=span.losses,
        probes=span.probes,
        note=note,
    )


def _stage(name: str, hist: Hist) -> StageSummary:
    return StageSummary(
        name, hist.sum_ns, hist.count, hist.quantile(500), hist.quantile(990), hist.max_ns
    )


def latency(hist: Hist) -> Latency | None:
    """None without a value."""
    if not hist.count:
        return None
    p50, p90, p99, p999 = (hist.quantile(permille) for permille in (500, 900, 990, 999))
    return Latency(hist.sum_ns // hist.count, p50, p90, p99, p999, hist.max_ns)
