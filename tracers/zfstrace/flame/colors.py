"""The colours of frames, as classes of a style sheet.

By convention, warm for on-CPU, blue for off-CPU, aqua for wakers. The shade depends only on the
frame's name, so that two graphs match. Differences are red for more, blue for less.
"""

from __future__ import annotations

import colorsys
import zlib

SHADES = 20
STEPS = 10

# kind: hue from, to (degrees); saturation from, to; lightness from, to
_Range = tuple[float, float]
_PALETTES: dict[str, tuple[_Range, _Range, _Range]] = {
    "off-cpu": ((203, 226), (0.70, 0.90), (0.68, 0.84)),
    "on-cpu": ((8, 52), (0.85, 0.95), (0.62, 0.74)),
    "wakeup": ((203, 226), (0.70, 0.90), (0.68, 0.84)),
    "other": ((78, 128), (0.42, 0.55), (0.66, 0.80)),
    "waker": ((164, 184), (0.48, 0.62), (0.60, 0.76)),
}
# The root, then pool, stage and comm: not functions, so grey.
_LABELS = ("#e4e4e7", "#d3d5da", "#c3c6cd", "#d9dbe0")


def frame_class(name: str, waker: bool) -> str:
    """The class of a function's frame."""
    return f"{'w' if waker else 'f'}{zlib.crc32(name.encode(errors='replace')) % SHADES}"


def label_class(depth: int) -> str:
    """The class of a frame at the root; depth 0 is the root itself."""
    return f"l{min(depth, len(_LABELS) - 1)}"


def change(before: float, after: float) -> float:
    """The change between two shares, from -1 (vanished) through 0 (equal) to 1 (new)."""
    both = before + after
    return (after - before) / both if both else 0.0


def change_class(value: float) -> str:
    """The class of a change: p0 to p10 for more, m1 to m10 for less."""
    step = round(abs(value) * STEPS)
    return f"{'m' if value < 0 and step else 'p'}{step}"


def style(kind: str) -> str:
    """The CSS rules for a graph of this kind of stacks."""
    rules = [*_labels(), _rule("s", "#9aa0ab")]
    rules += [_rule(f"f{i}", _shade(kind, i)) for i in range(SHADES)]
    if kind == "wakeup":
        rules += [_rule(f"w{i}", _shade("waker", i)) for i in range(SHADES)]
    return "".join(rules)


def diff_style() -> str:
    """The CSS rules for a graph of differences."""
    rules = [_rule(f"p{i}", change_color(i / STEPS)) for i in range(STEPS + 1)]
    rules += [_rule(f"m{i}", change_color(-i / STEPS)) for i in range(1, STEPS + 1)]
    return "".join(rules)


def change_color(value: float) -> str:
    """From blue through near-white to red, for -1 to 1."""
    full = (0xEC, 0x5C, 0x4B) if value > 0 else (0x56, 0x90, 0xE4)
    # A power below 1 makes small changes visible.
    part = abs(value) ** 0.75
    return _hex(*(round(0xF4 + (one - 0xF4) * part) for one in full))


def _labels() -> list[str]:
    return [_rule(f"l{i}", color) for i, color in enumerate(_LABELS)]


def _rule(name: str, color: str) -> str:
    return f".zfstune-flame .{name}{{fill:{color}}}\n"


def _shade(palette: str, number: int) -> str:
    hues, saturations, lights = _PALETTES[palette]
    # Three sequences with different periods, so that consecutive numbers differ clearly.
    hue = _between(hues, number / (SHADES - 1))
    light = _between(lights, number * 7 % SHADES / (SHADES - 1))
    saturation = _between(saturations, number * 11 % SHADES / (SHADES - 1))
    return _hex(*(round(255 * one) for one in colorsys.hls_to_rgb(hue / 360, light, saturation)))


def _between(ends: _Range, part: float) -> float:
    return ends[0] + (ends[1] - ends[0]) * part


def _hex(red: int, green: int, blue: int) -> str:
    return f"#{red:02x}{green:02x}{blue:02x}"
