"""The difference of two sets of stacks: as a flame graph, or in difffolded's three columns.

Each side is shown as shares of its total, since two recordings rarely have the same length. One
graph has the widths of after; one below it those of before, which shows what has vanished.
"""

from __future__ import annotations

from collections.abc import Iterator

from zfstrace.flame import colors, human, layout, svg
from zfstrace.flame.errors import FlameError
from zfstrace.printable import printable
from zfstrace.stacks import Stacks, label_frames


def check(before: Stacks, after: Stacks) -> None:
    """Raises FlameError when the two cannot be compared."""
    if before.unit != after.unit:
        raise FlameError(
            f"cannot compare: before counts {before.unit}, after {after.unit}",
            "give two files with the same unit",
        )


def folded(before: Stacks, after: Stacks) -> Iterator[str]:
    """One line for each stack, with its weights before and after, safe to print on a terminal."""
    for stack in sorted(before.counts.keys() | after.counts.keys()):
        was, now = before.counts.get(stack, 0), after.counts.get(stack, 0)
        yield f"{printable(stack)} {was} {now}\n"


def render(before: Stacks, after: Stacks, title: str, *, inverted: bool = False) -> Iterator[str]:
    """The SVG file, in pieces."""
    unit = after.unit
    stacks = before.counts.keys() | after.counts.keys()
    order = layout.order(stacks)
    old, new = layout.sums(order, before.counts), layout.sums(order, after.counts)
    labels = label_frames(stacks)

    def describe(frame: layout.Frame) -> tuple[str, str]:
        was, now = (side[frame.last] - side[frame.first] for side in (old, new))
        value = colors.change(was / (old[-1] or 1), now / (new[-1] or 1))
        look = colors.change_class(value) + (" b" if 0 < frame.depth <= labels else "")
        return look, _compare(was, old[-1], now, new[-1], unit)

    panels = [
        svg.panel("After: the widths are shares of after", order, new, describe, inverted=inverted),
        svg.panel(
            "Before: the widths are shares of before, so what has vanished shows here",
            order,
            old,
            describe,
            inverted=inverted,
        ),
    ]
    summary = (
        f"total before {human.amount(old[-1], unit)}, after {human.amount(new[-1], unit)}; "
        "red: a larger share after, blue: a smaller one, near-white: equal"
    )
    yield from svg.page(title, summary, colors.diff_style(), panels, inverted=inverted)


def _compare(was: int, all_was: int, now: int, all_now: int, unit: str) -> str:
    points = 100 * (now / (all_now or 1) - was / (all_was or 1))
    if not was:
        factor = ", new"
    elif not now:
        factor = ", vanished"
    else:
        factor = f", share x{now * all_was / (was * all_now):.2f}"
    return (
        f"before {human.amount(was, unit)} {human.percent(was, all_was)}, "
        f"after {human.amount(now, unit)} {human.percent(now, all_now)}, "
        f"change {points:+.2f} points{factor}"
    )
