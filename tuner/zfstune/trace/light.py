"""`zfstune trace fsync --light`: a trace for weeks."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from zfstrace import light_summary
from zfstrace.light import CommitCounts, KeptRow, LightRow
from zfstrace.printable import printable
from zfstrace.types import Latency, LightOptions
from zfstune.errors import UsageError
from zfstune.term.log import say
from zfstune.term.table import Style, aligned, wrap
from zfstune.term.units import SECOND, format_count, format_rate, format_span, format_time
from zfstune.trace import live
from zfstune.trace.footer import footer
from zfstune.trace.largest import largest_stages
from zfstune.trace.live import Frame, Meter, Run

EVERY, WINDOW = 60 * SECOND, 2 * SECOND
_BAR = 20


def options_of(args: argparse.Namespace) -> LightOptions:
    """Raises UsageError."""
    every, window = args.every or EVERY, args.window or WINDOW
    if window * 4 > every:
        raise UsageError(
            f"a window of {format_span(window)} every {format_span(every)} is no light trace",
            "let windows take a quarter of the time at most, or leave out --light",
        )
    if args.histogram:
        raise UsageError("--histogram is not possible with --light", "leave out one of the two")
    pool = args.dataset.split("/", 1)[0] if args.dataset else args.pool
    return LightOptions(pool, args.dataset, args.pid, args.over or 0, every, window, args.no_fentry)


def run(args: argparse.Namespace) -> int:
    """The command. Raises CommandError and TraceError."""
    return live.run(args, options_of(args), trace)


def trace(run: Run[LightOptions]) -> None:
    """Attaches, prints until stop or the duration, detaches."""
    options, host = run.options, run.host
    with live.attached(run, host.open_light_trace) as session:
        measured = Meter[Sequence[CommitCounts], LightRow](
            session,
            run.stop,
            (),
            session.commits,
            lambda now, earlier, span: light_summary.rows(
                light_summary.since(now, earlier),
                session.windows(),
                host,
                span,
                options.pool,
                options.dataset,
            ),
        )

        def tell() -> None:
            for window in session.kept():
                for row in light_summary.kept(window, host, options.pool, options.dataset):
                    _tell(run, row)

        missed = 0  # when it was detached

        def tick() -> bool:
            nonlocal missed
            waited, why = session.waiting, session.why
            ended = run.go_on()
            if session.why not in ("", why):
                say(f"{session.why}; tries again in a minute")
            if session.waiting and not waited:
                missed = session.losses().missed
            if session.waiting != waited and not session.why:
                _say_waiting(session.waiting, session.losses().missed - missed)
            tell()
            return ended

        def frame(step: bool, style: Style) -> Frame:
            rows, span = measured.measure(step=step)
            tell()
            return Frame(rows, lambda: (view(rows, style), footer(span.losses, span.probes, style)))

        live.watch(run, frame, tick)


def _say_waiting(waiting: bool, lost: int) -> None:
    if waiting:
        say("no pool is imported: detached until one is")
        return
    unseen = f"; commits missed meanwhile: {format_count(lost)}" if lost else ""
    say(f"a pool is imported: attached again{unseen}")


def _tell(run: Run[LightOptions], row: KeptRow) -> None:
    """At once, not with the next summary: as an object of its own, or on stderr."""
    if run.args.json:
        print(json.dumps(row.to_json()), file=run.out, flush=True)
        return
    cause, found = row.cause, f"no fsync in {format_span(row.duration_ns)}"
    if row.fsyncs:
        where = printable(row.dataset or row.pool or "(pool unknown)")
        stages = largest_stages(row.stages, 60)
        found = f"{format_count(row.fsyncs)} fsyncs on {where}: {stages}"
    say(
        f"{row.time}: {format_time(cause.total_ns)} for a commit of {printable(cause.comm)} "
        f"({cause.pid}); around it {found}"
    )


def view(rows: Sequence[LightRow], style: Style) -> list[str]:
    """Lines for the rows of one interval, in the order of light_summary.rows()."""
    lines: list[str] = []
    for row in rows:
        alone = sum(other.pool == row.pool for other in rows) == 2
        if row.dataset is None and (alone or not row.commits):
            continue
        lines += [*_block(row, style), ""]
    idle = [row.dataset or row.pool or "?" for row in rows if not row.commits]
    if idle:
        span = format_span(rows[0].duration_ns)
        lines += [*wrap(f"no commit seen in {span} on {', '.join(idle)}", "", style.width), ""]
    return lines or ["no pool is imported", ""]


def _block(row: LightRow, style: Style) -> list[str]:
    name = printable(row.dataset or row.pool or "(pool unknown)")
    if row.dataset is None:
        name += " (pool)"
    lines = [
        style.paint(name, "bold"),
        f"  {format_count(row.commits)} commits in {format_span(row.duration_ns)}, "
        f"{format_rate(row.commits, row.duration_ns)}",
    ]
    cells = [["", "count", "mean", "p50", "p99", "p99.9", "max"]]
    for what, count, latency in (
        ("commit", row.commits, row.latency),
        ("log block written", row.log_blocks, row.log_write),
        ("caches flushed", row.log_blocks, row.flush),
    ):
        if latency:
            cells.append([what, format_count(count), *_times(latency)])
    if len(cells) > 1:
        lines += ["", *aligned(cells, "<>>>>>>", indent="  ")]
    return [*lines, "", *_stages(row, style)]


def _times(latency: Latency) -> list[str]:
    every = (latency.mean, latency.p50, latency.p99, latency.p999, latency.max)
    return [format_time(ns) for ns in every]


def _stages(row: LightRow, style: Style) -> list[str]:
    windows = f"{row.windows} window{'s' if row.windows != 1 else ''}"
    if not row.shares:
        return wrap(f"stages: not estimated yet, from {windows}", "  ", style.width)
    cells = [["stage", "about", "", "from", "to"]]
    for one in row.shares:
        if one.share:
            ends = ["-" if end is None else f"{end:.0%}" for end in (one.low, one.high)]
            bar = style.bar(one.share, _BAR).ljust(_BAR)
            cells.append([one.name, f"{one.share:.0%}", bar, *ends])
    text = f"estimated from {format_count(row.sampled)} fsyncs in {windows}"
    if row.unsampled:
        text += f"; {format_count(row.unsampled)} of these windows are missing"
    return [*aligned(cells, "<><>>", indent="  "), *wrap(text, "  ", style.width)]
