"""The plots of the report, by matplotlib."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    MaxNLocator,
    MultipleLocator,
    NullLocator,
)

from zfstrace import stages as fsync_stages
from zfstrace.hist import Hist
from zfstrace.strict import strict_zip
from zfstrace.types import Json
from zfstune.html.stage_colors import stage_color
from zfstune.report import data, words
from zfstune.report.svg import (
    AFTER,
    ALARM,
    BAND,
    BEFORE,
    INK,
    NARROW,
    PAGE,
    QUIET,
    WIDE,
    Plot,
    plot,
)
from zfstune.term.units import SECOND, format_time

_COLORS = {"A": BEFORE, "B": AFTER}
_MARKS = {"A": "o", "B": "s"}
_NAMES = {"A": "old values (A)", "B": "new values (B)"}

_PHASES = {
    "aa": "noise (A/A)",
    "trial": "trials",
    "ablation": "ablation",
    "confirm": "confirmation",
}


def latency(session: Json) -> Plot | None:
    """The tail and the histogram of fsync latency, before and after."""
    sides = [(label, data.histogram(session, side)) for side, label in data.SIDES]
    sides = [(label, hist) for label, hist in sides if hist.count]
    if not sides:
        return None

    def draw(figure: Figure, narrow: bool) -> None:
        if narrow:
            tail, shape = figure.subplots(2, 1, height_ratios=(3, 2))
        else:
            tail, shape = figure.subplots(1, 2)
        _tail(tail, sides)
        _shape(shape, sides)
        for axes in (tail, shape):
            _time_axis(axes, [hist for _, hist in sides], narrow)
        tail.legend(loc="lower left", handlelength=1.6)

    return plot("latency", draw, 340, 560, "Fsync latency before and after")


def _tail(axes: Axes, sides: Sequence[tuple[str, Hist]]) -> None:
    lowest = 1.0
    for label, hist in sides:
        name = "before" if label == "A" else "after"
        times, shares = data.survival(hist)
        lowest = min(lowest, shares[-1])
        axes.step(
            times,
            shares,
            where="post",
            color=_COLORS[label],
            linewidth=2.2,
            linestyle="-" if label == "B" else (0, (5, 1.5)),
            label=name,
        )
    axes.set_yscale("log")
    axes.set_ylim(lowest / 1.5, 1.4)
    axes.yaxis.set_major_locator(FixedLocator([10.0**n for n in range(-6, 1)]))
    axes.yaxis.set_major_formatter(FuncFormatter(_share))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylabel("fsyncs that took longer")
    axes.set_xlabel("fsync latency")


def _shape(axes: Axes, sides: Sequence[tuple[str, Hist]]) -> None:
    per_octave = 5
    for label, hist in sides:
        bins = data.coarse(hist, per_octave)
        first, last = min(bins), max(bins) + 1
        edges = [2 ** (step / per_octave) for step in range(first, last + 1)]
        axes.stairs(
            [100 * bins.get(step, 0.0) for step in range(first, last)],
            edges,
            fill=True,
            color=_COLORS[label],
            alpha=0.22,
        )
        axes.stairs(
            [100 * bins.get(step, 0.0) for step in range(first, last)],
            edges,
            color=_COLORS[label],
            linewidth=1.8,
            linestyle="-" if label == "B" else "--",
        )
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g} %"))
    axes.set_ylabel("share of fsyncs")
    axes.set_xlabel("fsync latency, 5 steps per doubling")


def _time_axis(axes: Axes, hists: Sequence[Hist], narrow: bool) -> None:
    low = min(min(row[0] for row in hist.rows()) for hist in hists)
    high = max(hist.max_ns for hist in hists)
    axes.set_xscale("log")
    axes.set_xlim(max(1, low) / 1.1, max(2, high) * 1.1)
    _log_times(axes.xaxis, max(1, low), max(2, high), 4 if narrow else 6)


def _log_times(axis: Any, low: float, high: float, most: int) -> None:
    """At most this many ticks, at round times."""
    for steps in ((1, 2, 5), (1, 3), (1,)):
        ticks = [
            step * 10.0**power
            for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
            for step in steps
            if low / 1.1 <= step * 10.0**power <= high * 1.1
        ]
        if len(ticks) <= most:
            break
    while len(ticks) > most:
        ticks = ticks[::2]
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(FuncFormatter(lambda ns, _: _round_time(ns)))
    axis.set_minor_locator(NullLocator())


def _round_time(ns: float) -> str:
    text = format_time(round(ns))
    number, _, unit = text.partition(" ")
    return f"{float(number):g} {unit}"


def _share(share: float, _: int) -> str:
    """A share of slower fsyncs, with its percentile."""
    percent = f"{100 * share:.6f}".rstrip("0").rstrip(".")
    if not 1e-5 < share < 0.5:
        return f"{percent} %"
    return f"{percent} % (p{100 * (1 - share):.4g})"


def stages(session: Json) -> Plot | None:
    """The stages before and after: shares of the time, and times in the mean fsync."""
    sides = [(side, data.stage_times(session, side)) for side, _ in data.SIDES]
    sides = [(side, times) for side, times in sides if sum(times.values())]
    if not sides:
        return None
    timed = all(data.histogram(session, side).count for side, _ in sides)

    def draw(figure: Figure, narrow: bool) -> None:
        if not timed:
            _stage_bars(figure.subplots(), sides, True, narrow)
        else:
            first, second = figure.subplots(2, 1) if narrow else figure.subplots(1, 2)
            _stage_bars(first, sides, True, narrow)
            _stage_bars(second, sides, False, narrow)

    return plot("stages", draw, 200, 360 if timed else 200, "Stages of an fsync before and after")


def _stage_bars(
    axes: Axes, sides: Sequence[tuple[str, dict[str, float]]], shares: bool, narrow: bool
) -> None:
    order = {name: place for place, name in enumerate(fsync_stages.NAMES)}
    widest = 1.0 if shares else max(sum(times.values()) for _, times in sides)
    room = (NARROW if narrow else WIDE / 2) * 0.78
    for row, (_, times) in enumerate(sides):
        whole = sum(times.values()) if shares else 1.0
        left = 0.0
        for name in sorted(times, key=lambda one: order.get(one, 99)):
            width = times[name] / whole
            if width <= 0:
                continue
            axes.barh(
                row,
                width,
                left=left,
                height=0.62,
                color=stage_color(name),
                edgecolor=PAGE,
                linewidth=0.8,
            )
            if width / widest * room > 7.2 * len(name) + 6:
                axes.text(
                    left + width / 2, row, name, ha="center", va="center", color="#14161a", size=11
                )
            left += width
        if not shares:
            axes.text(left, row, f" {format_time(round(left))}", va="center", color=INK, size=11.5)
    axes.set_yticks(range(len(sides)), [side for side, _ in sides], color=INK)
    axes.set_ylim(len(sides) - 0.5, -0.5)
    axes.set_xlim(0, widest * (1.0 if shares else 1.2))
    axes.grid(axis="y", visible=False)
    if shares:
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])
        axes.set_xlabel("share of the time of fsyncs")
    else:
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda ns, _: _round_time(ns) if ns else "0"))
        axes.set_xlabel("time in the mean fsync")


def timeline(session: Json) -> Plot | None:
    """The objective of each block over time."""
    found = [
        (block, value) for block in data.blocks(session) if (value := data.judged(session, block))
    ]
    if not found:
        return None

    def draw(figure: Figure, narrow: bool) -> None:
        axes = figure.subplots()
        _phase_bands(axes, session, narrow)
        for label in ("A", "B"):
            points = [(block, value) for block, value in found if data.in_force(block) == label]
            xs: list[float] = []
            ys: list[float] = []
            for block, value in points:
                start = float(block["start_s"])
                xs += [start, start + (data.finite(block.get("seconds")) or 0.0), math.nan]
                ys += [value, value, math.nan]
            axes.plot(xs, ys, color=_COLORS[label], linewidth=3 if narrow else 4)
            axes.plot(
                [
                    float(b["start_s"]) + (data.finite(b.get("seconds")) or 0.0) / 2
                    for b, _ in points
                ],
                [value for _, value in points],
                _MARKS[label],
                color=_COLORS[label],
                markersize=4.5 if narrow else 6,
                label=_NAMES[label],
            )
        values = [value for _, value in found]
        _log_value_axis(axes, session, min(values), max(values))
        axes.set_ylabel(f"{words.goal(session)}, per block")
        _seconds_axis(axes, session)
        _legend_above(axes, narrow)

    return plot("timeline", draw, 340, 320, "The objective of each block over time")


def _log_value_axis(axes: Axes, session: Json, low: float, high: float) -> None:
    axes.set_yscale("log")
    low, high = low / 1.25, high * 1.45
    axes.set_ylim(low, high)
    metric = words.goal_metric(session)
    if metric and metric.startswith("fsync."):
        _log_times(axes.yaxis, low, high, 8)
        return
    ticks = [2.0**n for n in range(-40, 60) if low <= 2.0**n <= high]
    shown = ticks if len(ticks) > 1 else [low * 1.25, high / 1.45]
    axes.yaxis.set_major_locator(FixedLocator(shown))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: words.goal_value(session, y)))
    axes.yaxis.set_minor_locator(NullLocator())


def _phase_bands(axes: Axes, session: Json, narrow: bool, *, named: bool = True) -> None:
    """Shades every second phase, and names those that are wide enough."""
    phases = data.phases(session)
    whole = phases[-1][2] - phases[0][1] if phases else 1.0
    for place, (name, start, end) in enumerate(phases):
        if place % 2 == 0:
            axes.axvspan(start, end, color=BAND, linewidth=0, zorder=0)
        text = _PHASES.get(name, name)
        room = (end - start) / whole * (NARROW if narrow else WIDE) * 0.85
        if named and room > 6.2 * len(text):
            axes.text(
                (start + end) / 2,
                0.985,
                text,
                transform=axes.get_xaxis_transform(),
                ha="center",
                va="top",
                color=QUIET,
                size=11,
            )


_STEPS_S = (5, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200)


def _seconds_axis(axes: Axes, session: Json) -> None:
    phases = data.phases(session)
    if phases:
        axes.set_xlim(phases[0][1], phases[-1][2])
        length = phases[-1][2] - phases[0][1]
        step = next((one for one in _STEPS_S if length / one <= 7), _STEPS_S[-1])
        axes.xaxis.set_major_locator(MultipleLocator(step))
    axes.xaxis.set_major_formatter(FuncFormatter(_minutes))
    axes.set_xlabel("time since the start of the session (min:s)")


def _minutes(seconds: float, _: int) -> str:
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02d}"


def _legend_above(axes: Axes, narrow: bool) -> None:
    """A legend above the plot, at its left."""
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=1 if narrow else 4,
        borderaxespad=0.2,
        borderpad=0.1,
        labelspacing=0.25,
        handletextpad=0.4,
    )


def pairs(session: Json) -> Plot | None:
    """Ratios of adjacent blocks: without a change (A/A), and of the confirmation."""
    noise = [pair.ratio for pair in data.pairs(session, "aa")] or [
        math.exp(value)
        for value in map(data.finite, data.mapped(session, "noise").get("ratios") or [])
        if value is not None and abs(value) < 50
    ]
    confirm = [pair.ratio for pair in data.pairs(session, "confirm")]
    if not noise and not confirm:
        return None
    verdict = data.mapped(session, "verdict")
    span = [data.finite(verdict.get(key)) for key in ("low", "change", "high")]

    def draw(figure: Figure, narrow: bool) -> None:
        axes = figure.subplots()
        ratios = noise + confirm
        if None not in span and confirm:
            low, middle, high = (1 + (one or 0.0) for one in span)
            ratios = [*ratios, low, high]
            first, last = len(noise) + 0.5, len(noise) + len(confirm) + 0.5
            axes.fill_between([first, last], low, high, color=AFTER, alpha=0.18, linewidth=0)
            axes.plot([first, last], [middle, middle], color=AFTER, linewidth=2)
        _dots(axes, 1, noise, QUIET, "o", "A/A: no change")
        _dots(axes, 1 + len(noise), confirm, AFTER, "s", "after against before")
        _ratio_axis(axes, ratios)
        count = len(noise) + len(confirm)
        axes.set_xlim(0.4, count + 0.6)
        axes.set_xticks([])
        axes.set_xlabel("pairs of adjacent blocks, in order of time")
        axes.set_ylabel("change within the pair")
        _legend_above(axes, narrow)

    return plot("pairs", draw, 320, 320, "Change within each pair of blocks")


def _dots(
    axes: Axes, first: int, ratios: Sequence[float], color: str, mark: str, label: str
) -> None:
    if ratios:
        places = range(first, first + len(ratios))
        axes.plot(places, ratios, mark, color=color, markersize=7, label=label)


def _ratio_axis(axes: Axes, ratios: Sequence[float]) -> None:
    """A logarithmic axis of ratios, labelled as changes in percent."""
    low, high = min(0.8, *ratios), max(1.25, *ratios)
    low, high = low / 1.12, high * 1.12
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    ticks = [0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.85, 1, 1.2, 1.5, 2, 3, 5, 10, 30, 100]
    shown = [one for one in ticks if low <= one <= high]
    while len(shown) > 9:
        shown = [one for place, one in enumerate(shown) if one == 1 or place % 2]
    axes.yaxis.set_major_locator(FixedLocator(shown))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(_ratio))
    axes.axhline(1, color=INK, linewidth=1)


def _ratio(ratio: float, _: int) -> str:
    if abs(ratio - 1) < 1e-9:
        return "no change"
    return f"{ratio:g} x" if ratio >= 2 else f"{100 * (ratio - 1):+.0f} %"


def trials(session: Json) -> Plot | None:
    """The change of each trial and the band of noise."""
    found = [
        (place, one, moved)
        for place, one in enumerate(data.listed(session, "trials"), 1)
        if (moved := data.finite(one.get("change"))) is not None and moved > -1
    ]
    if not found:
        return None
    effect = data.finite(data.mapped(session, "noise").get("effect"))

    def draw(figure: Figure, narrow: bool) -> None:
        axes = figure.subplots()
        last = found[-1][0] + 0.6
        ratios = [1 + moved for _, _, moved in found]
        if effect and effect < 1:
            ratios = [*ratios, 1 - effect, 1 / (1 - effect)]
            axes.fill_between(
                [0.4, last],
                1 - effect,
                1 / (1 - effect),
                color=BAND,
                linewidth=0,
                label="noise: too small to detect",
            )
        good = [(place, 1 + moved) for place, one, moved in found if not one.get("note")]
        poor = [(place, 1 + moved) for place, one, moved in found if one.get("note")]
        for points, mark, color, label in (
            (good, "s", AFTER, "trial"),
            (poor, "X", ALARM, "trial with a note"),
        ):
            if points:
                xs, ys = strict_zip(*points)
                axes.plot(xs, ys, mark, color=color, markersize=7.5, label=label)
        _ratio_axis(axes, ratios)
        axes.set_xlim(0.4, last)
        axes.xaxis.set_major_locator(MaxNLocator(12, integer=True))
        axes.set_xlabel("trial")
        axes.set_ylabel(f"change of {words.metric_name(str(session.get('objective')))}")
        _legend_above(axes, narrow)

    return plot("trials", draw, 320, 340, "The change of each trial")


_MOST_TXGS = 900


def txgs(session: Json) -> Plot | None:
    """Sync time and dirty data of each transaction group over time."""
    rows = [row for row in data.listed(session, "txgs") if data.finite(row.get("t_s")) is not None]
    if not rows:
        return None
    rows.sort(key=lambda row: float(row["t_s"]))
    quiet = [(start, end) for phase, start, end in data.phases(session) if phase == "aa"]

    def draw(figure: Figure, narrow: bool) -> None:
        times, dirty = figure.subplots(2, 1, sharex=True)
        most = _MOST_TXGS // 3 if narrow else _MOST_TXGS
        for axes, field, divisor in ((times, "sync_ns", SECOND), (dirty, "dirty_bytes", 1 << 20)):
            _phase_bands(axes, session, narrow, named=axes is times)
            _stems(axes, rows, (field, divisor), most, quiet)
            # for the names of the phases
            axes.set_ylim(0, axes.get_ylim()[1] * (1.15 if axes is times else 1.02))
        times.set_ylabel("sync time")
        times.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g} s"))
        dirty.set_ylabel("dirty data")
        dirty.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g} MiB"))
        times.tick_params(axis="x", length=0)
        _seconds_axis(dirty, session)
        _legend_above(times, narrow)

    return plot("txgs", draw, 420, 400, "Sync time and dirty data of each txg over time")


def _stems(
    axes: Axes,
    rows: Sequence[Json],
    field: tuple[str, int],
    most: int,
    unchanged: Sequence[tuple[float, float]],
) -> None:
    """A line from 0 for each txg, one path for each colour. In the spans unchanged, B had the old
    values, too."""
    name, divisor = field
    sides: dict[str, list[Json]] = {"A": [], "B": [], "": []}
    for row in rows:
        label = str(row.get("label") or "")
        if label == "B" and any(start <= float(row["t_s"]) <= end for start, end in unchanged):
            label = "A"
        sides.get(label, sides[""]).append(row)
    width = max(0.8, min(3.0, 700 / len(rows)))
    for label, color, said in (
        ("A", BEFORE, _NAMES["A"]),
        ("B", AFTER, _NAMES["B"]),
        ("", QUIET, "while settling"),
    ):
        xs: list[float] = []
        ys: list[float] = []
        for row in data.thinned(sides[label], most, name):
            value = data.finite(row.get(name))
            if value is not None:
                xs += [float(row["t_s"])] * 2 + [math.nan]
                ys += [0.0, value / divisor, math.nan]
        if xs:
            axes.plot(xs, ys, color=color, linewidth=width, solid_capstyle="butt", label=said)
