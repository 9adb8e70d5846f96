"""The metrics of the exporter: a table of names, types, labels, the view that counts them, and what
each means. docs/operations.md has the same table."""

from __future__ import annotations

from dataclasses import dataclass

COUNTER, GAUGE, HISTOGRAM, INFO = "counter", "gauge", "histogram", "info"

# The views that are none of a trace: kstats and parameters, and the exporter itself.
KSTAT, SELF = "kstat", "self"


@dataclass(frozen=True)
class Spec:
    """A metric. name is as exposed: with _total for a counter, with _info for an info. view is the
    view that counts it, KSTAT or SELF."""

    name: str
    type: str
    labels: tuple[str, ...]
    view: str
    help: str


_DATASET = ("pool", "dataset")

_METRICS = (
    # --- light: commits exactly, stages from windows
    Spec(
        "zfstune_zil_commit_duration_seconds",
        HISTOGRAM,
        _DATASET,
        "light",
        "Duration of ZIL commits, whoever asked for them: fsync, O_SYNC writes, volumes.",
    ),
    Spec(
        "zfstune_zil_log_write_duration_seconds",
        HISTOGRAM,
        ("pool",),
        "light",
        "Duration of the writes of log blocks, from their issue to their end.",
    ),
    Spec(
        "zfstune_zil_flush_duration_seconds",
        HISTOGRAM,
        ("pool",),
        "light",
        "Time from the end of the write of a log block until it is durable: cache flushes.",
    ),
    Spec(
        "zfstune_zil_commits_unfinished",
        GAUGE,
        (),
        "light",
        "ZIL commits of the host that have begun and not ended.",
    ),
    Spec(
        "zfstune_fsync_stage_share_ratio",
        GAUGE,
        ("pool", "stage", "bound"),
        "light",
        "Share of a stage in the time of fsyncs, estimated from windows; low and high: at 95 %.",
    ),
    Spec(
        "zfstune_light_windows",
        GAUGE,
        (),
        "light",
        "Windows that the shares of stages are estimated from.",
    ),
    Spec(
        "zfstune_light_attached",
        GAUGE,
        (),
        "light",
        "1 if commits are traced, 0 while no pool is imported.",
    ),
    # --- fsync: all stages
    Spec(
        "zfstune_fsync_duration_seconds",
        HISTOGRAM,
        _DATASET,
        "fsync",
        "Duration of fsyncs and other synchronous operations.",
    ),
    Spec(
        "zfstune_fsync_stage_seconds_total",
        COUNTER,
        (*_DATASET, "stage"),
        "fsync",
        "Time that synchronous operations spent in a stage; the stages sum to their duration.",
    ),
    Spec(
        "zfstune_fsync_stage_duration_seconds",
        HISTOGRAM,
        ("pool", "stage"),
        "fsync",
        "Time of synchronous operations in a stage, of those that spent any in it.",
    ),
    Spec(
        "zfstune_fsync_operations_total",
        COUNTER,
        (*_DATASET, "kind"),
        "fsync",
        "Synchronous operations by kind, from its first one on.",
    ),
    Spec(
        "zfstune_fsync_errors_total",
        COUNTER,
        _DATASET,
        "fsync",
        "Synchronous operations that returned an error.",
    ),
    Spec(
        "zfstune_zil_commits_total",
        COUNTER,
        _DATASET,
        "fsync",
        "ZIL commits of synchronous operations.",
    ),
    Spec(
        "zfstune_fsync_without_zil_total",
        COUNTER,
        _DATASET,
        "fsync",
        "Synchronous operations without a ZIL commit: sync=disabled, or nothing to write.",
    ),
    Spec(
        "zfstune_fsync_unfinished",
        GAUGE,
        (),
        "fsync",
        "Synchronous operations of the host that have begun and not ended.",
    ),
    # --- txg
    Spec(
        "zfstune_txg_duration_seconds",
        HISTOGRAM,
        ("pool", "phase"),
        "txg",
        "Duration of the phases of txgs that have ended: open, quiesce, wait, sync.",
    ),
    Spec(
        "zfstune_txgs_total",
        COUNTER,
        ("pool", "reason"),
        "txg",
        "Txgs that have ended, by what closed them.",
    ),
    Spec(
        "zfstune_txg_dirty_bytes",
        GAUGE,
        ("pool",),
        "txg",
        "Dirty data of the pool as the sync of its last txg began.",
    ),
    # --- throttle
    Spec(
        "zfstune_throttle_wait_seconds_total",
        COUNTER,
        ("pool", "limit"),
        "throttle",
        "Time that writers waited, by the limit that held them up.",
    ),
    Spec(
        "zfstune_throttle_waits_total",
        COUNTER,
        ("pool", "limit"),
        "throttle",
        "Waits of writers, by the limit that held them up.",
    ),
    # --- arc
    Spec(
        "zfstune_arc_eviction_wait_seconds_total",
        COUNTER,
        (),
        "arc",
        "Time that threads waited for room in the ARC.",
    ),
    Spec(
        "zfstune_arc_eviction_waits_total",
        COUNTER,
        (),
        "arc",
        "Waits for room in the ARC.",
    ),
    Spec(
        "zfstune_arc_hits_total",
        COUNTER,
        (),
        "arc",
        "Demand reads of blocks that found them in the ARC.",
    ),
    Spec(
        "zfstune_arc_misses_total",
        COUNTER,
        (),
        "arc",
        "Demand reads of blocks that had to read them.",
    ),
    # --- device
    Spec(
        "zfstune_device_io_duration_seconds",
        HISTOGRAM,
        ("pool", "vdev", "class"),
        "device",
        "Time of I/Os at the device.",
    ),
    Spec(
        "zfstune_device_queue_duration_seconds",
        HISTOGRAM,
        ("pool", "vdev", "class"),
        "device",
        "Time of I/Os in the queue of ZFS; flushes do not queue.",
    ),
    # --- read
    Spec(
        "zfstune_read_duration_seconds",
        HISTOGRAM,
        (*_DATASET, "cache"),
        "read",
        "Duration of reads of files; hit: without waiting for an I/O.",
    ),
    Spec(
        "zfstune_write_duration_seconds",
        HISTOGRAM,
        _DATASET,
        "read",
        "Duration of writes of files.",
    ),
    # --- always: kstats and parameters
    Spec(
        "zfstune_dirty_limit_bytes",
        GAUGE,
        (),
        KSTAT,
        "zfs_dirty_data_max: the dirty data of a pool at which writers stop.",
    ),
    Spec(
        "zfstune_zil_kstat_total",
        COUNTER,
        ("counter",),
        KSTAT,
        "Counters of the kstat zil, of all pools, without zil_ and _count; never reset here.",
    ),
    Spec("zfstune_arc_size_bytes", GAUGE, (), KSTAT, "Size of the ARC."),
    Spec("zfstune_arc_target_bytes", GAUGE, (), KSTAT, "Size that the ARC aims at."),
    Spec(
        "zfstune_arc_memory_throttle_total",
        COUNTER,
        (),
        KSTAT,
        "Writers that the ARC delayed because memory was short.",
    ),
    Spec("zfstune_pool_state", GAUGE, ("pool", "state"), KSTAT, "1 for the state of the pool."),
    Spec(
        "zfstune_parameter_changed",
        GAUGE,
        ("name", "by"),
        KSTAT,
        "Value of a module parameter that is not what it was, and who set it last.",
    ),
    Spec(
        "zfstune_parameter_writes_total",
        COUNTER,
        ("name", "by"),
        KSTAT,
        "Writes of a module parameter that were seen, by zfstune or another program.",
    ),
    Spec(
        "zfstune_session_active",
        GAUGE,
        ("pool",),
        KSTAT,
        "1 while a session of `zfstune tune` holds parameters for the pool.",
    ),
    # --- the exporter itself
    Spec(
        "zfstune_trace_up",
        GAUGE,
        ("view",),
        SELF,
        "1 if the view counts, 0 if it is off.",
    ),
    Spec(
        "zfstune_trace_off_info",
        INFO,
        ("view", "why"),
        SELF,
        "A view that is off: no_zfs, no_pool, budget, privilege, library, not_supported, error.",
    ),
    Spec(
        "zfstune_trace_probes",
        GAUGE,
        ("view", "how"),
        SELF,
        "Probes by how they are attached; missing: not there. kstat 1: the view needs none.",
    ),
    Spec(
        "zfstune_trace_lost_total",
        COUNTER,
        ("view", "reason"),
        SELF,
        "What a view could not count, since the exporter started.",
    ),
    Spec(
        "zfstune_trace_cost_ratio",
        GAUGE,
        ("view",),
        SELF,
        "Time in the BPF programs of a view, as a share of one CPU, when last measured.",
    ),
    Spec(
        "zfstune_trace_budget_ratio",
        GAUGE,
        (),
        SELF,
        "The share of one CPU that all views together may cost (--budget).",
    ),
    Spec(
        "zfstune_exporter_scrape_seconds",
        GAUGE,
        (),
        SELF,
        "How long it took to make the previous scrape.",
    ),
    Spec(
        "zfstune_exporter_errors_total",
        COUNTER,
        ("what",),
        SELF,
        "Failures of the exporter, by the view or part that failed.",
    ),
    Spec(
        "zfstune_exporter_cpu_seconds_total",
        COUNTER,
        (),
        SELF,
        "CPU time of the process; BPF programs are in zfstune_trace_cost_ratio.",
    ),
    Spec("zfstune_exporter_resident_bytes", GAUGE, (), SELF, "Resident memory of the process."),
    Spec(
        "zfstune_build_info",
        INFO,
        ("version", "zfs", "kernel", "abi"),
        SELF,
        "Versions of zfstune, of the loaded ZFS and of the kernel, and the ABI of libzfstrace.",
    ),
)
METRICS = {spec.name: spec for spec in _METRICS}
