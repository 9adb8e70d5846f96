"""A session from its first block to its verdict: noise, search, ablation, proof."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from zfstrace.strict import strict_zip
from zfstune.errors import NotPossible
from zfstune.experiment import statistics
from zfstune.experiment.model import Candidate
from zfstune.experiment.objective import METRICS, Limit, Objective
from zfstune.experiment.proof import (
    LimitResult,
    Proof,
    Tails,
    metric_change,
    metric_ratios,
    shown,
    tails,
)
from zfstune.experiment.runner import Abort, Experiment, Record, too_few
from zfstune.experiment.search import Exhausted
from zfstune.term.progress import Progress
from zfstune.term.units import SECOND, format_span, format_time
from zfstune.tunables import catalogue
from zfstune.tunables import values as sizes
from zfstune.tunables.guard import Refused

# Part of the budget for 2 to 6 pairs without any change
_NOISE_SHARE = 0.1
# Part of the budget for the proof: a gain of 20 % takes twice as many pairs as one of 30 %
_PROOF_SHARE = 0.4
_FEWEST_PAIRS = 6
_TRIAL_ORDER = "ABBA"
# Safety factor: the remaining work may take 10 % longer than measured so far
_SPARE = 1.1
# A trial that is worse than this ends after its first pair
_HOPELESS = math.log(1.3)
# The score of a trial that clearly violates a limit (e times as slow), growing with the violation.
# Marginal violations are interpolated: two pairs cannot tell -7 % from -5 % on a noisy pool, and a
# candidate that is better otherwise deserves its proof
_MISSED = 1.0
_LEAST_NOISE = 0.01
# A parameter is dropped if that costs less than half of what two pairs can detect, but at least 3 %
# and at most 20 %
_SMALLEST, _LARGEST = 0.03, 0.2


class Search(Protocol):
    """The source of candidates; see search.Searcher."""

    def ask(self) -> Candidate: ...

    def tell(self, candidate: Candidate, score: float) -> None: ...

    def fail(self, candidate: Candidate, why: str) -> None: ...

    def prune(self, candidate: Candidate, why: str) -> None: ...

    def best(self) -> tuple[Candidate, float] | None: ...


@dataclass(frozen=True)
class Trial:
    """A candidate and the result of its blocks. change is the one of the objective; None if it
    could not be judged."""

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
class Task:
    """What a session has to do. deadline_ns is on CLOCK_MONOTONIC; reserve_s is reserved for the
    time after the proof."""

    objective: Objective
    limits: Sequence[Limit]
    margin: float
    seed: int
    deadline_ns: int
    reserve_s: float
    observe: bool


@dataclass
class Found:
    """What a session has found so far; complete after Tuning.run(). later has slow work for when
    the parameters are final, however the session ended."""

    verdict: statistics.Verdict | None = None
    winner: Candidate | None = None
    aa: list[float] = field(default_factory=list)
    effect: float = 1.0
    trials: list[Trial] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    limits: list[LimitResult] = field(default_factory=list)
    changes: dict[str, MetricChange] = field(default_factory=dict)
    tails: Tails | None = None
    note: str | None = None
    later: list[Callable[[], None]] = field(default_factory=list)

    @property
    def accepted(self) -> bool:
        return (
            self.verdict is not None
            and self.verdict.kind == statistics.BETTER
            and all(limit.ok for limit in self.limits)
            and (self.tails is None or self.tails.ok)
        )


class Tuning:
    """Runs the phases of a session on an experiment, and records the results in found.

    search makes the source of candidates from the blocks under the baseline; parts gives the
    candidates in which one parameter, or coupled ones, are back at the baseline.
    """

    def __init__(
        self,
        task: Task,
        experiment: Experiment,
        baseline: Mapping[str, int],
        search: Callable[[Sequence[Record]], Search],
        parts: Callable[[Candidate], Sequence[tuple[tuple[str, ...], Candidate]]],
        progress: Progress,
        found: Found,
    ) -> None:
        self.found = found
        self._task, self._experiment, self._progress = task, experiment, progress
        self._baseline = dict(baseline)
        self._search, self._parts = search, parts
        self._noises: dict[str, float] = {}

    def run(self) -> None:
        """Runs all phases. Raises Stopped, RestoredError, guard.Refused, NotPossible; found then
        has the results so far."""
        self.noise()
        best = self._look()
        if best is not None:
            self.found.winner = best = self._ablate(best)
            if self._time_for_proof(best):
                self._prove(best)

    # --- phases

    def noise(self) -> None:
        """The first phase: blocks under the baseline only, for the noise. Raises what run()
        does."""
        self._progress.line("measuring the noise: blocks without any change")
        first = self._experiment.block("aa", None, "A", self._baseline)
        self._say(first)
        self._require(first)
        pairs = int(_NOISE_SHARE * self._left_s() / (2 * first.block.seconds))
        order = (_TRIAL_ORDER * 3)[1 : 2 * min(6, max(2, pairs))]
        rest = [self._experiment.block("aa", None, label, self._baseline) for label in order]
        self._require(*rest)
        quiet = [first, *rest]
        self.found.aa = self._ratios(quiet)
        self._noises = {one.metric.name: _noise_of(quiet, one) for one in self._task.limits}
        self.found.effect = statistics.noise(
            self.found.aa, max(_FEWEST_PAIRS, int(_PROOF_SHARE * self._pairs_left()))
        )
        self._progress.line(f"noise: changes of {self.found.effect:.0%} or more can be detected")

    def _require(self, *records: Record) -> None:
        """Raises NotPossible when a record has too little to judge."""
        reason = too_few(self._experiment.plan, records)
        try:
            for record in records:
                self._cost(record)
        except ValueError as error:
            reason = reason or str(error)
        if reason:
            load = "load" if self._task.observe else "workload"
            raise NotPossible(reason, f"use a longer --block or a heavier {load}")

    def _look(self) -> Candidate | None:
        """The search; the best candidate, None if none looked better than the baseline."""
        search = self._search(self._experiment.records)
        while self._time_for_trial(self._ablation_pairs(search)):
            try:
                candidate = search.ask()
            except Exhausted:
                break
            try:
                trial = self.trial(len(self.found.trials) + 1, candidate)
            except Abort as error:
                # A resumed session must not try again what endangers the host. But the storage
                # may not answer, and restoring must not wait for it.
                self.found.later.append(functools.partial(search.prune, candidate, str(error)))
                raise
            self.found.trials.append(trial)
            if trial.score is None:
                search.fail(candidate, trial.note or "")
            else:
                search.tell(candidate, trial.score)
        # in a resumed session also of earlier trials
        best = search.best()
        if best is None or best[1] >= 0:
            self._note(
                "no candidate looked better than the current values"
                if best
                else f"no time for a candidate and its proof: they take {_span(self._first_s())} "
                f"here, {_span(self._left_s())} are left; use a longer --budget"
            )
            return None
        return best[0]

    def _note(self, text: str) -> None:
        self.found.note = text
        self._progress.line(text)

    def trial(self, number: int, candidate: Candidate) -> Trial:
        if not candidate.values.keys() <= self._baseline.keys():
            # the next block under the baseline would not undo it
            return Trial(number, candidate, None, None, 0, "not a parameter of this session")
        self._progress.line(f"trial {number} ({candidate.source}): {describe(candidate.values)}")
        for name, reason in candidate.reasons.items():
            if reason:
                self._progress.line(f"  {name}: {reason}")
        try:
            done = self._experiment.blocks(
                "trial",
                number,
                _TRIAL_ORDER if number % 2 else _TRIAL_ORDER[::-1],
                self._baseline,
                self._baseline | candidate.values,
                go_on=lambda so_far: (self._mean(so_far) or 0.0) < _HOPELESS,
            )
        except Refused as error:
            # the host, e.g. the ARC's size, has changed since the space was made
            self._progress.line(f"trial {number}: {error}")
            return Trial(number, candidate, None, None, 0, str(error))
        mean = self._mean(done)
        if mean is None:
            return Trial(number, candidate, None, None, 0, "too few fsyncs")
        missed = [result for result in self._judge(done) if not result.ok]
        note = f"limit {missed[0].limit} {missed[0].why}" if missed else None
        trial = Trial(
            number,
            candidate,
            self._score(mean, done),
            math.expm1(mean),
            len(done) // 2,
            note,
        )
        self._progress.line(
            f"trial {number}: {self._task.objective} {math.expm1(mean):+.0%} "
            f"in {trial.pairs} pairs{f', {note}' if note else ''}"
        )
        return trial

    def _ablate(self, best: Candidate) -> Candidate:
        """Drops, one after the other, parameters that the gain does not need."""
        allowed = min(_LARGEST, max(_SMALLEST, statistics.noise(self.found.aa, 2) / 2))
        for names, _ in self._parts(best):
            # from best as reduced so far
            rest = dict(self._parts(best)).get(names)
            if rest is None or not self._time_for_trial(0):
                continue
            self._progress.line(f"ablation: without {', '.join(names)}")
            try:
                done = self._experiment.blocks(
                    "ablation",
                    None,
                    _TRIAL_ORDER,
                    self._baseline | best.values,
                    self._baseline | rest.values,
                    go_on=lambda so_far: (self._mean(so_far) or 0.0) < math.log1p(2 * allowed),
                )
            except Refused:
                continue
            mean = self._mean(done)
            missed = any(not result.ok for result in self._judge(done))
            if mean is None or math.expm1(mean) > allowed or missed:
                continue
            why = (
                f"without it {self._task.objective} changed by {math.expm1(mean):+.0%}, not a "
                "detectable loss"
            )
            self.found.dropped.append(Dropped(names, math.expm1(mean), why))
            self._progress.line(f"{', '.join(names)} dropped: {why}")
            best = rest
        return best

    def _prove(self, best: Candidate) -> None:
        """Compares on fresh blocks, none of which had a part in the choice."""
        values = self._baseline | best.values
        wait_s = max(self._experiment.settle_s(one) for one in (self._baseline, values))
        pair_s = self._proof_pair_s(best)
        most = max(_FEWEST_PAIRS, int(self._left_s() / (_SPARE * pair_s)))
        proof = Proof(
            self._task.objective,
            self._task.limits,
            statistics.design_for(most, self._task.margin),
        )
        self._progress.line(
            f"proof on fresh blocks, {proof.looks[0]} to {most} pairs: {describe(best.values)}"
        )
        done: list[Record] = []
        for both in _by_two(statistics.order(most, self._task.seed)):
            done += self._experiment.blocks(
                "confirm", None, both, self._baseline, values, wait_s=wait_s
            )
            try:
                ended = proof.add(done[-2:])
            except ValueError:
                # this pair may be the worst, so it cannot be left out
                self._note(f"{self._task.objective} of a block is unknown, so nothing is proved")
                self.found.verdict = proof.so_far()
                break
            now = proof.so_far()
            known = f" ({now.low:+.0%} to {now.high:+.0%})" if math.isfinite(now.high) else ""
            self._progress.line(
                f"pair {len(done) // 2}: {self._task.objective} {now.change:+.0%}{known}"
            )
            if ended or (len(done) >= 2 * _FEWEST_PAIRS and self._left_s() < pair_s):
                break
        self.found.verdict = self.found.verdict or proof.verdict()
        self.found.limits = proof.limits()
        self.found.changes = _changes(done)
        self.found.tails = tails(done)
        for result in self.found.limits:
            if not result.ok:
                self._note(f"the limit {result.limit} {result.why}")
        if self.found.tails and not self.found.tails.ok:
            self._note(self.found.tails.why)

    # --- time

    def _left_s(self) -> float:
        left = (self._task.deadline_ns - self._experiment.stop.now()) / SECOND
        return left - self._task.reserve_s

    def _pairs_left(self) -> int:
        return int(self._left_s() / (_SPARE * self._experiment.pair_s()))

    def _time_for_trial(self, later: int) -> bool:
        """Whether there is time for four blocks, later pairs and the proof. The first trial may use
        the proof's share, except the fewest pairs that prove anything; the candidate's txgs are
        unknown then, and most candidates make them shorter."""
        if not self.found.trials:
            return self._left_s() >= self._first_s()
        trial_s = 4 * self._experiment.block_s() + 2 * self._experiment.settle_s()
        pair_s = self._experiment.pair_s()
        share_s = _PROOF_SHARE * (self._experiment.now_s() + self._left_s())
        proof_s = max(_FEWEST_PAIRS * pair_s, share_s)
        return self._left_s() >= _SPARE * (trial_s + later * pair_s + proof_s)

    def _first_s(self) -> float:
        """The time of the first trial and the shortest proof, with waits only for the baseline's
        txgs."""
        block_s, settle_s = self._experiment.block_s(), self._experiment.settle_s(self._baseline)
        return 4 * block_s + 2 * settle_s + _FEWEST_PAIRS * (2 * block_s + settle_s)

    def _time_for_proof(self, best: Candidate) -> bool:
        """Whether the shortest proof ends in time, or a tenth later."""
        pair_s = self._proof_pair_s(best)
        if self._left_s() * _SPARE >= _FEWEST_PAIRS * pair_s:
            return True
        self._note(
            f"{describe(best.values)} looked better, but there is no time for its proof; use a "
            "longer --budget"
        )
        return False

    def _proof_pair_s(self, best: Candidate) -> float:
        """The time of a pair of a proof, whose sides wait equally long."""
        both = (self._baseline, self._baseline | best.values)
        waits_s = [self._experiment.settle_s(values) for values in both]
        return 2 * (self._experiment.block_s() + max(waits_s))

    def _ablation_pairs(self, search: Search) -> int:
        """The pairs that it takes to find the needed parameters of the best candidate."""
        best = search.best()
        return 2 * len(self._parts(best[0])) if best and best[1] < 0 else 0

    # --- judging

    def _cost(self, record: Record) -> tuple[str, float]:
        return record.label, self._task.objective.value(record.block.metrics)

    def _ratios(self, records: Sequence[Record]) -> list[float]:
        return statistics.log_ratios([self._cost(record) for record in records])

    def _mean(self, records: Sequence[Record]) -> float | None:
        """Mean log ratio of the objective; None if a block has no value for it."""
        try:
            ratios = self._ratios(records)
        except ValueError:
            return None
        return sum(ratios) / len(ratios) if ratios else None

    def _judge(self, records: Sequence[Record]) -> list[LimitResult]:
        return [shown(limit, records) for limit in self._task.limits]

    def _score(self, mean: float, records: Sequence[Record]) -> float:
        """The log ratio of the objective, worsened by missed limits."""
        score = mean
        for limit in self._task.limits:
            change = metric_change(records, limit.metric.name)
            missed = math.inf if change is None else max(0.0, limit.missed_by(change))
            sure = min(1.0, missed / self._noises[limit.metric.name])
            score = (1 - sure) * score + sure * (_MISSED + min(missed, 1.0))
        return score

    def _say(self, record: Record) -> None:
        p99 = record.block.metrics.get("fsync.p99")
        self._progress.line(
            f"{record.block.fsyncs} fsyncs in {record.block.seconds:.0f} s, "
            f"p99 {format_time(round(p99)) if p99 else 'unknown'}"
        )


def _span(seconds: float) -> str:
    return format_span(max(0, round(seconds * SECOND)))


def _noise_of(quiet: Sequence[Record], limit: Limit) -> float:
    """The error of the mean of two pairs of a metric that one case in twenty exceeds, as a log
    ratio."""
    ratios = metric_ratios(quiet, limit.metric.name)
    if not ratios:
        return _LEAST_NOISE
    return max(_LEAST_NOISE, 2 * math.sqrt(sum(r * r for r in ratios) / len(ratios) / 2))


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


def _by_two(labels: Sequence[str]) -> list[tuple[str, str]]:
    return list(strict_zip(labels[::2], labels[1::2]))


def describe(values: Mapping[str, int]) -> str:
    """``NAME=VALUE NAME=VALUE``, as one would set them."""
    known = catalogue.load()
    return " ".join(f"{name}={sizes.short(n, known[name].unit)}" for name, n in values.items())
