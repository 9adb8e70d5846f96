"""What the commands need of the system they run on.

zfs_linux and zfs_freebsd implement it; nothing else asks which system it is.
"""

from __future__ import annotations

from typing import Protocol

from zfstrace.arc import ArcState
from zfstrace.device import DeviceCounts
from zfstrace.disk import Disk, Scratch
from zfstrace.kstat.txgs import TxgRow
from zfstrace.params import Parameters
from zfstrace.recording import Recording, StackOptions
from zfstrace.throttle import ThrottleCounts, ThrottleState
from zfstrace.txg import Txg, TxgState
from zfstrace.types import (
    Check,
    DatasetCounts,
    FsyncOptions,
    Losses,
    Probe,
    SlowEvent,
    Survey,
    Tool,
    TraceOptions,
)


class FsyncSession(Protocol):
    """A running fsync trace. Ends with close(), which detaches."""

    def refresh(self) -> None:
        """Brings datasets() and losses() up to date. Raises TraceError."""
        ...

    def datasets(self) -> list[DatasetCounts]:
        """As of the last refresh. A dataset keeps its index."""
        ...

    def losses(self) -> Losses:
        """As of the last refresh."""
        ...

    def probes(self) -> tuple[Probe, ...]: ...

    def poll(self, timeout_ms: int) -> list[SlowEvent]:
        """Waits for slow operations; may be empty, also because of a signal."""
        ...

    def close(self) -> None: ...


class Session(Protocol):
    """What every running trace has. Ends with close(), which detaches."""

    def refresh(self) -> None:
        """Brings what the trace shows up to date. Raises TraceError."""
        ...

    def losses(self) -> Losses:
        """As of the last refresh."""
        ...

    def probes(self) -> tuple[Probe, ...]:
        """Empty where none is used (kstats)."""
        ...

    def close(self) -> None: ...


class TxgSession(Session, Protocol):
    def poll(self, timeout_ms: int) -> list[Txg]:
        """Waits for txgs to end; may be empty, also because of a signal. In each
        pool's order."""
        ...


class ThrottleSession(Session, Protocol):
    def waits(self) -> list[ThrottleCounts]:
        """As of the last refresh. A process on a pool keeps its index."""
        ...


class DeviceSession(Session, Protocol):
    def devices(self) -> list[DeviceCounts]:
        """As of the last refresh. A vdev keeps its index."""
        ...


class ArcSession(Session, Protocol):
    def state(self) -> ArcState:
        """As of the last refresh."""
        ...


class StackSession(Protocol):
    """A running recording of stacks. Ends with close(), which detaches."""

    def probes(self) -> tuple[Probe, ...]: ...

    def finish(self) -> Recording:
        """Ends the recording; what was recorded. Raises TraceError."""
        ...

    def close(self) -> None: ...


class Host(Protocol):
    """The system under observation."""

    def checks(self) -> list[Check]:
        """What tracing needs and whether it is there, most basic first. Never raises."""
        ...

    def survey(self) -> Survey:
        """Which probes there are. Raises TraceError."""
        ...

    def tools(self) -> list[Tool]:
        """The one-file tools of this system. Never raises."""
        ...

    def loaded(self) -> bool:
        """Whether ZFS is (still) in the kernel."""
        ...

    def pools(self) -> list[str]:
        """Names of the imported pools, sorted."""
        ...

    def dataset_names(self) -> list[str]:
        """Datasets in use (mounted file systems, volumes), sorted."""
        ...

    def learn_names(self) -> None:
        """Notes the names of datasets that are new, so that they are known later
        even when the dataset is not there any more, and what a running trace must know
        of the host. Cheap; call it every second."""
        ...

    def dataset_name(self, pool: str, objset: int, dev: tuple[int, int]) -> str | None:
        """The name of a dataset by its id in the pool (0 = unknown) or else by the
        device number of its file system ((0, 0) = unknown)."""
        ...

    def process_error(self, pid: int) -> str | None:
        """None when there is a process pid, otherwise what is wrong with it."""
        ...

    def txg_state(self, pool: str, start_ns: int, end_ns: int) -> TxgState | None:
        """What the pool's transaction groups did in a span of CLOCK_MONOTONIC."""
        ...

    def throttle_state(self, pool: str, start_ns: int, end_ns: int) -> ThrottleState | None:
        """What the pool's write throttle did in a span of CLOCK_MONOTONIC; None when that
        is not known."""
        ...

    def open_fsync_trace(self, options: FsyncOptions) -> FsyncSession:
        """Attaches. Raises TraceError."""
        ...

    def vdev_names(self, pool: str) -> dict[int, str]:
        """Leaf vdevs by guid, as `zpool status` names them; {} when that is not known."""
        ...

    def parameter(self, name: str) -> int | None:
        """A module parameter of ZFS by its Linux name; None when there is none."""
        ...

    def parameters(self) -> Parameters:
        """All module parameters of ZFS: to read, to write, to watch."""
        ...

    def memory_bytes(self) -> int:
        """Of the machine; 0 when that is not known."""
        ...

    def version(self) -> str:
        """Of the loaded module, as it names itself: "2.3.9-0+deb13u1"; "" when unknown."""
        ...

    def kstat(self, name: str) -> dict[str, int]:
        """The numbers of a named kstat: "arcstats", "dmu_tx", "tank/iostats"; {} when there
        is none."""
        ...

    def txg_rows(self, pool: str) -> list[TxgRow]:
        """The rows of the txgs kstat, oldest first; [] when it is off."""
        ...

    def written(self, pool: str) -> tuple[int, dict[int, int]]:
        """A time in ns of the kstats' clock, and what programs have written to each
        dataset in use, by object set, in bytes since it is in use."""
        ...

    def pool_state(self, pool: str) -> str:
        """`ONLINE`, "DEGRADED" ...; "" when that is not known."""
        ...

    def data_vdevs(self, pool: str) -> int:
        """The number of top-level vdevs that hold its data; 0 when that is not known."""
        ...

    def log_vdevs(self, pool: str) -> int | None:
        """The number of its top-level log devices; None when that is not known."""
        ...

    def disk(self, path: str) -> Disk | None:
        """What is known of the disk or partition at a path like /dev/sda1; None when there is
        none. Never raises."""
        ...

    def scratch(self, path: str) -> Scratch:
        """A disk that somebody wants to have erased, as it is now. Only reads. Raises
        UnknownName when there is none, TraceError when that cannot be told."""
        ...

    def erase(self, disk: Scratch) -> None:
        """Makes both ends of a disk zero, so that no signature is left. Raises TraceError when
        it is in use or another disk by now, OSError when it cannot be written."""
        ...

    def open_txg_trace(self, options: TraceOptions) -> TxgSession:
        """Attaches. Raises TraceError."""
        ...

    def open_throttle_trace(self, options: TraceOptions) -> ThrottleSession:
        """Attaches. Raises TraceError."""
        ...

    def open_device_trace(self, options: TraceOptions) -> DeviceSession:
        """Attaches. Raises TraceError."""
        ...

    def open_arc_trace(self, options: TraceOptions) -> ArcSession:
        """Attaches, or with options.kstat only reads. Raises TraceError."""
        ...

    def open_stack_trace(self, options: StackOptions) -> StackSession:
        """Attaches. Raises TraceError."""
        ...
