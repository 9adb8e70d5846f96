"""A race: which candidate to measure next, pair by pair, when a single pair shows mostly noise.

All run once; then pairs go to those that look best, fewer and fewer of them. A candidate that was
lucky at first falls back as it is measured again, and another takes its place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from zfstune.experiment.model import Candidate
from zfstune.experiment.runner import Record

# The share of the candidates that get at least so many pairs, by rank
_STAGES = ((1.0, 1), (0.5, 3), (0.25, 7))


@dataclass
class Arm:
    """A candidate and its pairs of blocks so far. why says why it is out, "" if it is not."""

    candidate: Candidate
    records: list[Record] = field(default_factory=list)
    why: str = ""

    @property
    def pairs(self) -> int:
        return len(self.records) // 2


class Race:
    """score judges the records of an arm: less is better, below 0 is better than the baseline."""

    def __init__(
        self, candidates: Sequence[Candidate], score: Callable[[Sequence[Record]], float]
    ) -> None:
        self.arms = [Arm(candidate) for candidate in candidates]
        self._score = score

    def next(self) -> Arm | None:
        """The arm to measure a pair of; None when all are done."""
        ranked = self.ranked()
        for share, pairs in _STAGES:
            for arm in ranked[: math.ceil(share * len(self.arms))]:
                if arm.pairs < pairs:
                    return arm
        return None

    def ranked(self) -> list[Arm]:
        """Those that are not out, the best first; unmeasured ones before all others, in their
        order."""
        left = [arm for arm in self.arms if not arm.why]
        return sorted(left, key=lambda arm: self.score(arm) if arm.records else -math.inf)

    def score(self, arm: Arm) -> float:
        return self._score(arm.records)
