"""Plots as SVG in the report: scales, axes, marks. Colours are variables of the page, so that one
picture serves light, dark and paper; each plot has a wide and a narrow form."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

from zfstrace.printable import printable

INK, QUIET, RULE, BEFORE, AFTER, BAND, PAGE, ALARM = (
    f"var(--{name})"
    for name in ("ink", "quiet", "rule", "before", "after", "band", "page", "alarm")
)

# Widths of the forms in px.
WIDE, NARROW = 1060, 400
SIZE = 12.5
# The mean width of a character at that size, rounded up: fonts differ from host to host.
_CHAR = 7.2
_LINE = 19
_TICK = 5
# Half the size of a mark.
_MARK = 3.6

# A value and its label.
Tick = tuple[float, str]
Point = tuple[float, float]


@dataclass(frozen=True)
class Plot:
    """Two SVG elements, of which the page shows one."""

    wide: str
    narrow: str


@dataclass(frozen=True)
class Scale:
    """Values from low to high as px from first to last; log: by their logarithm. Others are at the
    nearest end."""

    low: float
    high: float
    first: float
    last: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        value = min(max(value, min(low, high)), max(low, high))
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return self.first + (value - low) / ((high - low) or 1.0) * (self.last - self.first)


@dataclass(frozen=True)
class Axis:
    """What a panel shows along one side. title names the quantity, and the unit where the labels
    of ticks do not."""

    title: str
    low: float
    high: float
    ticks: Sequence[Tick]
    log: bool = False


@dataclass(frozen=True)
class Key:
    """An entry of a legend. mark: ``o``, ``s``, ``x`` (marks), ``-``, ``--`` (lines), ``#`` (an
    area)."""

    mark: str
    color: str
    text: str


@dataclass(frozen=True)
class Box:
    """A part of a picture, in px."""

    left: float
    top: float
    right: float
    bottom: float

    def columns(self, gap: float = 36) -> tuple[Box, Box]:
        """Its left and right half."""
        middle = (self.left + self.right) / 2
        return (
            Box(self.left, self.top, middle - gap / 2, self.bottom),
            Box(middle + gap / 2, self.top, self.right, self.bottom),
        )

    def rows(self, share: float, gap: float = 18) -> tuple[Box, Box]:
        """An upper part with this share of the height, and the lower one."""
        middle = self.top + share * (self.bottom - self.top)
        return (
            Box(self.left, self.top, self.right, middle - gap / 2),
            Box(self.left, middle + gap / 2, self.right, self.bottom),
        )


@dataclass
class Panel:
    """Axes, and marks upon them. Its title is that of the y axis, above it: upright, and with room
    for a unit."""

    box: Box
    x_axis: Axis
    y_axis: Axis
    keys: Sequence[Key] = ()
    grid: bool = True
    under: list[str] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        box, y = self.box, self.y_axis
        left = box.left + max((width(label) for _, label in y.ticks), default=0) + 8
        self.legend, rows = _legend(self.keys, box)
        top = box.top + _LINE * (bool(y.title) + rows) + 8
        low = box.bottom - (_LINE if any(label for _, label in self.x_axis.ticks) else 0)
        low -= (_LINE if self.x_axis.title else 0) + _TICK
        self.x = Scale(self.x_axis.low, self.x_axis.high, left, box.right - 8, self.x_axis.log)
        self.y = Scale(y.low, y.high, low, top, y.log)

    def line(self, points: Iterable[Point], color: str, width: float, dash: str = "") -> None:
        """Straight lines through the points."""
        self.parts.append(path(_through(self.places(points)), color, width, dash))

    def places(self, points: Iterable[Point]) -> list[Point]:
        """Values as px."""
        return [(self.x(x), self.y(y)) for x, y in points]

    def area(self, corners: Iterable[Point], color: str, opacity: float) -> None:
        """A filled polygon, behind lines and marks."""
        shape = _through(self.places(corners))
        self.under.append(f'<path d="{shape}Z" fill="{color}" fill-opacity="{opacity:g}"/>')

    def span(self, start: float, end: float, color: str) -> None:
        """A band from the bottom to the top."""
        left, right = self.x(start), self.x(end)
        self.under.append(
            f'<rect x="{left:.1f}" y="{self.y.last:.1f}" width="{right - left:.1f}" '
            f'height="{self.y.first - self.y.last:.1f}" fill="{color}"/>'
        )

    def mark(self, kind: str, at: Point, color: str, said: str = "") -> None:
        """A mark; said is shown when the pointer rests on it."""
        (place,) = self.places([at])
        self.parts.append(tipped(_mark(kind, place, color), said))

    def __str__(self) -> str:
        out = [*self.under]
        low, left, right = self.y.first, self.x.first, self.x.last
        if self.y_axis.title:
            out.append(text(self.box.left, self.box.top + 13, self.y_axis.title, color=INK))
        for value, label in self.y_axis.ticks:
            at = self.y(value)
            if self.grid:
                out.append(path(f"M{left:.1f} {at:.1f}H{right:.1f}", RULE, 1))
            out.append(text(left - 8, at + 4.2, label, "end"))
        out.append(path(f"M{left:.1f} {low:.1f}H{right:.1f}", QUIET, 1))
        for value, label in self.x_axis.ticks:
            at = self.x(value)
            if label:
                out.append(path(f"M{at:.1f} {low:.1f}v{_TICK}", QUIET, 1))
            # a label at the edge stays inside of the picture
            half = width(label) / 2
            middle = max(self.box.left + half, min(at, self.box.right + 8 - half))
            out.append(text(middle, low + _TICK + 14, label, "middle"))
        if self.x_axis.title:
            out.append(text((left + right) / 2, self.box.bottom - 4, self.x_axis.title, "middle"))
        return "".join([*out, *self.parts, self.legend])


def width(words: str) -> float:
    """About how wide a text is, in px."""
    return _CHAR * len(words)


def text(
    x: float, y: float, words: str, anchor: str = "start", color: str = QUIET, size: float = SIZE
) -> str:
    """Words on a baseline; "" for none."""
    if not words:
        return ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size:g}" '
        f'fill="{color}">{esc(words)}</text>'
    )


def esc(words: str) -> str:
    """Words of any origin for SVG."""
    return escape(printable(words))


def path(shape: str, color: str, thickness: float, dash: str = "") -> str:
    """A line along SVG's path."""
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<path d="{shape}" fill="none" stroke="{color}" stroke-width="{thickness:g}"{dashes}/>'


def tipped(element: str, said: str) -> str:
    """An element with a text for the pointer that rests on it."""
    return f"<g><title>{esc(said)}</title>{element}</g>" if said else element


def steps(low: float, high: float, most: int, sizes: Sequence[float] = (1, 2, 5)) -> list[float]:
    """At most that many round values from low to high; each size is multiplied by powers of ten."""
    if not high > low:
        return [low]
    power = math.floor(math.log10((high - low) / most))
    for size in (one * 10.0**exponent for exponent in (power, power + 1) for one in sizes):
        first = math.ceil(low / size - 1e-9)
        count = math.floor(high / size + 1e-9) - first + 1
        if count <= most:
            return [(first + i) * size for i in range(count)]
    return [low, high]


def plot(
    name: str,
    draw: Callable[[Box, bool], Iterable[object]],
    heights: tuple[int, int],
    title: str,
    said: str = "",
) -> Plot:
    """Both forms. draw returns what a picture consists of; narrow says that there is little room.
    heights: of the wide and the narrow form. said: the picture in a sentence, for who cannot see
    it."""
    made = []
    for narrow, size, height in ((False, WIDE, heights[0]), (True, NARROW, heights[1])):
        mark = f"{name}-{'n' if narrow else 'w'}"
        body = "".join(map(str, draw(Box(0, 0, size, height), narrow)))
        made.append(
            f'<svg viewBox="0 0 {size} {height}" role="img" aria-labelledby="{mark}-t" '
            f'aria-describedby="{mark}-d"><title id="{mark}-t">{esc(title)}</title>'
            f'<desc id="{mark}-d">{esc(said)}</desc>{body}</svg>'
        )
    return Plot(*made)


def _through(places: Sequence[Point]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)


def _mark(kind: str, place: Point, color: str) -> str:
    x, y = place
    m = _MARK
    if kind == "o":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{m + 0.4:g}" fill="{color}"/>'
    if kind == "s":
        shape = f'x="{x - m:.1f}" y="{y - m:.1f}" width="{2 * m:g}" height="{2 * m:g}"'
        return f'<rect {shape} fill="{color}"/>'
    cross = f"M{x - m:.1f} {y - m:.1f}l{2 * m:g} {2 * m:g}m0 {-2 * m:g}l{-2 * m:g} {2 * m:g}"
    return path(cross, color, 2.6)


def _legend(keys: Sequence[Key], box: Box) -> tuple[str, int]:
    """The legend below the title, and how many rows it takes."""
    if not keys:
        return "", 0
    out, x, row = [], box.left, 0
    for key in keys:
        wide = 28 + width(key.text)
        if x > box.left and x + wide > box.right:
            x, row = box.left, row + 1
        y = box.top + _LINE * (row + 1) + 9
        if key.mark in ("-", "--"):
            dash = "5 3" if key.mark == "--" else ""
            out.append(path(f"M{x:.1f} {y:.1f}h16", key.color, 2.4, dash))
        elif key.mark == "#":
            solid = 1 if key.color == BAND else 0.35
            out.append(
                f'<rect x="{x:.1f}" y="{y - 5:.1f}" width="16" height="10" fill="{key.color}" '
                f'fill-opacity="{solid}" stroke="{RULE}"/>'
            )
        else:
            out.append(_mark(key.mark, (x + 8, y), key.color))
        out.append(text(x + 22, y + 4, key.text))
        x += wide + 12
    return "".join(out), row + 1
