"""`zfstune trace slow`: one line for each slow fsync, as it ends."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from typing import TextIO

from zfstrace.host import FsyncSession, Host
from zfstrace.stages import NAMES
from zfstrace.summary import name_of, wanted
from zfstrace.types import FsyncOptions, SlowEvent, SlowFsync
from zfstune.fsync_view import footer
from zfstune.host import open_host
from zfstune.stop import Stop
from zfstune.table import Style, cut, style_of
from zfstune.trace_fsync import attached, iso_utc, options_of, prepare, who_of
from zfstune.units import SECOND, format_count, format_span, format_time

# How long a poll may keep the loop from noticing that stdout was closed.
_POLL_NS = SECOND // 5
_HEADER_EVERY = 50
_STAGES_WIDTH = 24


def run(args: argparse.Namespace) -> int:
    """The command. Raises CommandError and TraceError."""
    host = open_host()
    options = replace(options_of(args), slow_ns=args.over)
    prepare(host, options)
    with Stop(sys.stdout) as stop:
        trace(args, options, host, sys.stdout, stop)
    return 0


def trace(
    args: argparse.Namespace, options: FsyncOptions, host: Host, out: TextIO, stop: Stop
) -> None:
    """Attaches, prints until stop, duration or count, detaches."""
    with attached(host, options, args.duration) as session:
        _SlowTrace(args, options, host, session, out, stop).loop()


class _SlowTrace:
    """The loop of one trace."""

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
        self._style = style_of(out)
        self._names: list[tuple[str | None, str | None]] = []
        self._shown = 0

    def loop(self) -> None:
        start = self._stop.now()
        end = start + self._args.duration if self._args.duration else None
        tick = start + SECOND
        while not self._stop.wait(0) and not self._done():
            now = self._stop.now()
            left = _POLL_NS if end is None else min(_POLL_NS, end - now)
            if left <= 0:
                break
            for event in self._session.poll(max(1, left // 1_000_000)):
                if not self._done():
                    self._show(event)
            self._out.flush()
            if self._stop.now() >= tick:
                tick = self._stop.now() + SECOND
                self._host.learn_names()
                # a dataset may have got its name meanwhile
                self._names = []
                if self._process_ended():
                    break
        if not self._stop.reader_gone:
            self._finish(self._stop.now() - start)

    def _done(self) -> bool:
        return self._args.count is not None and self._shown >= self._args.count

    def _process_ended(self) -> bool:
        pid = self._options.pid
        if pid is None or self._host.process_error(pid) is None:
            return False
        print(f"zfstune: process {pid} has ended", file=sys.stderr)
        return True

    def _name(self, dataset: int) -> tuple[str | None, str | None]:
        if dataset >= len(self._names):
            self._session.refresh()
            self._names = [
                name_of(counts, self._host, self._options.pool)
                for counts in self._session.datasets()
            ]
        return self._names[dataset] if dataset < len(self._names) else (None, "<unknown>")

    def _show(self, event: SlowEvent) -> None:
        pool, dataset = self._name(event.dataset)
        if not wanted((pool, dataset), self._options.pool, self._options.dataset):
            return
        slow = slow_fsync(event, pool, dataset, self._host)
        if self._args.json:
            print(json.dumps(slow.to_json()), file=self._out)
        else:
            if self._shown % _HEADER_EVERY == 0:
                print(self._style.paint(_line(_HEADER, self._style), "bold"), file=self._out)
            print(_line(_cells(slow), self._style), file=self._out)
        self._shown += 1

    def _finish(self, duration_ns: int) -> None:
        self._session.refresh()
        over, span = format_time(self._args.over), format_span(duration_ns)
        seen = f"{format_count(self._shown)} fsyncs" if self._shown else "no fsync"
        # JSON stays one kind of object per line: the rest is for the person
        out = sys.stderr if self._args.json else self._out
        print(f"{seen} of {over} or more{who_of(self._options)} in {span}", file=out)
        end = footer(self._session.losses(), self._session.probes(), style_of(out))
        print("\n".join(end), file=out, flush=True)


def slow_fsync(event: SlowEvent, pool: str | None, dataset: str | None, host: Host) -> SlowFsync:
    """The event with names instead of numbers, and in wall clock time."""
    since_boot = time.time_ns() - time.monotonic_ns()
    end_ns = event.start_ns + event.total_ns
    return SlowFsync(
        time=iso_utc(event.start_ns + since_boot),
        pid=event.pid,
        tid=event.tid,
        comm=event.comm,
        pool=pool,
        dataset=dataset,
        object=event.object,
        total_ns=event.total_ns,
        stages=dict(zip(NAMES, event.stage_ns, strict=True)),
        txg_state=host.txg_state(pool, event.start_ns, end_ns) if pool else None,
        kind=event.kind,
    )


# time, pid, comm, dataset, kind, object, total, stages: 99 columns at most
_HEADER = ("TIME (UTC)", "PID", "COMM", "DATASET", "KIND", "OBJECT", "TOTAL", "STAGES")
_WIDTHS = (12, 7, 11, 15, 9, 6, 8)
_RIGHT = (1, 5, 6)
_TAIL = (3,)


def _line(cells: tuple[str, ...], style: Style) -> str:
    parts = []
    for i, width in enumerate(_WIDTHS):
        # cut only on a terminal: a log file shall keep the whole name
        cell = cut(cells[i], width, tail=i in _TAIL) if style.clip else cells[i]
        parts.append(cell.rjust(width) if i in _RIGHT else cell.ljust(width))
    return " ".join([*parts, cells[-1]])


def _cells(slow: SlowFsync) -> tuple[str, ...]:
    return (
        slow.time[11:23],
        str(slow.pid),
        _printable(slow.comm),
        slow.dataset or "<unknown>",
        slow.kind,
        str(slow.object),
        format_time(slow.total_ns),
        largest_stages(slow.stages),
    )


def _printable(comm: str) -> str:
    """A program may call itself anything, also escape codes."""
    return "".join(c if c.isprintable() else "?" for c in comm)


def largest_stages(stages: dict[str, int]) -> str:
    """``flush 93% issue 4%``: as many of the largest as fit, at least one."""
    total = sum(stages.values())
    text = ""
    for name, ns in sorted(stages.items(), key=lambda stage: -stage[1])[:3]:
        part = f"{name} {ns / total:.0%}" if total else ""
        if not ns or part.endswith(" 0%"):
            break
        if text and len(text) + 1 + len(part) > _STAGES_WIDTH:
            break
        text = f"{text} {part}" if text else part
    return text
