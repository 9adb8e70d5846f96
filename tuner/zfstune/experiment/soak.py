"""The soak after a proof: are the proved values also good in the minutes after it?

A proof is short, and sure of what is the same in most pairs. Values that are better in most blocks
and bad in a few, or only at first, pass it in up to 28 % of the cases; few of them pass this
(docs/statistics.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from zfstune.experiment.objective import Objective
from zfstune.experiment.runner import Record

# One round: mostly the new values, with the previous ones in the middle, so that a load that has
# changed is no reason to give them up. Up to eight of them.
ROUND = "BBBABB"
ROUNDS = 8

# It fails if the mean under B is that many times A's, or the worst block is
_MEAN, _WORST = 1.1, 3.0


@dataclass(frozen=True)
class Soak:
    """Blocks under B, of which ended ones count. mean and worst are the ratios of B's mean and
    largest cost to A's; infinite if a block under B has none."""

    blocks: int
    mean: float
    worst: float

    @property
    def ok(self) -> bool:
        return self.mean <= _MEAN and self.worst <= _WORST

    @property
    def why(self) -> str:
        """Why it is not ok, as the end of a sentence that begins with the values."""
        if not math.isfinite(self.mean):
            return f"had a block that cannot be judged, in {self.blocks} later ones"
        if self.mean > _MEAN:
            return f"were on average {self.mean:.2g} times as slow in {self.blocks} later blocks"
        return (
            f"had a block {self.worst:.2g} times as slow as the slowest before, in "
            f"{self.blocks} later ones"
        )


# Of values that can no longer be set
REFUSED = Soak(0, math.inf, math.inf)


def judge(records: Sequence[Record], proof: Sequence[Record], objective: Objective) -> Soak:
    """By the blocks of a soak. Those under A in the proof count, too: more of them say better how
    slow the previous values get."""
    after = [_cost(record, objective) for record in records if record.label == "B"]
    before = [_cost(record, objective) for record in (*proof, *records) if record.label == "A"]
    before = [one for one in before if math.isfinite(one)]
    return Soak(
        len(after),
        math.fsum(after) / len(after) / (math.fsum(before) / len(before)),
        max(after) / max(before),
    )


def _cost(record: Record, objective: Objective) -> float:
    try:
        return objective.value(record.block.metrics)
    except ValueError:
        return math.inf
