"""The timeline of an incident: panels one below the other, with the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from zfstrace import stages as fsync_stages
from zfstrace.clock import iso_utc
from zfstrace.strict import strict_zip
from zfstune.html.stage_colors import stage_color
from zfstune.report.incident_data import Bin, Bins
from zfstune.report.plots import log_times, round_time
from zfstune.report.svg import (
    AFTER,
    ALARM,
    BEFORE,
    INK,
    QUIET,
    Axis,
    Box,
    Key,
    Panel,
    Plot,
    Point,
    Tick,
    path,
    plot,
    steps,
    tipped,
)
from zfstune.term.units import SECOND, format_time

_DAY = 24 * 3600
_STEPS_S = (1, 5, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, _DAY)
_HEIGHTS = (880, 900)
_GAP = 16

# A pool's bins that have anything in them, by their place.
Found = Sequence[tuple[int, Bin]]


@dataclass(frozen=True)
class Mark:
    """A moment that all panels show, and what it is. kind is one of _MARKS."""

    kind: str
    time_ns: int
    said: str


# kind: color, dashes, width, and its name
_MARKS = {
    "moment": (INK, "", 1.8, "the moment below"),
    "change": (ALARM, "5 3", 1.6, "a change"),
    "diagnosis": (QUIET, "2 3", 1.6, "a diagnosis"),
}


@dataclass(frozen=True)
class _Part:
    """A panel: its y axis, and what draws into it."""

    y: Axis
    draw: Callable[[Panel], None]


def timeline(name: str, pool: str, bins: Bins, marks: Sequence[Mark]) -> Plot | None:
    """The plot of a pool; None without anything in it. name is that of its elements. marks are of
    the time of the bins."""
    found = sorted(bins.pools.get(pool, {}).items())
    if not found:
        return None
    what = bins.what(pool)

    def draw(box: Box, narrow: bool) -> Iterable[object]:
        times = _times(bins, narrow)
        bare = Axis("", times.low, times.high, [(at, "") for at, _ in times.ticks])
        parts = _parts(found, bins, what)
        height = (box.bottom - box.top - 40) / len(parts)
        panels = []
        for place, part in enumerate(parts):
            last = place == len(parts) - 1
            top = box.top + height * place
            end = box.bottom if last else top + height - _GAP
            keys = _keys(marks) if place == 0 else ()
            panels.append(Panel(Box(0, top, box.right, end), times if last else bare, part.y, keys))
        left = max(panel.x.first for panel in panels)
        for panel, part in strict_zip(panels, parts):
            # a moment is at the same place in all of them
            panel.x = replace(panel.x, first=left)
            part.draw(panel)
            panel.parts += [_line(panel, mark) for mark in marks]
            yield panel

    place, worst = max(found, key=lambda one: one[1].p99)
    highest = f"highest p99 {format_time(worst.p99)} near {clock(int(bins.middle(place)))}"
    said = (
        f"Pool {pool}, {what} from {clock(bins.first_ns)} to {clock(bins.last_ns)} UTC: "
        f"{highest if worst.p99 else 'no p99 was recorded'}"
    )
    return plot(name, draw, _HEIGHTS, f"Timeline of pool {pool}", said)


def clock(ns: int) -> str:
    """The time of day, UTC: ``03:05:10``."""
    return iso_utc(ns)[11:19]


def _times(bins: Bins, narrow: bool) -> Axis:
    """Round times of day; dates if the file is of days."""
    first, last = bins.first_ns / SECOND, bins.last_ns / SECOND
    most = 4 if narrow else 9
    step = next((one for one in _STEPS_S if (last - first) / one <= most), None)
    if step is None:
        days = steps(first / _DAY, last / _DAY, most)
        ticks: list[Tick] = [(one * _DAY, iso_utc(int(one) * _DAY * SECOND)[:10]) for one in days]
        return Axis("date (UTC)", first, last, ticks)
    end = 19 if step < 60 else 16
    places = range(-(-int(first) // step), int(last) // step + 1)
    ticks = [(float(one * step), iso_utc(one * step * SECOND)[11:end]) for one in places]
    dates = dict.fromkeys(iso_utc(int(one) * SECOND)[:10] for one in (first, last))
    return Axis(f"time of day (UTC), {' to '.join(dates)}", first, last, ticks)


def _keys(marks: Sequence[Mark]) -> list[Key]:
    kinds = [kind for kind in _MARKS if any(mark.kind == kind for mark in marks)]
    return [
        Key("--" if dash else "-", color, words)
        for color, dash, _, words in (_MARKS[kind] for kind in kinds)
    ]


def _line(panel: Panel, mark: Mark) -> str:
    color, dash, wide, _ = _MARKS[mark.kind]
    x = panel.x(mark.time_ns / SECOND)
    line = path(f"M{x:.1f} {panel.y.last:.1f}V{panel.y.first:.1f}", color, wide, dash)
    return tipped(line, f"{clock(mark.time_ns)} {mark.said}")


def _parts(found: Found, bins: Bins, what: str) -> list[_Part]:
    return [
        _p99(found, bins, what),
        _rate(found, bins, what),
        _shares(found, bins, what),
        _syncs(found, bins),
        _waits(found, bins),
    ]


def _runs(found: Found, bins: Bins) -> Iterator[Found]:
    """Bins without a gap between them."""
    run: list[tuple[int, Bin]] = []
    for place, one in found:
        if run and not bins.follows(place, run[-1][0]):
            yield run
            run = []
        run.append((place, one))
    if run:
        yield run


def _points(run: Found, bins: Bins, value: Callable[[Bin], float]) -> list[Point]:
    """From the beginning of the first bin to the end of the last one."""
    half = bins.step_ns / 2 / SECOND
    points = [(bins.middle(place) / SECOND, value(one)) for place, one in run]
    (left, first), (right, last) = points[0], points[-1]
    return [(left - half, first), *points, (right + half, last)]


def _p99(found: Found, bins: Bins, what: str) -> _Part:
    seen = [(place, one) for place, one in found if one.p99]
    times = [one.p99 for _, one in seen] or [1_000_000, 10_000_000]
    low, high = max(1, min(times)) / 1.5, max(2, *times) * 1.5

    def draw(panel: Panel) -> None:
        for run in _runs(seen, bins):
            panel.line(_points(run, bins, lambda one: one.p99), BEFORE, 2)

    title = f"p99 of {what}, the highest (logarithmic)"
    return _Part(Axis(title, low, high, log_times(low, high, 5), log=True), draw)


def _rate(found: Found, bins: Bins, what: str) -> _Part:
    seen = [(place, one) for place, one in found if one.rate is not None]
    high = max([1.0, *(one.rate or 0.0 for _, one in seen)]) * 1.08

    def draw(panel: Panel) -> None:
        _filled(panel, seen, bins, lambda one: one.rate or 0.0, AFTER)

    ticks = [(value, f"{value:,.6g}") for value in steps(0, high, 4)]
    return _Part(Axis(f"{what} per second", 0, high, ticks), draw)


def _shares(found: Found, bins: Bins, what: str) -> _Part:
    seen = [(place, one) for place, one in found if sum(one.stages.values())]

    def draw(panel: Panel) -> None:
        for run in _runs(seen, bins):
            low = _points(run, bins, lambda _one: 0.0)
            for name in stages_of(one for _, one in run):
                own = _points(run, bins, lambda one, name=name: _share(one, name))  # type: ignore[misc]
                high = [(x, y + more) for (x, y), (_, more) in strict_zip(low, own)]
                panel.area([*high, *low[::-1]], stage_color(name), 1)
                low = high

    ticks = [(n / 4, f"{25 * n} %") for n in range(5)]
    word = "" if what == "fsyncs" else ", estimated"
    return _Part(Axis(f"stages of the time of fsyncs{word}", 0, 1, ticks), draw)


def stages_of(bins: Iterable[Bin]) -> list[str]:
    """The stages with any time, in their order; `other` has those that are not known here."""
    names = {name for one in bins for name, ns in one.stages.items() if ns}
    return [name for name in fsync_stages.NAMES if name in names or _other(name, names)]


def _other(name: str, names: set[str]) -> bool:
    return name == "other" and not names <= set(fsync_stages.NAMES)


def _share(one: Bin, name: str) -> float:
    whole = sum(one.stages.values())
    ns = one.stages[name]
    if name == "other":
        ns = whole - sum(one.stages[stage] for stage in fsync_stages.NAMES if stage != name)
    return ns / whole if whole else 0.0


def _syncs(found: Found, bins: Bins) -> _Part:
    seen = [(place, one) for place, one in found if one.txgs]
    high = max([SECOND, *(one.sync_ns for _, one in seen)]) * 1.08

    def draw(panel: Panel) -> None:
        for run in _runs(seen, bins):
            _filled(panel, run, bins, lambda one: one.sync_ns, AFTER)

    ticks = [(ns, round_time(ns) if ns else "0") for ns in steps(0, high, 4)]
    return _Part(Axis("longest sync of a txg", 0, high, ticks), draw)


def _waits(found: Found, bins: Bins) -> _Part:
    high = max([1.0, *(bins.waiting(one) for _, one in found)]) * 1.08

    def draw(panel: Panel) -> None:
        _filled(panel, found, bins, bins.waiting, ALARM)

    ticks = [(value, f"{value:.6g}") for value in steps(0, high, 4)]
    return _Part(Axis("threads held up by the write throttle", 0, high, ticks), draw)


def _filled(
    panel: Panel, found: Found, bins: Bins, value: Callable[[Bin], float], color: str
) -> None:
    for run in _runs(found, bins):
        points = _points(run, bins, value)
        panel.area([(points[0][0], 0.0), *points, (points[-1][0], 0.0)], color, 0.25)
        panel.line(points, color, 1.8)
