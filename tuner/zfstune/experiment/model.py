"""First candidates, from a model of the write path and measurements of the pool.

The model: bulk data waits in memory as dirty data and reaches the disks in a txg sync; log
blocks of fsyncs share the disks with it. An fsync that arrives during a sync waits behind the
writes that a disk has already accepted (vdev_queue.c issues at most
zfs_vdev_async_write_max_active of them), and this repeats for as long as the sync lasts: dirty
bytes divided by bandwidth. So there are two levers: the length of a sync, and the depth of the
queue. A model may be wrong about a pool, so its candidates are few steps of each lever and of
both together, for a race; what it knows is their order, and the reasons.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from zfstune.experiment.runner import Record
from zfstune.term.units import SECOND, format_time
from zfstune.tunables import catalogue, guard
from zfstune.tunables.guard import broken_by
from zfstune.tunables.names import (
    ASYNC_MAX,
    ASYNC_MIN,
    COMMIT_PCT,
    DIRTY,
    SLOG_BULK,
    SYNC_PERCENT,
    TXG_TIMEOUT,
    WRLOG,
)

MIB = 1 << 20


# A txg has fixed costs: several passes, labels, flushes, metadata. On a disk of 30 MiB/s txgs of
# a second cost some 5 % of the throughput (docs/search.md); so one candidate has longer ones. Where
# writers do not fill the disk, shorter ones are free.
TARGET_SYNC_NS = SECOND
SHORTER_SYNC_NS = SECOND // 2
LONGER_SYNC_NS = 2 * SECOND
# Of what syncs could write: a pool that programs give less has time to spare
_SPARED = 0.75
# The largest write that vdev_queue_aggregate() makes (zfs_vdev_aggregation_limit).
_AGGREGATE = MIB
_BULK = 4 * _AGGREGATE
# Depths of the queue, the best guess first. One or two writes in flight are faster still on many
# disks, but leave others idle while a processor attends to what has ended, or the network carries
# the next: then they cost a fifth of the throughput (docs/search.md)
_DEPTHS = (3, 2, 5, 1)
_BATCH_SHARE = 0.1
_SLOG_SHARE = 0.2
_MOST = 10
# the source of these candidates
MODEL = "model"


@dataclass(frozen=True)
class Measured:
    """The pool under its load, with the current parameters.

    bandwidth: bytes/s that txg syncs write. sync_ns, dirty_bytes: of the txg that a typical byte is
    in. inflow: bytes/s that programs write, at all times or to such a txg, whichever is more; None
    if not known.
    stages: share of each stage in the time of fsyncs, 0 to 1. slog: whether there is a log device.
    vdevs: number of top-level vdevs with data.
    """

    bandwidth: float
    sync_ns: int
    dirty_bytes: int
    fsync_p50_ns: int
    fsync_p99_ns: int
    stages: Mapping[str, float] = field(default_factory=dict)
    slog: bool = False
    vdevs: int = 1
    inflow: float | None = None

    @property
    def spare(self) -> bool:
        """Whether syncs could write clearly more than they have to, also in a burst."""
        return self.inflow is not None and self.inflow < _SPARED * self.bandwidth


@dataclass(frozen=True)
class Candidate:
    """Values to try, by parameter; others stay as they are.

    source: ``model``, the name of a sampler, or ``ablation``. reasons: a sentence for each value.
    trial: its number in the study, -1 outside of one.
    """

    values: dict[str, int]
    source: str
    reasons: dict[str, str]
    trial: int = -1


# Values with their reasons
Part = dict[str, tuple[int, str]]


def candidates(
    measured: Measured, current: Mapping[str, int], facts: guard.Facts, names: Sequence[str]
) -> list[Candidate]:
    """At most ten legal candidates, best guess first. Only parameters in names change, and
    zfs_wrlog_data_max with zfs_dirty_data_max. Empty if the measurements do not point to the
    write path."""
    allowed = {name for name in names if name in current}
    if DIRTY in allowed and WRLOG in current:
        allowed.add(WRLOG)
    found: list[Candidate] = []
    for part in _combinations(measured, current, facts):
        chosen = {n: v for n, v in part.items() if n in allowed and v[0] != current[n]}
        candidate = _legal(chosen, current, facts, allowed)
        if candidate and all(candidate.values != other.values for other in found):
            found.append(candidate)
    return found[:_MOST]


def _combinations(
    measured: Measured, current: Mapping[str, int], facts: guard.Facts
) -> Iterator[Part]:
    def dirty(target_ns: int) -> Part:
        return _dirty(measured, current, facts, target_ns)

    depth, other, *more = [_depth(measured, current, one) for one in _DEPTHS]
    log, timer = _log(measured, current), _timer(measured, current)
    if measured.spare and measured.sync_ns > TARGET_SYNC_NS:
        # more syncs cost nothing then, and short ones do more for p99 than a short queue
        yield dirty(SHORTER_SYNC_NS)
    # Else the queue first: two parameters, and little throughput lost. Adding shorter txgs gained
    # little in the lab, and cost more throughput than a session allows (docs/search.md).
    yield depth
    yield {**dirty(TARGET_SYNC_NS), **depth, **timer}
    yield {**dirty(SHORTER_SYNC_NS), **timer}
    if log:
        yield {**depth, **log}
    yield other
    yield {**dirty(LONGER_SYNC_NS), **depth}
    yield {**dirty(TARGET_SYNC_NS), **other, **timer}
    yield from more


def sync_limit(bandwidth: float, target_ns: int, facts: guard.Facts) -> int:
    """The dirty bytes that a pool with this bandwidth (bytes/s) syncs in about target_ns, rounded
    up to a power of two."""
    lowest, _ = guard.bounds(DIRTY, {}, facts)
    wanted = max(1, int(bandwidth * target_ns / SECOND))
    return max(lowest or 0, 1 << (wanted - 1).bit_length())


def _bulk(measured: Measured) -> bool:
    """Whether syncs carry enough data for their time to tell the bandwidth."""
    return measured.bandwidth >= 1 and measured.dirty_bytes >= _BULK


def _dirty(
    measured: Measured, current: Mapping[str, int], facts: guard.Facts, target_ns: int
) -> Part:
    """A limit that shortens syncs; empty if they are short enough."""
    now = current.get(DIRTY, 0)
    limit = sync_limit(measured.bandwidth, target_ns, facts)
    if (
        not _bulk(measured)
        or limit >= now
        or measured.sync_ns <= min(target_ns, TARGET_SYNC_NS) // 2
    ):
        return {}
    span = format_time(round(limit / measured.bandwidth * SECOND))
    reason = (
        f"the pool writes {_mib(measured.bandwidth)}/s, so it syncs {_mib(limit)} in {span}: log "
        f"writes compete with a sync no longer than that (a txg syncs for "
        f"{format_time(measured.sync_ns)} now, the limit is {_mib(now)})"
    )
    if measured.spare:
        reason += (
            f"; programs write {_mib(measured.inflow or 0)}/s, so there is time for more syncs"
        )
    part = {DIRTY: (limit, reason)}
    if WRLOG in current:
        follows = f"twice {DIRTY}, as at load time: log data must not have the tighter limit"
        part[WRLOG] = (catalogue.least(WRLOG, DIRTY, limit), follows)
    return part


def _depth(measured: Measured, current: Mapping[str, int], depth: int) -> Part:
    """A queue no deeper than that; empty if no sync is in the way."""
    most = current.get(ASYNC_MAX, 0)
    per_disk = max(1.0, measured.bandwidth / max(1, measured.vdevs))
    if depth >= most or not _bulk(measured) or measured.sync_ns <= measured.fsync_p50_ns:
        return {}
    one = _AGGREGATE / per_disk * SECOND
    if most * one <= measured.fsync_p50_ns / 10:
        return {}
    reason = (
        f"a disk takes {format_time(round(one))} to write {_mib(_AGGREGATE)}: with at most "
        f"{depth} at a time a log write waits {format_time(round(depth * one))} behind them, with "
        f"{most} as now up to {format_time(round(most * one))}{_waits(measured)}"
    )
    part = {ASYNC_MAX: (depth, reason)}
    low = current.get(ASYNC_MIN, 0)
    if low > depth or low > 1:
        part[ASYNC_MIN] = (1, f"at most {ASYNC_MAX}; one write keeps the sync going")
    return part


def _waits(measured: Measured) -> str:
    share = measured.stages.get("log_write", 0.0)
    return f" (log writes take {share:.0%} of the time of fsyncs)" if share else ""


def _timer(measured: Measured, current: Mapping[str, int]) -> Part:
    """A shorter timer, if the timer and not the dirty limit ends txgs, and syncs are long."""
    now = current.get(TXG_TIMEOUT, 0)
    kick = current.get(DIRTY, 0) * current.get(SYNC_PERCENT, 20) // 100
    if not _bulk(measured) or measured.sync_ns <= TARGET_SYNC_NS:
        return {}
    if now <= 1 or measured.dirty_bytes >= kick:
        return {}
    shorter = max(1, int(now * TARGET_SYNC_NS / measured.sync_ns))
    if shorter >= now:
        return {}
    reason = (
        f"the timer ends the txgs ({_mib(measured.dirty_bytes)} of dirty data are below the "
        f"{_mib(kick)} that would): less gathers in {shorter} s than in {now} s, "
        f"and a sync takes about {format_time(measured.sync_ns * shorter // now)}"
    )
    return {TXG_TIMEOUT: (shorter, reason)}


def _log(measured: Measured, current: Mapping[str, int]) -> Part:
    """Shorter waits for other commits, and more log data at a slog's first priority."""
    part: Part = {}
    share, pct = measured.stages.get("batch_wait", 0.0), current.get(COMMIT_PCT, 0)
    if share >= _BATCH_SHARE and pct > 1:
        reason = (
            f"fsyncs spend {share:.0%} of their time waiting for other commits to share a log "
            f"block: {pct} % of the last log write's time now"
        )
        part[COMMIT_PCT] = (max(1, pct // 4), reason)
    bulk, waits = current.get(SLOG_BULK, 0), measured.stages.get("log_write", 0.0)
    if measured.slog and bulk and waits >= _SLOG_SHARE:
        wider = max(64 * MIB, 4 * bulk)
        reason = (
            f"a burst of log data over {_mib(bulk)} goes to the log device at the priority of "
            f"bulk data; {_mib(wider)} lets larger bursts go first"
        )
        part[SLOG_BULK] = (wider, reason)
    return part


def _legal(
    part: Part, current: Mapping[str, int], facts: guard.Facts, allowed: set[str]
) -> Candidate | None:
    """The values, moved to the nearest legal ones where they break a rule of the guard."""
    values = {name: value for name, (value, _) in part.items()}
    reasons = {name: reason for name, (_, reason) in part.items()}
    for _ in range(8):
        violations = broken_by(values, current, facts)
        if not violations:
            changed = {n: v for n, v in values.items() if v != current[n]}
            kept = {n: reasons.get(n, "") for n in changed}
            return Candidate(changed, MODEL, kept) if changed else None
        for violation in violations:
            for name, value in violation.nearest.items():
                if name in allowed:
                    values[name] = value
                    reasons[name] = _moved(reasons.get(name, ""), violation.reason)
    return None


def _moved(reason: str, why: str) -> str:
    return f"{reason}; moved to the nearest legal value: {why}" if reason else why


def _mib(size: float) -> str:
    """Bytes in MiB, less than one in KiB."""
    value = size / MIB
    if value < 1:
        return f"{size / 1024:.0f} KiB"
    return f"{value:.0f} MiB" if value >= 9.5 else f"{value:.2g} MiB"


def measured(records: Sequence[Record], slog: bool, vdevs: int) -> Measured:
    """What the model needs to know, from the blocks under the baseline."""
    rows = [row for record in records for row in record.block.txgs]
    busy_ns = sum(row.sync_ns for row in rows)
    dirty = [row.dirty_bytes for row in rows if row.dirty_bytes is not None]
    filled = [(row.dirty_bytes or 0, row.open_ns) for row in rows if row.open_ns]
    inflow = None
    if filled:
        mean = sum(size for size, _ in filled) / sum(open_ns for _, open_ns in filled)
        inflow = SECOND * max(mean, _typical([(size / ns, size) for size, ns in filled]))
    totals: dict[str, float] = {}
    for record in records:
        for stage in record.block.stages:
            totals[stage["name"]] = totals.get(stage["name"], 0.0) + stage["total_ns"]
    whole = sum(totals.values()) or 1.0
    return Measured(
        bandwidth=sum(dirty) * SECOND / busy_ns if busy_ns else 0.0,
        sync_ns=round(_typical([(row.sync_ns, row.dirty_bytes or 0) for row in rows])),
        dirty_bytes=round(_typical([(size, size) for size in dirty])),
        fsync_p50_ns=round(_median([r.block.metrics.get("fsync.p50", 0.0) for r in records])),
        fsync_p99_ns=round(_median([r.block.metrics.get("fsync.p99", 0.0) for r in records])),
        stages={name: total / whole for name, total in totals.items()},
        slog=slog,
        vdevs=vdevs,
        inflow=inflow,
    )


def _typical(values: Sequence[tuple[float, float]]) -> float:
    """The median of values with weights: of txgs by their bytes, so that those between two bursts
    do not count."""
    half, ordered = sum(weight for _, weight in values) / 2, sorted(values)
    for value, weight in ordered:
        half -= weight
        if half <= 0:
            return value
    return 0.0


def _median(values: Sequence[float]) -> float:
    if not values:
        return 0.0
    ordered = sorted(values)
    middle = len(ordered) // 2
    return (ordered[middle] + ordered[-middle - 1]) / 2
