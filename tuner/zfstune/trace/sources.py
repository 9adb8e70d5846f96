"""`zfstune trace`: all views on one screen, for the first look in an incident."""

from __future__ import annotations

import argparse
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from zfstrace.errors import TraceError
from zfstrace.host import Host, Session
from zfstrace.txg import Txg
from zfstrace.types import FsyncOptions, TraceOptions
from zfstune.errors import NotPossible
from zfstune.preflight import require_tracing
from zfstune.term import log
from zfstune.term.signals import Stop
from zfstune.term.table import Style
from zfstune.term.units import iso_utc
from zfstune.trace import arc, device, fsync, live, throttle
from zfstune.trace.live import Frame, Meter, Run
from zfstune.trace.overview import ROWS, VIEWS, Measured, screen


@dataclass(frozen=True)
class Opened:
    """A session and what it measures; tick is called every second."""

    session: Session
    meter: Meter[Any, Any]
    tick: Callable[[], None] = lambda: None


Open = Callable[[Host, TraceOptions, Stop], Opened]


def run(args: argparse.Namespace) -> int:
    """The command. Raises CommandError and TraceError."""
    # what is not possible here is said in the block of each view
    return live.run(args, live.options_of(args), trace, bpf=False)


def trace(run: Run[TraceOptions]) -> None:
    """Attaches what it can, prints until stop or the duration, detaches."""
    with ExitStack() as stack:
        sources = _attach(run, stack)

        def frame(step: bool, style: Style) -> Frame:
            measured = [source.measure(step=step) for source in sources]
            span_ns = min((m.duration_ns for m in measured if not m.error), default=0)
            body, end = screen(measured, style, iso_utc(time.time_ns()), span_ns, run.where)
            return Frame([row for m in measured for row in m.new], body, end)

        def tick() -> bool:
            for source in sources:
                source.tick()
            return run.tick()

        live.watch(run, frame, tick, rolling=True)


def _attach(run: Run[TraceOptions], stack: ExitStack) -> list[Source]:
    """All that can be had; raises the first error when nothing can."""
    log.say("attaching ...")
    sources = [stack.enter_context(opened(name, run)) for name in OPEN]
    if all(source.failed for source in sources):
        assert sources[0].failed
        raise sources[0].failed
    # to attach all takes a while, in which the first ones have counted: one span for all
    for source in sources:
        source.restart()
    there = sum(not source.error for source in sources)
    live.say_begun(run, f"{there} of {len(sources)} views", run.where)
    return sources


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
        self._shown: deque[Any] = deque(maxlen=ROWS)

    def open(self, open_it: Open, run: Run[TraceOptions], lack: str) -> None:
        """Raises TraceError."""
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
        self._opened.session.close()

    def tick(self) -> None:
        if not self.error:
            self._opened.tick()

    def restart(self) -> None:
        # a txg that has ended meanwhile is worth its line
        if not self.error and self._name != "txg":
            self._opened.meter.restart()

    def measure(self, *, step: bool) -> Measured:
        view = VIEWS[self._name]
        if self.error:
            return Measured(view, error=self.error)
        try:
            rows, span = self._opened.meter.measure(step=step)
        except TraceError as error:
            self.error = str(error)
            return Measured(view, error=self.error)
        shown = rows
        if self._name == "txg":
            # the last ones stay on the screen until others come
            self._shown.extend(rows)
            shown = rows if len(rows) > ROWS else list(self._shown)
        return Measured(view, shown, rows, span.duration_ns, span.losses, span.probes)


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
