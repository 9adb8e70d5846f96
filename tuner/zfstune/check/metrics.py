"""The metrics of `zfstune check`: a table of what each is, and from what it is computed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Optional

from zfstrace.arc import ArcRow
from zfstrace.device import DeviceRow
from zfstrace.kstat.txgs import TxgRow
from zfstrace.stages import STAGES
from zfstrace.throttle import ThrottleRow, percent_of
from zfstrace.types import FsyncSummary
from zfstune.term.units import SECOND

# None is not known; IDLE: there was nothing to measure
Number = Optional[float]
IDLE = math.nan


@dataclass(frozen=True)
class Seen:
    """What was observed of a pool. views has the rows of each trace that a metric needs; txgs are
    those in the kstat that have ended; zil, dmu_tx and cache are kstats of the whole host, from
    the beginning to the end of duration_ns. {} and None are not known."""

    pool: str
    duration_ns: int
    fsync: FsyncSummary | None = None
    throttle: Sequence[ThrottleRow] = ()
    devices: Sequence[DeviceRow] = ()
    waits: ArcRow | None = None
    cache: ArcRow | None = None
    txgs: Sequence[TxgRow] = ()
    zil: Mapping[str, int] = field(default_factory=dict)
    dmu_tx: Mapping[str, int] = field(default_factory=dict)
    dirty_data_max: int | None = None
    lost: int = 0


@dataclass(frozen=True)
class Metric:
    """unit is a key of limits.UNITS. source is the trace that it needs, or "kstat"; spans says
    whether it is of the time of the observation, and not known at once. most is the largest
    possible value."""

    name: str
    unit: str
    source: str
    meaning: str
    value: Callable[[Seen], Number]
    spans: bool = True
    most: float | None = None


def _latency(name: str) -> Callable[[Seen], Number]:
    def value(seen: Seen) -> Number:
        if not seen.fsync:
            return None
        return getattr(seen.fsync.latency, name) if seen.fsync.latency else IDLE

    return value


def _of_fsyncs(name: str) -> Callable[[Seen], Number]:
    return lambda seen: getattr(seen.fsync, name) if seen.fsync else None


def _without_log(seen: Seen) -> Number:
    row = seen.fsync
    if not row:
        return None
    return 100 * row.no_zil / row.count if row.count else IDLE


def _stage(name: str) -> Callable[[Seen], Number]:
    def value(seen: Seen) -> Number:
        if not seen.fsync:
            return None
        times = {stage.name: stage.total_ns for stage in seen.fsync.stages}
        total = sum(times.values())
        return 100 * times.get(name, 0) / total if total else IDLE

    return value


def _rate(count: float, seen: Seen) -> Number:
    return count * SECOND / seen.duration_ns if seen.duration_ns else None


def _kstat_rate(kstat: str, *names: str) -> Callable[[Seen], Number]:
    def value(seen: Seen) -> Number:
        counts = getattr(seen, kstat)
        there = [counts[name] for name in names if name in counts]
        return _rate(sum(there), seen) if there else None

    return value


def _quantile(values: Sequence[int], permille: int) -> Number:
    """The value that permille/1000 of them do not exceed; None without any."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * permille // 1000) - 1)] if ordered else None


def _sync(permille: int) -> Callable[[Seen], Number]:
    return lambda seen: _quantile([row.sync_ns for row in seen.txgs], permille)


def _dirty(seen: Seen) -> Number:
    sizes = [row.dirty_bytes for row in seen.txgs if row.dirty_bytes is not None]
    return percent_of(max(sizes), seen.dirty_data_max) if sizes else None


def _device(io_class: str) -> Callable[[Seen], Number]:
    return lambda seen: max(
        (row.device.p99 for row in seen.devices if row.io_class == io_class and row.count),
        default=IDLE,
    )


def _hits(seen: Seen) -> Number:
    if not seen.cache:
        return None
    return IDLE if seen.cache.hit_ratio is None else 100 * seen.cache.hit_ratio


def _throttled(seen: Seen) -> Number:
    total = sum(row.total_ns for row in seen.throttle)
    return 100 * total / seen.duration_ns if seen.duration_ns else None


def _latencies() -> Iterator[Metric]:
    for name, what in (
        ("mean", "mean latency of fsyncs and other commits"),
        ("p50", "median of their latency"),
        ("p90", "latency that 90 % of them do not exceed"),
        ("p99", "latency that 99 % of them do not exceed"),
        ("p999", "latency that 99.9 % of them do not exceed"),
        ("max", "longest of them"),
    ):
        yield Metric(f"fsync.{name}", "time", "fsync", what, _latency(name))


_METRICS = (
    *_latencies(),
    Metric(
        "fsync.rate",
        "rate",
        "fsync",
        "fsyncs and other commits per second",
        lambda seen: _rate(seen.fsync.count, seen) if seen.fsync else None,
    ),
    Metric("fsync.errors", "count", "fsync", "those that returned an error", _of_fsyncs("errors")),
    Metric(
        "fsync.without_log",
        "share",
        "fsync",
        "share of those that wrote no log (sync=disabled)",
        _without_log,
        most=100,
    ),
    Metric(
        "fsync.unfinished",
        "count",
        "fsync",
        "those of the whole host that had not ended",
        lambda seen: seen.fsync.losses.unfinished if seen.fsync else None,
    ),
    *(
        Metric(
            f"stage.{stage.name}",
            "share",
            "fsync",
            f"share of their time in stage {stage.name}",
            _stage(stage.name),
            most=100,
        )
        for stage in STAGES
    ),
    Metric(
        "throttle.waits",
        "rate",
        "throttle",
        "waits of writers per second",
        lambda seen: _rate(sum(row.count for row in seen.throttle), seen),
    ),
    Metric(
        "throttle.time",
        "share",
        "throttle",
        "time of all waiting writers, 100 % is one all the time",
        _throttled,
    ),
    Metric(
        "throttle.max",
        "time",
        "throttle",
        "longest wait of a writer",
        lambda seen: max((row.max for row in seen.throttle), default=0),
    ),
    Metric(
        "throttle.delays",
        "rate",
        "kstat",
        "transactions per second that any pool's throttle delayed",
        _kstat_rate("dmu_tx", "dmu_tx_dirty_delay", "dmu_tx_dirty_over_max", "dmu_tx_wrlog_delay"),
    ),
    Metric(
        "device.log.p99",
        "time",
        "device",
        "p99 of synchronous writes on the slowest vdev",
        _device("sync_write"),
    ),
    Metric(
        "device.flush.p99",
        "time",
        "device",
        "p99 of cache flushes on the slowest vdev",
        _device("flush"),
    ),
    *(
        Metric(f"txg.sync.{name}", "time", "kstat", what, _sync(permille), spans=False)
        for name, what, permille in (
            ("p50", "median sync time of the last 100 txgs", 500),
            ("p99", "p99 of their sync times", 990),
            ("max", "longest of their sync times", 1000),
        )
    ),
    Metric(
        "txg.dirty",
        "share",
        "kstat",
        "most dirty data of these txgs, of zfs_dirty_data_max",
        _dirty,
        spans=False,
    ),
    Metric(
        "zil.commits",
        "rate",
        "kstat",
        "commits of the logs of all pools per second",
        _kstat_rate("zil", "zil_commit_count"),
    ),
    Metric(
        "zil.fallbacks",
        "rate",
        "kstat",
        "those per second that waited for a whole txg instead",
        _kstat_rate(
            "zil",
            *(f"zil_commit_{name}_count" for name in ("error", "stall", "suspend", "crash")),
        ),
    ),
    Metric("arc.hit", "share", "kstat", "demand reads that were hits", _hits, most=100),
    Metric(
        "arc.size",
        "size",
        "kstat",
        "size of the cache",
        lambda seen: seen.cache.size if seen.cache else None,
        spans=False,
    ),
    Metric(
        "arc.waits",
        "rate",
        "arc",
        "waits for room in the cache per second",
        lambda seen: (
            _rate(seen.waits.waits, seen) if seen.waits and seen.waits.waits is not None else None
        ),
    ),
    Metric(
        "lost",
        "count",
        "fsync",
        "operations that the traces could not count",
        lambda seen: seen.lost,
    ),
)
METRICS = {metric.name: metric for metric in _METRICS}
# shown where nothing is asked for
DEFAULT = ("fsync.p50", "fsync.p99", "fsync.max", "fsync.rate", "lost")
