"""`zfstune trace arc`: one line for each interval."""

from __future__ import annotations

import argparse
import json
import sys

from zfstrace import arc
from zfstrace.arc import ArcRow, ArcState
from zfstrace.host import ArcSession
from zfstrace.summary import Span
from zfstrace.types import TraceOptions
from zfstune.term.signals import Stop
from zfstune.term.table import Lines, style_of, wrap
from zfstune.term.units import SECOND
from zfstune.trace import live
from zfstune.trace.arc_view import COLUMNS, cells, summary
from zfstune.trace.footer import footer
from zfstune.trace.live import Meter, Run

_INTERVAL_NS = SECOND
# A last interval that is shorter says nothing.
_SHORTEST_NS = SECOND // 10


def run(args: argparse.Namespace) -> int:
    """The command. Raises CommandError and TraceError."""
    return live.run(args, live.options_of(args), trace)


def trace(run: Run[TraceOptions]) -> None:
    """Attaches, prints until stop, duration or count, detaches."""
    args, stop = run.args, run.stop
    lines = Lines(run.out)
    shown = 0
    with live.attached(run, run.host.open_arc_trace, "the ARC") as session:
        measured = meter(session, stop)

        def show() -> bool:
            nonlocal shown
            for row in measured.measure(step=True)[0]:
                if row.duration_ns < _SHORTEST_NS:
                    continue
                if args.json:
                    print(json.dumps(row.to_json()), file=run.out)
                else:
                    lines.print(COLUMNS, cells(row))
                shown += 1
            run.out.flush()
            return args.count is not None and shown >= args.count

        interval = args.interval or _INTERVAL_NS
        live.loop(stop, args.duration, interval, run.tick, show)
        if stop.reader_gone:
            return
        if args.count is None or shown < args.count:
            show()
        rows, span = measured.measure(step=False)
        out = sys.stderr if args.json else run.out
        style = style_of(out)
        end = [line for row in rows for line in wrap(summary(row), "", style.width)]
        end += footer(span.losses, span.probes, style)
        print("\n".join(end), file=out, flush=True)


def meter(session: ArcSession, stop: Stop) -> Meter[ArcState, ArcRow]:
    """The intervals of a session, one row for each. Its counters are those of the module,
    so the first state is that of the beginning."""

    def rows(now: ArcState, earlier: ArcState, span: Span) -> list[ArcRow]:
        return [arc.row(now, earlier, span.time, span.duration_ns, span.losses)]

    session.refresh()
    return Meter(session, stop, session.state(), session.state, rows)
