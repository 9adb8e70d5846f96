"""What a session has to do, and what it has found."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from zfstrace.types import Json
from zfstune.experiment import statistics
from zfstune.experiment.model import Candidate
from zfstune.experiment.objective import METRICS, Limit, Objective
from zfstune.experiment.proof import LimitResult, Tails, listed, metric_ratios, tails
from zfstune.experiment.runner import Record
from zfstune.experiment.soak import Soak
from zfstune.experiment.statistics import Verdict


@dataclass(frozen=True)
class Task:
    """What a session has to do. deadline_ns is on CLOCK_MONOTONIC; reserve_s is reserved for the
    time after the last block."""

    objective: Objective
    limits: Sequence[Limit]
    margin: float
    seed: int
    deadline_ns: int
    reserve_s: float
    observe: bool


@dataclass(frozen=True)
class Trial:
    """A candidate and the result of its pairs of blocks. change is the one of the objective; None
    if it could not be judged."""

    number: int
    candidate: Candidate
    score: float | None
    change: float | None
    pairs: int
    note: str | None = None


@dataclass(frozen=True)
class Dropped:
    """Parameters that the gain does not need, and the change of the objective without them."""

    names: tuple[str, ...]
    change: float
    why: str


@dataclass(frozen=True)
class MetricChange:
    """The change of a metric (ratio minus 1), and the ends of its 95 % interval."""

    change: float
    low: float
    high: float


@dataclass(frozen=True)
class Outcome:
    """Of a proof: its verdict on a candidate, its records, and what they say of each limit, of all
    metrics, and of the slowest fsyncs. end_s: when it ended, in seconds of the session."""

    verdict: Verdict
    candidate: Candidate
    limits: Sequence[LimitResult]
    records: Sequence[Record]
    changes: Mapping[str, MetricChange]
    tails: Tails | None
    end_s: float

    @classmethod
    def of(
        cls,
        verdict: Verdict,
        candidate: Candidate,
        limits: Sequence[LimitResult],
        records: Sequence[Record],
    ) -> Outcome:
        """With what follows from the records."""
        last = records[-1]
        return cls(
            verdict,
            candidate,
            limits,
            records,
            _changes(records),
            tails(records),
            last.start_s + last.block.seconds,
        )

    @property
    def proved(self) -> bool:
        return self.verdict.kind == statistics.BETTER and not self.why()

    def why(self) -> str | None:
        """Why a gain alone is not enough; None if it is."""
        missed = [limit for limit in self.limits if not limit.ok]
        if missed:
            return f"the limit {listed(missed)}"
        return self.tails.why if self.tails and not self.tails.ok else None


@dataclass
class Found:
    """What a session has found so far; complete after Tuning.run(). outcome is of the proof that
    succeeded, or else of the last; first_s: when one succeeded first, in seconds of the session. aa
    has log ratios without a change; effect is the smallest gain that can be proved. more: what it
    would do with more time, or what would have to change for it to find something. later has slow
    work for when the parameters are final, however the session ended.

    Of a session on the ARC, forecast is what a larger one would save (cache.Forecast); unsettled is
    how many sides were measured before it had settled."""

    outcome: Outcome | None = None
    first_s: float | None = None
    aa: list[float] = field(default_factory=list)
    effect: float = 1.0
    trials: list[Trial] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    soak: Soak | None = None
    note: str | None = None
    more: str | None = None
    forecast: Json | None = None
    unsettled: int = 0
    later: list[Callable[[], None]] = field(default_factory=list)

    @property
    def verdict(self) -> Verdict | None:
        return self.outcome.verdict if self.outcome else None

    @property
    def winner(self) -> Candidate | None:
        return self.outcome.candidate if self.outcome else None

    @property
    def accepted(self) -> bool:
        """Whether the winner's values are to stay: they are proved, and no later block says
        otherwise."""
        proved = self.outcome is not None and self.outcome.proved
        return proved and (self.soak is None or self.soak.ok)


def _changes(records: Sequence[Record]) -> dict[str, MetricChange]:
    """For every metric that all blocks have."""
    changes = {}
    for name in METRICS:
        ratios = metric_ratios(records, name)
        if ratios:
            low, high = statistics.interval(ratios, 0.95)
            middle = statistics.location(ratios)
            changes[name] = MetricChange(*map(math.expm1, (middle, low, high)))
    return changes
