"""What a few pairs of blocks say of a candidate, before any proof."""

from __future__ import annotations

import math
from collections.abc import Sequence

from zfstune.experiment import statistics
from zfstune.experiment.objective import Limit, Objective
from zfstune.experiment.proof import LimitResult, metric_change, metric_ratios, shown
from zfstune.experiment.runner import Record

# The score of a candidate that clearly violates a limit (e times as slow), growing with the
# violation. Marginal violations are interpolated: two pairs cannot tell -7 % from -5 % on a noisy
# pool, and a candidate that is better otherwise deserves its proof
_MISSED = 1.0
_LEAST_NOISE = 0.01


class Judge:
    """Judges records by the objective and the limits of a session, of which some may be dropped;
    noises has the noise of a pair for the metric of each limit, from quiet()."""

    def __init__(self, objective: Objective, limits: Sequence[Limit]) -> None:
        self.objective = objective
        self.limits = limits
        self.noises: dict[str, float] = {}

    def quiet(self, records: Sequence[Record]) -> None:
        """Takes the noises from records without any change."""
        names = [limit.metric.name for limit in self.limits]
        self.noises = {name: noise(metric_ratios(records, name)) for name in names}

    def cost(self, record: Record) -> tuple[str, float]:
        """Its label and cost. Raises ValueError if it has no value for the objective."""
        return record.label, self.objective.value(record.block.metrics)

    def ratios(self, records: Sequence[Record]) -> list[float]:
        return statistics.log_ratios([self.cost(record) for record in records])

    def change(self, records: Sequence[Record]) -> float | None:
        """The log ratio of the objective; None without pairs, or if a block has no value for it."""
        try:
            ratios = self.ratios(records)
        except ValueError:
            return None
        return statistics.location(ratios) if ratios else None

    def missed(self, records: Sequence[Record]) -> list[LimitResult]:
        """The limits that are not kept, first the one that is missed most clearly."""
        results = (shown(limit, records) for limit in self.limits)
        return sorted(
            (result for result in results if not result.ok),
            key=lambda one: _beyond(one.limit, one.change) / self.noises[one.limit.metric.name],
            reverse=True,
        )

    def pairs_that_miss(self, records: Sequence[Record]) -> int:
        """How many pairs miss the same limit, by more than the noise of a pair; of the limit that
        most miss. A pair in which it is unknown misses it."""
        pairs, most = [records[k : k + 2] for k in range(0, len(records), 2)], 0
        for limit in self.limits:
            name = limit.metric.name
            changes = [metric_change(pair, name) for pair in pairs]
            beyond = [_beyond(limit, one) for one in changes]
            most = max(most, sum(one > self.noises[name] for one in beyond))
        return most

    def score(self, records: Sequence[Record]) -> float:
        """The log ratio of the objective, worsened by missed limits."""
        change = self.change(records)
        if change is None:
            return math.inf
        score, pairs = change, len(records) // 2
        for limit in self.limits:
            missed = _beyond(limit, metric_change(records, limit.metric.name))
            sure = min(1.0, missed / (self.noises[limit.metric.name] / math.sqrt(pairs)))
            score = (1 - sure) * score + sure * (_MISSED + min(missed, 1.0))
        return score


def _beyond(limit: Limit, change: float | None) -> float:
    """By how much a limit is missed, from 0; infinite if its metric is unknown."""
    return math.inf if change is None else max(0.0, limit.missed_by(change))


def noise(ratios: Sequence[float]) -> float:
    """The error of one of these log ratios that one case in twenty exceeds."""
    mean = sum(ratio * ratio for ratio in ratios) / max(1, len(ratios))
    return max(_LEAST_NOISE, 2 * math.sqrt(mean))
