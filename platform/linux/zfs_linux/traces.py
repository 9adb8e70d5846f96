"""Traces on Linux that need more than libzfstrace: parameters, kstats."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from zfs_linux import kallsyms, kstat
from zfstrace.arc import ArcState
from zfstrace.bpf.binding import CCost
from zfstrace.bpf.fsync import FsyncTrace
from zfstrace.bpf.pools import ArcTrace, ThrottleTrace, TxgEvent, TxgTrace
from zfstrace.bpf.stacks import StackTrace
from zfstrace.errors import NotSupported, TraceError
from zfstrace.kstat.txgs import Completed, Source, TxgRow, parse_txgs, timer, utc
from zfstrace.recording import Recording, StackOptions, build
from zfstrace.txg import Txg
from zfstrace.types import FsyncOptions, Losses, Probe, TraceOptions

_PARAMETERS = ("zfs_dirty_data_max", "zfs_delay_min_dirty_percent", "zfs_delay_scale")


class Kernel(Protocol):
    """What these traces ask the host."""

    def parameter(self, name: str) -> int | None: ...

    def pools(self) -> list[str]: ...

    def has_ended(self, pid: int) -> bool: ...


class ThrottleWithParams(ThrottleTrace):
    """Implements zfstrace.host.ThrottleSession. Reads the parameters at each tick(), as an
    administrator or a tuner may change them; waits between a change and the next tick may be
    attributed to the wrong kind."""

    def __init__(self, options: TraceOptions, kernel: Kernel) -> None:
        super().__init__(
            pool=options.pool,
            pid=options.pid or 0,
            no_fentry=options.no_fentry,
            table_mib=options.table_mib,
        )
        self._kernel = kernel
        self.tick()

    def tick(self) -> None:
        """Reads the parameters and drops processes that have ended, and those of pools that were
        exported: another pool may get the spa_t that they are known by. Does nothing once the trace
        is closed. Raises TraceError."""
        kernel, pools = self._kernel, frozenset(self._kernel.pools())
        self.release(lambda pool, pid: pool not in pools or kernel.has_ended(pid))
        self.tell(*(kernel.parameter(name) or 0 for name in _PARAMETERS))


class TracedFsyncs(FsyncTrace):
    """Implements zfstrace.host.FsyncSession. A trace of slow operations runs a throttle trace
    beside it, if that can start."""

    def __init__(
        self,
        options: FsyncOptions,
        kernel: Kernel,
        objset: int,
        dev: tuple[int, int],
        max_datasets: int,
    ) -> None:
        self._throttle: ThrottleWithParams | None = None
        super().__init__(
            pool=options.pool,
            objset=objset,
            dev=dev,
            pid=options.pid or 0,
            slow_ns=options.slow_ns,
            max_datasets=max_datasets,
            no_fentry=options.no_fentry,
            table_mib=options.table_mib,
        )
        if not options.slow_ns:
            return
        beside = TraceOptions(
            pool=options.pool, no_fentry=options.no_fentry, table_mib=options.table_mib
        )
        try:
            self._throttle = ThrottleWithParams(beside, kernel)
        except TraceError:  # its field is null then; the rest of the trace works
            self._throttle = None

    def tick(self) -> None:
        """Lets the library tidy up, and ticks the throttle trace. Raises TraceError."""
        self.tidy()
        if self._throttle:
            self._throttle.tick()

    def held_up(self, pool: str, start_ns: int, end_ns: int) -> int | None:
        return self._throttle.held_up(pool, start_ns, end_ns) if self._throttle else None

    def costs(self) -> list[tuple[Probe, CCost]]:
        """Raises TraceError."""
        return super().costs() + (self._throttle.costs() if self._throttle else [])

    def close(self) -> None:
        if self._throttle:
            self._throttle.close()
        super().close()


class ArcStats:
    """Implements zfstrace.host.ArcSession: the arcstats kstat and, by BPF, the waits."""

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

    def count_cost(self) -> None:
        """As Session.count_cost(). Raises TraceError."""
        if self._trace:
            self._trace.count_cost()

    def end_cost(self) -> None:
        """As Session.end_cost()."""
        if self._trace:
            self._trace.end_cost()

    def costs(self) -> list[tuple[Probe, CCost]]:
        """As Session.costs(). Raises TraceError."""
        return self._trace.costs() if self._trace else []

    def close(self) -> None:
        if self._trace:
            self._trace.close()


_REASONS = {1: "dirty", 2: "waiter"}


class ProcTxgs:
    """Implements zfstrace.kstat.txgs.Source. kstats is the directory of the kstats, timeout the
    file of zfs_txg_timeout."""

    def __init__(self, kstats: Path, timeout: Path) -> None:
        self._kstats, self._timeout = kstats, timeout

    def pools(self) -> list[str]:
        return kstat.pools(self._kstats)

    def rows(self, pool: str) -> list[TxgRow]:
        return parse_txgs(kstat.read(self._kstats / pool / "txgs"))

    def timeout_s(self) -> int | None:
        return kstat.read_number(self._timeout)

    def now_ns(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)


def from_event(event: TxgEvent, timeout_s: int | None) -> Txg:
    """A txg as the tracer saw it, without the fields that only the kstat knows."""

    def span(start: int, end: int) -> int | None:
        return end - start if start and end else None

    reason = _REASONS.get(event.reason)
    if reason is None:
        reason = "timer" if timer(span(event.last_syncing, event.quiescing), timeout_s) else ""
    return Txg(
        time=utc(event.synced, time.monotonic_ns()),
        pool=event.pool.decode("utf-8", "replace"),
        txg=event.txg,
        open_ns=span(event.opened, event.quiescing),
        quiesce_ns=span(event.quiescing, event.quiesced),
        wait_ns=span(event.quiesced, event.syncing),
        sync_ns=span(event.syncing, event.synced),
        passes=event.passes or None,
        dirty_bytes=None,
        written_bytes=None,
        writes=None,
        # incomplete if it was open before the trace began
        delayed_tx=event.delayed if event.opened else None,
        delay_ns=event.delay_ns if event.opened else None,
        reason=reason or "unknown",
        zil_sync_ns=event.zil_sync_ns,
        source="bpf",
    )


class TracedTxgs:
    """Implements zfstrace.host.TxgSession by BPF."""

    def __init__(self, trace: TxgTrace, source: Source) -> None:
        self._trace, self._source = trace, source
        self._completed = Completed(source)

    def poll(self, timeout_ms: int) -> list[Txg]:
        ended = self._trace.ended(min(timeout_ms, 100) if self._completed.waiting else timeout_ms)
        if ended:
            timeout_s = self._source.timeout_s()
            for event in ended:
                self._completed.add(from_event(event, timeout_s))
        return self._completed.ready()

    def refresh(self) -> None:
        self._trace.refresh()

    def losses(self) -> Losses:
        return self._trace.losses()

    def probes(self) -> tuple[Probe, ...]:
        return self._trace.probes()

    def count_cost(self) -> None:
        """As Session.count_cost(). Raises TraceError."""
        self._trace.count_cost()

    def end_cost(self) -> None:
        """As Session.end_cost()."""
        self._trace.end_cost()

    def costs(self) -> list[tuple[Probe, CCost]]:
        """As Session.costs(). Raises TraceError."""
        return self._trace.costs()

    def close(self) -> None:
        self._trace.close()


class NamedStacks(StackTrace):
    """Implements zfstrace.host.StackSession."""

    def __init__(
        self,
        options: StackOptions,
        path: Path,
        pool_of: Callable[[tuple[int, int]], str | None],
    ) -> None:
        if kallsyms.hidden(path):
            raise NotSupported(
                "cannot record stacks: the kernel hides the addresses of its functions",
                "run `sysctl kernel.kptr_restrict=1`, and zfstune as root or with CAP_SYSLOG",
            )
        self._options, self._path, self._pool_of = options, path, pool_of
        super().__init__(options)

    def finish(self) -> Recording:
        sums, losses = self.read()
        # Only now, as it takes seconds on a slow machine, but while the tracer's own programs are
        # still loaded and have names.
        symbols = kallsyms.Symbols(self._path.read_bytes())
        return build(sums, losses, self._options, symbols.name, self._pool_of)
