"""The measurements that a diagnosis rests on: of one pool, by name, each with its unit.

They are a flat mapping from name to value (None = not known), which can be saved and judged again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Union

from zfstrace.arc import ArcRow
from zfstrace.device import BACKGROUND, DeviceRow, against_siblings, device_ns
from zfstrace.printable import printable
from zfstrace.stages import NAMES as STAGES
from zfstrace.strict import strict_zip
from zfstrace.throttle import ThrottleRow
from zfstrace.txg import Txg
from zfstrace.types import WRITES_BLOCKED, FsyncSummary
from zfstrace.version import version_key
from zfstune.rules.thresholds import threshold
from zfstune.term.units import format_count, format_percent, format_size, format_time

Value = Union[int, str, None]
Measurements = Mapping[str, Value]


@dataclass(frozen=True)
class Quantity:
    """unit is ns, bytes, count, permille, percent, flag or text; what is a phrase."""

    unit: str
    what: str


def _stages(form: str, what: str) -> dict[str, Quantity]:
    return {form.format(stage): Quantity("ns", what.format(stage)) for stage in STAGES}


NAMES: Mapping[str, Quantity] = {
    # the pool
    "pool": Quantity("text", "its name"),
    "pool_state": Quantity("text", "ONLINE, DEGRADED ..."),
    "pool_suspended": Quantity("flag", "its state is SUSPENDED, FAULTED or UNAVAIL"),
    "time": Quantity("text", "when it was measured, ISO 8601, UTC"),
    "version": Quantity("text", "of ZFS"),
    "zfs_version": Quantity("count", "of ZFS: 20309 is 2.3.9"),
    "log_vdevs": Quantity("count", "log devices of the pool"),
    "duration_ns": Quantity("ns", "length of the observation"),
    # the operations
    "operations": Quantity("count", "fsyncs and the like that ended"),
    "unfinished": Quantity("count", "operations on the host that had not ended"),
    "no_zil": Quantity("count", "operations that needed no log (sync=disabled)"),
    "dataset": Quantity("text", "the dataset with most of the time"),
    "threads": Quantity("count", "most threads that committed to one dataset"),
    "zvol_permille": Quantity("permille", "operations on zvols"),
    "in_flight_permille": Quantity("permille", "operations in flight, on average"),
    "single_operations": Quantity("count", "operations reported singly, the slowest"),
    "mean_ns": Quantity("ns", "of an operation"),
    "p50_ns": Quantity("ns", "of an operation"),
    "p99_ns": Quantity("ns", "of an operation"),
    "max_ns": Quantity("ns", "of an operation"),
    "total_ns": Quantity("ns", "sum over all operations"),
    "tail_operations": Quantity("count", "the slowest hundredth, at least one"),
    "tail_ns": Quantity("ns", "sum over these"),
    **_stages("total_{}_ns", "stage {}, all operations"),
    **_stages("tail_{}_ns", "stage {}, the slowest hundredth"),
    **_stages("total_syncing_{}_ns", "stage {}, single operations while a txg synced"),
    **_stages("tail_syncing_{}_ns", "stage {}, the slowest hundredth while a txg synced"),
    **_stages("{}_p50_ns", "stage {}, of the operations with time in it"),
    **{f"total_{s}_permille": Quantity("permille", f"stage {s} of all time") for s in STAGES},
    **{f"tail_{s}_permille": Quantity("permille", f"stage {s} of the p99") for s in STAGES},
    "txg_fallback_operations": Quantity("count", "operations that waited for a whole txg"),
    "device_permille": Quantity("permille", "log_write and flush of all time"),
    "wakeup_alone_permille": Quantity("permille", "wakeup of all time but batch_wait"),
    "batch_wait_percent": Quantity("percent", "batch_wait against log_write and flush"),
    "order_wait_ns": Quantity("ns", "stage flush beyond the flushes of the devices, total"),
    "company_permille": Quantity(
        "permille", "issuer_lock, batch_wait and order_wait_ns of all time but wakeup"
    ),
    "calm_operations": Quantity("count", "single operations while no txg synced"),
    "total_syncing_operations": Quantity("count", "single operations while a txg synced"),
    "tail_syncing_operations": Quantity("count", "of these in the slowest hundredth"),
    "calm_flush_mean_ns": Quantity("ns", "stage flush while no txg synced; 0 if too few"),
    "calm_log_write_mean_ns": Quantity("ns", "stage log_write likewise"),
    "calm_device_mean_ns": Quantity("ns", "log_write and flush while no txg synced"),
    "syncing_device_mean_ns": Quantity("ns", "log_write and flush while a txg synced"),
    "calm_flush_p50_ns": Quantity("ns", "stage flush while no txg synced, of all if too few"),
    "calm_log_write_p50_ns": Quantity("ns", "stage log_write likewise"),
    "calm_base_ns": Quantity(
        "ns", "calm_device_mean_ns; half of slow_device if too few operations"
    ),
    # transaction groups
    "txgs": Quantity("count", "synced txgs"),
    "txg_sync_permille": Quantity("permille", "the time in which a txg synced"),
    "txg_sync_max_ns": Quantity("ns", "longest sync"),
    "txg_quiesce_max_ns": Quantity("ns", "longest quiesce"),
    "txg_zil_sync_permille": Quantity("permille", "the time of syncs in zil_sync()"),
    "txg_dirty_max_bytes": Quantity("bytes", "most dirty data at the start of a sync"),
    # the write throttle
    "throttle_waits": Quantity("count", "waits of writers"),
    "throttle_ns": Quantity("ns", "their sum"),
    "throttle_max_ns": Quantity("ns", "longest wait"),
    "throttle_hard_waits": Quantity("count", "of these at zfs_dirty_data_max"),
    "throttle_program": Quantity("text", "the program delayed longest"),
    "throttled_permille": Quantity("permille", "delayed threads, on average"),
    "dirty_delays": Quantity("count", "dmu_tx_dirty_delay of the host"),
    # devices
    "device_flush_count": Quantity("count", "cache flushes"),
    "device_flush_p50_ns": Quantity(
        "ns", "cache flush, on the vdev of the log with most time in them"
    ),
    "device_flush_p99_ns": Quantity("ns", "likewise"),
    "device_flush_mean_ns": Quantity("ns", "likewise"),
    "flush_vdev": Quantity("text", "that vdev"),
    "device_log_p50_ns": Quantity("ns", "sync_write likewise"),
    "device_log_p99_ns": Quantity("ns", "likewise"),
    "device_log_queue_mean_ns": Quantity("ns", "in ZFS's queue, likewise"),
    "log_vdev": Quantity("text", "that vdev"),
    "async_write_permille": Quantity("permille", "writes of txg syncs of the time at devices"),
    "background_permille": Quantity("permille", "scrubs and similar of the time at devices"),
    "background": Quantity("text", "the largest of these"),
    "slow_vdev": Quantity("text", "a vdev much slower than its siblings"),
    "slow_vdev_class": Quantity("text", "its class of I/O"),
    "slow_vdev_times": Quantity("count", "how many times slower"),
    "slow_vdev_p50_ns": Quantity("ns", "its p50"),
    "siblings_p50_ns": Quantity("ns", "theirs, median"),
    # the log, of the whole host
    "commits": Quantity("count", "zil_commit_count"),
    "own_commits_permille": Quantity("permille", "commits of this pool among these"),
    "commits_per_100_writers": Quantity("count", "commits for 100 turns at writing the log"),
    "commit_bytes": Quantity("bytes", "log records for each commit"),
    "indirect_records": Quantity("count", "records with their data outside the log"),
    "indirect_mean_bytes": Quantity("bytes", "data of such a record"),
    "off_slog_permille": Quantity("permille", "bytes of the log that bypassed the slog"),
    "fallback_errors": Quantity("count", "zil_commit_error_count"),
    "fallback_stalls": Quantity("count", "zil_commit_stall_count"),
    "fallback_suspends": Quantity("count", "zil_commit_suspend_count"),
    "fallback_crashes": Quantity("count", "zil_commit_crash_count"),
    "fallback_reasons": Quantity("count", "sum of these four"),
    # parameters
    "commit_timeout_pct": Quantity("percent", "zfs_commit_timeout_pct"),
    "dirty_data_max": Quantity("bytes", "zfs_dirty_data_max"),
    "zvol_threads": Quantity("count", "zvol_threads, 0 = by the number of CPUs"),
    # the cache
    "arc_waits": Quantity("count", "waits for room in the ARC"),
    "arc_wait_ns": Quantity("ns", "their sum"),
    "arc_waiting_permille": Quantity("permille", "threads that waited, on average"),
}

# Names with a value for all operations and one for the slowest: the expressions in `explains` use
# them without the prefix.
SCOPES = ("total", "tail")
SCOPED = (
    "operations",
    "syncing_operations",
    *(f"{p}{s}_ns" for s in STAGES for p in ("", "syncing_")),
)


@dataclass(frozen=True)
class Single:
    """One operation, stages in the order of STAGES. syncing: a txg synced meanwhile, None if not
    known."""

    total_ns: int
    stage_ns: tuple[int, ...]
    dataset: str | None
    tid: int
    syncing: bool | None


@dataclass(frozen=True)
class Observed:
    """What was observed of one pool. Rows are of this pool, None if the view was not available. zil
    and dmu_tx are changes of these kstats, host-wide; parameters are values by Linux name."""

    pool: str
    state: str
    time: str
    version: str
    duration_ns: int
    unfinished: int
    log_vdevs: int | None
    fsync: FsyncSummary
    singles: Sequence[Single]
    datasets: Sequence[FsyncSummary] = ()
    txgs: Sequence[Txg] | None = None
    syncing_now_ns: int = 0
    throttle: Sequence[ThrottleRow] | None = None
    devices: Sequence[DeviceRow] | None = None
    arc: Sequence[ArcRow] | None = None
    zil: Mapping[str, int] = field(default_factory=dict)
    dmu_tx: Mapping[str, int] = field(default_factory=dict)
    parameters: Mapping[str, int | None] = field(default_factory=dict)


def in_need(pool: str, state: str, time: str, version: str) -> dict[str, Value]:
    """The measurements of a pool that is not traced because of its state."""
    return dict.fromkeys(NAMES) | {
        "pool": pool,
        "pool_state": state,
        "pool_suspended": int(state in WRITES_BLOCKED),
        "time": time,
        "version": version or None,
        "duration_ns": 0,
        "operations": 0,
    }


def measure(seen: Observed) -> dict[str, Value]:
    """The value of each of NAMES."""
    found: dict[str, Value] = dict.fromkeys(NAMES)
    found |= {
        "pool": seen.pool,
        "pool_state": seen.state or None,
        "pool_suspended": int(seen.state in WRITES_BLOCKED),
        "time": seen.time,
        "version": seen.version or None,
        "zfs_version": _version(seen.version),
        "log_vdevs": seen.log_vdevs,
        "duration_ns": seen.duration_ns,
        "unfinished": seen.unfinished,
        "commit_timeout_pct": seen.parameters.get("zfs_commit_timeout_pct"),
        "dirty_data_max": seen.parameters.get("zfs_dirty_data_max"),
        "zvol_threads": seen.parameters.get("zvol_threads"),
    }
    found |= _operations(seen)
    found |= _singles(seen.singles, seen.fsync)
    if seen.txgs is not None:
        found |= _txgs(seen.txgs, seen.syncing_now_ns, seen.duration_ns)
    if seen.throttle is not None:
        found |= _throttle(seen.throttle, seen.duration_ns)
    if seen.devices is not None:
        found |= _devices(seen.devices)
    if seen.zil:
        found |= _log(seen.zil, seen.fsync.commits, seen.log_vdevs)
    found["dirty_delays"] = seen.dmu_tx.get("dmu_tx_dirty_delay")
    for row in seen.arc or ():
        if row.waits is not None and row.wait_ns is not None:
            found["arc_waits"], found["arc_wait_ns"] = row.waits, row.wait_ns
            found["arc_waiting_permille"] = permille(row.wait_ns, seen.duration_ns)
    found |= _company(found)
    assert set(found) == set(NAMES)
    return found


def permille(part: int, whole: int) -> int:
    """part in per mille of whole; 0 if whole is 0."""
    return 1000 * part // whole if whole else 0


def number(found: Measurements, name: str) -> int | None:
    """A measurement; None if it is a text or not known."""
    value = found[name]
    return value if isinstance(value, int) else None


def show(name: str, value: Value) -> str:
    """A value with its unit; "?" if it is not known."""
    unit = NAMES[name].unit
    if value is None:
        return "?"
    if isinstance(value, str):
        return printable(value)
    if unit == "ns":
        return format_time(value)
    if unit == "bytes":
        return format_size(value)
    if unit == "permille":
        return format_percent(value / 1000)
    return f"{value} %" if unit == "percent" else format_count(value)


def _version(text: str) -> int | None:
    key = version_key(text)
    return key[0] * 10000 + key[1] * 100 + key[2] if key else None


def _operations(seen: Observed) -> dict[str, Value]:
    row = seen.fsync
    total = sum(stage.total_ns for stage in row.stages)
    found: dict[str, Value] = {
        "operations": row.count,
        "no_zil": row.no_zil,
        "total_ns": total,
        "zvol_permille": permille(row.kinds.get("zvol", 0), row.count),
        "in_flight_permille": permille(total, seen.duration_ns),
    }
    if row.latency:
        found |= {
            "mean_ns": row.latency.mean,
            "p50_ns": row.latency.p50,
            "p99_ns": row.latency.p99,
            "max_ns": row.latency.max,
        }
    for stage in row.stages:
        found[f"total_{stage.name}_ns"] = stage.total_ns
        found[f"total_{stage.name}_permille"] = permille(stage.total_ns, total)
        found[f"{stage.name}_p50_ns"] = stage.p50
        if stage.name == "txg_fallback":
            found["txg_fallback_operations"] = stage.count
    unseen = _unseen(row)
    for name in unseen:
        # 0 would say that no time was spent there
        found |= dict.fromkeys((f"total_{name}_ns", f"total_{name}_permille", f"{name}_p50_ns"))
    if "txg_fallback" in unseen:
        found["txg_fallback_operations"] = None
    times = {stage.name: stage.total_ns for stage in row.stages}
    device = times.get("log_write", 0) + times.get("flush", 0)
    found["device_permille"] = permille(device, total)
    if "wakeup" not in unseen:
        alone = total - times.get("batch_wait", 0)
        found["wakeup_alone_permille"] = permille(times.get("wakeup", 0), alone)
    if device and "batch_wait" not in unseen:
        found["batch_wait_percent"] = 100 * times.get("batch_wait", 0) // device
    busiest = max(seen.datasets, key=lambda d: sum(s.total_ns for s in d.stages), default=None)
    found["dataset"] = busiest.dataset if busiest else None
    return found


def _unseen(row: FsyncSummary) -> set[str]:
    """Stages without time that are part of another one because a probe is missing."""
    merged = {probe.merges[0] for probe in row.probes if probe.missing and probe.merges}
    return merged & {stage.name for stage in row.stages if not stage.count}


def _singles(singles: Sequence[Single], row: FsyncSummary) -> dict[str, Value]:
    slowest = sorted(singles, key=lambda one: -one.total_ns)
    count = -(-row.count // 100)
    found: dict[str, Value] = {"single_operations": len(singles)}
    if singles:
        threads = Counter(where for where, _ in {(one.dataset, one.tid) for one in singles})
        found["threads"] = max(threads.values())
    if 0 < count <= len(slowest):
        tail = slowest[:count]
        whole = sum(one.total_ns for one in tail)
        found |= {"tail_operations": count, "tail_ns": whole}
        for name, ns in strict_zip(STAGES, _sums(tail)):
            found[f"tail_{name}_ns"] = ns
            found[f"tail_{name}_permille"] = permille(ns, whole)
        found |= _syncing("tail", tail)
    found |= _syncing("total", singles)
    return found | _coincidence(singles, row)


def _sums(singles: Iterable[Single]) -> list[int]:
    sums = [0] * len(STAGES)
    for one in singles:
        for i, ns in enumerate(one.stage_ns):
            sums[i] += ns
    return sums


def _syncing(scope: str, singles: Sequence[Single]) -> dict[str, Value]:
    if not any(one.syncing is not None for one in singles):
        return {}
    syncing = [one for one in singles if one.syncing]
    sums = strict_zip(STAGES, _sums(syncing))
    found: dict[str, Value] = {f"{scope}_syncing_{name}_ns": ns for name, ns in sums}
    return found | {f"{scope}_syncing_operations": len(syncing)}


def _coincidence(singles: Sequence[Single], row: FsyncSummary) -> dict[str, Value]:
    """Log writes and flushes while a txg synced against those while none did."""
    flush, write = STAGES.index("flush"), STAGES.index("log_write")

    def device(some: Sequence[Single]) -> int:
        return sum(one.stage_ns[flush] + one.stage_ns[write] for one in some)

    calm = [one for one in singles if one.syncing is False]
    syncing = [one for one in singles if one.syncing]
    # too few have no meaningful mean or median
    enough = len(calm) >= threshold("few")
    found: dict[str, Value] = {
        "calm_operations": len(calm),
        # the condition doubles it, to what is slow for an idle disk
        "calm_base_ns": device(calm) // len(calm) if enough else threshold("slow_device") // 2,
    }
    if calm:
        found["calm_device_mean_ns"] = device(calm) // len(calm)
    if syncing:
        found["syncing_device_mean_ns"] = device(syncing) // len(syncing)
    p50 = {stage.name: stage.p50 for stage in row.stages}
    unseen = _unseen(row)
    for stage, i in (("flush", flush), ("log_write", write)):
        if stage in unseen:
            # 0 would say that it is not slow
            continue
        values = sorted(one.stage_ns[i] for one in calm)
        found[f"calm_{stage}_mean_ns"] = sum(values) // len(values) if enough else 0
        # unless all were reported singly those are the slowest, and their median means nothing. A
        # few always end between the last event and the sum
        fits = enough and 10 * len(singles) >= 9 * row.count
        found[f"calm_{stage}_p50_ns"] = values[len(values) // 2] if fits else p50.get(stage)
    return found


def _txgs(txgs: Sequence[Txg], now_ns: int, duration_ns: int) -> dict[str, Value]:
    synced = sum(min(t.sync_ns or 0, duration_ns) for t in txgs)
    zil = [t for t in txgs if t.zil_sync_ns is not None]
    zil_ns = sum(t.zil_sync_ns or 0 for t in zil)
    return {
        "txgs": len(txgs),
        "txg_sync_permille": min(1000, permille(synced + min(now_ns, duration_ns), duration_ns)),
        "txg_sync_max_ns": max([now_ns, *(t.sync_ns or 0 for t in txgs)]),
        "txg_quiesce_max_ns": max((t.quiesce_ns or 0 for t in txgs), default=0),
        "txg_zil_sync_permille": permille(zil_ns, sum(t.sync_ns or 0 for t in zil))
        if zil
        else None,
        "txg_dirty_max_bytes": max((t.dirty_bytes or 0 for t in txgs), default=0),
    }


def _throttle(rows: Sequence[ThrottleRow], duration_ns: int) -> dict[str, Value]:
    total = sum(row.total_ns for row in rows)
    longest = max(rows, key=lambda row: row.total_ns, default=None)
    return {
        "throttle_waits": sum(row.count for row in rows),
        "throttle_ns": total,
        "throttle_max_ns": max((row.max for row in rows), default=0),
        "throttle_hard_waits": sum(row.kinds["dirty_hard"].count for row in rows),
        "throttle_program": f"{longest.comm} {longest.pid}" if longest else None,
        "throttled_permille": permille(total, duration_ns),
    }


def _devices(rows: Sequence[DeviceRow]) -> dict[str, Value]:
    time = sum(map(device_ns, rows))

    def of(*classes: str) -> list[DeviceRow]:
        return [row for row in rows if row.io_class in classes]

    busy = max(of(*BACKGROUND), key=device_ns, default=None)
    found: dict[str, Value] = {
        "device_flush_count": sum(row.count for row in of("flush")),
        "async_write_permille": permille(sum(map(device_ns, of("async_write"))), time),
        "background_permille": permille(sum(map(device_ns, of(*BACKGROUND))), time),
        "background": BACKGROUND[busy.io_class] if busy else None,
        "slow_vdev_times": 0,
    }
    flush = max(_sharing(of("flush")), key=device_ns, default=None)
    if flush:
        found |= {
            "flush_vdev": flush.vdev,
            "device_flush_p50_ns": flush.device.p50,
            "device_flush_p99_ns": flush.device.p99,
            "device_flush_mean_ns": flush.device.mean,
        }
    log = max(_sharing(of("sync_write")), key=device_ns, default=None)
    if log:
        found |= {
            "log_vdev": log.vdev,
            "device_log_p50_ns": log.device.p50,
            "device_log_p99_ns": log.device.p99,
            "device_log_queue_mean_ns": log.queue.mean if log.queue else None,
        }
    for times, row, others_ns in against_siblings(
        _sharing(of("sync_write")) + _sharing(of("flush"))
    ):
        if times >= threshold("thrice") and row.device.p50 >= threshold("noticed"):
            found |= {
                "slow_vdev": row.vdev,
                "slow_vdev_class": row.io_class,
                "slow_vdev_times": round(times),
                "slow_vdev_p50_ns": row.device.p50,
                "siblings_p50_ns": others_ns,
            }
            break
    return found


def _sharing(rows: list[DeviceRow]) -> list[DeviceRow]:
    """The vdevs that share the log's I/O. A slog gets many, the disks behind it a few per txg: they
    are no siblings."""
    most = max((row.count for row in rows), default=0)
    return [row for row in rows if 2 * row.count >= most]


def _log(zil: Mapping[str, int], own: int, log_vdevs: int | None) -> dict[str, Value]:
    commits, writers = zil.get("zil_commit_count", 0), zil.get("zil_commit_writer_count", 0)
    kinds = ("indirect", "copied", "needcopy")
    size = sum(zil.get(f"zil_itx_{kind}_bytes", 0) for kind in kinds)
    indirect = zil.get("zil_itx_indirect_count", 0)
    slog = zil.get("zil_itx_metaslab_slog_bytes", 0)
    elsewhere = zil.get("zil_itx_metaslab_normal_bytes", 0) + zil.get("zil_itx_indirect_bytes", 0)
    reasons = {
        f"fallback_{name}s": zil.get(f"zil_commit_{name}_count")
        for name in ("error", "stall", "suspend")
    }
    found: dict[str, Value] = {
        "commits": commits,
        "own_commits_permille": min(1000, permille(own, commits)),
        "commits_per_100_writers": 100 * commits // writers if writers else None,
        "commit_bytes": size // commits if commits else 0,
        "indirect_records": indirect,
        "indirect_mean_bytes": zil.get("zil_itx_indirect_bytes", 0) // indirect if indirect else 0,
        "off_slog_permille": permille(elsewhere, elsewhere + slog) if log_vdevs else None,
        **reasons,
        "fallback_crashes": zil.get("zil_commit_crash_count"),
    }
    if None not in reasons.values():
        found["fallback_reasons"] = sum(n or 0 for n in reasons.values()) + zil.get(
            "zil_commit_crash_count", 0
        )
    return found


def _company(found: Measurements) -> dict[str, Value]:
    """Waits of committers for each other. Log blocks of a dataset complete in order: the time in
    stage flush beyond the devices' flushes is spent waiting for earlier blocks. What follows, until
    the thread runs again, says nothing about them: with many threads it is a quarter of all time
    where CPUs are slow."""
    flush, operations = number(found, "total_flush_ns"), number(found, "operations")
    mean, total = number(found, "device_flush_mean_ns"), number(found, "total_ns")
    if flush is None or operations is None or total is None:
        return {}
    # 0 if the devices' times are not known
    order = max(0, flush - operations * mean) if mean is not None else 0
    waits = sum(number(found, f"total_{s}_ns") or 0 for s in ("issuer_lock", "batch_wait"))
    until_flushed = total - (number(found, "total_wakeup_ns") or 0)
    return {"order_wait_ns": order, "company_permille": permille(waits + order, until_flushed)}
