"""What all traces share, from the command to the last line."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TextIO, TypeVar

from zfstrace.clock import iso_now
from zfstrace.host import Host, Session
from zfstrace.summary import Span
from zfstrace.types import WRITES_BLOCKED, AnyOptions, Json, Losses, TraceOptions
from zfstune.host import open_host
from zfstune.preflight import prepare
from zfstune.term.keys import Keys, has_keys
from zfstune.term.log import say
from zfstune.term.screen import Screen
from zfstune.term.signals import Stop
from zfstune.term.table import Style, is_terminal, style_of
from zfstune.term.units import SECOND, format_span
from zfstune.trace.console import Console

# How often names of new datasets are read, and the end of a process is noticed.
_TICK_NS = SECOND
_REDRAW_NS = 2 * SECOND
# How long a poll may keep the loop from noticing that stdout was closed.
_POLL_NS = SECOND // 5

Options = TypeVar("Options", bound=AnyOptions)
AnySession = TypeVar("AnySession", bound=Session)
Event = TypeVar("Event")
NewEvent = TypeVar("NewEvent", covariant=True)
Counts = TypeVar("Counts")
AnyRow = TypeVar("AnyRow")


class JsonRow(Protocol):
    """A row that --json can print."""

    def to_json(self) -> Json:
        """An object of the schema."""
        ...


class Events(Protocol[NewEvent]):
    """A session that reports single events."""

    def refresh(self) -> None:
        """Brings the session up to date. Raises TraceError."""
        ...

    def poll(self, timeout_ms: int) -> Sequence[NewEvent]:
        """Waits for events; returns none on timeout."""
        ...


@dataclass(frozen=True)
class Run(Generic[Options]):
    """A trace: what is asked for, the host, where it prints and what stops it."""

    args: argparse.Namespace
    options: Options
    host: Host
    out: TextIO
    stop: Stop
    # the module that is traced: Parameters.identity()
    module: str = field(default="", init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "module", self.host.parameters().identity())

    @property
    def who(self) -> str:
        """ " of process N" if the trace is limited to one; "" otherwise."""
        return f" of process {self.options.pid}" if self.options.pid else ""

    @property
    def where(self) -> str:
        """The dataset or pool that it is limited to, or "all pools"."""
        return self.options.dataset or self.options.pool or "all pools"

    def gone(self) -> str:
        """What has happened to the module that is traced, as its probes went with it; "" if it is
        still there."""
        if not self.host.loaded():
            return "ZFS was unloaded"
        if self.host.parameters().identity() != self.module:
            return "ZFS was unloaded and loaded again"
        return ""

    def tick(self) -> bool:
        """To be called every second; True once ZFS or the traced process is gone. Raises TraceError
        if a trace of the host cannot continue."""
        gone = self.gone()
        if gone:
            say(f"{gone}: the trace ends")
            return True
        return self.go_on()

    def go_on(self) -> bool:
        """tick() of a trace that outlives the module."""
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
    """Runs a whole command; returns its status, 0. bpf: the trace is impossible without BPF.
    Raises CommandError and TraceError."""
    host = open_host()
    question = getattr(args, "what", None) or ""
    prepare(host, options, bpf=bpf and not is_kstat(options), question=question)
    for pool in [options.pool] if options.pool else host.pools():
        state = host.pool_state(pool)
        if state in WRITES_BLOCKED:
            say(f"pool {pool} is {state}: no fsync ends there; see `zpool status {pool}`")
    with Stop(sys.stdout) as stop:
        trace(Run(args, options, host, sys.stdout, stop))
    return 0


def options_of(args: argparse.Namespace) -> TraceOptions:
    """The options of a trace of anything but fsyncs."""
    kstat = getattr(args, "source", None) == "kstat"
    dataset = getattr(args, "dataset", None)
    pool = dataset.split("/", 1)[0] if dataset else args.pool
    return TraceOptions(pool, getattr(args, "pid", None), args.no_fentry, kstat, dataset)


def is_kstat(options: AnyOptions) -> bool:
    """Whether the trace does without BPF."""
    return isinstance(options, TraceOptions) and options.kstat


@contextmanager
def attached(
    run: Run[Options], open_trace: Callable[[Options], AnySession], what: str = ""
) -> Iterator[AnySession]:
    """A started session, reported on stderr and closed with the block. what names the subject if
    it is no pool or dataset."""
    kstat = is_kstat(run.options)
    if not kstat:
        say("attaching ...")
    with closing(open_trace(run.options)) as session:
        probes = session.probes()
        there = sum(not probe.missing for probe in probes)
        how = "kstats" if kstat else f"{there} of {len(probes)} probes attached"
        say_begun(run, how, what or run.where)
        try:
            yield session
        finally:
            if not kstat:
                say_waits(run.host)


def say_waits(host: Host, tell: Callable[[str], None] = say) -> None:
    """Tells, before probes are detached, which pools that may wait for."""
    for pool in host.pools_blocking_detach():
        state = host.pool_state(pool)
        tell(f"pool {pool} is {state}: detaching may last until `zpool clear {pool}`")


def say_begun(run: Run[Options], how: str, what: str) -> None:
    """Reports on stderr how much is attached, what is traced and for how long."""
    say(begun(run, how, what))


def begun(run: Run[Options], how: str, what: str) -> str:
    """What say_begun() says."""
    span = f", {format_span(run.args.duration)}" if run.args.duration else ""
    return f"{how}, tracing {what}{run.who}{span}; Ctrl-C to end"


def loop(
    stop: Stop,
    duration_ns: int | None,
    interval_ns: int | None,
    tick: Callable[[], bool],
    show: Callable[[], bool] = lambda: False,
    wait: Callable[[int], bool] | None = None,
) -> int:
    """Calls tick every second and show every interval, until stop, until the duration is over, or
    until tick, show or wait returns True. Returns the elapsed time, in ns."""
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
            if tick():
                break
            # from its end: a tick of more than a second must leave a pause, too
            now = stop.now()
            next_tick = now + _TICK_NS
        if due is not None and interval_ns and now >= due:
            if show():
                break
            now = stop.now()
            due += interval_ns
            if due <= now:
                # a slow terminal must not make it draw without a pause
                due = now + interval_ns
    return stop.now() - start


def follow(
    run: Run[Options],
    session: Events[Event],
    show: Callable[[Event], None],
    tick: Callable[[], bool],
    done: Callable[[], bool] = lambda: False,
) -> int:
    """loop() that shows each event as it comes, until done. Events still in the buffer at the end
    are shown, too, since showing may be slower than tracing. Refreshes the session at the end,
    unless stdout was closed. Returns the elapsed time, in ns."""

    def shown(timeout_ms: int) -> None:
        try:
            for event in session.poll(timeout_ms):
                if not done():
                    show(event)
            run.out.flush()
        except BrokenPipeError:
            # since the last look at stdout
            run.stop.reader_gone = True

    def wait(ns: int) -> bool:
        if run.stop.wait(0) or done():
            return True
        shown(max(1, min(ns, _POLL_NS) // 1_000_000))
        return run.stop.wait(0) or done()

    duration_ns = loop(run.stop, run.args.duration, None, tick, wait=wait)
    if not run.stop.reader_gone:
        session.refresh()  # reads events, too, if the session is a script
        shown(0)
    return duration_ns


class Meter(Generic[Counts, AnyRow]):
    """What a session counts, as rows for a span of time. first is what read returns before
    anything is counted; rows gets the counts at the end and at the start."""

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
        """The rows and the span since the start or, with step, since the last call. Raises
        TraceError."""
        self._session.refresh()
        now, counts, losses = self._stop.now(), self._read(), self._session.losses()
        since, earlier, lost = self._last if step else self._start
        self._last = now, counts, losses
        probes = self._session.probes()
        span = Span(iso_now(), now - since, losses.since(lost), probes)
        return self._rows(counts, earlier, span), span


@dataclass(frozen=True)
class Frame:
    """One update: rows for JSON, and lines for people, which are made only if they are shown: a
    body, and an end that always fits on the screen."""

    rows: Sequence[JsonRow]
    lines: Callable[[], tuple[list[str], list[str]]]


def watch(
    run: Run[Options],
    frame: Callable[[bool, Style], Frame],
    tick: Callable[[], bool] | None = None,
    *,
    rolling: bool = False,
    console: Console | None = None,
    again: Callable[[Style], Frame | None] = lambda _style: None,
) -> None:
    """Shows frames until the end: on a terminal one that is redrawn, elsewhere one for each
    interval, or one at the end.

    frame gets True for the time since the last frame, False for the time since the start. On a
    terminal it gets True only with rolling; the last frame, below the others, is always since the
    start. A console gets the keys if there is a keyboard, too; again() is then the last frame, with
    the look that the console now has.
    """
    args, out = run.args, run.out
    redraw = is_terminal(out) and not args.json
    interval = args.interval or (_REDRAW_NS if redraw else None)
    step = interval is not None and (rolling or not redraw)
    display = Screen(out)

    def show(*, final: bool = False) -> bool:
        if console and console.look.paused and not final:
            return False
        shown = frame(step and not (final and redraw), style_of(out))
        if args.json:
            for row in shown.rows:
                print(json.dumps(row.to_json()), file=out)
        elif redraw:
            if final and rolling:
                display.keep()
            display.draw(*shown.lines(), final)
        else:
            head = [f"--- {iso_now()}"] if interval else []
            body, end = shown.lines()
            print("\n".join([*head, *body, *end, *([""] if interval else [])]), file=out)
        out.flush()
        if args.json and final:
            # stdout has only JSON objects; what was lost, or not seen, is about the whole trace
            whole = frame(False, style_of(out)) if step else shown
            body, end = whole.lines()
            print("\n".join([*([] if whole.rows else body), *end]), file=sys.stderr)
        return False

    with ExitStack() as stack:
        wait = None
        if redraw and console and has_keys():
            keys = stack.enter_context(Keys(run.stop))
            wait = _obeying(run, keys, console, display, again)
        loop(run.stop, args.duration, interval, tick or run.tick, show, wait)
    if not run.stop.reader_gone:
        show(final=True)


def _obeying(
    run: Run[Options],
    keys: Keys,
    console: Console,
    display: Screen,
    again: Callable[[Style], Frame | None],
) -> Callable[[int], bool]:
    """A wait for loop() that hands each key to the console, and shows what it changed."""
    console.look = replace(console.look, keys=True)

    def wait(ns: int) -> bool:
        if run.stop.wait(ns):
            return True
        if not run.stop.woken:
            return False
        run.stop.woken = False
        if any(console.press(key) for key in keys.pressed()):
            return True
        if keys.resized:
            keys.resized = False
            display.clear()
        shown = again(style_of(run.out))
        if shown:
            display.draw(*shown.lines(), final=False)
            run.out.flush()
        return False

    return wait
