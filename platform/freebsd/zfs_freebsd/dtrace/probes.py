"""Which probes of the D scripts this kernel has, from `dtrace -l`.

One call lists them all, as a search for each costs more: the kernel goes through its 50,000 probes.
dtrace(1) prints a heading and a line for each probe, and on stderr a line "failed to match ..." for
each description without one. It exits with 0 either way (1 only if it could not start), so the
lines are read, not the status. As root, it loads dtraceall if necessary; callers that must change
nothing look for the device first (scripts.why_not).
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from zfstrace import processes
from zfstrace.types import Probe, merged


@dataclass(frozen=True)
class Need:
    """A place that a tracer watches; any one of the probes is enough. cost says what is lost
    without it; if that is a stage, merges says so, as in Probe."""

    tracer: str
    name: str
    any_of: tuple[str, ...]
    cost: str = ""
    required: bool = False
    merges: tuple[str, ...] = ()


# What the commands run: zilevent-json.d, txgstate-json.d ... "flush" belongs to zfsflush.d, which
# no command runs.
TRACERS = ("fsync", "txg", "throttle", "device", "arc", "read", "stacks", "sysctl")

_NOTHING = "nothing can be measured"
_NO_STAGES = "neither pools nor stages are known"
_NO_TXGS = "txgs cannot be followed (--source kstat can)"
_NO_ARC_WAITS = "waits for eviction cannot be timed (--source kstat shows the rest)"
_NO_CLOCK = "nothing can be reported while the trace runs"
_NO_READS = "reads cannot be timed (--source kstat counts them)"
_NO_WRITES = "writes are not timed"
_NO_SERVED = "what nfsd(8) reads and writes is not counted"
_NO_HELD = "writes that were held up are not counted"
_NO_DEVICE_WAIT = "`log_write`, `flush` and `wakeup` cannot be told apart"
_NO_FLUSHES = "cache flushes are not timed"
_LATE_END = "a commit whose end is not seen may end with a later one"
_NO_VOLUMES = "up to ZFS 2.3 commits of volumes with volmode=dev may have no end"

_COMMIT = ("fbt:zfs:zil_commit_flags:entry", "fbt:zfs:zil_commit:entry")
_WAIT_SYNCED = ("fbt:zfs:txg_wait_synced_flags:entry", "fbt:zfs:txg_wait_synced:entry")
_CLOCK = ("profile:::tick-500ms",)

# In each group, newer versions come first.
_OF_COMMITS: tuple[Need, ...] = (
    Need("fsync", "zil_commit", _COMMIT, _NOTHING, required=True),
    Need(
        "fsync",
        "zil_commit:return",
        (
            "fbt:zfs:zil_commit_flags:return",
            "fbt:zfs:zil_commit_impl:return",
            "fbt:zfs:zil_commit:return",
            "fbt:zfs:zfs_fsync:return",
            "fbt:zfs:zfs_write:return",
        ),
        _NOTHING,
        required=True,
    ),
    Need("fsync", "zvol_cdev_ioctl:return", ("fbt:zfs:zvol_cdev_ioctl:return",), _NO_VOLUMES),
    Need("fsync", "zvol_cdev_write:return", ("fbt:zfs:zvol_cdev_write:return",), _NO_VOLUMES),
    Need("fsync", "zfs_write", ("fbt:zfs:zfs_write:entry",), _LATE_END),
    Need(
        "fsync",
        "dmu_tx_assign",
        ("fbt:zfs:dmu_tx_assign:entry",),
        "ZIL commits cannot be told from early exits",
        required=True,
    ),
    Need(
        "fsync",
        "dmu_tx_assign:return",
        ("fbt:zfs:dmu_tx_assign:return",),
        "all that follows is part of `tx_assign`",
    ),
    Need("fsync", "mutex", ("fbt:kernel:_sx_xlock_hard:entry",), merges=("issuer_lock", "issue")),
    Need(
        "fsync",
        "mutex:return",
        ("fbt:kernel:_sx_xlock_hard:return",),
        "`issue` after a lock wait is part of `issuer_lock`",
    ),
    Need(
        "fsync",
        "cv_wait",
        ("fbt:kernel:_cv_wait:entry",),
        "waiting cannot be told from issuing",
        required=True,
    ),
    Need(
        "fsync",
        "cv_timedwait",
        ("fbt:kernel:_cv_timedwait_sbt:entry",),
        merges=("batch_wait", "issue"),
    ),
    Need("fsync", "cv_broadcast", ("fbt:kernel:cv_broadcastpri:entry",), _NO_DEVICE_WAIT),
    Need(
        "fsync",
        "zil_lwb_write_issue",
        ("fbt:zfs:zil_lwb_write_issue:entry", "fbt:zfs:zio_alloc_zil:entry"),
        "`issue` after a batch wait is part of `batch_wait`",
    ),
    Need("fsync", "zil_lwb_write_done", ("fbt:zfs:zil_lwb_write_done:entry",), _NO_DEVICE_WAIT),
    Need(
        "fsync",
        "zil_lwb_flush_vdevs_done",
        ("fbt:zfs:zil_lwb_flush_vdevs_done:entry",),
        _NO_DEVICE_WAIT,
    ),
    Need("fsync", "txg_wait_synced", _WAIT_SYNCED, merges=("txg_fallback", "issue")),
)

NEEDS: tuple[Need, ...] = (
    *_OF_COMMITS,
    Need(
        "fsync",
        "kern_fsync",
        ("fbt:kernel:kern_fsync:entry",),
        "the write-back of mappings before a commit is not part of an fsync",
    ),
    Need(
        "fsync",
        "kern_fsync:return",
        ("fbt:kernel:kern_fsync:return",),
        "an fsync by AIO may count the write-back of an earlier call as its own",
    ),
    Need(
        "fsync", "zfs_fsync", ("fbt:zfs:zfs_fsync:entry",), "fsyncs are not told from O_SYNC writes"
    ),
    Need("fsync", "clock", _CLOCK, _NO_CLOCK, required=True),
    Need("txg", "txg-opened", ("sdt:::txg-opened",), "how long a txg was open is not known"),
    Need(
        "txg",
        "txg-quiescing",
        ("sdt:::txg-quiescing",),
        "neither open nor quiesce times nor reasons",
    ),
    Need("txg", "txg-quiesced", ("sdt:::txg-quiesced",), "neither quiesce nor wait times"),
    Need("txg", "txg-syncing", ("sdt:::txg-syncing",), _NO_TXGS, required=True),
    Need("txg", "txg-synced", ("sdt:::txg-synced",), _NO_TXGS, required=True),
    Need("txg", "dsl_pool_sync-done", ("sdt:::dsl_pool_sync-done",), "passes are not counted"),
    Need("txg", "txg_kick", ("fbt:zfs:txg_kick:entry",), "reason `dirty` is `unknown`"),
    Need(
        "txg",
        "txg_wait_synced",
        (*_WAIT_SYNCED, "fbt:zfs:txg_wait_synced_sig:entry"),
        "reason `waiter` is `unknown`",
    ),
    Need(
        "txg",
        "txg_wait_open",
        ("fbt:zfs:txg_wait_open:entry",),
        "reason `waiter` is at times `unknown`",
    ),
    Need("txg", "clock", _CLOCK, _NO_CLOCK, required=True),
    Need(
        "throttle",
        "spa_tx_assign_add_nsecs",
        ("fbt:zfs:spa_tx_assign_add_nsecs:entry",),
        "waits cannot be timed",
        required=True,
    ),
    Need(
        "throttle",
        "dmu_tx_wait",
        ("fbt:zfs:dmu_tx_wait:entry",),
        "limits cannot be told apart",
    ),
    Need("throttle", "delay-mintime", ("sdt:::delay-mintime",), "delays are not told from waits"),
    Need("throttle", "clock", _CLOCK, _NO_CLOCK, required=True),
    Need(
        "device",
        "zio_vdev_io_assess",
        ("fbt:zfs:zio_vdev_io_assess:entry",),
        "I/Os cannot be timed",
        required=True,
    ),
    Need("device", "vdev_geom_io_start", ("fbt:zfs:vdev_geom_io_start:entry",), _NO_FLUSHES),
    Need("device", "vdev_geom_io_intr", ("fbt:zfs:vdev_geom_io_intr:entry",), _NO_FLUSHES),
    Need("device", "clock", _CLOCK, _NO_CLOCK, required=True),
    Need(
        "arc",
        "arc_wait_for_eviction:return",
        ("fbt:zfs:arc_wait_for_eviction:return",),
        _NO_ARC_WAITS,
        required=True,
    ),
    Need(
        "arc",
        "arc-wait-for-eviction",
        ("sdt:::arc-wait-for-eviction",),
        _NO_ARC_WAITS,
        required=True,
    ),
    Need("arc", "arc-miss", ("sdt:::arc-miss",), "misses are not counted"),
    Need(
        "arc",
        "arc_reduce_target_size",
        ("fbt:zfs:arc_reduce_target_size:entry",),
        "shrinking is not counted",
    ),
    Need(
        "arc",
        "seconds",
        ("profile:::tick-1s",),
        "nothing can be reported each second",
        required=True,
    ),
    Need("arc", "clock", _CLOCK, _NO_CLOCK, required=True),
    Need("read", "zfs_read", ("fbt:zfs:zfs_read:entry",), _NO_READS, required=True),
    Need("read", "zfs_read:return", ("fbt:zfs:zfs_read:return",), _NO_SERVED),
    Need("read", "zfs_write", ("fbt:zfs:zfs_write:entry",), _NO_WRITES),
    Need("read", "zfs_write:return", ("fbt:zfs:zfs_write:return",), _NO_SERVED),
    Need(
        "read",
        "vn_io_fault",
        ("fbt:kernel:vn_io_fault:entry",),
        "a call whose buffer is not in memory counts as several, and as errors",
    ),
    Need(
        "read", "vn_io_fault:return", ("fbt:kernel:vn_io_fault:return",), _NO_READS, required=True
    ),
    Need(
        "read",
        "cv_timedwait",
        ("fbt:kernel:_cv_timedwait_sbt:entry",),
        "reads that waited for an I/O cannot be told (--source kstat shows the ARC)",
        required=True,
    ),
    Need(
        "read",
        "cv_wait",
        ("fbt:kernel:_cv_wait:entry",),
        "reads that waited for the I/O of another thread count as hits",
    ),
    Need("read", "dmu_tx_wait", ("fbt:zfs:dmu_tx_wait:entry",), _NO_HELD),
    Need("read", "dmu_tx_wait:end", ("fbt:zfs:spa_tx_assign_add_nsecs:entry",), _NO_HELD),
    Need("read", "clock", _CLOCK, _NO_CLOCK, required=True),
    Need(
        "stacks",
        "zfs_freebsd_fsync",
        ("fbt:zfs:zfs_freebsd_fsync:entry",),
        "threads in fsync(2) are not known",
        required=True,
    ),
    Need(
        "stacks",
        "zfs_fsync:return",
        ("fbt:zfs:zfs_fsync:return",),
        "threads seem never to leave fsync(2)",
        required=True,
    ),
    # its stages are those of commits
    *(
        replace(
            need,
            tracer="stacks",
            cost=_NO_STAGES if need.cost == _NOTHING else need.cost,
            required=False,
        )
        for need in _OF_COMMITS
    ),
    Need("stacks", "zfs_fsync", ("fbt:zfs:zfs_fsync:entry",), _LATE_END),
    Need("stacks", "off-cpu", ("sched:::off-cpu",), "nobody is seen to sleep", required=True),
    Need("stacks", "on-cpu", ("sched:::on-cpu",), "nobody is seen to run again", required=True),
    Need("stacks", "wakeup", ("sched:::wakeup",), "who wakes them is not known"),
    Need("stacks", "profile", ("profile:::profile-97",), "no samples of what runs"),
    Need("stacks", "exit", ("proc:::exit",), "dtrace may stay behind when zfstune is killed"),
    Need(
        "sysctl",
        "sysctl",
        ("syscall::__sysctl:entry",),
        "who sets a parameter by numbers is not known",
    ),
    Need(
        "sysctl",
        "sysctl:return",
        ("syscall::__sysctl:return",),
        "who sets a parameter by numbers is not known",
    ),
    Need(
        "sysctl",
        "sysctlbyname",
        ("syscall::__sysctlbyname:entry",),
        "who sets a parameter by name is not known",
    ),
    Need(
        "sysctl",
        "sysctlbyname:return",
        ("syscall::__sysctlbyname:return",),
        "who sets a parameter by name is not known",
    ),
    Need("sysctl", "exit", ("proc:::exit",), "dtrace may stay behind when zfstune is killed"),
    Need(
        "flush",
        "zil_lwb_write_done",
        ("fbt:zfs:zil_lwb_write_done:entry",),
        "log blocks cannot be followed",
        required=True,
    ),
    Need(
        "flush",
        "zil_lwb_flush_vdevs_done",
        ("fbt:zfs:zil_lwb_flush_vdevs_done:entry",),
        "`flush` is not measured",
    ),
    Need(
        "flush",
        "zil_lwb_add_block",
        ("fbt:zfs:zil_lwb_add_block:entry",),
        "`log_write` is not measured",
    ),
    Need("flush", "vdev_geom_io_start", ("fbt:zfs:vdev_geom_io_start:entry",), _NO_FLUSHES),
    Need("flush", "vdev_geom_io_intr", ("fbt:zfs:vdev_geom_io_intr:entry",), _NO_FLUSHES),
)

# Less than a second; a few on an emulated machine, a minute on a busy one.
_TIMEOUT_S = 180

# Runs a command line: its output, and why that is incomplete ("" if it is not).
Run = Callable[[Sequence[str]], tuple[str, str]]


def program() -> str:
    """The path of dtrace(1); the PATH of cron(8) and sudo may lack its directory."""
    return shutil.which("dtrace") or "/usr/sbin/dtrace"


def run(argv: Sequence[str]) -> tuple[str, str]:
    """Its output, and why it failed ("" if it did not)."""
    try:
        done = processes.run(argv, _TIMEOUT_S)
    except TimeoutError:
        return "", f"dtrace did not answer within {_TIMEOUT_S} s"
    except FileNotFoundError:
        return "", "dtrace is not installed"
    except OSError as error:
        return "", f"dtrace does not run: {error.strerror}"
    if done.status == 0:
        return done.out, ""
    said = [line for line in done.err.splitlines() if line and "failed to match" not in line]
    return done.out, said[-1] if said else f"dtrace ended with status {done.status}"


def survey(
    tracers: Sequence[str], *, run: Run = run, needs: Iterable[Need] | None = None
) -> tuple[Probe, ...]:
    """The places that these tracers watch, each `found` or `missing`; never raises. needs replaces
    NEEDS, for tests."""
    table = tuple(NEEDS if needs is None else needs)
    # those of all tracers, which are listed once
    there, why = look_up({probe for need in table for probe in need.any_of}, run=run)
    return tuple(_probe(need, there, why) for need in table if need.tracer in tracers)


def look_up(wanted: Iterable[str], *, run: Run = run) -> tuple[frozenset[str], str]:
    """Which of these descriptions have a probe, and why that is unknown ("" if it is known); never
    raises. A list that was read is remembered."""
    try:
        return _look_up(frozenset(wanted), program(), run), ""
    except _NotListed as error:
        return frozenset(), str(error)


def of_host(run: Run = run) -> tuple[Probe, ...]:
    """For `zfstune doctor`, whose verdict is about fsyncs: only their tracer's probes are
    required."""
    return tuple(
        replace(probe, required=probe.required and probe.tracer == "fsync")
        for probe in survey(TRACERS, run=run)
    )


def lacks(probes: Iterable[Probe], tracer: str) -> str:
    """Why the tracer cannot work: which of its required probes are missing; "" if it can."""
    missing = [p for p in probes if p.tracer == tracer and p.required and p.missing]
    return "; ".join(dict.fromkeys(probe.why for probe in missing))


def _probe(need: Need, there: Collection[str], why: str) -> Probe:
    symbol = next((probe for probe in need.any_of if probe in there), "")
    if not symbol:
        why = why or f"the kernel has no {' or '.join(need.any_of)}"
    return Probe(
        name=need.name,
        symbol=symbol or need.any_of[0],
        how="found" if symbol else "missing",
        required=need.required,
        cost=need.cost or merged(need.merges),
        why="" if symbol else why,
        tracer=need.tracer,
        merges=need.merges,
    )


class _NotListed(Exception):
    pass


@functools.cache
def _look_up(wanted: frozenset[str], dtrace: str, run: Run) -> frozenset[str]:
    argv = [dtrace, "-xnolibs", "-l"]
    for provider in sorted({probe.split(":")[0] for probe in wanted} - {"profile"}):
        argv += ["-P", provider]
    # it makes its probes when they are named
    for probe in sorted(probe for probe in wanted if probe.startswith("profile:")):
        argv += ["-n", probe]
    listed, why = run(argv)
    there = _listed(listed, wanted)
    if not there:
        raise _NotListed(why)
    return there


def _listed(text: str, wanted: Iterable[str]) -> frozenset[str]:
    """Which of these descriptions match a line of `dtrace -l`: ID PROVIDER MODULE FUNCTION NAME,
    where module, or module and function, may be missing. Those of a description may be, too."""
    modules: dict[tuple[str, str, str], dict[str, str]] = {}
    for probe in wanted:
        provider, module, function, name = probe.split(":")
        modules.setdefault((provider, function, name), {})[module] = probe
    there = set()
    for line in text.splitlines():
        words = line.split()
        if len(words) < 3 or not words[0].isdigit():
            continue
        for function in ("", words[-2]):
            asked = modules.get((words[1], function, words[-1]), {})
            there |= {asked[module] for module in ("", words[2]) if module in asked}
    return frozenset(there)
