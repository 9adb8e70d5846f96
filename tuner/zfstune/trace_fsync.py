"""`zfstune trace fsync`: in which stage fsyncs spend their time."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TextIO

from zfstrace.host import FsyncSession, Host
from zfstrace.summary import Span, since, summarize
from zfstrace.types import DatasetCounts, FsyncOptions, FsyncSummary, Losses
from zfstune.fsync_view import footer, view
from zfstune.host import open_host, require_names, require_tracing
from zfstune.stop import Stop
from zfstune.table import is_terminal, rows_on_screen, screen, style_of
from zfstune.units import SECOND, format_span

# Names of new datasets are read and a process that ended is noticed this often.
_TICK_NS = SECOND
_REDRAW_NS = 2 * SECOND


@dataclass(frozen=True)
class _State:
    """The counters at one moment of CLOCK_MONOTONIC."""

    now_ns: int
    datasets: Sequence[DatasetCounts]
    losses: Losses


def run(args: argparse.Namespace) -> int:
    """The command. Raises CommandError and TraceError."""
    host = open_host()
    options = options_of(args)
    prepare(host, options)
    with Stop(sys.stdout) as stop:
        trace(args, options, host, sys.stdout, stop)
    return 0


def options_of(args: argparse.Namespace) -> FsyncOptions:
    """What the common options of the traces ask for."""
    pool = args.pool
    if args.dataset is not None:
        pool = args.dataset.split("/", 1)[0]
    return FsyncOptions(pool, args.dataset, args.pid, 0, args.no_fentry)


def prepare(host: Host, options: FsyncOptions) -> None:
    """Raises CommandError when a trace with these options is not possible: first
    what is wrong with the request, then with the host."""
    checks = host.checks()
    require_tracing(checks, "zfs")
    require_names(host, options)
    require_tracing(checks)
    host.learn_names()


@contextmanager
def attached(host: Host, options: FsyncOptions, duration_ns: int | None) -> Iterator[FsyncSession]:
    """A session that has begun, which is said on stderr, and that ends with the block."""
    print("zfstune: attaching ...", file=sys.stderr, flush=True)
    session = host.open_fsync_trace(options)
    try:
        probes = session.probes()
        there = sum(not probe.missing for probe in probes)
        what = options.dataset or options.pool or "all pools"
        span = f", {format_span(duration_ns)}" if duration_ns else ""
        print(
            f"zfstune: {there} of {len(probes)} probes attached, tracing {what}{who_of(options)}"
            f"{span}; Ctrl-C to end",
            file=sys.stderr,
            flush=True,
        )
        yield session
    finally:
        session.close()


def who_of(options: FsyncOptions) -> str:
    """The process that a trace is limited to, in words; "" for all."""
    return f" of process {options.pid}" if options.pid else ""


def trace(
    args: argparse.Namespace, options: FsyncOptions, host: Host, out: TextIO, stop: Stop
) -> None:
    """Attaches, prints until stop or the duration, detaches."""
    with attached(host, options, args.duration) as session:
        _Trace(args, options, host, session, out, stop).loop()


class _Trace:
    """The loop of one trace, and how it prints: a screen that is redrawn, one table
    or JSON lines for each interval, or all at the end."""

    def __init__(
        self,
        args: argparse.Namespace,
        options: FsyncOptions,
        host: Host,
        session: FsyncSession,
        out: TextIO,
        stop: Stop,
    ) -> None:
        self._args, self._options = args, options
        self._host, self._session, self._out, self._stop = host, session, out, stop
        self._redraw = is_terminal(out) and not args.json
        self._interval = args.interval or (_REDRAW_NS if self._redraw else None)
        self._drawn = 0
        self._last = _State(stop.now(), (), Losses())

    def loop(self) -> None:
        start = self._last.now_ns
        end = start + self._args.duration if self._args.duration else None
        due = start + self._interval if self._interval else None
        while True:
            now = self._stop.now()
            wait = min(t for t in (end, due, now + _TICK_NS) if t is not None) - now
            stopped = self._stop.wait(max(0, wait))
            now = self._stop.now()
            if stopped or (end is not None and now >= end) or self._process_ended():
                break
            self._host.learn_names()
            if due is not None and self._interval and now >= due:
                self._show(final=False)
                # a slow terminal must not make it draw without a pause
                due = max(due + self._interval, now)
        if not self._stop.reader_gone:
            self._show(final=True)

    def _process_ended(self) -> bool:
        pid = self._options.pid
        if pid is None or self._host.process_error(pid) is None:
            return False
        print(f"zfstune: process {pid} has ended", file=sys.stderr)
        return True

    def _show(self, *, final: bool) -> None:
        rows, losses = self._measure()
        if self._args.json:
            for row in rows:
                print(json.dumps(row.to_json()), file=self._out)
        else:
            style = style_of(self._out)
            body = view(rows, style, self._args.histogram, who_of(self._options))
            end = footer(losses, self._session.probes(), style)
            if self._redraw:
                lines = self._on_screen(body, end, final)
            elif self._interval:
                lines = [f"--- {iso_utc(time.time_ns())}", *body, *end, ""]
            else:
                lines = [*body, *end]
            print("\n".join(lines), file=self._out)
        self._out.flush()

    def _measure(self) -> tuple[list[FsyncSummary], Losses]:
        """Since the start, or since the last time where intervals are printed."""
        self._session.refresh()
        last = self._last
        state = _State(self._stop.now(), self._session.datasets(), self._session.losses())
        datasets, losses = state.datasets, state.losses
        if self._interval and not self._redraw:
            datasets, losses = since(datasets, last.datasets), losses.since(last.losses)
            self._last = state
        duration_ns = state.now_ns - last.now_ns
        span = Span(iso_utc(time.time_ns()), duration_ns, losses, self._session.probes())
        options = self._options
        return summarize(datasets, self._host, span, options.pool, options.dataset), losses

    def _on_screen(self, body: list[str], end: list[str], final: bool) -> list[str]:
        """The lines with the codes that put them over the last ones. What does not
        fit on the screen is left out, except at the end; the losses always fit."""
        columns, rows = screen(self._out)
        up = f"\x1b[{self._drawn}A\r\x1b[J" if self._drawn else ""
        if not final:
            room = max(rows, 10) - 2
            end = end[: room // 2]
            if len(body) + len(end) > room:
                kept = room - len(end) - 1
                more = f"... {len(body) - kept} more lines at the end; POOL or --dataset narrows it"
                body = [*body[:kept], more]
        lines = [*body, *end]
        self._drawn = sum(rows_on_screen(line, columns) for line in lines)
        return [up + lines[0], *lines[1:]]


def iso_utc(time_ns: int) -> str:
    """ISO 8601 in UTC with milliseconds, of a time since 1970 in ns."""
    seconds, rest = divmod(time_ns, SECOND)
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{stamp}.{rest // 1_000_000:03d}Z"
