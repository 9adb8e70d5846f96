"""`zfstune trace throttle`: which processes ZFS holds up when they write, and why."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from zfstrace import throttle
from zfstrace.host import Host, ThrottleSession
from zfstrace.summary import Span
from zfstrace.throttle import ThrottleCounts, ThrottleRow
from zfstrace.types import TraceOptions
from zfstune.term.signals import Stop
from zfstune.term.table import Style
from zfstune.trace import live
from zfstune.trace.footer import footer
from zfstune.trace.live import Frame, Meter, Run
from zfstune.trace.throttle_view import view

_REST = "processes that found no room: summed in <others>; POOL or --pid leaves room for fewer"


def run(args: argparse.Namespace) -> int:
    """The command. Raises CommandError and TraceError."""
    return live.run(args, live.options_of(args), trace)


def trace(run: Run[TraceOptions]) -> None:
    """Attaches, prints until stop or the duration, detaches."""
    with live.attached(run, run.host.open_throttle_trace) as session:
        measured = meter(session, run.host, run.options, run.stop)

        def frame(step: bool, style: Style) -> Frame:
            rows, span = measured.measure(step=step)
            body = view(rows, style, span.duration_ns, run.where + run.who)
            return Frame(rows, body, footer(span.losses, span.probes, style, _REST))

        live.watch(run, frame)


def meter(
    session: ThrottleSession, host: Host, options: TraceOptions, stop: Stop
) -> Meter[Sequence[ThrottleCounts], ThrottleRow]:
    """The processes of a session that waited."""

    def rows(
        now: Sequence[ThrottleCounts], earlier: Sequence[ThrottleCounts], span: Span
    ) -> list[ThrottleRow]:
        limit = host.parameter("zfs_dirty_data_max")
        found = throttle.since(now, earlier)
        # the rest is of no pool in particular
        mine = [c for c in found if c.rest or options.pool in (None, c.pool)]
        return throttle.rows(mine, span.time, span.duration_ns, limit, span.losses)

    return Meter(session, stop, (), session.waits, rows)
