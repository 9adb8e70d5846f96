"""The proof of a candidate on fresh blocks: it must be better, and keep each limit beyond doubt."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from zfstune.experiment import statistics
from zfstune.experiment.blocks import Block
from zfstune.experiment.objective import Limit, Objective
from zfstune.experiment.runner import Record
from zfstune.experiment.statistics import Design, Sequential, Verdict
from zfstune.term.units import format_time

KEPT, MISSED, UNKNOWN = "kept", "missed", "unknown"

# By how much the p99 of all fsyncs may rise: it has its own noise, and the objective may be another
# metric.
_TAIL = 1.1
_STATES = {
    statistics.BETTER: KEPT,
    statistics.EQUIVALENT: KEPT,  # exactly at the limit
    statistics.WORSE: MISSED,
    statistics.INCONCLUSIVE: UNKNOWN,
}


@dataclass(frozen=True)
class LimitResult:
    """A limit, the change of its metric (None if that could not be measured), and the ends of its
    interval. state is ``kept`` or ``missed``, in a proof both beyond doubt, else ``unknown``."""

    limit: Limit
    change: float | None
    state: str
    low: float = -1.0
    high: float = math.inf

    @property
    def ok(self) -> bool:
        return self.state == KEPT

    @property
    def why(self) -> str:
        """Why it is not ok, as the end of a sentence that begins with the limit."""
        if self.change is None:
            return "could not be measured"
        if self.state == MISSED:
            return f"was missed: {self.change:+.1%}"
        known = f", {self.low:+.0%} to {self.high:+.0%}" if math.isfinite(self.high) else ""
        return f"may be missed: {self.change:+.1%}{known}"


@dataclass(frozen=True)
class Tails:
    """The p99 in ns of all fsyncs under A and of all under B; fewest fsyncs in a block."""

    before: int
    after: int
    fewest: int

    @property
    def ok(self) -> bool:
        """Whether a gain in most blocks is not paid for by the slowest fsyncs of some."""
        return self.after <= _TAIL * self.before

    @property
    def why(self) -> str:
        return (
            f"the p99 of all fsyncs of the proof rose from {format_time(self.before)} to "
            f"{format_time(self.after)}, whatever single blocks say"
        )


class Proof:
    """Compares pair by pair: the objective by its design, each limit by another, which is the same
    if there is none. Each of them errs in at most its alpha of the proofs, and their conjunction in
    at most the largest."""

    def __init__(
        self,
        objective: Objective,
        limits: Sequence[Limit],
        design: Design,
        for_limits: Design | None = None,
    ) -> None:
        self._objective, self._limits = objective, limits
        self._main = Sequential(design)
        self._ratios: list[list[float]] = [[] for _ in limits]
        self._beyond = [Sequential(replace(for_limits or design, margin=0.0)) for _ in limits]

    @property
    def spent(self) -> float:
        """The part of alpha that the looks so far have taken."""
        return self._main.spent

    @property
    def limits_spent(self) -> float:
        """The same of the alpha of limits, where it is the most."""
        return max((one.spent for one in self._beyond), default=0.0)

    @property
    def gained(self) -> bool:
        """Whether the objective is proved, and only limits are open."""
        return self._main.ended and self._main.verdict().kind == statistics.BETTER

    @property
    def looks(self) -> tuple[int, ...]:
        return self._main.design.looks

    def add(self, pair: Sequence[Record]) -> bool:
        """Adds a pair of records. Returns whether that ends the proof: nothing is open, or it can
        no longer succeed. Raises ValueError if a block has no value for the objective."""
        (ratio,) = statistics.log_ratios(
            [(record.label, self._objective.value(record.block.metrics)) for record in pair]
        )
        if not self._main.ended:
            self._main.add(ratio)
        for limit, ratios, beyond in zip(self._limits, self._ratios, self._beyond):
            found = metric_ratios(pair, limit.metric.name)
            # a block without the metric may be the worst
            ratios += found or [-math.inf if limit.metric.less_is_better is False else math.inf]
            if not beyond.ended:
                beyond.add(limit.missed_by(math.expm1(ratios[-1])))
        every = [self._main, *self._beyond]
        kinds = [one.so_far().kind for one in every if one.ended]
        return len(kinds) == len(every) or any(_STATES[kind] != KEPT for kind in kinds)

    def so_far(self) -> Verdict:
        """Of the objective, for progress."""
        return self._main.so_far()

    def words(self) -> str:
        """The change of the objective so far and, if it is known, its interval."""
        found = self.so_far()
        low, high = sorted(map(self._objective.shown, (found.low, found.high)))
        known = f" ({low:+.0%} to {high:+.0%})" if math.isfinite(found.high) else ""
        return f"{self._objective.words(found.change)}{known}"

    def goes_on_for(self) -> str:
        """To follow words(): the limits for which more pairs are measured, once the gain is
        proved."""
        still = [one for one in self.limits(final=False) if one.state == UNKNOWN]
        return f", limit {listed(still)}" if self.gained and still else ""

    def verdict(self) -> Verdict:
        """Of the objective, when there is no time for more pairs; see Sequential.verdict()."""
        return self._main.verdict()

    def limits(self, final: bool = True) -> list[LimitResult]:
        """As verdict(), of the limits. What is open is only measured, which spends nothing, unless
        this is final and the proof can still succeed."""
        ended = [one.so_far().kind for one in (self._main, *self._beyond) if one.ended]
        final = final and all(_STATES[kind] == KEPT for kind in ended)
        return [
            _result(limit, ratios, beyond.verdict() if final else beyond.so_far())
            for limit, ratios, beyond in zip(self._limits, self._ratios, self._beyond)
        ]


def _result(limit: Limit, ratios: Sequence[float], found: Verdict) -> LimitResult:
    if not all(map(math.isfinite, ratios)):
        return LimitResult(limit, None, UNKNOWN)
    # a distance beyond the limit is a factor of the allowed ratio, of a throughput its inverse
    ends = sorted(
        (1 + limit.share) * (1 + one if limit.metric.less_is_better else 1 / (1 + one)) - 1
        for one in (found.low, found.high)
        if one > -1
    )
    low, high = ends if len(ends) == 2 else (-1.0, math.inf)
    change = math.expm1(statistics.location(ratios))
    return LimitResult(limit, change, _STATES[found.kind], low, high)


def tails(records: Sequence[Record]) -> Tails | None:
    """None where there were no fsyncs."""
    both = [_p99(record.block for record in records if record.label == label) for label in "AB"]
    if not all(both):
        return None
    return Tails(both[0], both[1], min(record.block.fsyncs for record in records))


def _p99(blocks: Iterable[Block]) -> int:
    """Of all fsyncs in these blocks, interpolated within its bucket; 0 without any."""
    counts: Counter[tuple[int, int]] = Counter()
    for block in blocks:
        for low, high, count in block.histogram:
            counts[low, high] += count
    rank = (99 * sum(counts.values()) + 99) // 100
    for (low, high), count in sorted(counts.items()):
        if 0 < rank <= count:
            return low + (high - low) * rank // count
        rank -= count
    return 0


def shown(limit: Limit, records: Sequence[Record]) -> LimitResult:
    """A limit by few pairs, which prove nothing."""
    change = metric_change(records, limit.metric.name)
    kept = change is not None and limit.allows(change)
    return LimitResult(limit, change, KEPT if kept else MISSED)


def listed(missed: Sequence[LimitResult]) -> str:
    """Limits that are not ok, each with its reason, to follow the word limit."""
    return " and ".join(f"{one.limit} {one.why}" for one in missed)


def metric_change(records: Sequence[Record], name: str) -> float | None:
    """The change (ratio minus 1) of a metric from A to B; None if a block lacks the metric."""
    ratios = metric_ratios(records, name)
    return math.expm1(statistics.location(ratios)) if ratios else None


def metric_ratios(records: Sequence[Record], name: str) -> list[float]:
    """log(B/A) of each pair; [] if a block has no positive value."""
    values = [(record.label, record.block.metrics.get(name, 0.0)) for record in records]
    try:
        return statistics.log_ratios(values)
    except ValueError:
        return []
