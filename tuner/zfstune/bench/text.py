"""The table of `zfstune bench`, a row for each test, and its progress."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TextIO

from zfstrace.printable import printable
from zfstrace.strict import strict_zip
from zfstrace.types import Json, Losses
from zfstune.bench.load import Rate, Test
from zfstune.bench.measure import MeasuredTest
from zfstune.term.progress import Progress
from zfstune.term.table import Style, aligned, style_of, wrap
from zfstune.term.units import SECOND, format_percent, format_span, format_time
from zfstune.trace import fsync
from zfstune.trace.footer import footer
from zfstune.trace.largest import largest_stages

HEAD = ("test", "rate", "p50", "p99", "device limit", "share")
# The least width of the stages.
_STAGES = 13
_BAR = 20
_REDRAW_S = 0.2
# About the time that a test takes beside its duration.
_AROUND_NS = SECOND // 2

LIMIT = (
    "device limit: the rate if only log writes and flushes took time, as traced; share: the rate "
    "in percent of it."
)


@dataclass
class PathResult:
    """What a run has measured. seconds is the duration of each test, raw the rate of disk, the one
    of --raw; missing has sentences on what was not measured, left on what was not removed."""

    place: str
    load: str
    zfs: str
    seconds: float
    rows: list[MeasuredTest] = field(default_factory=list)
    raw: Rate | None = None
    disk: str = ""
    missing: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def limit_per_s(self, one: MeasuredTest) -> float | None:
        """The device limit of a row: by the rate of the disk itself if that was measured, only for
        tests like that one; else by the trace. None if unknown."""
        test = one.rate.test
        if test.sync == "none":
            return None
        if self.raw:
            return self.raw.per_s if (test.jobs, test.writes) == (1, 1) else None
        return one.limit_per_s

    def to_json(self, one: MeasuredTest) -> Json:
        """A row, as a ``bench`` object of the schema."""
        limit = self.limit_per_s(one)
        return one.to_json() | {
            "place": self.place,
            "zfs": self.zfs or None,
            "raw_per_s": round(self.raw.per_s, 3) if self.raw else None,
            "share": round(one.rate.per_s / limit, 4) if limit else None,
        }


def view(found: PathResult, style: Style, *, stages: bool) -> list[str]:
    """The lines of the table, its notes, with stages all stages of each test, and what was not
    measured."""
    lines = [*wrap(heading(found), "", style.width), ""]
    if found.rows:
        lines += [*_table(found, style), ""]
        if any(found.limit_per_s(one) for one in found.rows):
            lines += wrap(limit_text(found), "", style.width)
        lines += [line for text in notes(found) for line in wrap(text, "", style.width)]
        if stages:
            lines += _stages(found, style)
    for text in (*found.missing, *found.left):
        lines += [style.paint(line, "hot") for line in wrap(printable(text), "", style.width)]
    return [*lines, *end(found, style)]


def heading(found: PathResult) -> str:
    """``PLACE, ZFS VERSION: PROGRAM, TIME for each test``; printable."""
    zfs = f", ZFS {found.zfs}" if found.zfs else ""
    span = format_span(int(found.seconds * SECOND))
    return f"{printable(found.place)}{zfs}: {found.load}, {span} for each test"


def _table(found: PathResult, style: Style) -> list[str]:
    left = aligned([HEAD, *(cells(found, one) for one in found.rows)], "<>>>>>")
    right = ["largest stages", *_largest(found, max(_STAGES, style.width - len(left[0]) - 2))]
    first, *rest = aligned(list(strict_zip(left, right)), "<<")
    return [style.paint(first, "bold"), *rest]


def _largest(found: PathResult, room: int) -> list[str]:
    """The largest stages of each row, or why there are none."""
    texts = []
    for one in found.rows:
        if one.fsync and not one.fsync.zil:
            texts.append("sync=disabled")
        else:
            stages = one.fsync.stages if one.fsync else ()
            times = {stage.name: stage.total_ns for stage in stages}
            texts.append(largest_stages(times, room) or "-")
    return texts


def cells(found: PathResult, one: MeasuredTest) -> list[str]:
    """The cells of a row, by HEAD."""
    limit = found.limit_per_s(one)
    return [
        one.rate.test.label,
        per_s(one.rate.per_s),
        *("-" if ns is None else format_time(ns) for ns in (one.p50_ns, one.p99_ns)),
        per_s(limit) if limit else "-",
        format_percent(one.rate.per_s / limit) if limit else "-",
    ]


def per_s(rate: float) -> str:
    """Syncs or writes per second: ``31.4/s``, ``2,100/s``."""
    return f"{rate:.1f}/s" if rate < 100 else f"{rate:,.0f}/s"


def limit_text(found: PathResult) -> str:
    """The meaning of the column "device limit" in this run."""
    if not found.raw:
        return LIMIT
    return (
        f"device limit: {found.raw.test.label}, 8 kB, on {found.disk} by {found.raw.tool}; "
        "share: the rate in percent of it."
    )


def notes(found: PathResult) -> list[str]:
    """Sentences that the table needs: other programs, the source of times, why stages lack."""
    said = []
    for tool in dict.fromkeys(one.rate.tool for one in found.rows):
        if tool != found.load:
            names = ", ".join(one.rate.test.name for one in found.rows if one.rate.tool == tool)
            said.append(f"by {tool}: {names}.")
    if any(not one.rate.p50_ns and one.p50_ns for one in found.rows):
        said.append(f"p50, p99: by the trace where {found.load} reports none.")
    for why in dict.fromkeys(one.untraced for one in found.rows if one.untraced):
        said.append(f"no stages: {printable(why)}.")
    return said


def _stages(found: PathResult, style: Style) -> list[str]:
    lines: list[str] = []
    for one in found.rows:
        if one.fsync and one.fsync.count:
            name = style.paint(one.rate.test.label, "bold")
            lines += [name, *fsync.view([one.fsync], style, False)]
    return ["", *lines]


def end(found: PathResult, style: Style) -> list[str]:
    """The footer: losses and missing probes; [] without a trace."""
    traced = [one.fsync for one in found.rows if one.fsync]
    if not traced:
        return []
    names = ("start", "missed", "event", "log_block", "overflow", "skipped")
    sums = {name: sum(getattr(one.losses, name) for one in traced) for name in names}
    losses = Losses(**sums, unfinished=traced[-1].losses.unfinished)
    return footer(losses, traced[-1].probes, style)


class ProgressBar:
    """The progress of a run: a bar on a terminal, else a line for each test."""

    def __init__(self, out: TextIO, tests: Sequence[Test], seconds: float) -> None:
        each = int(seconds * SECOND) + _AROUND_NS
        self._progress = Progress(out, time.monotonic_ns() + each * (len(tests) + 1))
        self._style = style_of(out)
        self._places = {test.name: i for i, test in enumerate(tests)}
        self._drawn = 0.0

    def __call__(self, test: Test | None, done: float) -> None:
        if test is None:
            self._progress.line("writing the files, creating the log ...")
        elif time.monotonic() - self._drawn >= _REDRAW_S:
            self._drawn = time.monotonic()
            place, count = self._places[test.name], len(self._places)
            share = (place + done) / count
            bar = self._style.bar(share, _BAR).ljust(_BAR)
            self._progress.status(f"[{bar}] {place + 1} of {count}: {test.label}")

    def row(self, one: MeasuredTest) -> None:
        """Prints the rate of a finished test, on a line that stays."""
        self._progress.line(f"{one.rate.test.label}: {per_s(one.rate.per_s)}")

    def end(self) -> None:
        """Removes the bar."""
        self._progress.end()
