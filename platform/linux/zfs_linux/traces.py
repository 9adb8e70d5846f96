"""Traces on Linux that need something beside libzfstrace: parameters, kstats."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from zfs_linux import kstat
from zfstrace.arc import ArcState
from zfstrace.bpf.fsync import FsyncTrace
from zfstrace.bpf.pools import ArcTrace, ThrottleTrace
from zfstrace.errors import TraceError
from zfstrace.types import FsyncOptions, Losses, Probe, TraceOptions

_PARAMETERS = ("zfs_dirty_data_max", "zfs_delay_min_dirty_percent", "zfs_delay_scale")


class ThrottleWithParams(ThrottleTrace):
    """Implements zfstrace.host.ThrottleSession; knows the parameters, which it reads again
    when it is told to: an administrator or a tuner may change them. What waits between a
    change and then may be told as of the wrong kind."""

    def __init__(
        self,
        options: TraceOptions,
        parameter: Callable[[str], int | None],
        ended: Callable[[int], bool],
    ) -> None:
        super().__init__(pool=options.pool, pid=options.pid or 0, no_fentry=options.no_fentry)
        self._parameter, self._has_ended = parameter, ended
        self.learn()

    def learn(self) -> None:
        """Reads the parameters, and looks which processes have ended. Does nothing when the
        trace is closed."""
        self.release(self._has_ended)
        self.tell(*(self._parameter(name) or 0 for name in _PARAMETERS))


class TracedFsyncs(FsyncTrace):
    """Implements zfstrace.host.FsyncSession. A trace of slow operations has a throttle trace
    beside it; throttle is None without, or when that cannot be traced."""

    def __init__(
        self,
        options: FsyncOptions,
        parameter: Callable[[str], int | None],
        ended: Callable[[int], bool],
        objset: int,
        dev: tuple[int, int],
        max_datasets: int,
    ) -> None:
        self.throttle: ThrottleWithParams | None = None
        super().__init__(
            pool=options.pool,
            objset=objset,
            dev=dev,
            pid=options.pid or 0,
            slow_ns=options.slow_ns,
            max_datasets=max_datasets,
            no_fentry=options.no_fentry,
        )
        if not options.slow_ns:
            return
        try:
            self.throttle = ThrottleWithParams(
                TraceOptions(pool=options.pool, no_fentry=options.no_fentry), parameter, ended
            )
        except TraceError:  # its field is null then, the rest of the trace goes on
            self.throttle = None

    def close(self) -> None:
        if self.throttle:
            self.throttle.close()
        super().close()


class ArcStats:
    """Implements zfstrace.host.ArcSession: the arcstats kstat, and with BPF the waits."""

    def __init__(self, path: Path, options: TraceOptions) -> None:
        self._path = path
        self._trace = None if options.kstat else ArcTrace(no_fentry=options.no_fentry)

    def state(self) -> ArcState:
        stats = {
            name: value
            for name, value in kstat.parse_named(kstat.read(self._path)).items()
            if isinstance(value, int)
        }
        return ArcState(stats, self._trace.waits() if self._trace else None)

    def refresh(self) -> None:
        if self._trace:
            self._trace.refresh()

    def losses(self) -> Losses:
        return self._trace.losses() if self._trace else Losses()

    def probes(self) -> tuple[Probe, ...]:
        return self._trace.probes() if self._trace else ()

    def close(self) -> None:
        if self._trace:
            self._trace.close()
