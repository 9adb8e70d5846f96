"""The five sources of live data of a host, opened as far as available and measured in step."""

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
from zfstune.trace.vdevs import VdevNames


@dataclass(frozen=True)
class Opened:
    """A session and its meter; tick is called every second."""

    session: Session
    meter: Meter[Any, Any]
    tick: Callable[[], None] = lambda: None


Open = Callable[[Host, TraceOptions, Stop], Opened]


@contextmanager
def opened(name: str, run: Run[TraceOptions]) -> Iterator[Source]:
    """A source of OPEN, closed with the block; if it is not available, its error says why."""
    source = Source(name)
    try:
        source.open(OPEN[name], run, lack_of(run.host))
    except TraceError as error:
        source.failed, source.error = error, error.in_one_line()
    try:
        yield source
    finally:
        if not source.failed:
            source.close()


def lack_of(host: Host) -> TraceError | None:
    """Why the host cannot trace with BPF; None if nothing is known against it."""
    try:
        require_tracing(host.checks())
    except NotPossible as error:
        return TraceError(str(error), error.hint)
    return None


class Source:
    """A view and its session. error, in one line, says why the view is not available, "" if it is;
    failed is the error of opening it."""

    def __init__(self, name: str) -> None:
        self.error = ""
        self.failed: TraceError | None = None
        self._name = name

    def open(self, open_it: Open, run: Run[TraceOptions], lack: TraceError | None) -> None:
        """Opens the session, from kstats where BPF is not available and they suffice. Raises
        TraceError."""
        try:
            if lack:
                raise lack
            opened = open_it(run.host, run.options, run.stop)
        except TraceError:
            if self._name not in KSTAT:
                raise
            opened = open_it(run.host, replace(run.options, kstat=True), run.stop)
        self._opened = opened

    def attached(self) -> bool:
        """Whether it has probes; only after a successful open()."""
        return any(not probe.missing for probe in self._opened.session.probes())

    def close(self) -> None:
        """Detaches; only after a successful open()."""
        self._opened.session.close()

    def tick(self) -> None:
        """To be called every second, so that nothing overflows."""
        if self.error:
            return
        try:
            self._opened.tick()
        except TraceError as error:
            self.error = error.in_one_line()

    def restart(self) -> None:
        """Discards what has been counted so far; txgs that have ended meanwhile stay."""
        if not self.error and self._name != "txg":
            self._opened.meter.restart()

    def measure(self, *, step: bool) -> Reading:
        """What was counted since the start or, with step, since the last call. Once a session
        fails, its readings have an error."""
        if self.error:
            return Reading(self._name, error=self.error)
        try:
            rows, span = self._opened.meter.measure(step=step)
        except TraceError as error:
            self.error = error.in_one_line()
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
        # before their buffer overflows
        ended.extend(t for t in session.poll(0) if options.pool in (None, t.pool))

    def read() -> list[Txg]:
        poll()
        new = list(ended)
        ended.clear()
        return new

    # each txg is read once: all that read() returns is new
    meter: Meter[list[Txg], Txg] = Meter(session, stop, [], read, lambda now, _earlier, _span: now)
    return Opened(session, meter, poll)


def _open_throttle(host: Host, options: TraceOptions, stop: Stop) -> Opened:
    session = host.open_throttle_trace(options)
    return Opened(session, throttle.meter(session, host, options, stop))


def _open_device(host: Host, options: TraceOptions, stop: Stop) -> Opened:
    session = host.open_device_trace(options)
    return Opened(session, device.meter(session, VdevNames(host, stop), options, stop))


def _open_arc(host: Host, options: TraceOptions, stop: Stop) -> Opened:
    session = host.open_arc_trace(options)
    return Opened(session, arc.meter(session, stop))


# In the order of the screen.
OPEN: dict[str, Open] = {
    "fsync": _open_fsync,
    "txg": _open_txg,
    "throttle": _open_throttle,
    "device": _open_device,
    "arc": _open_arc,
}
# Available without BPF, with less detail.
KSTAT = ("txg", "arc")


@dataclass(frozen=True)
class Reading:
    """What one source counted in a span: its rows, or the error why there are none."""

    name: str
    rows: Sequence[Any] = ()
    duration_ns: int = 0
    losses: Losses = field(default_factory=Losses)
    probes: tuple[Probe, ...] = ()
    error: str = ""
