"""`zfstune trace --from`: the views again, as they were at a moment of an incident file."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from zfstrace.light import LightRow
from zfstrace.printable import printable
from zfstrace.summary import wanted
from zfstrace.txg import Txg
from zfstrace.types import FsyncSummary, Json, Losses, Probe, SlowFsync
from zfstune.errors import UsageError
from zfstune.incident import at
from zfstune.incident.intervals import Incident, Interval, load
from zfstune.incident.reader import Reader
from zfstune.incident.times import ns_of
from zfstune.term.log import say
from zfstune.term.table import Column, Lines, Style, style_of, wrap
from zfstune.term.units import SECOND, format_count, format_span, format_time
from zfstune.trace import arc, device, fsync, light, overview, read, slow, throttle, txg
from zfstune.trace.footer import footer
from zfstune.trace.rebuilt import as_fsyncs, row
from zfstune.trace.sources import Reading

# How much of the time before the moment views of lines show.
_LINES_NS = 300 * SECOND
# view: the types of its records
_TYPES = {
    "fsync": ("fsync_summary", "light_summary", "light_window"),
    "slow": ("slow_fsync",),
    "txg": ("txg",),
    "throttle": ("throttle",),
    "device": ("device",),
    "arc": ("arc",),
    "read": ("read",),
}
# view: types of which there is a record where its own could have been recorded
_BESIDE = {"slow": ("fsync_summary",)}
_NOTHING = {
    "fsync": "no fsync",
    "slow": "no slow fsync",
    "txg": "no txg",
    "throttle": "no delayed writer",
    "device": "no I/O",
    "arc": "nothing of the cache",
    "read": "no read or write",
}
# Of a view of lines, the newest are shown.
_LINES = ("slow", "txg", "arc")
_MOST_LINES = 10_000
# option: the views of a file that have it, and why the others do not
_OPTIONS = {
    "interval": ((), "a file has the intervals of its recorder"),
    "timeline": ((), "a file has no times of stages to draw"),
    "every": ((), "a file has the windows of its recorder"),
    "window": ((), "a file has the windows of its recorder"),
    "pid": (("slow", "throttle"), "a file has no such rows for single processes"),
    "duration": (_LINES, "a table is of one interval of the file"),
}


@dataclass(frozen=True)
class Moment:
    """An interval of a file, and what of it is asked for."""

    args: argparse.Namespace
    incident: Incident
    interval: Interval
    # the types of all records in the file
    types: frozenset[str]

    @property
    def pool(self) -> str | None:
        dataset: str | None = getattr(self.args, "dataset", None)
        return dataset.split("/", 1)[0] if dataset else self.args.pool

    @property
    def where(self) -> str:
        return getattr(self.args, "dataset", None) or self.args.pool or "all pools"

    def rows(self, view: str, among: Iterable[Interval] | None = None) -> list[Any]:
        """The rows of a view that are asked for, of the interval or of several."""
        intervals = [self.interval] if among is None else among
        found = (row(one) for part in intervals for one in part.records(*_TYPES[view]))
        return [one for one in found if self._asked(one)]

    def _asked(self, one: Any) -> bool:
        args = self.args
        dataset, pid = getattr(args, "dataset", None), getattr(args, "pid", None)
        # the cache has rows of all pools, and what has no name may be of any
        key = getattr(one, "pool", None) or None, getattr(one, "dataset", dataset)
        if not wanted(key, self.pool, dataset):
            return False
        if pid and getattr(one, "pid", pid) != pid:
            return False
        return not isinstance(one, SlowFsync) or one.total_ns >= (args.over or 0)

    def last(self, view: str) -> list[Any]:
        """The rows of a view of lines: those of the time until the moment."""
        span_ns = self.args.duration or _LINES_NS
        found = self.rows(view, self.incident.until(self.interval, span_ns))
        count = getattr(self.args, "count", None) or _MOST_LINES
        return found[-count:]

    def losses(self, view: str, rows: Sequence[Any]) -> tuple[Losses, tuple[Probe, ...]]:
        """Those of the trace since it began, which most rows have, else those of the interval."""
        names = ("fsync", "light") if view == "fsync" else (view,)
        here = Losses(event=sum(self.interval.lost.get(name, 0) for name in names))
        one = next((one for one in rows if hasattr(one, "losses")), None)
        found = one.losses if one else Losses()
        return found if found.lost >= here.lost else here, getattr(one, "probes", ())

    def lack(self, view: str) -> str:
        """Why a view has no rows at all, "" if it just saw nothing."""
        # the recorder names a view by its rows, or all of them
        off = self.interval.off
        names = (view, "all", *(("light",) if view == "fsync" and "fsync" not in off else ()))
        why = next((off[name] for name in names if name in off), "")
        if why:
            return why
        # a file without a slow operation or a delayed writer has no such record
        recorded = self.types.intersection((*_TYPES[view], *_BESIDE.get(view, ())))
        return "" if recorded or view == "throttle" else "it was not recorded"


def run(args: argparse.Namespace) -> int:
    """The command. Raises UsageError."""
    view = args.what or "overview"
    if args.file is None:
        raise UsageError("--at is a moment in a file", "name the file with --from")
    asked = None if args.at is None else at.parse(args.at)
    _check(args, view)
    types: set[str] = set()
    with Reader(args.file) as reader:
        incident = load(reader, lambda _interval, record: types.add(record["type"]))
    for problem in incident.problems:
        say(problem)
    _check_names(args, incident)
    interval = at.choose(incident, asked, args.pool)
    moment = Moment(args, incident, interval, frozenset(types))
    _say_which(moment, worst=asked is None)
    if args.json:
        for one in _json(moment, view):
            print(json.dumps(one))
        return 0
    style = style_of(sys.stdout)
    print(f"--- {interval.time}")
    _VIEWS[view](moment, style)
    return 0


def _check(args: argparse.Namespace, view: str) -> None:
    for name, (views, why) in _OPTIONS.items():
        if getattr(args, name, None) is not None and view not in views:
            raise UsageError(f"--{name} is not possible with --from: {why}", f"leave out --{name}")
    if view == "fsync" and args.over:
        raise UsageError("--over is about windows of a live trace", "leave out --over")
    if getattr(args, "source", "bpf") != "bpf":
        raise UsageError("--source is not possible with --from", "leave out --source")
    if args.no_fentry:
        raise UsageError("--no-fentry is not possible with --from", "leave out --no-fentry")


def _check_names(args: argparse.Namespace, incident: Incident) -> None:
    pools = incident.pools()
    if args.pool and pools and args.pool not in pools:
        names = ", ".join(islice(pools, 5)) + (" ..." if len(pools) > 5 else "")
        raise UsageError(f"no pool {args.pool!r} in {incident.name}", f"choose from {names}")


def _say_which(moment: Moment, *, worst: bool) -> None:
    incident, interval = moment.incident, moment.interval
    host = incident.header["host"]["name"] or "a host"
    first, last = map(at.shown, incident.span)
    p99 = interval.p99(moment.args.pool)
    why = f", the worst (p99 {format_time(p99)}); choose with --at" if worst and p99 else ""
    span = f"the {format_span(interval.duration_ns)} until {at.shown(interval.end_ns)}"
    say(f"{host}, {first} to {last}: {span}{why}")


def _json(moment: Moment, view: str) -> Iterable[Json]:
    for name in overview.VIEWS if view == "overview" else [view]:
        rows = moment.last(name) if view in _LINES else moment.rows(name)
        for one in rows:
            yield one.to_json()


# --- tables


def _fsync(moment: Moment, style: Style) -> None:
    found = moment.rows("fsync")
    rows = [one for one in found if isinstance(one, FsyncSummary)]
    estimated = [one for one in found if isinstance(one, LightRow)]
    if moment.args.light or not rows:
        body = light.view(estimated, style) if estimated else _none(moment, "fsync", style)
        _print(body, moment, "fsync", estimated, style)
        return
    _print(fsync.view(rows, style, moment.args.histogram), moment, "fsync", rows, style)


def _table(name: str, view: Callable[..., list[str]]) -> Callable[[Moment, Style], None]:
    def shown(moment: Moment, style: Style) -> None:
        rows = moment.rows(name)
        if rows or not moment.lack(name):
            body = view(rows, style, moment.interval.duration_ns, moment.where)
        else:
            body = _none(moment, name, style)
        _print(body, moment, name, rows, style)

    return shown


def _none(moment: Moment, name: str, style: Style) -> list[str]:
    lack = moment.lack(name)
    span = _span(moment, ()) if name in _LINES else moment.interval.duration_ns
    why = f": {lack}" if lack else f" in {format_span(span)}"
    return [*wrap(f"{_NOTHING[name]} on {moment.where}{why}", "", style.width), ""]


def _print(
    body: Sequence[str], moment: Moment, view: str, rows: Sequence[Any], style: Style
) -> None:
    end: list[str] = []
    losses, probes = moment.losses(view, rows)
    if probes:
        end = footer(losses, probes, style)
    elif rows or losses.lost:
        # the recorder keeps the sum, and not what probes there are
        text = f"lost {format_count(losses.lost)}"
        end = [style.paint(text, "bad") if losses.lost else text]
    print("\n".join([*body, *end]))


# --- lines


def _lines(
    moment: Moment,
    name: str,
    columns: Sequence[Column],
    cells: Callable[[Any], Sequence[str]],
    end: Callable[[Sequence[Any]], str],
) -> None:
    rows = moment.last(name)
    lines = Lines(sys.stdout)
    for one in rows:
        lines.print(columns, cells(one))
    style = style_of(sys.stdout)
    body = wrap(end(rows), "", style.width) if rows else _none(moment, name, style)
    print("\n".join(body))


def _span(moment: Moment, rows: Sequence[Any]) -> int:
    """The time of the lines, as far as it was recorded; with --count it is that of those that are
    left."""
    span_ns: int = moment.args.duration or _LINES_NS
    recorded = moment.incident.until(moment.interval, span_ns)
    span_ns = min(span_ns, sum(one.duration_ns for one in recorded))
    if rows and len(rows) == getattr(moment.args, "count", None):
        since = moment.interval.end_ns - (ns_of(rows[0].time) or 0)
        span_ns = min(span_ns, max(0, since))
    return span_ns


def _txg(moment: Moment, _style: Style) -> None:
    several = len({one.pool for one in moment.last("txg")}) > 1

    def end(rows: Sequence[Txg]) -> str:
        total = txg.Sum()
        for one in rows:
            total.add(one)
        return total.text(_span(moment, rows), moment.where)

    _lines(moment, "txg", txg.columns(several), lambda one: txg.cells(one, several), end)


def _slow(moment: Moment, _style: Style) -> None:
    def end(rows: Sequence[SlowFsync]) -> str:
        over, span = format_time(moment.args.over), format_span(_span(moment, rows))
        fsyncs = "1 fsync" if len(rows) == 1 else f"{format_count(len(rows))} fsyncs"
        return (
            f"{fsyncs} of {over} or more in {span}; the recorder keeps only the slowest of each "
            "interval"
        )

    _lines(moment, "slow", slow.COLUMNS, slow.cells, end)


def _arc(moment: Moment, _style: Style) -> None:
    _lines(moment, "arc", arc.COLUMNS, arc.cells, lambda rows: arc.summary(rows[-1]))


# --- the screen


def _overview(moment: Moment, style: Style) -> None:
    readings = [_reading(moment, name) for name in overview.VIEWS]
    interval = moment.interval
    body, end = overview.screen(readings, style, interval.time, interval.duration_ns, moment.where)
    if not any(isinstance(one, FsyncSummary) for one in moment.rows("fsync")) and readings[0].rows:
        end = [*end, "fsync: commits; their stages are estimated (`trace fsync --light`)"]
    if not any(one.probes for one in readings):
        # nothing is known of them
        end = [line.replace("   missing probes: none", "") for line in end]
    print("\n".join([*body, *end]))


def _reading(moment: Moment, name: str) -> Reading:
    rows = moment.rows(name)
    losses, probes = moment.losses(name, rows)
    if name == "fsync":
        exact = [one for one in rows if isinstance(one, FsyncSummary)]
        rows = exact or [as_fsyncs(one) for one in rows if isinstance(one, LightRow)]
    elif name == "txg":
        # as on a live screen, the last ones stay until others end
        rows = moment.last("txg")
    error = "" if rows else moment.lack(name)
    return Reading(name, rows, moment.interval.duration_ns, losses, probes, printable(error))


_VIEWS: dict[str, Callable[[Moment, Style], None]] = {
    "overview": _overview,
    "fsync": _fsync,
    "slow": _slow,
    "txg": _txg,
    "throttle": _table("throttle", throttle.view),
    "device": _table("device", device.view),
    "arc": _arc,
    "read": _table("read", read.view),
}
