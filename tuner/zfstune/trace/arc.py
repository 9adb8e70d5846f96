"""`zfstune trace arc`: the ARC's size, targets, hits and waits."""

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
from zfstune.term.table import Column, Lines, style_of, wrap
from zfstune.term.units import (
    SECOND,
    format_count,
    format_percent,
    format_short,
    format_size,
    format_span,
    format_time,
)
from zfstune.trace import live
from zfstune.trace.footer import footer
from zfstune.trace.live import Meter, Run

_INTERVAL_NS = SECOND
# A shorter last interval says nothing.
_SHORTEST_NS = SECOND // 10
# A counter that never falls.
_RISING = "demand_data_hits"


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
        interval = args.interval or _INTERVAL_NS
        shortest = min(_SHORTEST_NS, interval // 2)

        def show() -> bool:
            nonlocal shown
            for row in measured.measure(step=True)[0]:
                if row.duration_ns < shortest:
                    continue
                if args.json:
                    print(json.dumps(row.to_json()), file=run.out)
                else:
                    lines.print(COLUMNS, cells(row))
                shown += 1
            run.out.flush()
            return args.count is not None and shown >= args.count

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
    """One row for each interval of a session. Its counters run since the module was loaded, so
    rows are differences from the state at the start."""

    def rows(now: ArcState, earlier: ArcState, span: Span) -> list[ArcRow]:
        return [arc.row(now, earlier, span.time, span.duration_ns, span.losses)]

    session.refresh()
    last = session.state()

    def read() -> ArcState:
        nonlocal last
        now = session.state()
        # the kstat goes with the module, and counts from 0 in one that is loaded anew
        if now.stats.get(_RISING, 0) >= last.stats.get(_RISING, 0):
            last = now
        return last

    return Meter(session, stop, last, read, rows)


# 92 columns
COLUMNS = (
    Column("TIME", 8, left=True),
    Column("SIZE", 5),
    Column("TARGET", 6),
    Column("MIN-MAX", 11),
    Column("HIT", 6),
    Column("IOHIT/S", 7),
    Column("MISS/S", 6),
    Column("EVICT/S", 7),
    Column("WAITS", 5),
    Column("WAITED", 7),
    Column("THROTTLE", 8),
    Column("GROW", 5),
)


def cells(row: ArcRow) -> list[str]:
    """The cells of COLUMNS; ``-`` for unknown values."""
    return [
        row.time[11:19],
        format_size(row.size),
        format_size(row.target),
        f"{format_size(row.target_min)}-{format_size(row.target_max)}",
        hit(row),
        "-" if row.demand_iohits is None else per_second(row.demand_iohits, row),
        per_second(row.demand_misses, row),
        per_second(row.evicted, row),
        "-" if row.waits is None else format_short(row.waits),
        "-" if row.wait_ns is None else format_time(row.wait_ns),
        format_short(row.memory_throttle),
        "no" if row.no_grow else "yes",
    ]


def hit(row: ArcRow) -> str:
    """The hit ratio: ``99.9%``; ``-`` without reads."""
    return "-" if row.hit_ratio is None else f"{row.hit_ratio:.1%}"


def per_second(number: int, row: ArcRow) -> str:
    """A count as a rate, in at most five characters; ``-`` for a row of duration 0."""
    return format_short(round(number * SECOND / row.duration_ns)) if row.duration_ns else "-"


def brief(row: ArcRow) -> str:
    """The last cell of a row of `zfstune trace`: the most unusual fact, else the hit ratio."""
    if row.no_grow:
        return "cannot grow"
    if row.memory_throttle:
        return f"throttle {format_short(row.memory_throttle)}"
    return f"hit {hit(row)}"


def summary(row: ArcRow) -> str:
    """A whole trace in one sentence, from the row that covers it."""
    parts = [f"{format_span(row.duration_ns)}: demand hits {hit(row)}"]
    if row.hit_ratio is not None:
        reads = format_count(row.demand_hits + row.demand_misses)
        parts[0] = f"{format_span(row.duration_ns)}: {format_percent(row.hit_ratio)} of {reads}"
        parts[0] += " demand reads were hits"
    if row.waits is None:
        parts.append("waits for eviction not traced")
    elif row.waits and row.wait_ns is not None and row.wait_max_ns is not None:
        parts.append(
            f"{format_count(row.waits)} waits for eviction, {format_time(row.wait_ns)} in all, "
            f"max {format_time(row.wait_max_ns)}"
        )
    else:
        parts.append("no waits for eviction")
    parts.append(f"memory throttle {format_count(row.memory_throttle)}")
    return "; ".join(parts)
