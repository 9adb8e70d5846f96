"""A race: which candidate to measure next, pair by pair, when a single pair shows mostly noise.

All run once; then pairs go to those that look best, fewer and fewer of them. A candidate that was
lucky at first falls back as it is measured again, and another takes its place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from zfstune.experiment.found import Dropped
from zfstune.experiment.model import Candidate
from zfstune.experiment.runner import Record

# The share of the candidates that get at least so many pairs, by rank
_STAGES = ((1.0, 1), (0.5, 3), (0.25, 7))
# Each gets so many at most, the best first, when there is time for nothing else
_LAST = 15
# A candidate is out without a gain in any of so many pairs, or twice as bad as the baseline on
# average: no noise hides a gain in that
_HOPELESS, BAD = 3, math.log(2)


@dataclass
class Arm:
    """A candidate and its pairs of blocks so far. why says why it is out, "" if it is not; failed
    whether a proof of it has ended and not made it the winner; told whether the search knows its
    score; dropped is what its ablation has shown to be unnecessary."""

    number: int
    candidate: Candidate
    records: list[Record] = field(default_factory=list)
    why: str = ""
    failed: bool = False
    told: bool = False
    dropped: list[Dropped] = field(default_factory=list)

    @property
    def pairs(self) -> int:
        return len(self.records) // 2


class Race:
    """score judges the records of an arm: less is better, below 0 is better than the baseline."""

    def __init__(self, score: Callable[[Sequence[Record]], float]) -> None:
        self.arms: list[Arm] = []
        self._score = score

    def enter(self, candidate: Candidate) -> Arm:
        """Adds a candidate."""
        self.arms.append(Arm(len(self.arms) + 1, candidate))
        return self.arms[-1]

    def other_lever(self) -> bool:
        """Whether the second arm changes no parameter that the first does: a failure of the first
        says nothing about it."""
        first, *others = (arm.candidate.values.keys() for arm in self.arms[:2])
        return any(first.isdisjoint(other) for other in others)

    def next(self) -> Arm | None:
        """The arm to measure a pair of; None when each has as many as its rank deserves."""
        ranked = self.ranked()
        for share, pairs in _STAGES:
            for arm in ranked[: math.ceil(share * len(self.arms))]:
                if arm.pairs < pairs and not self._hopeless(arm):
                    return arm
        return None

    def again(self) -> Arm | None:
        """The best arm that may still show a gain, for a closer look; None when all have had
        enough."""
        for arm in self.ranked():
            if arm.pairs < _LAST and not self._hopeless(arm):
                return arm
        return None

    def ranked(self) -> list[Arm]:
        """Those that are not out, the best first; unmeasured ones before all others, in their
        order."""
        left = [arm for arm in self.arms if not arm.why and not arm.failed]
        return sorted(left, key=lambda arm: self.score(arm) if arm.records else -math.inf)

    def score(self, arm: Arm) -> float:
        return self._score(arm.records)

    def _hopeless(self, arm: Arm) -> bool:
        pairs = [arm.records[k : k + 2] for k in range(0, len(arm.records), 2)]
        if not pairs:
            return False
        never = len(pairs) >= _HOPELESS and all(self._score(pair) >= 0 for pair in pairs)
        return never or self.score(arm) >= BAD
