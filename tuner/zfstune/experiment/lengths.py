"""How long a block must be: for its fsyncs, and for the rhythm of the load."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

from zfstune.experiment.blocks import Block
from zfstune.experiment.runner import BlockPlan

# The autocorrelation from which a load counts as periodic, and so many periods must have been seen
_PERIODIC, _PERIODS = 0.5, 2.5
# Between two whole seconds a peak is lower, as each burst is in both
_ALMOST = 0.7
_SHORTEST = 3
# What of a block may be missing to whole periods, or beyond them: about the error of a period
_TOLERANCE = 0.02


def for_fsyncs(plan: BlockPlan, first: Block) -> BlockPlan:
    """The plan with blocks long enough for the fsyncs that a block needs, by the rate in the first
    one, if three times as long as asked for is enough."""
    if not first.fsyncs or first.fsyncs >= plan.min_fsyncs * first.seconds / plan.seconds:
        return plan
    wanted = plan.min_fsyncs * first.seconds / first.fsyncs
    return replace(plan, seconds=math.ceil(wanted)) if wanted <= plan.longest_s else plan


def for_period(plan: BlockPlan, period_s: float | None) -> BlockPlan | None:
    """The plan with blocks of whole periods, where one is longer than half a block: others would
    hold now more, now less of a burst. The fewest that are as long as the block that was asked for;
    None if one takes over three times as long."""
    if period_s is None or period_s <= plan.seconds / 2:
        return plan
    count = max(1, math.ceil((1 - _TOLERANCE) * plan.seconds / period_s))
    seconds = round(count * period_s, 1)
    if abs(seconds - plan.seconds) <= _TOLERANCE * plan.seconds:
        seconds = plan.seconds
    return replace(plan, seconds=seconds) if seconds <= plan.longest_s else None


def period(accepted: Sequence[float]) -> float | None:
    """The period of a load in seconds, from the bytes that it wrote in each second of some periods:
    the shift at which they resemble themselves. Of several that do so almost equally, which are
    multiples of one, the first; the last of them has the smallest error. None if there is none."""
    longest = int(len(accepted) / _PERIODS)
    likeness = [
        _likeness(accepted[: len(accepted) - shift], accepted[shift:])
        for shift in range(min(longest + 2, len(accepted)))
    ]
    peaks = [
        _vertex(likeness, shift)
        for shift in range(_SHORTEST, longest + 1)
        if likeness[shift] >= max(likeness[shift - 1], likeness[shift + 1])
    ]
    enough = max(_PERIODIC, _ALMOST * max((height for _, height in peaks), default=0.0))
    good = [shift for shift, height in peaks if height >= enough]
    if not good:
        return None
    found = good[0]
    for shift in good[1:]:
        times = round(shift / found)
        # the peaks of another period, or of chance, lie elsewhere
        if abs(shift - times * found) <= 0.5:
            found = shift / times
    return round(found, 1)


def _vertex(heights: Sequence[float], peak: int) -> tuple[float, float]:
    """Where the parabola through a peak and its neighbours has its vertex, and how high it is."""
    before, at, after = heights[peak - 1 : peak + 2]
    bend = 2 * at - before - after
    aside = (after - before) / (2 * bend) if bend > 0 else 0.0
    return peak + aside, at + (after - before) * aside / 4


def parts(accepted: Sequence[float], seconds: float) -> list[float]:
    """The bytes in each whole block of so many seconds; those of a second are spread evenly."""
    sums = [0.0, *itertools.accumulate(accepted), 0.0]

    def until(end: float) -> float:
        whole = int(end)
        return sums[whole] + (end - whole) * (sums[whole + 1] - sums[whole])

    ends = [k * seconds for k in range(int(len(accepted) / seconds) + 1)]
    return [until(end) - until(begin) for begin, end in zip(ends, ends[1:])]


def _likeness(one: Sequence[float], other: Sequence[float]) -> float:
    """Pearson's correlation."""
    a, b = (math.fsum(values) / len(values) for values in (one, other))
    shared = math.fsum((x - a) * (y - b) for x, y in zip(one, other))
    spread = math.fsum((x - a) ** 2 for x in one) * math.fsum((y - b) ** 2 for y in other)
    return shared / math.sqrt(spread) if spread > 0 else 0.0
