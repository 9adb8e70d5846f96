"""`zfstune trace slow`: one line for each slow fsync, as it ends."""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import ExitStack
from dataclasses import replace

from zfstrace.clock import iso_utc
from zfstrace.host import FsyncSession, Host
from zfstrace.printable import printable
from zfstrace.stages import NAMES
from zfstrace.strict import strict_zip
from zfstrace.summary import name_of, wanted
from zfstrace.throttle import ThrottleState
from zfstrace.types import FsyncOptions, SlowEvent, SlowFsync
from zfstune.term.table import Column, Lines, style_of
from zfstune.term.units import format_count, format_span, format_time
from zfstune.trace import live, timeline
from zfstune.trace.footer import footer
from zfstune.trace.fsync import options_of
from zfstune.trace.largest import largest_stages
from zfstune.trace.live import Run

# 99 columns
COLUMNS = (
    Column("TIME (UTC)", 12, left=True),
    Column("PID", 7),
    Column("COMM", 9, left=True),
    Column("DATASET", 13, left=True, tail=True),
    Column("KIND", 9, left=True),
    Column("OBJECT", 6),
    Column("TOTAL", 7),
    Column("TXG  DIRTY", 10, left=True),
    Column("STAGES", 18, left=True),
)
_TXG = {"syncing": "sync", "quiescing": "quie", "open": "open"}


def run(args: argparse.Namespace) -> int:
    """The command. Raises CommandError and TraceError."""
    if args.timeline:
        timeline.check(args.timeline)
    return live.run(args, replace(options_of(args), slow_ns=args.over), trace)


def trace(run: Run[FsyncOptions]) -> None:
    """Attaches, prints until stop, duration or count, detaches."""
    with ExitStack() as stack:
        # the txgs first, so that none is missing beside the operations
        recorder = stack.enter_context(timeline.recorded(run)) if run.args.timeline else None
        session = stack.enter_context(live.attached(run, run.host.open_fsync_trace))
        _SlowTrace(run, session, recorder).loop()


class _SlowTrace:
    """One trace: how many it has shown, and the names of datasets."""

    def __init__(
        self,
        run: Run[FsyncOptions],
        session: FsyncSession,
        recorder: timeline.Recorder | None = None,
    ) -> None:
        self._run, self._session, self._recorder = run, session, recorder
        self._lines = Lines(run.out)
        self._names: list[tuple[str | None, str | None]] = []
        self._shown = 0

    def loop(self) -> None:
        run = self._run
        duration_ns = live.follow(run, self._session, self._show, self._tick, self._done)
        try:
            if not run.stop.reader_gone:
                self._finish(duration_ns)
        finally:
            # the reader of the lines may have left
            if self._recorder:
                self._session.refresh()
                self._recorder.finish(self._session.losses(), duration_ns)

    def _done(self) -> bool:
        count: int | None = self._run.args.count
        return count is not None and self._shown >= count

    def _tick(self) -> bool:
        # a dataset may have been named meanwhile
        self._names = []
        if self._recorder:
            self._recorder.tick()
        return self._run.tick()

    def _name(self, dataset: int) -> tuple[str | None, str | None]:
        if dataset >= len(self._names):
            self._session.refresh()
            self._names = [
                name_of(counts, self._run.host, self._run.options.pool)
                for counts in self._session.datasets()
            ]
        return self._names[dataset] if dataset < len(self._names) else (None, "<unknown>")

    def _show(self, event: SlowEvent) -> None:
        pool, dataset = self._name(event.dataset)
        options = self._run.options
        if not wanted((pool, dataset), options.pool, options.dataset):
            return
        slow = slow_fsync(event, pool, dataset, self._run.host, self._session)
        if self._recorder:
            self._recorder.timeline.add(event, slow)
        if self._run.args.json:
            print(json.dumps(slow.to_json()), file=self._run.out)
        else:
            self._lines.print(COLUMNS, cells(slow))
        self._shown += 1

    def _finish(self, duration_ns: int) -> None:
        run = self._run
        over, span = format_time(run.args.over), format_span(duration_ns)
        seen = f"{format_count(self._shown)} fsyncs" if self._shown else "no fsync"
        # stdout has only JSON objects
        out = sys.stderr if run.args.json else run.out
        print(f"{seen} of {over} or more{run.who} in {span}", file=out)
        end = footer(self._session.losses(), self._session.probes(), style_of(out))
        print("\n".join(end), file=out, flush=True)


def slow_fsync(
    event: SlowEvent, pool: str | None, dataset: str | None, host: Host, session: FsyncSession
) -> SlowFsync:
    """The event with names and wall clock time, and with the state of the pool meanwhile as far as
    host and session know it; None for all of that without a pool."""
    wall_ns = event.wall_ns
    if wall_ns is None:
        wall_ns = event.start_ns + time.time_ns() - time.monotonic_ns()
    txg = throttle = None
    if pool:
        end_ns = event.start_ns + event.total_ns
        txg = host.txg_state(pool, event.start_ns, end_ns)
        held_up = session.held_up(pool, event.start_ns, end_ns)
        throttle = ThrottleState(
            event.dirty_bytes,
            host.parameter("zfs_dirty_data_max"),
            None if held_up is None else held_up > 0,
        )
    return SlowFsync(
        time=iso_utc(wall_ns),
        pid=event.pid,
        tid=event.tid,
        comm=event.comm,
        pool=pool,
        dataset=dataset,
        object=event.object,
        total_ns=event.total_ns,
        stages=dict(strict_zip(NAMES, event.stage_ns)),
        txg_state=txg.state if txg else None,
        kind=event.kind,
        txg=txg.txg if txg else None,
        txg_sync_ns=txg.sync_ns if txg else None,
        throttle=throttle.to_json() if throttle else None,
    )


def cells(slow: SlowFsync) -> tuple[str, ...]:
    return (
        slow.time[11:23],
        str(slow.pid),
        printable(slow.comm),
        slow.dataset or "<unknown>",
        slow.kind,
        str(slow.object),
        format_time(slow.total_ns),
        _pool_state(slow),
        largest_stages(slow.stages, COLUMNS[-1].width),
    )


def _pool_state(slow: SlowFsync) -> str:
    """``sync 84%!``: the state of the txgs, dirty data in percent of its limit, ! if writers were
    delayed."""
    throttle = slow.throttle or {}
    percent = throttle.get("dirty_percent")
    dirty = "-" if percent is None else f"{percent:.0f}%"
    return (
        f"{_TXG.get(slow.txg_state or '', '-'):4} {dirty}{'!' if throttle.get('delayed') else ''}"
    )
