"""`zfstune trace device`: the time of I/Os in queue and device, by vdev and class."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from zfstrace import device
from zfstrace.device import DeviceCounts, DeviceRow, Spread, device_ns
from zfstrace.host import DeviceSession
from zfstrace.summary import Span
from zfstrace.types import TraceOptions
from zfstune.term.signals import Stop
from zfstune.term.table import Style, fit, wrap
from zfstune.term.units import (
    SECOND,
    format_percent,
    format_short,
    format_size,
    format_span,
    format_time,
)
from zfstune.trace import live
from zfstune.trace.footer import footer
from zfstune.trace.live import Frame, Meter, Run
from zfstune.trace.signs import of_device
from zfstune.trace.vdevs import VdevNames

_REST = "vdevs that found no room, summed in <others>; select fewer with POOL"


def run(args: argparse.Namespace) -> int:
    """The command. Raises CommandError and TraceError."""
    return live.run(args, live.options_of(args), trace)


def trace(run: Run[TraceOptions]) -> None:
    """Attaches, prints until stop or the duration, detaches."""
    with live.attached(run, run.host.open_device_trace) as session:
        names = VdevNames(run.host, run.stop)
        measured = meter(session, names, run.options, run.stop)

        def frame(step: bool, style: Style) -> Frame:
            rows, span = measured.measure(step=step)

            def lines() -> tuple[list[str], list[str]]:
                body = view(rows, style, span.duration_ns, run.where)
                return body, footer(span.losses, span.probes, style, _REST)

            return Frame(rows, lines)

        live.watch(run, frame)


def meter(
    session: DeviceSession, names: VdevNames, options: TraceOptions, stop: Stop
) -> Meter[Sequence[DeviceCounts], DeviceRow]:
    """The vdevs that had I/O."""

    def rows(
        now: Sequence[DeviceCounts], earlier: Sequence[DeviceCounts], span: Span
    ) -> list[DeviceRow]:
        found = device.since(now, earlier)
        mine = [d for d in found if d.rest or options.pool in (None, d.pool)]
        busy = [d for d in mine if not d.rest and any(c.count for c in d.classes.values())]
        known = {d.guid: name for d in busy if (name := names.of(d.pool, d.guid))}
        return device.rows(mine, known, span.time, span.duration_ns, span.losses)

    return Meter(session, stop, (), session.devices, rows)


_GROUPS = ["", "", "", "", "queue", "", "device", "", "", "active", ""]

_HEADER = ["vdev", "class", "IOPS", "bytes", "p50", "p99", "p50", "p99", "max", "mean", "max"]

_ALIGN = "<<>>>>>>>>>"


def view(rows: Sequence[DeviceRow], style: Style, duration_ns: int, where: str) -> list[str]:
    """Lines for one interval; where names what was traced."""
    if not rows:
        return [*wrap(f"no I/O seen in {format_span(duration_ns)} on {where}", "", style.width), ""]
    lines: list[str] = []
    for pool in dict.fromkeys(row.pool for row in rows):
        mine = [row for row in rows if row.pool == pool]
        name = style.paint(pool or "(pool unknown)", "bold")
        lines += [f"{name}  {format_span(duration_ns)}", "", *_table(mine, style)]
        lines += ["", *_conclusion(mine, style), *_unnamed(mine, style), ""]
    return lines


def per_second(row: DeviceRow) -> str:
    """I/Os per second; below 100 with one decimal."""
    rate = row.count * SECOND / max(1, row.duration_ns)
    return f"{rate:.1f}" if rate < 100 else format_short(round(rate))


def bandwidth(row: DeviceRow) -> str:
    """Bytes per second: ``123M/s``; ``-`` for 0."""
    if not row.size:
        return "-"
    return format_size(row.size * SECOND // max(1, row.duration_ns)) + "/s"


def _table(rows: Sequence[DeviceRow], style: Style) -> list[str]:
    cells = [_GROUPS, _HEADER]
    for i, row in enumerate(rows):
        cells.append(
            [
                row.vdev if not i or rows[i - 1].guid != row.guid else "",
                row.io_class,
                per_second(row),
                bandwidth(row),
                *_times(row.queue, longest=False),
                *_times(row.device, longest=True),
                "-" if row.active_mean is None else f"{row.active_mean:.1f}",
                "-" if row.active_max is None else format_short(row.active_max),
            ]
        )
    # a disk's name is cut at the front: its end is the serial number
    lines = fit(cells, _ALIGN, style, 0, tail=True)
    top = max(range(len(rows)), key=lambda i: device_ns(rows[i]))
    lines[top + 2] = style.paint(lines[top + 2], "hot")
    return lines


def _times(spread: Spread | None, *, longest: bool) -> list[str]:
    if spread is None:
        return ["-", "-"]
    times = [spread.p50, spread.p99, *([spread.max] if longest else [])]
    return [format_time(ns) for ns in times]


def _conclusion(rows: Sequence[DeviceRow], style: Style) -> list[str]:
    """What stands out; if nothing does, where most of the time goes."""
    sentences = [sign.sentence for sign in of_device(rows)] or [_largest(rows)]
    return [
        style.paint(line, "bold")
        for sentence in sentences
        for line in wrap(sentence, "  ", style.width)
    ]


def _unnamed(rows: Sequence[DeviceRow], style: Style) -> list[str]:
    """What the numbers are that stand for vdevs where zpool(8) hangs or is missing."""
    if not any(row.vdev == str(row.guid) for row in rows):
        return []
    text = (
        "A number stands for a vdev that zpool(8) has not named: it did not answer in time, or is "
        f"missing. `zpool list -v -g {rows[0].pool}` prints the same numbers."
    )
    return wrap(text, "  ", style.width)


def _largest(rows: Sequence[DeviceRow]) -> str:
    top = max(rows, key=device_ns)
    share = device_ns(top) / max(1, sum(map(device_ns, rows)))
    return (
        f"No vdev and no class stands out; the largest part of the time at the devices "
        f"({format_percent(share)}) is `{top.io_class}` on {top.vdev}: p50 "
        f"{format_time(top.device.p50)}, p99 {format_time(top.device.p99)}."
    )
