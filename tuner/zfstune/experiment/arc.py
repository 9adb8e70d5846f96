"""A session on the size of the ARC: what a larger one would save by the ghost lists, then its
proof.

The ARC settles in minutes: blocks of seconds in turns would see neither size. So a side of a pair
takes minutes, half of it to settle and half to be measured, and there is one candidate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from zfstune.errors import NotPossible
from zfstune.experiment import cache, statistics
from zfstune.experiment.found import Found, Outcome, Task, Trial
from zfstune.experiment.judging import Judge
from zfstune.experiment.model import Candidate
from zfstune.experiment.objective import Limit
from zfstune.experiment.proof import MISSED, UNKNOWN, Proof, listed
from zfstune.experiment.reads import Reads
from zfstune.experiment.runner import Experiment, Record, too_few
from zfstune.experiment.wording import budget, span
from zfstune.term.progress import Progress
from zfstune.term.units import SECOND, format_percent, format_span
from zfstune.tunables import values as sizes
from zfstune.tunables.guard import Refused
from zfstune.tunables.names import ARC_MAX

SOURCE = "ghosts"
# The first side is measured in two pairs of parts, for the noise.
_QUIET = "ABBA"
FEWEST_PAIRS = statistics.fewest_pairs(statistics.ALPHA)
# To settle at first; the first side; the fewest pairs.
SIDES = 1 + 1 + 2 * FEWEST_PAIRS


class ArcTuning:
    """Runs such a session, and records the results in found. baseline has the limit in force; most
    is the highest that the guard allows. guards are limits that are asked where the load has what
    they need. A block of the experiment's plan is half of a side."""

    def __init__(
        self,
        task: Task,
        experiment: Experiment,
        baseline: Mapping[str, int],
        most: int,
        guards: Sequence[Limit],
        reads: Reads,
        progress: Progress,
        found: Found,
    ) -> None:
        self.found = found
        self._task, self._experiment, self._progress = task, experiment, progress
        self._baseline, self._most = dict(baseline), most
        self._guards, self._reads = guards, reads
        self._half_s = experiment.plan.seconds
        self._sides = [self._baseline]
        look_s = min(30.0, self._half_s / 2)
        self._steadiness = cache.Steadiness(
            experiment.host, experiment.stop.now, look_s, 3 * self._half_s
        )
        experiment.cache = self._steadiness

    def run(self) -> None:
        """Raises Stopped, RestoredError, guard.Refused, NotPossible; found then has the results so
        far."""
        self._progress.line(
            f"measuring as it is: {format_span(round(2 * self._half_s * SECOND))} or more"
        )
        forecast = self._forecast()
        why = self._why_not(forecast)
        if why:
            self._note(why)
        else:
            self._prove(forecast)
        self.found.unsettled = self._steadiness.given_up
        if self.found.unsettled:
            self._progress.line(
                f"{self.found.unsettled} times the ARC had not settled when it was measured"
            )

    def _forecast(self) -> cache.Forecast:
        """Measures the first side, and what a larger ARC would save."""
        whole = self._experiment.plan
        self._experiment.plan = replace(whole, seconds=self._half_s / 2)
        # the first block settles, and does not count for the forecast
        records = [self._experiment.block("aa", None, _QUIET[0], self._baseline)]
        host, earlier = self._experiment.host, self._reads.state()
        before = host.kstat("arcstats")
        for label in _QUIET[1:]:
            records.append(self._experiment.block("aa", None, label, self._baseline))
        after = host.kstat("arcstats")
        self._experiment.plan = whole
        self._take(records)
        calls = self._reads.since(earlier)
        most = min(self._most, cache.room(after))
        found = cache.forecast(before, after, calls.hit, calls.miss, most)
        self.found.forecast = found.to_json()
        return found

    def _take(self, records: Sequence[Record]) -> None:
        """The noise, and the limits that can be asked. Raises NotPossible when the objective, or a
        limit of the command line, cannot be measured."""
        known = set.intersection(*(set(record.block.metrics) for record in records))
        asked = [limit for limit in self._guards if limit.metric.name in known]
        for limit in self._guards:
            if limit not in asked:
                self._progress.line(f"limit {limit} is not asked: the load has too little for it")
        self._limits = [*self._task.limits, *asked]
        self._judge = Judge(self._task.objective, self._limits)
        reason = too_few(self._experiment.plan, records)
        missing = [one.metric.name for one in self._task.limits if one.metric.name not in known]
        try:
            self.found.aa = self._judge.ratios(records)
        except ValueError as error:
            reason = reason or str(error)
        if missing:
            reason = reason or f"{missing[0]} cannot be measured under this load"
        if reason:
            raise NotPossible(reason, "use a longer --block, or another --objective or --limit")
        self._judge.quiet(records)
        self.found.effect = statistics.noise(self.found.aa, max(FEWEST_PAIRS, self._pairs()))

    def _why_not(self, forecast: cache.Forecast) -> str | None:
        """Why there is nothing to prove; None if there is."""
        stats = self._experiment.host.kstat("arcstats")
        free = cache.unlimited(stats)
        if free:
            return f"{free}; a higher limit would change nothing"
        # its target, forecast.now, may be a little below it
        limit = max(forecast.now, self._baseline[ARC_MAX])
        if min(self._most, cache.room(stats)) <= limit:
            return (
                f"an ARC larger than {_size(limit)} is not possible here: "
                f"{_size(self._most)} is the most that is allowed, and memory must be free"
            )
        if forecast.size <= limit:
            return (
                "the ghost lists remember too little to tell what an ARC larger than "
                f"{_size(limit)} would save"
            )
        self._progress.line(self._reason(forecast))
        if -forecast.misses_change < self._task.margin:
            return "a larger ARC would save too little to be proved"
        return None

    def _reason(self, forecast: cache.Forecast) -> str:
        change = forecast.read_change
        mean = f", and change the mean read by {change:+.0%}" if change is not None else ""
        return (
            f"the ghost lists predict: an ARC of {_size(forecast.size)} instead of "
            f"{_size(forecast.now)} would save {format_percent(-forecast.misses_change)} of the "
            f"misses{mean}"
        )

    # --- the proof

    def _prove(self, forecast: cache.Forecast) -> None:
        candidate = Candidate({ARC_MAX: forecast.size}, SOURCE, {ARC_MAX: self._reason(forecast)})
        values = self._baseline | candidate.values
        self._sides = [self._baseline, values]
        pairs = self._pairs()
        if pairs < FEWEST_PAIRS:
            self._note(
                f"no time for a proof: it takes {span(FEWEST_PAIRS * self._pair_s())} here, "
                f"{span(self._left_s())} are left; use a longer --budget"
            )
            self._more(FEWEST_PAIRS, 0)
            return
        proof = Proof(
            self._task.objective, self._limits, statistics.design_for(pairs, self._task.margin)
        )
        self._progress.line(
            f"proof of {ARC_MAX}={_size(forecast.size)}: {proof.looks[0]} to {pairs} pairs"
        )
        done: list[Record] = []
        coins = statistics.order(pairs, self._task.seed)
        for first, second in zip(coins[::2], coins[1::2]):
            if self._left_s() < self._pair_s() / 2:
                break
            try:
                done += self._experiment.blocks(
                    "confirm", 1, first + second, self._baseline, values, wait_s=self._wait_s()
                )
            except Refused as error:
                self._note(str(error))
                return
            try:
                ended = proof.add(done[-2:])
            except ValueError:
                # this pair may be the worst, so it cannot be left out
                self._note(f"{self._task.objective} of a block is unknown, so nothing is proved")
                return
            self._experiment.so_far = proof.words()
            self._progress.line(f"pair {len(done) // 2}: {proof.words()}{proof.goes_on_for()}")
            self._note_trial(candidate, done)
            if ended:
                break
        self._experiment.so_far = ""
        if len(done) < 2 * proof.looks[0]:
            self._note(
                f"no time for more than {len(done) // 2} pairs, and a proof needs "
                f"{proof.looks[0]}; use a longer --budget"
            )
            self._more(proof.looks[0], len(done) // 2)
            return
        outcome = Outcome.of(proof.verdict(), candidate, proof.limits(), done)
        if not self._task.objective.fsyncs():
            # their p99 is noise here, and their mean has its limit
            outcome = replace(outcome, tails=None)
        self.found.outcome = outcome
        self.found.first_s = outcome.end_s if outcome.proved else None
        why = outcome.why()
        if why:
            self._note(why)
        kind, states = outcome.verdict.kind, {one.state for one in outcome.limits}
        gain = kind == statistics.INCONCLUSIVE and outcome.verdict.low < -self._task.margin
        if MISSED not in states and (gain or (kind == statistics.BETTER and UNKNOWN in states)):
            self._more(len(done), len(done) // 2)

    def _more(self, pairs: int, done: int) -> None:
        """Says which budget has time for so many pairs, of which some are done."""
        longer = budget(self._experiment.now_s() + (pairs - done) * self._pair_s())
        self.found.more = f"{longer} has time for {pairs} pairs of the proof"

    def _note(self, text: str) -> None:
        self.found.note = text
        self._progress.line(text)

    def _note_trial(self, candidate: Candidate, done: Sequence[Record]) -> None:
        change = self._judge.change(done)
        missed = self._judge.missed(done)
        self.found.trials = [
            Trial(
                1,
                candidate,
                self._judge.score(done),
                None if change is None else math.expm1(change),
                len(done) // 2,
                f"limit {listed(missed)}" if missed else None,
            )
        ]

    # --- time

    def _wait_s(self) -> float:
        """Before every block alike: half a side, or as long as either size takes."""
        return max(self._half_s, *map(self._experiment.settle_s, self._sides))

    def _pair_s(self) -> float:
        return 2 * (self._wait_s() + self._half_s)

    def _left_s(self) -> float:
        return (self._task.deadline_ns - self._experiment.stop.now()) / SECOND

    def _pairs(self) -> int:
        return int(self._left_s() / self._pair_s())


def _size(value: int) -> str:
    return sizes.short(value, "bytes")
