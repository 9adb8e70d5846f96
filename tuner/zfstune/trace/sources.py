"""The five sources of live data of a host, each opened as far as it can be, measured in step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from zfstrace.errors import TraceError
from zfstrace.host import Host, Session
from zfstrace.txg import Txg
from zfstrace.types import FsyncOptions, Losses, Probe, TraceOptions
from zfstune.errors import NotPossible
from zfstune.preflight import require_tracing
from zfstune.term.signals import Stop
from zfstune.trace import arc, device, fsync, throttle
from zfstune.trace.live import Meter, Run


@dataclass(frozen=True)
class Opened:
    """A session and what it measures; tick is called every second."""

    session: Session
    meter: Meter[Any, Any]
    tick: Callable[[], None] = lambda: None


Open = Callable[[Host, TraceOptions, Stop], Opened]


@contextmanager
def opened(name: str, run: Run[TraceOptions]) -> Iterator[Source]:
    """A view of OPEN, whose session ends with the block; its error says why there is none."""
    source = Source(name)
    try:
        source.open(OPEN[name], run, lack_of(run.host))
    except TraceError as error:
        source.failed, source.error = error, str(error)
    try:
        yield source
    finally:
        if not source.failed:
            source.close()


def lack_of(host: Host) -> str:
    """Why there is no tracing at all; "" when there may be."""
    try:
        require_tracing(host.checks())
    except NotPossible as error:
        return str(error)
    return ""


class Source:
    """A view and its session; error says why there is none, failed is that of opening it."""

    def __init__(self, name: str) -> None:
        self.error = ""
        self.failed: TraceError | None = None
        self._name = name

    def open(self, open_it: Open, run: Run[TraceOptions], lack: str) -> None:
        """Opens the session, without BPF where there is a lack but kstats will do. Raises
        TraceError."""
        try:
            if lack:
                raise TraceError(lack)
            opened = open_it(run.host, run.options, run.stop)
        except TraceError:
            if self._name not in KSTAT:
                raise
            opened = open_it(run.host, replace(run.options, kstat=True), run.stop)
        self._opened = opened

    def close(self) -> None:
        """Detaches; only after open() has gone well."""
        self._opened.session.close()

    def tick(self) -> None:
        """What must be done every second, so that nothing overflows."""
        if not self.error:
            self._opened.tick()

    def restart(self) -> None:
        """Discards what has been counted so far, but for txgs: one that has ended is worth its
        line."""
        # a txg that has ended meanwhile is worth its line
        if not self.error and self._name != "txg":
            self._opened.meter.restart()

    def measure(self, *, step: bool) -> Reading:
        """What was counted since the start or, with step, since the last time. A session that
        cannot go on has an error from then on."""
        if self.error:
            return Reading(self._name, error=self.error)
        try:
            rows, span = self._opened.meter.measure(step=step)
        except TraceError as error:
            self.error = str(error)
            return Reading(self._name, error=self.error)
        return Reading(self._name, rows, span.duration_ns, span.losses, span.probes)


def _open_fsync(host: Host, options: TraceOptions, stop: Stop) -> Opened:
    limits = FsyncOptions(pool=options.pool, no_fentry=options.no_fentry)
    session = host.open_fsync_trace(limits)
    return Opened(session, fsync.meter(session, host, limits, stop))


def _open_txg(host: Host, options: TraceOptions, stop: Stop) -> Opened:
    session = host.open_txg_trace(options)

    ended: list[Txg] = []

    def poll() -> None:
        # before what keeps them overflows
        ended.extend(t for t in session.poll(0) if options.pool in (None, t.pool))

    def read() -> list[Txg]:
        poll()
        new = list(ended)
        ended.clear()
        return new

    # each is read once: all that read() gives is new
    meter: Meter[list[Txg], Txg] = Meter(session, stop, [], read, lambda now, _earlier, _span: now)
    return Opened(session, meter, poll)


def _open_throttle(host: Host, options: TraceOptions, stop: Stop) -> Opened:
    session = host.open_throttle_trace(options)
    return Opened(session, throttle.meter(session, host, options, stop))


def _open_device(host: Host, options: TraceOptions, stop: Stop) -> Opened:
    session = host.open_device_trace(options)
    return Opened(session, device.meter(session, host, options, stop))


def _open_arc(host: Host, options: TraceOptions, stop: Stop) -> Opened:
    session = host.open_arc_trace(options)
    return Opened(session, arc.meter(session, stop))


# In the order in which they are shown.
OPEN: dict[str, Open] = {
    "fsync": _open_fsync,
    "txg": _open_txg,
    "throttle": _open_throttle,
    "device": _open_device,
    "arc": _open_arc,
}
# Those that can do without BPF, with less detail.
KSTAT = ("txg", "arc")


@dataclass(frozen=True)
class Reading:
    """What one source counted in a span: its rows, or error, why there are none at all."""

    name: str
    rows: Sequence[Any] = ()
    duration_ns: int = 0
    losses: Losses = field(default_factory=Losses)
    probes: tuple[Probe, ...] = ()
    error: str = ""
