"""The stages of an fsync: what each means, who spends the time, and where to look.

They are in the order in which they happen, that of ``enum fsync_stage`` in tracers/bpf/fsync.h.
They do not overlap, and their sum is the operation's total.
"""

from __future__ import annotations

from dataclasses import dataclass

DEVICE = "device"
ZFS = "zfs"
SYSTEM = "system"
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Stage:
    """owner is who spends the time: ``device``, ``zfs``, ``system`` (the scheduler) or ``unknown``.
    meaning and advice are clauses without a full stop."""

    name: str
    owner: str
    meaning: str
    advice: str


STAGES = (
    Stage(
        "writeback",
        ZFS,
        "pages dirtied through mmap are written out before ZFS begins",
        "the program writes through mmap; look at how much it dirties between two fsyncs",
    ),
    Stage(
        "async_to_sync",
        ZFS,
        "the file's earlier writes are moved to the commit list",
        "much was written since the last fsync of the file; shorter steps between fsyncs help",
    ),
    Stage(
        "tx_assign",
        ZFS,
        "the commit waits for an open transaction group",
        "the pool's transaction groups are behind; look at qtime and stime in the pool's `txgs` "
        "kstat (up to ZFS 2.1.11 the write throttle, too, holds up an fsync here)",
    ),
    Stage(
        "issuer_lock",
        ZFS,
        "another thread is committing to the same dataset (zl_issuer_lock and the log's other "
        "mutexes)",
        "many threads commit to one dataset; look at what the others do there (`issue`), "
        "or spread the files over more datasets",
    ),
    Stage(
        "issue",
        ZFS,
        "log blocks are filled and allocated and their writes started: CPU, and reads of data "
        "that is not in memory",
        "look at the CPU load, at free space and fragmentation of the pool, and at "
        "zil_itx_indirect_count in the `zil` kstat (large writes go past the log)",
    ),
    Stage(
        "batch_wait",
        ZFS,
        "the log block is held open for more commits to join it",
        "it waits zfs_commit_timeout_pct percent of the last log write's latency; one slow "
        "write inflates it for the next",
    ),
    Stage(
        "log_write",
        DEVICE,
        "the log block is on its way to the device and back",
        "look at `zpool iostat -vl 1`, at a scrub or resilver, and at whether the log is on a "
        "device of its own (`zpool status`, section logs)",
    ),
    Stage(
        "flush",
        DEVICE,
        "the device's cache flush after the log write, and earlier log blocks not yet done",
        "the disk takes that long to make its cache durable; look at `zpool iostat -vl 1` for one "
        "slow disk, and at a log device with power-loss protection",
    ),
    Stage(
        "wakeup",
        SYSTEM,
        "the log is on disk, but the thread does not get a CPU yet",
        "look at the run queue (`vmstat 1`, column r), CPU limits of the cgroup, and priorities",
    ),
    Stage(
        "txg_fallback",
        ZFS,
        "there is no log yet, or the commit gave up on it: a whole transaction group is awaited",
        "the first fsync after a mount does it once; else look at zil_commit_error_count, "
        "_stall_count and _suspend_count in the `zil` kstat (ZFS 2.3 and later), at failing log "
        "devices and at free space",
    ),
    Stage(
        "other",
        UNKNOWN,
        "time that no probe explains",
        "look at the missing probes and at the waits with an unknown log block, which are counted",
    ),
)

NAMES = tuple(stage.name for stage in STAGES)
BY_NAME = {stage.name: stage for stage in STAGES}

KINDS = ("fsync", "fdatasync", "o_sync", "msync", "zvol", "other")
