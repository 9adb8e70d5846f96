"""The run of a trace: what all of them have in common, from the command to the last line."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, Protocol, TextIO, TypeVar

from zfstrace.clock import iso_now
from zfstrace.host import Host, Session
from zfstrace.summary import Span
from zfstrace.types import FsyncOptions, Json, Losses, TraceOptions
from zfstune.host import open_host
from zfstune.preflight import prepare
from zfstune.term.log import say
from zfstune.term.screen import Screen
from zfstune.term.signals import Stop
from zfstune.term.table import Style, is_terminal, style_of
from zfstune.term.units import SECOND, format_span

# Names of new datasets are read and a process that ended is noticed this often.
_TICK_NS = SECOND
_REDRAW_NS = 2 * SECOND
# How long a poll may keep the loop from noticing that stdout was closed.
_POLL_NS = SECOND // 5

Options = TypeVar("Options", bound=FsyncOptions | TraceOptions)
AnySession = TypeVar("AnySession", bound=Session)
Event = TypeVar("Event")
NewEvent = TypeVar("NewEvent", covariant=True)
Counts = TypeVar("Counts")
AnyRow = TypeVar("AnyRow")


class JsonRow(Protocol):
    """What is printed with --json."""

    def to_json(self) -> Json:
        """As an object of the schema."""
        ...


class Events(Protocol[NewEvent]):
    """A session that tells of single events."""

    def refresh(self) -> None:
        """Brings the session up to date. Raises TraceError."""
        ...

    def poll(self, timeout_ms: int) -> Sequence[NewEvent]:
        """Waits for events; may return none."""
        ...


@dataclass(frozen=True)
class Run(Generic[Options]):
    """What a trace is asked for, of which host, where it prints and until when."""

    args: argparse.Namespace
    options: Options
    host: Host
    out: TextIO
    stop: Stop

    @property
    def who(self) -> str:
        """The process that the trace is limited to, in words; "" for all."""
        return f" of process {self.options.pid}" if self.options.pid else ""

    @property
    def where(self) -> str:
        """The dataset or pool that it is limited to."""
        dataset = self.options.dataset if isinstance(self.options, FsyncOptions) else None
        return dataset or self.options.pool or "all pools"

    def tick(self) -> bool:
        """What is done every second; True when what is traced has gone. Raises TraceError when a
        trace of the host cannot go on."""
        if not self.host.loaded():
            say("ZFS was unloaded, the trace ends")
            return True
        self.host.tick()
        pid = self.options.pid
        if pid is None or self.host.process_error(pid) is None:
            return False
        say(f"process {pid} has ended")
        return True


def run(
    args: argparse.Namespace,
    options: Options,
    trace: Callable[[Run[Options]], None],
    *,
    bpf: bool = True,
) -> int:
    """A whole command; its status is 0. bpf is whether it is nothing without BPF. Raises
    CommandError and TraceError."""
    host = open_host()
    prepare(host, options, bpf=bpf and not is_kstat(options))
    with Stop(sys.stdout) as stop:
        trace(Run(args, options, host, sys.stdout, stop))
    return 0


def options_of(args: argparse.Namespace) -> TraceOptions:
    """What the options of a trace other than fsync's ask for."""
    kstat = getattr(args, "source", None) == "kstat"
    return TraceOptions(args.pool, getattr(args, "pid", None), args.no_fentry, kstat)


def is_kstat(options: FsyncOptions | TraceOptions) -> bool:
    """Whether the trace does without BPF."""
    return isinstance(options, TraceOptions) and options.kstat


@contextmanager
def attached(
    run: Run[Options], open_trace: Callable[[Options], AnySession], what: str = ""
) -> Iterator[AnySession]:
    """A session that has begun, which is said on stderr, and that ends with the block.
    what is traced if not a pool or dataset."""
    kstat = is_kstat(run.options)
    if not kstat:
        say("attaching ...")
    session = open_trace(run.options)
    try:
        probes = session.probes()
        there = sum(not probe.missing for probe in probes)
        how = "kstats" if kstat else f"{there} of {len(probes)} probes attached"
        say_begun(run, how, what or run.where)
        yield session
    finally:
        session.close()


def say_begun(run: Run[Options], how: str, what: str) -> None:
    """Says on stderr how much is attached, what is traced and for how long."""
    span = f", {format_span(run.args.duration)}" if run.args.duration else ""
    say(f"{how}, tracing {what}{run.who}{span}; Ctrl-C to end")


def loop(
    stop: Stop,
    duration_ns: int | None,
    interval_ns: int | None,
    tick: Callable[[], bool],
    show: Callable[[], bool] = lambda: False,
    wait: Callable[[int], bool] | None = None,
) -> int:
    """Calls tick every second and show every interval, until stop, until the duration is
    over, or until one of them or wait is True. Returns how long it took, in ns."""
    wait = wait or stop.wait
    start = now = stop.now()
    end = start + duration_ns if duration_ns else None
    due = start + interval_ns if interval_ns else None
    next_tick = start + _TICK_NS
    while True:
        until = min(t for t in (end, due, next_tick) if t is not None)
        ended = wait(max(0, until - now))
        now = stop.now()
        if ended or (end is not None and now >= end):
            break
        if now >= next_tick:
            next_tick = now + _TICK_NS
            if tick():
                break
        if due is not None and interval_ns and now >= due:
            if show():
                break
            # a slow terminal must not make it draw without a pause
            now = stop.now()
            due = max(due + interval_ns, now)
    return stop.now() - start


def follow(
    run: Run[Options],
    session: Events[Event],
    show: Callable[[Event], None],
    tick: Callable[[], bool],
    done: Callable[[], bool] = lambda: False,
) -> int:
    """loop() in which each event is shown as it comes, until done. Showing may be slower than
    what is traced: those that had come when it ended are shown as well. The session is fresh
    afterwards, unless nobody reads."""

    def shown(timeout_ms: int) -> None:
        for event in session.poll(timeout_ms):
            if not done():
                show(event)
        run.out.flush()

    def wait(ns: int) -> bool:
        if run.stop.wait(0) or done():
            return True
        shown(max(1, min(ns, _POLL_NS) // 1_000_000))
        return run.stop.wait(0) or done()

    duration_ns = loop(run.stop, run.args.duration, None, tick, wait=wait)
    if not run.stop.reader_gone:
        session.refresh()  # of a script it reads events, too
        shown(0)
    return duration_ns


class Meter(Generic[Counts, AnyRow]):
    """What a session counts, as rows of a span of time. first is what read gives when
    nothing has been counted; rows gets the counts of the end and of the beginning."""

    def __init__(
        self,
        session: Session,
        stop: Stop,
        first: Counts,
        read: Callable[[], Counts],
        rows: Callable[[Counts, Counts, Span], Sequence[AnyRow]],
    ) -> None:
        self._session, self._stop, self._read, self._rows = session, stop, read, rows
        self._start = self._last = (stop.now(), first, Losses())

    def restart(self) -> None:
        """Discards what has been counted so far; losses since the session began stay."""
        self._session.refresh()
        self._start = self._last = self._stop.now(), self._read(), Losses()

    def measure(self, *, step: bool) -> tuple[Sequence[AnyRow], Span]:
        """Since the start or, with step, since the last time."""
        self._session.refresh()
        now, counts, losses = self._stop.now(), self._read(), self._session.losses()
        since, earlier, lost = self._last if step else self._start
        self._last = now, counts, losses
        probes = self._session.probes()
        span = Span(iso_now(), now - since, losses.since(lost), probes)
        return self._rows(counts, earlier, span), span


@dataclass(frozen=True)
class Frame:
    """What is shown at one time: rows as JSON, or text. end always fits on the screen."""

    rows: Sequence[JsonRow]
    body: list[str]
    end: list[str]


def watch(
    run: Run[Options],
    frame: Callable[[bool, Style], Frame],
    tick: Callable[[], bool] | None = None,
    *,
    rolling: bool = False,
) -> None:
    """Shows frames until the end: on a terminal one that is redrawn, elsewhere one for each
    interval, or one at the end.

    frame gets whether it is of the time since the last one (otherwise since the start).
    On a terminal it is, with rolling, all but the last, which then comes below.
    """
    args, out = run.args, run.out
    redraw = is_terminal(out) and not args.json
    interval = args.interval or (_REDRAW_NS if redraw else None)
    step = interval is not None and (rolling or not redraw)
    display = Screen(out)

    def show(*, final: bool = False) -> bool:
        shown = frame(step and not (final and redraw), style_of(out))
        if args.json:
            for row in shown.rows:
                print(json.dumps(row.to_json()), file=out)
        elif redraw:
            if final and rolling:
                display.keep()
            display.draw(shown.body, shown.end, final)
        else:
            head = [f"--- {iso_now()}"] if interval else []
            print(
                "\n".join([*head, *shown.body, *shown.end, *([""] if interval else [])]), file=out
            )
        out.flush()
        if args.json and final:
            # JSON stays one kind of object per line: the rest is for the person
            print("\n".join([*([] if shown.rows else shown.body), *shown.end]), file=sys.stderr)
        return False

    loop(run.stop, args.duration, interval, tick or run.tick, show)
    if not run.stop.reader_gone:
        show(final=True)
