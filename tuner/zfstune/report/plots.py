"""The plots of the report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from zfstrace import stages as fsync_stages
from zfstrace.hist import Hist
from zfstrace.types import Json
from zfstune.html.stage_colors import stage_color
from zfstune.report import data, words
from zfstune.report.svg import (
    AFTER,
    ALARM,
    BAND,
    BEFORE,
    INK,
    PAGE,
    QUIET,
    SIZE,
    Axis,
    Box,
    Key,
    Panel,
    Plot,
    Tick,
    path,
    plot,
    steps,
    text,
    tipped,
    width,
)
from zfstune.term.units import SECOND, format_time

_COLORS = {"A": BEFORE, "B": AFTER}
_MARKS = {"A": "o", "B": "s"}
_DASHES = {"A": "6 3", "B": ""}
_SIDES = {"A": "before", "B": "after"}
_NAMES = {"A": "old values (A)", "B": "new values (B)"}

_PHASES = {
    "aa": "noise (A/A)",
    "trial": "trials",
    "ablation": "ablation",
    "confirm": "confirmation",
    "soak": "soak",
}
_LABELLED = (500, 990)
_PER_OCTAVE = 5


def latency(session: Json) -> Plot | None:
    """The tail and the histogram of fsync latency, before and after."""
    sides = [(label, data.histogram(session, side)) for side, label in data.SIDES]
    sides = [(label, hist) for label, hist in sides if hist.count]
    if not sides:
        return None

    def draw(box: Box, narrow: bool) -> Iterable[object]:
        upper, lower = box.rows(0.56) if narrow else box.columns()
        low = max(1, min(hist.rows()[0][0] for _, hist in sides)) / 1.1
        high = max(2, *(hist.max_ns for _, hist in sides)) * 1.1
        ticks = log_times(low, high, 4 if narrow else 6)
        yield _tail(upper, sides, Axis("fsync latency", low, high, ticks, log=True))
        title = f"fsync latency, {_PER_OCTAVE} bars per doubling"
        yield _shape(lower, sides, Axis(title, low, high, ticks, log=True))

    said = "; ".join(
        f"{_SIDES[label]}: median {format_time(hist.quantile(500))}, p99 "
        f"{format_time(hist.quantile(990))}, slowest {format_time(hist.max_ns)}"
        for label, hist in sides
    )
    return plot("latency", draw, (340, 600), "Fsync latency before and after", said)


def _tail(box: Box, sides: Sequence[tuple[str, Hist]], times: Axis) -> Panel:
    curves = [(label, hist, *data.survival(hist)) for label, hist in sides]
    lowest = min(shares[-1] for *_, shares in curves) / 1.5
    ticks = [(10.0**n, _share(10.0**n)) for n in range(-6, 1) if 10.0**n >= lowest]
    if lowest < 0.5:
        ticks.append((0.5, _share(0.5)))
    keys = [Key("--" if label == "A" else "-", _COLORS[label], _SIDES[label]) for label, _ in sides]
    panel = Panel(box, times, Axis("fsyncs that took longer", lowest, 1.4, ticks, log=True), keys)
    for label, _, xs, shares in curves:
        points = [(xs[0], shares[0])]
        for x, share in zip(xs[1:], shares[1:]):
            points += [(x, points[-1][1]), (x, share)]
        panel.line(points, _COLORS[label], 2.4, _DASHES[label])
    for permille in _LABELLED:
        found = sorted((hist.quantile(permille), label) for label, hist in sides)
        for place, (ns, label) in enumerate(found):
            at, share = float(max(1, ns)), 1 - permille / 1000
            if share < lowest:
                continue
            panel.mark(_MARKS[label], (at, share), _COLORS[label])
            first = place == 0 and len(found) > 1
            x, y = panel.x(at) + (-8 if first else 8), panel.y(share)
            anchor = "end" if first else "start"
            said = format_time(ns)
            if not first and x + width(said) > box.right:
                x, y, anchor = panel.x(at), y - 10, "end"
            panel.parts.append(
                text(x, y + (14 if first else -5), said, anchor, _COLORS[label], SIZE)
            )
    return panel


def _shape(box: Box, sides: Sequence[tuple[str, Hist]], times: Axis) -> Panel:
    bars = [(label, data.coarse(hist, _PER_OCTAVE)) for label, hist in sides]
    most = max(max(bins.values()) for _, bins in bars) * 1.08
    ticks = [(y, f"{100 * y:.6g} %") for y in steps(0, most, 5)]
    keys = [Key("--" if label == "A" else "-", _COLORS[label], _SIDES[label]) for label, _ in bars]
    panel = Panel(box, times, Axis("share of fsyncs", 0, most, ticks), keys)
    for label, bins in bars:
        points = [(2 ** (min(bins) / _PER_OCTAVE), 0.0)]
        for step in range(min(bins), max(bins) + 1):
            share = bins.get(step, 0.0)
            points += [(2 ** (step / _PER_OCTAVE), share), (2 ** ((step + 1) / _PER_OCTAVE), share)]
        points.append((points[-1][0], 0.0))
        panel.area(points, _COLORS[label], 0.2)
        panel.line(points, _COLORS[label], 1.8, _DASHES[label])
    return panel


def log_times(low: float, high: float, most: int) -> list[Tick]:
    """At most this many ticks, at round times."""
    ticks: list[float] = []
    for sizes in ((1, 2, 5), (1, 3), (1,)):
        ticks = [
            step * 10.0**power
            for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
            for step in sizes
            if low <= step * 10.0**power <= high
        ]
        if len(ticks) <= most:
            break
    while len(ticks) > most:
        ticks = ticks[::2]
    return [(ns, round_time(ns)) for ns in ticks]


def round_time(ns: float) -> str:
    text = format_time(round(ns))
    number, _, unit = text.partition(" ")
    return f"{float(number):g} {unit}"


def _share(share: float) -> str:
    """A share of slower fsyncs, with its percentile."""
    percent = f"{100 * share:.6f}".rstrip("0").rstrip(".")
    if not 1e-5 < share <= 0.5:
        return f"{percent} %"
    return f"{percent} % (p{100 * (1 - share):.4g})"


def stages(session: Json) -> Plot | None:
    """The stages before and after: shares of the time, and times in the mean fsync."""
    sides = [(side, data.stage_times(session, side)) for side, _ in data.SIDES]
    sides = [(side, times) for side, times in sides if sum(times.values())]
    if not sides:
        return None
    timed = all(data.histogram(session, side).count for side, _ in sides)

    def draw(box: Box, narrow: bool) -> Iterable[object]:
        if not timed:
            yield _stage_bars(box, sides, shares=True)
            return
        first, second = box.rows(0.5) if narrow else box.columns()
        yield _stage_bars(first, sides, shares=True)
        yield _stage_bars(second, sides, shares=False)

    said = "; ".join(
        f"{side}: "
        + ", ".join(
            f"{name} {ns / sum(times.values()):.0%}"
            for name, ns in sorted(times.items(), key=lambda one: -one[1])[:3]
        )
        for side, times in sides
    )
    heights = (170, 340 if timed else 170)
    return plot("stages", draw, heights, "Stages of an fsync before and after", said)


def _stage_bars(box: Box, sides: Sequence[tuple[str, dict[str, float]]], *, shares: bool) -> Panel:
    order = {name: place for place, name in enumerate(fsync_stages.NAMES)}
    # room for the sum beside the longer bar
    most = 1.0 if shares else max(sum(times.values()) for _, times in sides) * 1.22
    if shares:
        ticks = [(n / 4, f"{25 * n} %") for n in range(5)]
    else:
        ticks = [(ns, round_time(ns) if ns else "0") for ns in steps(0, most, 4)]
    title = "share of the time of fsyncs" if shares else "time in the mean fsync"
    rows = [(float(row), side) for row, (side, _) in enumerate(sides)]
    panel = Panel(
        box, Axis("", 0, most, ticks), Axis(title, len(sides) - 0.5, -0.5, rows), grid=False
    )
    for row, (side, times) in enumerate(sides):
        whole = sum(times.values())
        left = 0.0
        for name in sorted(times, key=lambda one: order.get(one, 99)):
            size = times[name] / whole if shares else times[name]
            if size > 0:
                tip = f"{side}: {name} {times[name] / whole:.1%}"
                panel.parts.append(tipped(_bar(panel, row, left, left + size, name), tip))
            left += size
        if not shares:
            said = format_time(round(left))
            panel.parts.append(text(panel.x(left) + 7, _middle(panel, row), said, color=INK))
    return panel


def _bar(panel: Panel, row: int, start: float, end: float, name: str) -> str:
    left, right = panel.x(start), panel.x(end)
    top, bottom = panel.y(row - 0.34), panel.y(row + 0.34)
    said = ""
    if right - left > width(name) + 4:
        said = text((left + right) / 2, _middle(panel, row), name, "middle", "#14161a", 12)
    return (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" '
        f'height="{bottom - top:.1f}" fill="{stage_color(name)}" stroke="{PAGE}" '
        f'stroke-width=".8"/>{said}'
    )


def _middle(panel: Panel, row: int) -> float:
    return panel.y(row) + 4.2


def timeline(session: Json) -> Plot | None:
    """The objective of each block over time."""
    found = [
        (block, value) for block in data.blocks(session) if (value := data.judged(session, block))
    ]
    if not found:
        return None
    values = [value for _, value in found]

    def draw(box: Box, narrow: bool) -> Iterable[object]:
        low, high = min(values) / 1.25, max(values) * 1.45
        ticks = _value_ticks(session, low, high)
        title = f"{words.goal(session)}, per block (logarithmic)"
        keys = [
            Key(_MARKS[label], _COLORS[label], _NAMES[label])
            for label in ("A", "B")
            if any(data.in_force(block) == label for block, _ in found)
        ]
        panel = Panel(
            box, _seconds_axis(session, narrow), Axis(title, low, high, ticks, log=True), keys
        )
        _phase_bands(panel, session)
        for block, value in found:
            label, start = data.in_force(block), float(block["start_s"])
            end = start + (data.finite(block.get("seconds")) or 0.0)
            panel.line([(start, value), (end, value)], _COLORS[label], 3)
            tip = f"{_minutes(start)} {_phase(block.get('phase'))}, {_NAMES[label]}: " + (
                words.goal_value(session, value)
            )
            panel.mark(_MARKS[label], ((start + end) / 2, value), _COLORS[label], tip)
        yield panel

    low, high = (words.goal_value(session, one(values)) for one in (min, max))
    said = f"{len(found)} blocks, {words.goal(session)} from {low} to {high}"
    return plot("timeline", draw, (340, 340), "The objective of each block over time", said)


def _value_ticks(session: Json, low: float, high: float) -> list[Tick]:
    metric = words.goal_metric(session)
    if metric and metric.startswith("fsync."):
        return log_times(low, high, 8)
    ticks = [2.0**n for n in range(-40, 60) if low <= 2.0**n <= high]
    shown = ticks if len(ticks) > 1 else [low * 1.25, high / 1.45]
    return [(value, words.goal_value(session, value)) for value in shown]


def _phase(name: object) -> str:
    return _PHASES.get(str(name), str(name))


def _phase_bands(panel: Panel, session: Json, *, named: bool = True) -> None:
    """Shades every second phase, and names those that are wide enough."""
    for place, (name, start, end) in enumerate(data.phases(session)):
        if place % 2 == 0:
            panel.span(start, end, BAND)
        said = _phase(name)
        left, right = panel.x(start), panel.x(end)
        if named and right - left > width(said):
            panel.under.append(text((left + right) / 2, panel.y.last + 14, said, "middle"))


_STEPS_S = (5, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200)


def _seconds_axis(session: Json, narrow: bool) -> Axis:
    phases = data.phases(session)
    first, last = (phases[0][1], phases[-1][2]) if phases else (0.0, 1.0)
    most = 5 if narrow else 9
    step = next((one for one in _STEPS_S if (last - first) / one <= most), _STEPS_S[-1])
    places = range(math.ceil(first / step), math.floor(last / step) + 1)
    ticks = [(float(place * step), _minutes(place * step)) for place in places]
    return Axis("time since the start of the session (min:s)", first, last, ticks[:200])


def _minutes(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02d}"


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
    span = [
        1 + value
        for key in ("low", "change", "high")
        if (value := data.finite(verdict.get(key))) is not None and value > -1
    ]
    shown = span if confirm and len(span) == 3 else []

    def draw(box: Box, _: bool) -> Iterable[object]:
        keys = [Key("o", QUIET, "A/A: no change")] if noise else []
        keys += [Key("s", AFTER, "after against before")] if confirm else []
        keys += [Key("#", AFTER, "interval of the verdict")] if shown else []
        count = len(noise) + len(confirm)
        axis = Axis("pairs of adjacent blocks, in order of time", 0.4, count + 0.6, ())
        changes = _ratio_axis("change within the pair", noise + confirm + shown)
        panel = Panel(box, axis, changes, keys)
        _no_change(panel)
        if shown:
            low, middle, high = shown
            first, last = len(noise) + 0.5, count + 0.5
            panel.area([(first, low), (last, low), (last, high), (first, high)], AFTER, 0.2)
            panel.line([(first, middle), (last, middle)], AFTER, 2)
        for place, ratio in enumerate(noise + confirm):
            quiet = place < len(noise)
            tip = f"pair {place + 1}: {words.change(ratio - 1)}"
            at = (place + 1.0, ratio)
            panel.mark("o" if quiet else "s", at, QUIET if quiet else AFTER, tip)
        yield panel

    said = f"{words.plural(len(noise), 'pair')} without a change, {len(confirm)} of old and new"
    if shown:
        said += (
            f"; the verdict: {words.change(shown[1] - 1)} "
            f"({words.interval(shown[0] - 1, shown[2] - 1)})"
        )
    return plot("pairs", draw, (320, 340), "Change within each pair of blocks", said)


_RATIOS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.85, 1, 1.2, 1.5, 2, 3, 5, 10, 30, 100)


def _ratio_axis(title: str, ratios: Sequence[float]) -> Axis:
    """A logarithmic axis of ratios, labelled as changes in percent."""
    low, high = min(0.8, *ratios) / 1.12, max(1.25, *ratios) * 1.12
    shown = [one for one in _RATIOS if low <= one <= high]
    while len(shown) > 9:
        shown = [one for place, one in enumerate(shown) if one == 1 or place % 2]
    return Axis(title, low, high, [(one, _ratio(one)) for one in shown], log=True)


def _ratio(ratio: float) -> str:
    if abs(ratio - 1) < 1e-9:
        return "no change"
    return f"{ratio:g} x" if ratio >= 2 else f"{100 * (ratio - 1):+.0f} %"


def _no_change(panel: Panel) -> None:
    at = panel.y(1.0)
    panel.parts.append(path(f"M{panel.x.first:.1f} {at:.1f}H{panel.x.last:.1f}", INK, 1))


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
    band = (1 - effect, 1 / (1 - effect)) if effect and effect < 1 else ()
    goal = words.metric_name(str(session.get("objective")))

    def draw(box: Box, narrow: bool) -> Iterable[object]:
        last = found[-1][0] + 0.6
        ratios = [1 + moved for _, _, moved in found]
        keys = [Key("s", AFTER, "trial")] if any(not one.get("note") for _, one, _ in found) else []
        if any(one.get("note") for _, one, _ in found):
            keys.append(Key("x", ALARM, "trial with a note"))
        if band:
            keys.append(Key("#", BAND, "noise: too small to detect"))
        most = 8 if narrow else 14
        numbers = [(n, f"{n:.0f}") for n in steps(1, found[-1][0], most) if n == int(n)]
        panel = Panel(
            box,
            Axis("trial", 0.4, last, numbers),
            _ratio_axis(f"change of {goal}", [*ratios, *band]),
            keys,
        )
        if band:
            low, high = band
            panel.area([(0.4, low), (last, low), (last, high), (0.4, high)], BAND, 1)
        _no_change(panel)
        for place, one, moved in found:
            note = one.get("note")
            tip = f"trial {one.get('number') or place} ({words.source(one.get('source'))}): "
            tip += words.change(moved) + (f", {note}" if note else "")
            mark, color = ("x", ALARM) if note else ("s", AFTER)
            panel.mark(mark, (float(place), 1 + moved), color, tip)
        yield panel

    best = min(moved for *_, moved in found)
    said = f"{words.plural(len(found), 'trial')}; the lowest: {words.change(best)}"
    return plot("trials", draw, (320, 340), "The change of each trial", said)


_MOST_TXGS = 900
_TXG_SIDES = (("A", BEFORE, _NAMES["A"]), ("B", AFTER, _NAMES["B"]), ("", QUIET, "while settling"))


def txgs(session: Json) -> Plot | None:
    """Sync time and dirty data of each transaction group over time."""
    rows = [row for row in data.listed(session, "txgs") if data.finite(row.get("t_s")) is not None]
    if not rows:
        return None
    rows.sort(key=lambda row: float(row["t_s"]))
    sides = _by_side(session, rows)

    def draw(box: Box, narrow: bool) -> Iterable[object]:
        most = _MOST_TXGS // 3 if narrow else _MOST_TXGS
        upper, lower = box.rows(0.52)
        keys = [Key("-", color, said) for label, color, said in _TXG_SIDES if sides[label]]
        thickness = max(0.8, min(3.0, 0.66 * (box.right - box.left) / len(rows)))
        seconds = _seconds_axis(session, narrow)
        bare = Axis("", seconds.low, seconds.high, ())
        for part, name, axis, divisor, unit, shown in (
            (upper, "sync_ns", bare, SECOND, "s", keys),
            (lower, "dirty_bytes", seconds, 1 << 20, "MiB", ()),
        ):
            high = max((data.finite(row.get(name)) or 0.0 for row in rows), default=0.0) / divisor
            # room for the names of phases
            high = (high or 1.0) * (1.15 if shown else 1.02)
            ticks = [(y, f"{y:g} {unit}") for y in steps(0, high, 5)]
            title = "time to sync a txg" if shown else "dirty data of a txg"
            panel = Panel(part, axis, Axis(title, 0, high, ticks), shown)
            # the same places in both, whatever the labels
            panel.x = type(panel.x)(axis.low, axis.high, 66, part.right - 8)
            _phase_bands(panel, session, named=bool(shown))
            for label, color, _ in _TXG_SIDES:
                found = [
                    (float(row["t_s"]), value / divisor)
                    for row in data.thinned(sides[label], most, name)
                    if (value := data.finite(row.get(name))) is not None
                ]
                low = panel.y.first
                stems = "".join(f"M{x:.1f} {low:.1f}V{y:.1f}" for x, y in panel.places(found))
                if stems:
                    panel.parts.append(path(stems, color, thickness))
            yield panel

    longest = max((data.finite(row.get("sync_ns")) or 0.0 for row in rows), default=0.0)
    said = f"{words.plural(len(rows), 'txg')}; the longest sync {format_time(round(longest))}"
    title = "Sync time and dirty data of each txg over time"
    return plot("txgs", draw, (430, 430), title, said)


def _by_side(session: Json, rows: Sequence[Json]) -> dict[str, list[Json]]:
    """Txgs by the values in force. In the A/A phase B had the old values, too."""
    unchanged = [(start, end) for phase, start, end in data.phases(session) if phase == "aa"]
    sides: dict[str, list[Json]] = {"A": [], "B": [], "": []}
    for row in rows:
        label = str(row.get("label") or "")
        if label == "B" and any(start <= float(row["t_s"]) <= end for start, end in unchanged):
            label = "A"
        sides.get(label, sides[""]).append(row)
    return sides
