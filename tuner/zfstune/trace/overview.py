"""The screen of `zfstune trace`: five views in a few lines each, and what stands out."""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from zfstrace import files
from zfstrace.arc import ArcRow
from zfstrace.clock import iso_now
from zfstrace.device import DeviceRow, device_ns
from zfstrace.printable import printable
from zfstrace.strict import strict_zip
from zfstrace.throttle import ThrottleRow
from zfstrace.txg import Txg
from zfstrace.types import FsyncSummary, TraceOptions
from zfstune.inside.instead import Instead
from zfstune.term import log
from zfstune.term.table import Column, Style, cut, terminal_size, wrap
from zfstune.term.units import (
    format_count,
    format_rate,
    format_short,
    format_size,
    format_span,
    format_time,
)
from zfstune.trace import arc, device, live, signs, txg
from zfstune.trace.console import KEYS, SHORT_KEYS, Console, Look
from zfstune.trace.largest import largest_stages
from zfstune.trace.live import Frame, Run
from zfstune.trace.signs import Sign
from zfstune.trace.sources import OPEN, Reading, Source, opened
from zfstune.trace.throttle import dirty

# One column less than the narrowest terminal.
_WIDTH = 79
_KEPT_TXGS = 100
_ALL_ROWS = 1_000_000
_COLUMNS = (
    Column("", 22, left=True, tail=True),
    *(Column("", 8),) * 4,
    Column("", 18, left=True),
)
_MARK, _NO_MARK = "> ", "  "


@dataclass(frozen=True)
class View:
    """One block: the titles of its columns after the first, its rows in order of importance, the
    numbers by which they can be sorted instead (those of the first four columns), the cells of a
    row, what stands out in rows, and the text without rows."""

    name: str
    titles: tuple[str, str, str, str, str]
    pick: Callable[[Sequence[Any]], Sequence[Any]]
    orders: Sequence[Callable[[Any], float | None]]
    cells: Callable[[Any], tuple[str, ...]]
    signs: Callable[[Sequence[Any]], list[Sign]]
    idle: str


def _fsync(row: FsyncSummary) -> tuple[str, ...]:
    times = (row.latency.p50, row.latency.p99, row.latency.max) if row.latency else ()
    stages = {stage.name: stage.total_ns for stage in row.stages}
    return (
        row.dataset or "",
        format_rate(row.count, row.duration_ns),
        *map(format_time, times),
        largest_stages(stages, _COLUMNS[-1].width) if row.zil else "sync=disabled",
    )


def _busiest(rows: Sequence[FsyncSummary]) -> list[FsyncSummary]:
    seen = [row for row in rows if row.dataset and row.latency]
    return sorted(seen, key=lambda row: -sum(stage.total_ns for stage in row.stages))


def _txg(row: Txg) -> tuple[str, ...]:
    times = (row.open_ns, row.quiesce_ns, row.sync_ns)
    return (
        f"{row.pool} {row.txg}",
        *("-" if ns is None else format_time(ns) for ns in times),
        txg.size(row.dirty_bytes),
        txg.brief(row),
    )


def _throttle(row: ThrottleRow) -> tuple[str, ...]:
    hard = row.kinds["dirty_hard"].count
    return (
        f"{row.pool} {printable(row.comm)} {row.pid or ''}".strip(),
        format_short(row.count - hard),
        format_short(hard),
        format_time(row.total_ns),
        format_time(row.max),
        f"dirty {dirty(row)}",
    )


def _device(row: DeviceRow) -> tuple[str, ...]:
    parts = [device.bandwidth(row) if row.size else ""]
    if row.active_mean is not None:
        parts.append(f"{row.active_mean:.1f}")
    return (
        f"{row.vdev} {row.io_class}",
        device.per_second(row),
        "-" if row.queue is None else format_time(row.queue.p99),
        format_time(row.device.p99),
        format_time(row.device.max),
        ", ".join(part for part in parts if part),
    )


def _arc(row: ArcRow) -> tuple[str, ...]:
    return (
        f"min {format_size(row.target_min)} max {format_size(row.target_max)}",
        format_size(row.size),
        format_size(row.target),
        arc.per_second(row.demand_misses, row),
        "-" if row.waits is None else format_short(row.waits),
        arc.brief(row),
    )


VIEWS = {
    view.name: view
    for view in (
        View(
            "fsync",
            ("rate", "p50", "p99", "max", "largest stages"),
            _busiest,
            (
                lambda row: row.count,
                lambda row: row.latency.p50,
                lambda row: row.latency.p99,
                lambda row: row.latency.max,
            ),
            _fsync,
            signs.of_fsync,
            "no fsync",
        ),
        View(
            "txg",
            ("open", "quiesce", "sync", "dirty", "closed by"),
            lambda rows: rows[::-1],
            (
                lambda row: row.open_ns,
                lambda row: row.quiesce_ns,
                lambda row: row.sync_ns,
                lambda row: row.dirty_bytes,
            ),
            _txg,
            signs.of_txg,
            "no txg ended",
        ),
        View(
            "throttle",
            ("delays", "hard", "total", "max", "of the limit"),
            lambda rows: rows,
            (
                lambda row: row.count - row.kinds["dirty_hard"].count,
                lambda row: row.kinds["dirty_hard"].count,
                lambda row: row.total_ns,
                lambda row: row.max,
            ),
            _throttle,
            signs.of_throttle,
            "nothing was throttled",
        ),
        View(
            "device",
            ("IOPS", "queue99", "device99", "max", "bandwidth, active"),
            lambda rows: sorted(rows, key=device_ns, reverse=True),
            (
                lambda row: row.count,
                lambda row: row.queue and row.queue.p99,
                lambda row: row.device.p99,
                lambda row: row.device.max,
            ),
            _device,
            signs.of_device,
            "no I/O",
        ),
        View(
            "arc",
            ("size", "target", "misses/s", "waits", "demand reads"),
            lambda rows: rows,
            (),
            _arc,
            signs.of_arc,
            "nothing",
        ),
    )
}


def screen(
    measured: Sequence[Reading],
    style: Style,
    time: str,
    duration_ns: int,
    where: str,
    look: Look = Look(),  # noqa: B008  (it is frozen)
) -> tuple[list[str], list[str]]:
    """The blocks, and the last line, on losses, missing probes and keys."""
    found = {m.name: VIEWS[m.name].signs(m.rows) for m in measured}
    sign = signs.first(sign for some in found.values() for sign in some)
    name = next((name for name, some in found.items() if sign in some), "") if sign else ""
    span, clock = format_span(duration_ns), time[11:19]
    title = f"{printable(look.pool) or where}, {span} until {clock} UTC{look.state}"
    lines = [cut(f"{title}; the command above a block shows more", _WIDTH)]
    text = f"{_MARK}{name}: {sign.text}" if sign else "nothing stands out"
    for line in wrap(text, "", _WIDTH)[:2]:
        lines.append(style.paint(line, "hot" if sign else "dim"))
    for m in measured:
        if look.view in ("", m.name):
            lines += _block(m, sign if m.name == name else None, style, look)
    return lines, [_footer(measured, style, look)]


def _of_pool(rows: Iterable[Any], pool: str) -> list[Any]:
    """Those of one pool, and those of none: the cache has rows of all."""
    return [row for row in rows if not pool or getattr(row, "pool", pool) == pool]


def _block(m: Reading, sign: Sign | None, style: Style, look: Look) -> list[str]:
    view = VIEWS[m.name]
    picked = list(view.pick(m.rows))
    if 0 < look.order <= len(view.orders):
        by = view.orders[look.order - 1]
        picked.sort(key=lambda row: -(by(row) or 0))
    elif sign and sign.row in picked:
        # the marked row must be on the screen
        picked.remove(sign.row)
        picked.insert(0, sign.row)
    more = f" (+{len(picked) - look.rows})" if len(picked) > look.rows else ""
    mark = _MARK if sign else _NO_MARK
    if m.error:
        head = style.paint(f"{mark}trace {m.name}", "bold")
        note = f"    not available: {printable(m.error)}"
        # one line on a terminal, in a file as many as needed
        return [head, cut(note, _WIDTH)] if style.clip else [head, *wrap(note, "    ")]
    heading = _line((f"trace {m.name}{more}", *view.titles), mark)
    lines = [style.paint(heading, "hot" if sign else "bold")]
    for row in picked[: look.rows]:
        marked = sign is not None and row is sign.row
        line = _line(("  " + view.cells(row)[0], *view.cells(row)[1:]), _NO_MARK)
        lines.append(style.paint(line, "hot") if marked else line)
    return lines if picked else [*lines, f"    {view.idle}"]


def _line(cells: Sequence[str], mark: str) -> str:
    # always cut: the subcommands and JSON show names in full
    parts = (column.cell(text, True) for column, text in strict_zip(_COLUMNS, cells))
    return (mark + " ".join(parts)).rstrip()


def _footer(measured: Sequence[Reading], style: Style, look: Look) -> str:
    losses = {m.name: m.losses.lost for m in measured if m.losses.lost}
    detail = ", ".join(f"{name} {format_count(n)}" for name, n in losses.items())
    text = f"lost {format_count(sum(losses.values()))}" + (f" ({detail})" if detail else "")
    missing = sum(probe.missing for m in measured for probe in m.probes)
    # with keys the line has to do for them, too; the last frame has none
    lack = "missing probes: none" if not look.keys else ""
    if missing:
        lack = f"missing probes: {missing}" + ("" if look.keys else " (see `zfstune doctor`)")
    parts = [text, lack]
    room = _WIDTH - sum(len(part) + 3 for part in parts if part)
    if look.note:
        parts.append(cut(look.note, max(room, 20)))
    elif look.keys:
        keys = next((keys for keys in (KEYS, SHORT_KEYS) if len(keys) <= room), "? help")
        parts.append(style.paint(keys, "dim"))
    parts[0] = style.paint(text, "bad") if losses else text
    return "   ".join(filter(None, parts))


def run(args: argparse.Namespace) -> int:
    """The command. Raises CommandError and TraceError."""
    # the block of each view says why it is not available
    return live.run(args, live.options_of(args), trace, bpf=False)


def trace(run: Run[TraceOptions]) -> None:
    """Attaches what is available, prints until stop or the duration, detaches."""
    with ExitStack() as stack:
        _Overview(run, _attach(run, stack)).watch()


class _Overview:
    """One trace: what was measured last, and how it is shown."""

    def __init__(self, run: Run[TraceOptions], sources: Sequence[Source]) -> None:
        self._run, self._sources = run, sources
        pools = [run.options.pool] if run.options.pool else None
        self._console = Console(list(VIEWS), lambda: pools or run.host.pools(), self._save)
        # the last txgs stay on the screen until others end
        self._txgs: deque[Txg] = deque(maxlen=_KEPT_TXGS)
        self._measured: Sequence[Reading] = ()
        self._time, self._span_ns, self._whole = "", 0, False

    def watch(self) -> None:
        """Shows frames until the end."""
        live.watch(
            self._run,
            self._frame,
            self._tick,
            rolling=True,
            console=self._console,
            again=self._again,
        )

    def _tick(self) -> bool:
        for source in self._sources:
            source.tick()
        return self._run.tick()

    def _frame(self, step: bool, style: Style) -> Frame:
        measured = [source.measure(step=step) for source in self._sources]
        for m in measured:
            if m.name == "txg":
                self._txgs.extend(m.rows)
        self._measured, self._time, self._whole = measured, iso_now(), not step
        self._span_ns = min((m.duration_ns for m in measured if not m.error), default=0)
        again = self._again(style) if step else None
        return again or self._drawn(style, Look())

    def _look(self) -> Look:
        look = self._console.look
        return self._console.fit(terminal_size(self._run.out)[1]) if look.keys else look

    def _again(self, style: Style) -> Frame | None:
        if self._console.help:
            return Frame((), lambda: (list(self._console.help), [SHORT_KEYS]))
        return self._drawn(style, self._look()) if self._measured else None

    def _drawn(self, style: Style, look: Look) -> Frame:
        def lines() -> tuple[list[str], list[str]]:
            shown = [self._shown(m, look) for m in self._measured]
            return screen(shown, style, self._time, self._span_ns, self._run.where, look)

        return Frame([row for m in self._measured for row in m.rows], lines)

    def _shown(self, m: Reading, look: Look) -> Reading:
        m = replace(m, rows=_of_pool(m.rows, look.pool))
        if m.name != "txg":
            return m
        # those of the whole time came with one frame after the other
        kept = _of_pool(self._txgs, look.pool)[0 if self._whole else -look.rows :]
        return m if len(m.rows) > len(kept) else replace(m, rows=kept)

    def _save(self) -> str:
        """Writes what was measured last to a file; returns what to say about it."""
        if not self._measured:
            return "nothing is measured yet"
        name = f"zfstune-trace-{self._time[:19].translate({45: None, 58: None})}Z.txt"
        body, end = self._drawn(Style(), Look(rows=_ALL_ROWS)).lines()
        try:
            files.write(Path(name), [("\n".join([*body, *end]) + "\n").encode()])
        except OSError as error:
            return f"cannot write {name}: {error.strerror or error}"
        return f"written to {name}"


def _say_instead(run: Run[TraceOptions], failed: Sequence[str]) -> None:
    """Says what answers best the questions of the views that are not available."""
    if not failed:
        return
    found = Instead(run.host, run.host.checks(), run.options.pool)
    for name in failed:
        for way in found.ways(name)[:1]:
            log.say(f"in place of `trace {name}`: {way.command}")


def _attach(run: Run[TraceOptions], stack: ExitStack) -> list[Source]:
    """All available sources; raises the first one's error if there are none."""
    log.say("attaching ...")
    sources = [stack.enter_context(opened(name, run)) for name in OPEN]
    if all(source.failed for source in sources):
        assert sources[0].failed
        raise sources[0].failed
    # the first ones have counted while the others were attached: one span for all
    for source in sources:
        source.restart()
    _say_instead(run, [name for name, source in strict_zip(OPEN, sources) if source.failed])
    there = sum(not source.error for source in sources)
    if any(not source.failed and source.attached() for source in sources):
        stack.callback(live.say_waits, run.host)
    live.say_begun(run, f"{there} of {len(sources)} views", run.where)
    return sources
