"""What the commands need of the system they run on.

zfs_linux and zfs_freebsd implement it; nothing else asks which system it is.
"""

from __future__ import annotations

from typing import Protocol

from zfstrace.types import (
    Check,
    DatasetCounts,
    FsyncOptions,
    Losses,
    Probe,
    SlowEvent,
    Survey,
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


class Host(Protocol):
    """The system under observation."""

    def checks(self) -> list[Check]:
        """What tracing needs and whether it is there, most basic first. Never raises."""
        ...

    def survey(self) -> Survey:
        """Which probes there are. Raises TraceError."""
        ...

    def pools(self) -> list[str]:
        """Names of the imported pools, sorted."""
        ...

    def dataset_names(self) -> list[str]:
        """Datasets in use (mounted file systems, volumes), sorted."""
        ...

    def learn_names(self) -> None:
        """Notes the names of datasets that are new, so that they are known later
        even when the dataset is not there any more. Cheap; call it every second."""
        ...

    def dataset_name(self, pool: str, objset: int, dev: tuple[int, int]) -> str | None:
        """The name of a dataset by its id in the pool (0 = unknown) or else by the
        device number of its file system ((0, 0) = unknown)."""
        ...

    def process_error(self, pid: int) -> str | None:
        """None when there is a process pid, otherwise what is wrong with it."""
        ...

    def txg_state(self, pool: str, start_ns: int, end_ns: int) -> str | None:
        """What the pool's transaction groups did in a span of CLOCK_MONOTONIC."""
        ...

    def open_fsync_trace(self, options: FsyncOptions) -> FsyncSession:
        """Attaches. Raises TraceError."""
        ...
