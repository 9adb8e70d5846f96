"""`zfstune trace throttle`: writers that the write throttle delays."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from zfstrace import throttle
from zfstrace.host import Host, ThrottleSession
from zfstrace.printable import printable
from zfstrace.summary import Span
from zfstrace.throttle import ThrottleCounts, ThrottleRow, percent_of
from zfstrace.types import TraceOptions
from zfstune.term.signals import Stop
from zfstune.term.table import Style, fit, wrap
from zfstune.term.units import (
    format_count,
    format_percent,
    format_short,
    format_size,
    format_span,
    format_time,
)
from zfstune.trace import live
from zfstune.trace.footer import footer
from zfstune.trace.live import Frame, Meter, Run

_REST = "processes that found no room, summed in <others>; select fewer with POOL or --pid"


def run(args: argparse.Namespace) -> int:
    """The command. Raises CommandError and TraceError."""
    return live.run(args, live.options_of(args), trace)


def trace(run: Run[TraceOptions]) -> None:
    """Attaches, prints until stop or the duration, detaches."""
    with live.attached(run, run.host.open_throttle_trace) as session:
        measured = meter(session, run.host, run.options, run.stop)

        def frame(step: bool, style: Style) -> Frame:
            rows, span = measured.measure(step=step)

            def lines() -> tuple[list[str], list[str]]:
                body = view(rows, style, span.duration_ns, run.where + run.who)
                return body, footer(span.losses, span.probes, style, _REST)

            return Frame(rows, lines)

        live.watch(run, frame)


def meter(
    session: ThrottleSession, host: Host, options: TraceOptions, stop: Stop
) -> Meter[Sequence[ThrottleCounts], ThrottleRow]:
    """The processes that waited."""

    def rows(
        now: Sequence[ThrottleCounts], earlier: Sequence[ThrottleCounts], span: Span
    ) -> list[ThrottleRow]:
        limit = host.parameter("zfs_dirty_data_max")
        found = throttle.since(now, earlier)
        # the rest may belong to any pool
        mine = [c for c in found if c.rest or options.pool in (None, c.pool)]
        return throttle.rows(mine, span.time, span.duration_ns, limit, span.losses)

    return Meter(session, stop, (), session.waits, rows)


@dataclass(frozen=True)
class Kind:
    """A kind of wait: its column; meaning and advice are parts of a sentence."""

    column: str
    meaning: str
    advice: str


_SLOW_POOL = (
    "the pool writes more slowly than the programs do: look at `zfstune trace device` for the "
    "vdev that limits it, and at dirty and written bytes in `zfstune trace txg`"
)

KINDS = {
    "dirty_delay": Kind(
        "delays",
        "each transaction is slowed down a little, because dirty data exceeds "
        "zfs_delay_min_dirty_percent of zfs_dirty_data_max",
        _SLOW_POOL,
    ),
    "dirty_hard": Kind(
        "hard",
        "dirty data is at zfs_dirty_data_max, and writers stop until a sync has written something",
        _SLOW_POOL,
    ),
    "wrlog_delay": Kind(
        "wrlog",
        "transactions are slowed down because of log data not yet synced (zfs_wrlog_data_max)",
        "synchronous writes outrun the txg sync: look at sync times in `zfstune trace txg`",
    ),
    "txg_wait": Kind(
        "txg_wait",
        "writers wait for a txg for another reason: a dnode that the previous txg still holds, a "
        "quota nearly full, or a suspended pool",
        "look at `zpool status`, at quotas, and at sync times in `zfstune trace txg`",
    ),
    "unknown": Kind(
        "unknown",
        "the kind of wait could not be determined",
        "the missing probes say why",
    ),
}


def view(rows: Sequence[ThrottleRow], style: Style, duration_ns: int, where: str) -> list[str]:
    """Lines for one interval; where names what was traced."""
    if not rows:
        text = f"nothing was throttled in {format_span(duration_ns)} on {where}"
        return [*wrap(text, "", style.width), ""]
    lines: list[str] = []
    # rows begin with the longest total, so the worst pool comes first, too
    for pool in dict.fromkeys(row.pool for row in rows):
        mine = [row for row in rows if row.pool == pool]
        lines += [style.paint(pool or "(pool unknown)", "bold"), *_heading(mine), ""]
        lines += [*_table(mine, style), "", *_conclusion(mine, style), ""]
    return lines


def dirty(row: ThrottleRow) -> str:
    """Dirty data in bytes and in percent of its limit: ``2.9G 72%``; ``-`` if not known."""
    if row.dirty_bytes is None:
        return "-"
    percent = percent_of(row.dirty_bytes, row.dirty_data_max)
    share = "" if percent is None else f" {min(percent, 999):.0f}%"
    return format_size(row.dirty_bytes) + share


def _kind_ns(rows: Sequence[ThrottleRow], kind: str) -> int:
    return sum(row.kinds[kind].total_ns for row in rows if kind in row.kinds)


def _heading(rows: Sequence[ThrottleRow]) -> list[str]:
    count, total = sum(row.count for row in rows), sum(row.total_ns for row in rows)
    span_ns = rows[0].duration_ns
    waits = "wait" if count == 1 else "waits"
    line = f"{format_count(count)} {waits} in {format_span(span_ns)}, {format_time(total)} in all"
    threads = total / max(1, span_ns)
    lines = [f"  {line}: {threads:.1f} threads delayed on average"]
    limit = rows[0].dirty_data_max
    if limit:
        lines.append(f"  zfs_dirty_data_max {format_size(limit)}")
    return lines


def _table(rows: Sequence[ThrottleRow], style: Style) -> list[str]:
    seen = [k for k in KINDS if any(k in r.kinds and r.kinds[k].count for r in rows)]
    columns = [KINDS[kind].column for kind in seen]
    cells = [["pid", "comm", *columns, "total", "p50", "p99", "max", "dirty"]]
    for row in rows:
        cells.append(
            [
                str(row.pid) if row.pid else "-",
                printable(row.comm),
                *(format_short(row.kinds[k].count) if k in row.kinds else "0" for k in seen),
                format_time(row.total_ns),
                format_time(row.p50),
                format_time(row.p99),
                format_time(row.max),
                dirty(row),
            ]
        )
    lines = fit(cells, "><" + ">" * (len(seen) + 5), style, 1)
    lines[1] = style.paint(lines[1], "hot")
    none = [KINDS[kind].column for kind in KINDS if kind not in seen and kind != "unknown"]
    if none:
        lines += wrap(f"none of: {', '.join(none)}", "  ", style.width)
    return lines


def _conclusion(rows: Sequence[ThrottleRow], style: Style) -> list[str]:
    total = sum(row.total_ns for row in rows)
    top = max(KINDS, key=lambda kind: _kind_ns(rows, kind))
    share = _kind_ns(rows, top) / max(1, total)
    kind = KINDS[top]
    parts = [
        f"{KINDS[k].column} {format_percent(_kind_ns(rows, k) / max(1, total))}"
        for k in KINDS
        if _kind_ns(rows, k)
    ]
    start = "Most of the waiting" if share >= 0.5 else "The largest part of the waiting"
    sentence = (
        f"{start} ({format_percent(share)}) is `{kind.column}`: {kind.meaning}; {kind.advice}."
    )
    return [
        "  " + "   ".join(parts),
        *(style.paint(line, "bold") for line in wrap(sentence, "  ", style.width)),
    ]
