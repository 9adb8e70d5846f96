"""The page of a flame graph: one self-contained SVG file.

Frames are rectangles with text and a title, readable without scripting; view.js adds zoom, search
and keys. Positions are percentages of a panel, so that the page fits any window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from html import escape

from zfstrace import packaged
from zfstrace.flame import colors, human, layout
from zfstrace.printable import printable
from zfstrace.stacks import WAKER, Stacks, label_frames
from zfstrace.strict import strict_zip

WIDTH = 1200
ROW = 18
# Narrower frames are left out, in px.
LEAST_PX = 0.1
_SIDE = 12
_INNER = WIDTH - 2 * _SIDE
_HEAD = 72
_CAPTION = 26
_FOOT = 14
# Width of a character in px, a little more than in most monospace fonts at 12 px.
_CHAR = 7.25
_PAD = 4


@dataclass(frozen=True)
class Panel:
    """A graph on the page.

    body has an element for each frame; rows is the depth of the deepest frame, plus 1.
    """

    caption: str
    body: list[str]
    rows: int
    hidden: layout.Hidden
    total: int


# The class of a frame, and the text after the name in its title.
Describe = Callable[[layout.Frame], tuple[str, str]]


def render(stacks: Stacks, *, inverted: bool = False) -> Iterator[str]:
    """The file of a flame graph, in pieces; inverted puts the root at the top."""
    order = layout.order(stacks.counts)
    weights = layout.sums(order, stacks.counts)
    total = weights[-1]
    labels = label_frames(stacks.counts)
    shade = cache(colors.frame_class)

    def describe(frame: layout.Frame) -> tuple[str, str]:
        weight = weights[frame.last] - weights[frame.first]
        if frame.depth <= labels:
            name = colors.label_class(frame.depth)
        else:
            name = "s" if frame.name == WAKER else shade(frame.name, frame.waker)
        return name, f"{human.amount(weight, stacks.unit)}, {human.percent(weight, total)}"

    shown = panel("", order, weights, describe, inverted=inverted)
    count = len(stacks.counts)
    summary = (
        f"{human.MEASURES[stacks.kind]}: {human.amount(total, stacks.unit)} "
        f"in {count:,} distinct stack{'' if count == 1 else 's'}"
    )
    style = colors.style(stacks.kind)
    yield from page(stacks.title or "Flame graph", summary, style, [shown], inverted=inverted)


def panel(
    caption: str, stacks: list[str], weights: list[int], describe: Describe, *, inverted: bool
) -> Panel:
    """The graph of stacks from layout.order(), with weights from layout.sums()."""
    total = weights[-1]
    hidden = layout.Hidden()
    found = list(layout.frames(stacks, weights, total * LEAST_PX / _INNER, hidden))
    rows = 1 + max(frame.depth for frame in found)
    body = [_element(frame, weights, describe(frame), rows, inverted) for frame in found]
    return Panel(caption, body, rows, hidden, total)


def _element(
    frame: layout.Frame, weights: list[int], look: tuple[str, str], rows: int, inverted: bool
) -> str:
    total = weights[-1] or 1
    share = (weights[frame.last] - weights[frame.first]) / total if weights[-1] else 1.0
    x, width = f"{100 * weights[frame.first] / total:.5f}", f"{100 * share:.5f}"
    y = ROW * (frame.depth if inverted else rows - 1 - frame.depth)
    name = xml(frame.name)
    text = ""
    room = int((share * _INNER - 2 * _PAD) / _CHAR)
    if room >= 3:
        fits = name if len(frame.name) <= room else xml(frame.name[: room - 1]) + "…"
        text = f'<text x="{x}%" y="{y + 13}" dx="{_PAD}">{fits}</text>'
    return (
        f'<g class="{look[0]}"><title>{name} ({look[1]})</title>'
        f'<rect x="{x}%" y="{y}" width="{width}%" height="{ROW - 1}"/>{text}</g>\n'
    )


@cache
def xml(text: str) -> str:
    """Text escaped for XML, which cannot represent control characters and lone surrogates."""
    return escape(printable(text))


def page(
    title: str, summary: str, style: str, panels: list[Panel], *, inverted: bool
) -> Iterator[str]:
    """The file around panels, in pieces."""
    tops, height = [], _HEAD
    for one in panels:
        height += _CAPTION if one.caption else 0
        tops.append(height)
        height += ROW * one.rows + _FOOT
    label = xml(f"Flame graph: {title}")
    yield (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<svg xmlns="http://www.w3.org/2000/svg" class="zfstune-flame" width="{WIDTH}" '
        f'height="{height}" role="group" aria-label="{label}">\n'
        f"<title>{xml(title)}</title>\n<desc>{xml(summary)}</desc>\n"
        f"<style>\n{_asset('view.css')}{style}</style>\n"
        '<rect class="page" width="100%" height="100%"/>\n'
        f'<text class="heading" x="{_SIDE}" y="26">{xml(title)}</text>\n'
        f'<text class="summary" x="{_SIDE}" y="44">{xml(summary)}</text>\n'
        f'<text class="details" x="{_SIDE}" y="62" role="status">{left_out(panels)}</text>\n'
    )
    for one, top in strict_zip(panels, tops):
        yield from _panel(one, top, xml(one.caption or title), inverted)
    yield f"<script><![CDATA[\n{_asset('view.js')}]]></script>\n</svg>\n"


def _panel(one: Panel, top: int, label: str, inverted: bool) -> Iterator[str]:
    if one.caption:
        yield f'<text class="caption" x="{_SIDE}" y="{top - 9}">{label}</text>\n'
    yield (
        f'<svg class="frames" x="{_SIDE}" y="{top}" width="{_INNER}" height="{ROW * one.rows}" '
        f'role="tree" aria-label="{label}" data-inverted="{int(inverted)}">\n'
    )
    yield from one.body
    yield "</svg>\n"


def left_out(panels: Iterable[Panel]) -> str:
    """A sentence on the frames that are not drawn."""
    found = [one for one in panels if one.hidden.frames]
    if not found:
        return "All frames are shown."
    frames = sum(one.hidden.frames for one in found)
    shares = " and ".join(human.percent(one.hidden.weight, one.total) for one in found)
    plural, verb = ("s", "are") if frames > 1 else ("", "is")
    return (
        f"{frames:,} frame{plural} narrower than {LEAST_PX} px {verb} left out, "
        f"with all above: {shares} of the width."
    )


def _asset(name: str) -> str:
    return packaged.read("zfstrace.flame", name).decode()
