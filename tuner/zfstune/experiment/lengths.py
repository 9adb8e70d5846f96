"""How long a block must be: for its fsyncs, and for the rhythm of the load."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from zfstune.experiment.blocks import Block
from zfstune.experiment.runner import BlockPlan

# The autocorrelation from which a load counts as periodic, and so many periods must have been seen
_PERIODIC, _PERIODS = 0.5, 2.5
_ALMOST = 0.8
_SHORTEST = 3


def for_fsyncs(plan: BlockPlan, first: Block) -> BlockPlan:
    """The plan with blocks long enough for the fsyncs that a block needs, by the rate in the first
    one, if three times as long as asked for is enough."""
    if not first.fsyncs or first.fsyncs >= plan.min_fsyncs * first.seconds / plan.seconds:
        return plan
    wanted = plan.min_fsyncs * first.seconds / first.fsyncs
    return replace(plan, seconds=math.ceil(wanted)) if wanted <= plan.longest_s else plan


def for_period(plan: BlockPlan, period_s: int | None) -> BlockPlan | None:
    """The plan with blocks of whole periods, where one is longer than half a block: others would
    hold now more, now less of a burst. As many as come closest to the block that was asked for;
    None if one takes over three times as long."""
    if period_s is None or period_s <= plan.seconds / 2:
        return plan
    seconds = float(max(1, math.ceil(plan.seconds / period_s)) * period_s)
    return replace(plan, seconds=seconds) if seconds <= plan.longest_s else None


def period(accepted: Sequence[float]) -> int | None:
    """The period of a load in seconds, from the bytes that it wrote in each second of some periods:
    the shift at which they resemble themselves. Of several that do so almost equally, which are
    multiples of one, the first. None if there is none."""
    shifts = range(_SHORTEST, int(len(accepted) / _PERIODS) + 1)
    likeness = {shift: _likeness(accepted[:-shift], accepted[shift:]) for shift in shifts}
    peaks = [
        shift
        for shift, found in likeness.items()
        if found >= max(likeness.get(shift - 1, found), likeness.get(shift + 1, found))
    ]
    enough = max(_PERIODIC, _ALMOST * max(likeness.values(), default=0.0))
    return next((shift for shift in peaks if likeness[shift] >= enough), None)


def parts(accepted: Sequence[float], seconds: int) -> list[float]:
    """The bytes in each whole block of so many seconds."""
    ends = range(seconds, len(accepted) + 1, seconds)
    return [math.fsum(accepted[end - seconds : end]) for end in ends]


def _likeness(one: Sequence[float], other: Sequence[float]) -> float:
    """Pearson's correlation."""
    a, b = (math.fsum(values) / len(values) for values in (one, other))
    shared = math.fsum((x - a) * (y - b) for x, y in zip(one, other))
    spread = math.fsum((x - a) ** 2 for x in one) * math.fsum((y - b) ** 2 for y in other)
    return shared / math.sqrt(spread) if spread > 0 else 0.0
