"""A plot as SVG in the report: its colours are variables of the page, so that one picture serves
light, dark and paper; each has a wide and a narrow form."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Any

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

# Plots are drawn in these placeholders; the page's style sheet defines the real colours.
_VARIABLES = {
    "#010101": "ink",
    "#020202": "quiet",
    "#030303": "rule",
    "#040404": "before",
    "#050505": "after",
    "#060606": "band",
    "#070707": "page",
    "#080808": "alarm",
}
INK, QUIET, RULE, BEFORE, AFTER, BAND, PAGE, ALARM = _VARIABLES

# Widths in px.
WIDE, NARROW = 1060, 400
_RC: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 12.0,
    "axes.labelsize": 12.0,
    "xtick.labelsize": 11.5,
    "ytick.labelsize": 11.5,
    "axes.edgecolor": RULE,
    "axes.labelcolor": QUIET,
    "text.color": INK,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.8,
    "xtick.major.size": 4.0,
    "ytick.major.size": 0.0,
    "legend.frameon": False,
    "legend.fontsize": 12.0,
    "path.simplify": True,
}

# Draws into a figure; narrow says that there is little room.
Draw = Callable[[Figure, bool], None]


@dataclass(frozen=True)
class Plot:
    """Two SVG elements, of which the page shows one."""

    wide: str
    narrow: str


def plot(name: str, draw: Draw, wide: int, narrow: int, label: str) -> Plot:
    """Both forms; wide and narrow are their heights in px."""
    return Plot(
        _svg(f"{name}-w", draw, (WIDE, wide), False, label),
        _svg(f"{name}-n", draw, (NARROW, narrow), True, label),
    )


def _svg(name: str, draw: Draw, size: tuple[int, int], narrow: bool, label: str) -> str:
    out = io.StringIO()
    # The salt makes ids unique in a page, and reproducible.
    with matplotlib.rc_context({**_RC, "svg.hashsalt": name}):
        figure = Figure(figsize=(size[0] / 72, size[1] / 72), layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure, narrow)
        figure.savefig(out, format="svg", transparent=True)
    return _for_page(out.getvalue(), label)


def _for_page(text: str, label: str) -> str:
    """matplotlib's file as an HTML element, without what only a file needs."""
    body = text[text.index("<svg") :]
    head, _, body = body.partition(">")
    box = re.search(r'viewBox="[0-9. ]+"', head)
    body = re.sub(r"<metadata>.*?</metadata>", "", body, count=1, flags=re.DOTALL)
    body = re.sub(r"<style\b.*?</style>", "", body, count=1, flags=re.DOTALL)
    body = re.sub(r'<g id="[^"]*"', "<g", body)
    body = body.replace("xlink:href", "href")
    body = re.sub(r"font: ([0-9.]+px) [^;\"]*", r"font-size: \1", body)
    body = re.sub(r" ?font-family: [^;\"]*;?", "", body)
    body = re.sub(r' transform="rotate\(-0 [^)]*\)"', "", body)
    body = re.sub(r"(\.\d\d)\d+", r"\1", body)
    body = re.sub(r" *\n *", "\n", body)
    for color, variable in _VARIABLES.items():
        body = body.replace(color, f"var(--{variable})")
    return f'<svg {box[0] if box else ""} role="img" aria-label="{escape(label)}">{body}'
