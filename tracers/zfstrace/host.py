"""What the commands need from the operating system.

zfs_linux and zfs_freebsd implement Host; nothing else asks which system it is.
"""

from __future__ import annotations

from typing import Protocol

# for annotations only: no view loads the modules of the others
TYPE_CHECKING = False
if TYPE_CHECKING:
    from zfstrace.arc import ArcState
    from zfstrace.cost import CostCounts
    from zfstrace.device import DeviceCounts
    from zfstrace.disk import Dev, Disk, Scratch
    from zfstrace.kstat.txgs import TxgRow
    from zfstrace.light import CommitCounts, Window
    from zfstrace.params import Parameters
    from zfstrace.read import ReadState
    from zfstrace.recording import Recording, StackOptions
    from zfstrace.throttle import ThrottleCounts
    from zfstrace.txg import Txg, TxgState
    from zfstrace.types import (
        Check,
        DatasetCounts,
        FsyncOptions,
        LightOptions,
        Losses,
        Probe,
        ProbeSurvey,
        SlowEvent,
        Tool,
        TraceOptions,
    )


class Trace(Protocol):
    """Probes that are attached to the kernel until close()."""

    def probes(self) -> tuple[Probe, ...]:
        """All its probes, missing ones included; () if it needs none (kstats)."""
        ...

    def close(self) -> None:
        """Detaches. May be called again."""
        ...


class Session(Trace, Protocol):
    """A trace that counts while it runs."""

    def refresh(self) -> None:
        """Reads what has been counted. Raises TraceError."""
        ...

    def losses(self) -> Losses:
        """As of the last refresh, since the session began."""
        ...


class FsyncSession(Session, Protocol):
    def datasets(self) -> list[DatasetCounts]:
        """As of the last refresh, since the session began. A dataset keeps its index."""
        ...

    def poll(self, timeout_ms: int) -> list[SlowEvent]:
        """Waits for operations of options.slow_ns or more; may return none, also because of a
        signal. Raises TraceError."""
        ...

    def held_up(self, pool: str, start_ns: int, end_ns: int) -> int | None:
        """How many processes the pool's write throttle delayed in a span of CLOCK_MONOTONIC; None
        when that is not traced: without options.slow_ns, or where it is not possible."""
        ...


class LightSession(Session, Protocol):
    """Commits, counted always, and windows in which fsyncs are traced. It outlives the module, and
    nothing is attached while no pool is imported, so that the module can be unloaded. Commits since
    an import that came before its probes are lost: losses().missed."""

    @property
    def waiting(self) -> bool:
        """Whether nothing is attached."""
        ...

    @property
    def why(self) -> str:
        """What keeps it from attaching its probes, or those of a window, as one line; it tries
        again after a minute, and counts commits meanwhile as missed. "" when it is attached, or
        waits for a pool or dataset."""
        ...

    def commits(self) -> list[CommitCounts]:
        """As of the last refresh, since the session began. A dataset keeps its index."""
        ...

    def windows(self) -> list[Window]:
        """The last windows that began at random, oldest first."""
        ...

    def kept(self) -> list[Window]:
        """The windows since the last call that were recorded because a commit was slow."""
        ...


class CostSession(Protocol):
    """All tracers at once, with what they cost."""

    def counts(self) -> CostCounts:
        """Since the session began, or before: compare two. Raises TraceError."""
        ...

    def close(self) -> None:
        """Detaches. May be called again."""
        ...


class TxgSession(Session, Protocol):
    def poll(self, timeout_ms: int) -> list[Txg]:
        """Waits for txgs to end; may return none, also because of a signal. The txgs of a pool are
        in order. Raises TraceError."""
        ...


class ThrottleSession(Session, Protocol):
    def waits(self) -> list[ThrottleCounts]:
        """As of the last refresh, since the session began; a process is identified by its life or,
        if that is 0, by its index."""
        ...


class DeviceSession(Session, Protocol):
    def devices(self) -> list[DeviceCounts]:
        """As of the last refresh, since the session began. A vdev keeps its index."""
        ...


class ArcSession(Session, Protocol):
    def state(self) -> ArcState:
        """As of the last refresh."""
        ...


class ReadSession(Session, Protocol):
    def state(self) -> ReadState:
        """As of the last refresh."""
        ...


class StackSession(Trace, Protocol):
    def finish(self) -> Recording:
        """Ends the recording and returns it. Raises TraceError."""
        ...


class Host(Protocol):
    """The system under observation. Times are in ns, sizes in bytes."""

    # --- reads of kstats, sysctl(3), /proc and /sys: at most some milliseconds

    def loaded(self) -> bool:
        """Whether ZFS is (still) in the kernel."""
        ...

    def version(self) -> str:
        """The loaded module's version, such as "2.3.9-0+deb13u1"; "" when unknown."""
        ...

    def tick(self) -> None:
        """Call this before a trace begins and every second while one runs. Remembers the names of
        datasets, which may be gone later, and lets the traces of this host do what is due, such as
        draining output or re-reading limits. Raises TraceError when one of them cannot continue."""
        ...

    def pools(self) -> list[str]:
        """Names of the imported pools, sorted."""
        ...

    def pool_state(self, pool: str) -> str:
        """ONLINE, DEGRADED ...; "" when unknown."""
        ...

    def pools_blocking_detach(self) -> list[str]:
        """The imported pools that may keep probes from being detached, as long as writes to them
        are blocked."""
        ...

    def dataset_names(self) -> list[str]:
        """Datasets in use (mounted file systems, volumes), sorted."""
        ...

    def process_error(self, pid: int) -> str | None:
        """Why a process cannot be traced, as one line; None when it exists."""
        ...

    def memory_bytes(self) -> int:
        """The machine's memory; 0 when unknown."""
        ...

    def parameter(self, name: str) -> int | None:
        """A module parameter of ZFS by its Linux name; None when it does not exist."""
        ...

    def parameters(self) -> Parameters:
        """All module parameters of ZFS: to read, to write, to watch."""
        ...

    def kstat(self, name: str) -> dict[str, int]:
        """The numbers of a named kstat: "arcstats", "dmu_tx", "tank/iostats"; {} when there
        is none."""
        ...

    def txg_rows(self, pool: str) -> list[TxgRow]:
        """The rows of the txgs kstat, oldest first; [] when it is off."""
        ...

    def txg_state(self, pool: str, start_ns: int, end_ns: int) -> TxgState | None:
        """What the pool's transaction groups did in a span of CLOCK_MONOTONIC; None when the kstat
        does not reach back that far."""
        ...

    def written(self, pool: str) -> tuple[int, dict[int, int]]:
        """A time of the kstats' clock, and the bytes that programs have written to each dataset in
        use, by object set, since its use began."""
        ...

    # --- may run a command (zpool(8), mount(8), diskinfo(8)), for up to 5 s each

    def dataset_name(self, pool: str, objset: int, dev: Dev) -> str | None:
        """The name of a dataset by its id in the pool (0 = unknown) or else by the device number
        of its file system ((0, 0) = unknown); None when it is not found. Runs a command only for a
        new device number."""
        ...

    def vdev_names(self, pool: str) -> dict[int, str]:
        """Leaf vdevs by guid, as `zpool status` names them; {} when unknown."""
        ...

    def data_vdevs(self, pool: str) -> int:
        """The number of top-level vdevs that hold its data; 0 when unknown."""
        ...

    def log_vdevs(self, pool: str) -> int | None:
        """The number of its top-level log devices; None when unknown."""
        ...

    def disk(self, path: str) -> Disk | None:
        """The properties of the disk or partition at a path such as /dev/sda1; None when there is
        none. Never raises."""
        ...

    def scratch(self, path: str) -> Scratch:
        """The current state of a disk that is to be erased. Only reads. Raises UnknownName when
        there is none, TraceError when its state cannot be determined."""
        ...

    def erase(self, disk: Scratch) -> None:
        """Zeroes both ends of a disk, so that no signature is left. Raises TraceError when it is in
        use or has become another disk, OSError when it cannot be written."""
        ...

    # --- looks for probes: about a second, with dtrace(1) on a slow machine half a minute

    def checks(self) -> list[Check]:
        """What tracing needs and whether it is available, most basic first. Never raises."""
        ...

    def survey(self) -> ProbeSurvey:
        """The available probes. Raises TraceError."""
        ...

    def tools(self) -> list[Tool]:
        """The one-file tools of this system. Never raises."""
        ...

    # --- attaches: a second or two, with dtrace(1) on a slow machine minutes

    def open_fsync_trace(self, options: FsyncOptions) -> FsyncSession:
        """Fsyncs by dataset and stage, and with options.slow_ns individual ones. Raises TraceError,
        UnknownName for a dataset that is not in use."""
        ...

    def open_light_trace(self, options: LightOptions) -> LightSession:
        """Commits, and fsyncs in windows. Raises TraceError, UnknownName for a dataset that is not
        in use, NotSupported where this is not possible."""
        ...

    def open_txg_trace(self, options: TraceOptions) -> TxgSession:
        """Transaction groups as they end. Attaches nothing with options.kstat. Raises
        TraceError."""
        ...

    def open_throttle_trace(self, options: TraceOptions) -> ThrottleSession:
        """Waits of writers, by process. Raises TraceError."""
        ...

    def open_device_trace(self, options: TraceOptions) -> DeviceSession:
        """I/Os, by vdev and class. Raises TraceError."""
        ...

    def open_arc_trace(self, options: TraceOptions) -> ArcSession:
        """The cache, and waits for room in it. Attaches nothing with options.kstat. Raises
        TraceError."""
        ...

    def open_read_trace(self, options: TraceOptions) -> ReadSession:
        """Reads and writes of files, by dataset. Attaches nothing with options.kstat, and then
        times nothing. Raises TraceError, UnknownName for a dataset that is not in use."""
        ...

    def open_stack_trace(self, options: StackOptions) -> StackSession:
        """Stacks of threads that sleep or run. Raises TraceError, NotSupported for options that
        this system cannot record."""
        ...

    def open_cost_trace(self) -> CostSession:
        """All tracers that a screen of all views has, while the kernel counts what they cost.
        Raises TraceError, NotSupported where it cannot."""
        ...
