"""`zfstune trace read`: reads, hits and misses apart, and writes, by dataset."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from zfstrace import read, read_summary
from zfstrace.host import Host, ReadSession
from zfstrace.printable import printable
from zfstrace.read import Demand, ReadRow, ReadState
from zfstrace.summary import Span
from zfstrace.types import Latency, TraceOptions
from zfstune.term.signals import Stop
from zfstune.term.table import Style, fit, wrap
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
from zfstune.trace.live import Frame, Meter, Run

_UNTIMED = (
    "not timed, and hits not told from misses: kstats count only. That needs BPF or DTrace, and no "
    "`--source kstat`; see `zfstune doctor`."
)


def run(args: argparse.Namespace) -> int:
    """The command. Raises CommandError and TraceError."""
    return live.run(args, live.options_of(args), trace)


def trace(run: Run[TraceOptions]) -> None:
    """Attaches, prints until stop or the duration, detaches."""
    with live.attached(run, run.host.open_read_trace) as session:
        measured = meter(session, run.host, run.options, run.stop)

        def frame(step: bool, style: Style) -> Frame:
            rows, span = measured.measure(step=step)

            def lines() -> tuple[list[str], list[str]]:
                body = view(rows, style, span.duration_ns, run.where + run.who)
                end = footer(span.losses, span.probes, style)
                if run.options.kstat:
                    end = wrap(_UNTIMED, "", style.width)
                return body, [*cache(measured.demand, style), *end]

            return Frame(rows, lines)

        live.watch(run, frame)


class ReadMeter(Meter[ReadState, ReadRow]):
    """The rows of datasets; demand is the cache's count over the same span."""

    demand = Demand(0, 0)


def meter(session: ReadSession, host: Host, options: TraceOptions, stop: Stop) -> ReadMeter:
    """The datasets with reads or writes."""

    def rows(now: ReadState, earlier: ReadState, span: Span) -> list[ReadRow]:
        made.demand = read.demand(now.arc, earlier.arc)
        return read_summary.rows(
            read.since(now, earlier),
            host,
            span,
            options.pool,
            options.dataset,
            timed=now.timed,
        )

    session.refresh()
    # datasets count from the start of the session, the cache since the module was loaded
    made = ReadMeter(session, stop, ReadState((), session.state().arc), session.state, rows)
    return made


_HEADER = ["dataset", "", "rate", "bytes", "share", "mean", "p50", "p99", "max"]
_ALIGN = "<<>>>>>>>"


def view(rows: Sequence[ReadRow], style: Style, duration_ns: int, where: str) -> list[str]:
    """Lines for one interval; where names what was traced."""
    if not rows:
        text = f"no read or write seen in {format_span(duration_ns)} on {where}"
        return [*wrap(text, "", style.width), ""]
    lines: list[str] = []
    for pool in dict.fromkeys(row.pool for row in rows):
        mine = [row for row in rows if row.pool == pool]
        name = style.paint(printable(pool or "(pool unknown)"), "bold")
        lines += [f"{name}  {format_span(duration_ns)}", "", *_table(mine, style)]
        lines += ["", *_conclusion(mine, style), ""]
    return lines


def _table(rows: Sequence[ReadRow], style: Style) -> list[str]:
    cells = [_HEADER]
    for row in rows:
        name = row.dataset
        for line in _lines(row):
            cells.append([name, *line])
            name = ""
    return fit(cells, _ALIGN, style, 0, tail=True)


def _lines(row: ReadRow) -> list[list[str]]:
    """The lines of a dataset without its name: hits, misses and writes, those that happened."""
    found = []
    if row.hits is None or row.misses is None or row.miss_bytes is None:
        if row.reads:
            found.append(_line("read", row, row.reads, row.read_bytes, "-", None))
    else:
        share = row.hit_ratio or 0.0
        if row.hits:
            size = row.read_bytes - row.miss_bytes
            found.append(_line("hit", row, row.hits, size, _share(share), row.hit))
        if row.misses:
            found.append(
                _line("miss", row, row.misses, row.miss_bytes, _share(1 - share), row.miss)
            )
    if row.writes:
        found.append(_line("write", row, row.writes, row.write_bytes, "", row.write))
    return found or [["error", "", "", "", *[""] * 4]]


def _share(share: float) -> str:
    return f"{share:.1%}".replace("%", " %")


def _line(
    what: str, row: ReadRow, count: int, size: int, share: str, times: Latency | None
) -> list[str]:
    rate = count * SECOND / max(1, row.duration_ns)
    shown = ["-"] * 4
    if times:
        shown = [format_time(ns) for ns in (times.mean, times.p50, times.p99, times.max)]
    return [
        what,
        f"{rate:.1f}" if rate < 100 else format_short(round(rate)),
        format_size(size * SECOND // max(1, row.duration_ns)) + "/s",
        share,
        *shown,
    ]


def _conclusion(rows: Sequence[ReadRow], style: Style) -> list[str]:
    sentences = [one for row in rows for one in (_reads(row), _held(row), _errors(row)) if one]
    return [line for one in sentences for line in wrap(one, "  ", style.width)]


def _reads(row: ReadRow) -> str:
    """Where the reads of a dataset spend their time."""
    if not row.read or row.hit_ratio is None:
        return ""
    missed_ns = row.miss.mean * (row.misses or 0) if row.miss else 0
    share = missed_ns / max(1, row.read.mean * row.reads)
    text = (
        f"{row.dataset}: {format_percent(row.hit_ratio)} of {format_count(row.reads)} reads did "
        f"not wait for an I/O; all: mean {format_time(row.read.mean)}, p99 "
        f"{format_time(row.read.p99)}."
    )
    if missed_ns:
        text += f" The misses took {format_percent(min(1.0, share))} of the time."
    return text


def _held(row: ReadRow) -> str:
    if not row.held or not row.write:
        return ""
    share = (row.held_ns or 0) / max(1, row.write.mean * row.writes)
    return (
        f"{row.dataset}: {format_count(row.held)} of {format_count(row.writes)} writes were held "
        f"up by the write throttle or for a txg, {format_percent(min(1.0, share))} of the time "
        "of all writes; `zfstune trace throttle` shows by which limit."
    )


def _errors(row: ReadRow) -> str:
    if not row.errors:
        return ""
    return (
        f"{row.dataset}: {format_count(row.errors)} reads or writes returned an error; they are "
        "in nothing else."
    )


def cache(found: Demand, style: Style) -> list[str]:
    """The cache as a whole, from its kstat."""
    if found.miss_ratio is None:
        return []
    blocks = format_count(found.hits + found.misses)
    text = (
        f"cache: {format_percent(1 - found.miss_ratio)} of {blocks} demand reads of blocks on "
        "this host were hits; `zfstune trace arc` shows more"
    )
    return wrap(text, "", style.width)
