"""`zfstune trace fsync`: where fsyncs spend their time, stage by stage."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from zfstrace import stages
from zfstrace.host import FsyncSession, Host
from zfstrace.summary import since, summarize
from zfstrace.types import DatasetCounts, FsyncOptions, FsyncSummary, StageSummary
from zfstune.errors import UsageError
from zfstune.term.signals import Stop
from zfstune.term.table import Style, aligned, wrap
from zfstune.term.units import format_count, format_rate, format_span, format_time
from zfstune.trace import live
from zfstune.trace.footer import footer
from zfstune.trace.live import Frame, Meter, Run


def run(args: argparse.Namespace) -> int:
    """The command. Raises CommandError and TraceError."""
    if args.light:
        from zfstune.trace import light

        return light.run(args)
    for name in ("every", "window", "over"):
        if getattr(args, name):
            raise UsageError(f"--{name} is about windows: use it with --light", "add --light")
    return live.run(args, options_of(args), trace)


def options_of(args: argparse.Namespace) -> FsyncOptions:
    """The trace that the common options of `trace fsync` and `trace slow` ask for."""
    pool = args.pool
    if args.dataset is not None:
        pool = args.dataset.split("/", 1)[0]
    return FsyncOptions(pool, args.dataset, args.pid, 0, args.no_fentry)


def trace(run: Run[FsyncOptions]) -> None:
    """Attaches, prints until stop or the duration, detaches."""
    with live.attached(run, run.host.open_fsync_trace) as session:
        measured = meter(session, run.host, run.options, run.stop)

        def frame(step: bool, style: Style) -> Frame:
            rows, span = measured.measure(step=step)

            def lines() -> tuple[list[str], list[str]]:
                body = view(rows, style, run.args.histogram, run.who)
                return body, footer(span.losses, span.probes, style)

            return Frame(rows, lines)

        live.watch(run, frame)


def meter(
    session: FsyncSession, host: Host, options: FsyncOptions, stop: Stop
) -> Meter[Sequence[DatasetCounts], FsyncSummary]:
    """The summaries of each pool and dataset."""
    return Meter(
        session,
        stop,
        (),
        session.datasets,
        lambda now, earlier, span: summarize(
            since(now, earlier), host, span, options.pool, options.dataset
        ),
    )


_BAR = 20

_OWNERS = (
    (stages.DEVICE, "device", "log_write, flush"),
    (stages.ZFS, "ZFS", ""),
    (stages.SYSTEM, "scheduler", "wakeup"),
    (stages.UNKNOWN, "unexplained", ""),
)


def view(rows: Sequence[FsyncSummary], style: Style, histogram: bool, who: str = "") -> list[str]:
    """Lines for the summaries of one interval, in the order of summary.summarize().

    who is the process that the trace is limited to (" of process 12"), shown if no fsync was seen.
    Losses are in footer().
    """
    lines: list[str] = []
    for row in _without_doubles(rows):
        if row.count or row.errors:
            lines += [*_block(row, rows, style, histogram), ""]
    idle = [row.dataset or row.pool or "?" for row in rows if not (row.count or row.errors)]
    if idle:
        span = format_span(rows[0].duration_ns)
        lines += [*wrap(f"no fsync{who} seen in {span} on {', '.join(idle)}", "", style.width), ""]
    return lines or ["no pool is imported", ""]


def _datasets_of(row: FsyncSummary, rows: Sequence[FsyncSummary]) -> list[FsyncSummary]:
    return [other for other in rows if other.dataset is not None and other.pool == row.pool]


def _without_doubles(rows: Sequence[FsyncSummary]) -> list[FsyncSummary]:
    """Without pools in which only one dataset was seen: its block says the same."""
    return [row for row in rows if row.dataset is not None or len(_datasets_of(row, rows)) != 1]


def _block(
    row: FsyncSummary, rows: Sequence[FsyncSummary], style: Style, histogram: bool
) -> list[str]:
    lines = _heading(row, rows, style)
    if row.zil:
        lines += ["", *_stage_table(row, style), "", *_conclusion(row, style)]
    else:
        lines += _no_zil(row, style)
    if row.note:
        lines += wrap(f"note: {row.note}", "  ", style.width)
    if row.zil and row.no_zil:
        lines += wrap(
            f"{format_count(row.no_zil)} of {format_count(row.count)} operations made no log "
            "commit (sync=disabled, or nothing to write)",
            "  ",
            style.width,
        )
    if histogram and row.histogram:
        lines += ["", *_distribution(row, style)]
    return lines


def _heading(row: FsyncSummary, rows: Sequence[FsyncSummary], style: Style) -> list[str]:
    name = row.dataset or row.pool or "(pool unknown)"
    if row.dataset is None:
        name += f" (pool, {len(_datasets_of(row, rows))} datasets)"
    kinds = ", ".join(f"{kind} {format_count(n)}" for kind, n in row.kinds.items() if n)
    plural = "operation" if row.count == 1 else "operations"
    line = (
        f"{format_count(row.count)} {plural} in {format_span(row.duration_ns)}, "
        f"{format_rate(row.count, row.duration_ns)}"
    )
    lines = [style.paint(name, "bold"), f"  {line}  ({kinds})" if kinds else f"  {line}"]
    if row.latency:
        values = (
            ("p50", row.latency.p50),
            ("p99", row.latency.p99),
            ("p99.9", row.latency.p999),
            ("max", row.latency.max),
            ("mean", row.latency.mean),
        )
        lines.append("  " + "   ".join(f"{name} {format_time(ns)}" for name, ns in values))
    if row.errors:
        lines.append(style.paint(f"  {format_count(row.errors)} returned an error", "bad"))
    return lines


def _no_zil(row: FsyncSummary, style: Style) -> list[str]:
    where = row.dataset or row.pool
    on = "this dataset" if row.dataset else "all datasets seen here"
    text = (
        f"`sync=disabled` on {on}: fsync returns without writing the log; data of the last "
        f"seconds is lost on a crash; check `zfs get sync {where}`."
    )
    return [style.paint(line, "hot") for line in wrap(text, "  ", style.width)]


def _total(row: FsyncSummary) -> int:
    return sum(stage.total_ns for stage in row.stages)


def _stage_table(row: FsyncSummary, style: Style) -> list[str]:
    total = _total(row)
    seen = [stage for stage in row.stages if stage.count]
    if not seen:
        return ["  no stage was seen"]
    room = _BAR if style.width > 90 else _BAR // 2
    cells = [["stage", "share", "", "p50", "p99", "max", "count"]]
    for stage in seen:
        share = stage.total_ns / total if total else 0.0
        cells.append(
            [
                stage.name,
                f"{share:6.1%}".replace("%", " %"),
                style.bar(share, room).ljust(room),
                format_time(stage.p50),
                format_time(stage.p99),
                format_time(stage.max),
                format_count(stage.count),
            ]
        )
    lines = aligned(cells, "<><>>>>", indent="  ")
    top = 1 + seen.index(_dominant(seen))
    lines[top] = style.paint(lines[top], "hot")
    unseen = [stage.name for stage in row.stages if not stage.count]
    if unseen:
        lines += wrap(f"no time in: {', '.join(unseen)}", "  ", style.width)
    return lines


def _dominant(seen: Sequence[StageSummary]) -> StageSummary:
    return max(seen, key=lambda stage: stage.total_ns)


def _conclusion(row: FsyncSummary, style: Style) -> list[str]:
    total = _total(row)
    if not total:
        return []
    parts = []
    for owner, name, detail in _OWNERS:
        own = sum(s.total_ns for s in row.stages if stages.BY_NAME[s.name].owner == owner)
        if not own and owner not in (stages.DEVICE, stages.ZFS):
            continue
        parts.append(f"{name} {own / total:.1%}".replace("%", " %"))
        if detail:
            parts[-1] += f" ({detail})"
    top = _dominant(row.stages)
    share = top.total_ns / total
    stage = stages.BY_NAME[top.name]
    if share >= 0.5:
        start = f"Most of the time ({share:.0%}) goes to `{top.name}`"
    elif share >= 0.3:
        start = f"The largest part of the time ({share:.0%}) goes to `{top.name}`"
    else:
        start = f"No stage dominates; the largest ({share:.0%}) is `{top.name}`"
    sentence = f"{start}: {stage.meaning}; {stage.advice}.".replace("%)", " %)")
    return [
        "  " + "   ".join(parts),
        *(style.paint(line, "bold") for line in wrap(sentence, "  ", style.width)),
    ]


def _distribution(row: FsyncSummary, style: Style) -> list[str]:
    """The total latency by powers of two."""
    powers: dict[int, int] = {}
    for low, _high, n in row.histogram:
        power = max(1, low.bit_length())
        powers[power] = powers.get(power, 0) + n
    most = max(powers.values())
    cells = []
    for power in range(min(powers), max(powers) + 1):
        n = powers.get(power, 0)
        # the tail matters most: a bar too short to draw is a dot
        bar = style.bar(n / most, 40) or ("." if n else "")
        cells.append(
            [
                format_time(1 << (power - 1) if power > 1 else 0),
                "-",
                format_time(1 << power),
                f"|{bar:<40}|",
                format_count(n),
            ]
        )
    return ["  total latency", *aligned(cells, "><><>", " ", "  ")]
