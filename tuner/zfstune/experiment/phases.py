"""A session from its first block to its last: noise, race, proofs, soak."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from zfstrace.strict import strict_zip
from zfstune.experiment import outlook, quiet, soak, statistics
from zfstune.experiment.found import Dropped, Found, Outcome, Task, Trial
from zfstune.experiment.judging import Judge
from zfstune.experiment.model import MODEL, Candidate
from zfstune.experiment.outlook import SPARE
from zfstune.experiment.proof import Proof, listed
from zfstune.experiment.race import BAD, Arm, Race
from zfstune.experiment.reads import Reads
from zfstune.experiment.runner import Abort, Experiment, Record
from zfstune.experiment.search import Exhausted
from zfstune.experiment.stake import Stake, stake
from zfstune.experiment.wording import describe, from_to, pairs, span
from zfstune.term.progress import Progress
from zfstune.term.units import SECOND
from zfstune.tunables.guard import Refused

# Part of the time that the race leaves for the next proof: a gain of 20 % takes twice as many pairs
# as one of 30 %
_PROOF_SHARE = 0.4
# The pairs that the first candidate may take before the others have had one; the second number if
# it looks like a gain beyond doubt
_FIRST_PROOF, _FIRST_GAIN = 12, 24
# Of so few pairs one may be an accident, and moves their average
_FEW = 3
_FEWEST_PAIRS = statistics.fewest_pairs(statistics.ALPHA)
# So many pairs for each candidate of the race: one for all, more for the best (race.py)
_PAIRS_EACH = 3
# With proved values, the search ends after so many candidates none of which was better
_PATIENCE = 8
_TRIAL_ORDER = "ABBA"
_ABLATION_PAIRS = len(_TRIAL_ORDER) // 2
# A parameter is dropped if that costs less than half of what two pairs can detect, but at least 3 %
# and at most 20 %
_SMALLEST, _LARGEST = 0.03, 0.2


class Search(Protocol):
    """The source of candidates; see search.Searcher."""

    def waiting(self) -> int: ...

    def ask(self) -> Candidate: ...

    def tell(self, candidate: Candidate, score: float) -> None: ...

    def fail(self, candidate: Candidate, why: str) -> None: ...

    def prune(self, candidate: Candidate, why: str) -> None: ...

    def alpha(self) -> float: ...

    def spend(self, alpha: float) -> None: ...


class Tuning:
    """Runs the phases of a session on an experiment, and records the results in found.

    search makes the source of candidates from the blocks under the baseline; parts gives the
    candidates in which one parameter, or coupled ones, are back at the baseline. reads has limits
    that are asked only of a load that reads.
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
        reads: Reads | None = None,
    ) -> None:
        self.found = found
        self._task, self._experiment, self._progress = task, experiment, progress
        self._baseline = dict(baseline)
        self._make_search, self._parts = search, parts
        self._reads = reads or Reads(experiment.host, experiment.pool)
        self._judge = Judge(task.objective, [*task.limits, *self._reads.guards])
        self._race = Race(self._judge.score)
        self._proved: Arm | None = None
        # how many candidates waited at first, and how many of them the race began with
        self._waited = self._first = 0
        # the time that the race leaves for the next proof
        self._reserve_s = 0.0
        self._b_first = False
        self._said: set[str] = set()

    def run(self) -> None:
        """Runs all phases. Raises Stopped, RestoredError, guard.Refused, NotPossible; found then
        has the results so far."""
        self.noise()
        self._search = self._make_search(self._experiment.records)
        self._alpha = self._search.alpha()
        # of each limit: the study has an account of gains, the session one of what they cost
        self._limits_alpha = statistics.ALPHA
        self._reserve_s = _PROOF_SHARE * (self._experiment.now_s() + self._left_s())
        # the storage may not answer, and restoring must not wait for it
        self.found.later.append(self._tell)
        self._compete()
        self._soak()
        self.found.more = self._more()

    # --- noise

    def noise(self) -> None:
        """The first phase: blocks under the baseline only, for the noise and the length of a
        block. Raises what run() does."""
        self._progress.line("measuring the noise: blocks without any change")
        found = quiet.measure(
            self._experiment, self._baseline, self._judge, self._left_s(), self._task.observe
        )
        self._judge.limits = [*self._task.limits, *self._reads.asked(found, self._progress.line)]
        self._experiment.meter.reads = self._reads.session
        self.found.aa = self._judge.ratios(found)
        most = max(_FEWEST_PAIRS, int(_PROOF_SHARE * self._pairs_left()))
        self.found.effect = statistics.noise(self.found.aa, most)
        self._progress.line(
            f"noise: this session can prove a change of {self.found.effect:.0%} or more; the "
            f"shortest proof takes {span(self._least_proof_s())}, {span(self._left_s())} are left"
        )

    # --- race

    def _compete(self) -> None:
        """The first candidate straight to its proof, if it looks that good, and the second if the
        two have nothing in common; then pairs for those that look best, and proofs in order of
        rank, as long as there is time; and when that is enough for a proof only, straight to it
        with what comes next."""
        self._waited = self._search.waiting()
        for _ in range(min(self._waited, max(1, self._pairs_free() // _PAIRS_EACH))):
            self._enter()
        self._first = len(self._race.arms)
        if self._straight() and self._race.other_lever():
            self._straight()
        while self._another_pair() or self._another_proof() or self._straight(drawn=True):
            pass
        if self.found.verdict is None and not self.found.note:
            self._note(self._why_nothing())

    def _another_pair(self) -> bool:
        """Measures a pair, of whichever candidate deserves it most; False without time for one."""
        while self._pairs_free() >= 1:
            arm = self._race.next() or self._enter()
            if arm is None and self._proved is None:
                arm = self._race.again()
            if arm is None:
                return False
            if self._pair(arm):
                return True
        return False

    def _enter(self) -> Arm | None:
        """The next candidate of the search; None if it has no more, or they lead nowhere."""
        if not self._search.waiting():
            if self._fruitless() >= _PATIENCE:
                return None
            self._tell()
        try:
            arm = self._race.enter(self._search.ask())
        except Exhausted:
            return None
        if not arm.candidate.values.keys() <= self._baseline.keys():
            # the next block under the baseline would not undo it
            self._out(arm, "not a parameter of this session")
            return self._enter()
        return arm

    def _introduce(self, arm: Arm) -> None:
        """Says what is about to be tried, and why; each reason once."""
        if arm.records:
            return
        self._progress.line(
            f"candidate {arm.number} ({arm.candidate.source}): {describe(arm.candidate.values)}"
        )
        for name, reason in arm.candidate.reasons.items():
            if reason and arm.candidate.source == MODEL and reason not in self._said:
                self._said.add(reason)
                self._progress.line(f"  {name}: {reason}")

    def _fruitless(self) -> int:
        """With proved values, how many candidates have come and gone since a better one."""
        if self._proved is None:
            return 0
        better = self._challenger() or self._proved
        return len(self._race.arms) - max(self._first, better.number)

    def _pair(self, arm: Arm) -> bool:
        """Measures one pair of it; False if the guard refuses its values."""
        self._introduce(arm)
        order = "BA" if self._b_first else "AB"
        done = self._blocks("trial", arm, order, self._baseline | arm.candidate.values)
        if not done:
            return False
        self._b_first = not self._b_first
        self._took(arm, done)
        return True

    def _blocks(
        self,
        phase: str,
        arm: Arm,
        order: str,
        values: Mapping[str, int],
        wait_s: float | None = None,
    ) -> list[Record]:
        """Measures them; none if the guard refuses the values."""
        try:
            return self._experiment.blocks(
                phase, arm.number, order, self._baseline, values, wait_s=wait_s
            )
        except Refused as error:
            # the host, e.g. the ARC's size, has changed since the space was made
            self._out(arm, str(error))
            return []
        except Abort as error:
            # a resumed session must not try again what endangers the host
            arm.told = True
            self.found.later.append(
                functools.partial(self._search.prune, arm.candidate, str(error))
            )
            raise

    def _took(self, arm: Arm, pair: Sequence[Record]) -> None:
        arm.records += pair
        self._update()
        (trial,) = (one for one in self.found.trials if one.number == arm.number)
        if trial.change is None:
            self._out(arm, self._unknown())
            return
        known = f" ({trial.note})" if trial.note else ""
        self._progress.line(
            f"candidate {arm.number}, {pairs(arm.pairs)}: "
            f"{self._task.objective.words(trial.change)}{known}"
        )

    def _out(self, arm: Arm, why: str) -> None:
        arm.why = why
        self._progress.line(f"candidate {arm.number}: {why}")
        self._update()

    def _update(self) -> None:
        self.found.trials = [self._trial(arm) for arm in self._race.arms if arm.records or arm.why]

    def _trial(self, arm: Arm) -> Trial:
        change = self._judge.change(arm.records)
        if arm.why or change is None:
            return Trial(arm.number, arm.candidate, None, None, 0, arm.why or None)
        missed = self._judge.missed(arm.records)
        return Trial(
            arm.number,
            arm.candidate,
            self._judge.score(arm.records),
            math.expm1(change),
            arm.pairs,
            f"limit {listed(missed)}" if missed else None,
        )

    def _tell(self) -> None:
        """Tells the search what has been measured since."""
        for arm in self._race.arms:
            if arm.told or not (arm.why or arm.records):
                continue
            arm.told = True
            score = self._judge.score(arm.records)
            if arm.why or not math.isfinite(score):
                self._search.fail(arm.candidate, arm.why or self._unknown())
            else:
                self._search.tell(arm.candidate, score)

    def _unknown(self) -> str:
        return f"{self._task.objective} of a block is unknown"

    # --- proofs

    def _straight(self, *, drawn: bool = False) -> bool:
        """A proof of the model's next candidate or, with drawn, of any, which no measurement of its
        own has chosen, so all of its pairs count. It goes back into the race as soon as it does not
        look like a large gain within the limits. False if there is none, or no time for its
        proof."""
        if self._proved is not None or (drawn and self._late()):
            return False
        arm = next((one for one in self._race.arms if not (one.records or one.why)), None)
        arm = arm or (self._enter() if drawn or self._search.waiting() else None)
        if arm is None or not (drawn or arm.candidate.source == MODEL):
            return False

        def promising(proof: Proof) -> bool:
            losses = sum(ratio >= 0 for ratio in self._judge.ratios(arm.records))
            kept = (
                self._judge.score(arm.records) < 0
                if arm.pairs > _FEW
                else self._judge.pairs_that_miss(arm.records) <= 1
            )
            change = self._judge.change(arm.records) or 0.0
            good = losses <= max(1, arm.pairs // _FEW) and change < BAD and kept
            return good and (arm.pairs < _FIRST_PROOF or proof.gained or proof.so_far().high < 0)

        at_stake = self._stake(arm, _FIRST_GAIN)
        if not at_stake.enough:
            return False
        self._introduce(arm)
        self._prove(arm, arm.candidate, at_stake, promising)
        return bool(arm.records or arm.why)

    def _another_proof(self) -> bool:
        """Of the best candidate that looks better than the values to beat; False if there is none,
        or no time for it."""
        best = self._challenger()
        if best is None:
            return False
        candidate = best.candidate if best.candidate.source == MODEL else self._ablate(best)
        at_stake = self._stake(best)
        if not at_stake.enough:
            self._too_late(candidate)
            return False
        self._prove(best, candidate, at_stake, lambda _: True)
        best.failed = self._proved is not best
        return True

    def _challenger(self) -> Arm | None:
        """The best candidate, if it looks better than the current values, and clearly better than
        proved ones."""
        bar = 0.0
        if self._proved is not None:
            bar = self._race.score(self._proved) + 2 * math.log1p(-self._task.margin)
        best = next((arm for arm in self._race.ranked() if arm.records), None)
        return best if best and self._race.score(best) < bar else None

    def _stake(self, arm: Arm, most: int | None = None) -> Stake:
        pair_s = self._proof_pair_s(arm)
        return stake(self._alpha, self._limits_alpha, self._left_s(), pair_s, most)

    def _prove(
        self,
        arm: Arm,
        candidate: Candidate,
        at_stake: Stake,
        promising: Callable[[Proof], bool],
    ) -> None:
        """Compares on fresh blocks, none of which had a part in the choice."""
        values = self._baseline | candidate.values
        wait_s = max(self._experiment.settle_s(one) for one in (self._baseline, values))
        proof = Proof(
            self._task.objective,
            self._judge.limits,
            statistics.design_for(at_stake.pairs, self._task.margin, at_stake.alpha),
            statistics.design_for(at_stake.longest, 0.0, at_stake.limits_alpha),
        )
        more = f", up to {at_stake.longest} for limits" if at_stake.longest > at_stake.pairs else ""
        self._progress.line(
            f"proof on fresh blocks, {from_to(proof.looks[0], at_stake.pairs)}{more}: "
            f"{describe(candidate.values)}"
        )
        # what is not spent comes back; what a killed session has not told counts as spent
        self._search.spend(at_stake.alpha)
        done: list[Record] = []
        verdict = note = None
        final = False
        for order in _by_two(
            statistics.order(at_stake.longest, self._task.seed + len(self._experiment.records))
        ):
            # a candidate's txgs may take longer than expected
            to_look_s = (proof.looks[0] - len(done) // 2) * self._proof_pair_s(arm)
            if self._left_s() * SPARE < to_look_s:
                self._too_late(candidate)
                break
            pair = self._blocks("confirm", arm, order, values, wait_s)
            if not pair:
                break
            done += pair
            if candidate is arm.candidate:
                arm.records += pair
                self._update()
            try:
                ended = proof.add(pair)
            except ValueError:
                # this pair may be the worst, so it cannot be left out
                note = f"{self._unknown()}, so nothing is proved"
                verdict = proof.so_far()
                break
            self._experiment.so_far = proof.words()
            self._progress.line(f"pair {len(done) // 2}: {proof.words()}{proof.goes_on_for()}")
            looked = len(done) >= 2 * proof.looks[0]
            if ended or (looked and self._left_s() < self._proof_pair_s(arm)):
                verdict, final = proof.verdict(), True
                break
            if not promising(proof):
                verdict = proof.so_far() if looked else None
                because = listed(self._judge.missed(arm.records))
                because = f"limit {because}" if because else "its pairs show no large gain"
                self._progress.line(f"candidate {arm.number}, no proof for now: {because}")
                break
        self._experiment.so_far = ""
        if verdict:
            self._conclude(arm, Outcome.of(verdict, candidate, proof.limits(final), done), note)
        # the sum of what the looks spend is rounded
        self._alpha = max(0.0, self._alpha - proof.spent)
        self._limits_alpha = max(0.0, self._limits_alpha - proof.limits_spent)
        self._search.spend(proof.spent - at_stake.alpha)
        self._reserve_s = _PROOF_SHARE * self._left_s()

    def _too_late(self, candidate: Candidate) -> None:
        before = self.found.outcome
        # what a proof of its own has shown says more
        if self._proved is None and not (before and before.candidate == candidate):
            self._note(
                f"{describe(candidate.values)} may be better, but there is no time for its proof; "
                "use a longer --budget"
            )

    def _conclude(self, arm: Arm, outcome: Outcome, note: str | None) -> None:
        why, before = note or outcome.why(), self.found.outcome
        if why:
            self._progress.line(why)
        if outcome.proved and self._proved is not None and before is not None:
            # by their proofs alone: the race has chosen the last, so its pairs there favour it.
            # Both hold, as their alphas add up
            best, other = sorted((before, outcome), key=lambda one: one.verdict.change)
            shown = [self._task.objective.words(one.verdict.change) for one in (best, other)]
            why = (
                f"{describe(best.candidate.values)} is the better of two: its proof showed "
                f"{shown[0]}, that of {describe(other.candidate.values)} {shown[1]}"
            )
            self._note(why)
            if best is before:
                return
        if outcome.proved:
            self._proved = arm
            self.found.first_s = self.found.first_s or outcome.end_s
        if outcome.proved or self._proved is None:
            self.found.outcome, self.found.note = outcome, why
            self.found.dropped = arm.dropped

    def _ablate(self, arm: Arm) -> Candidate:
        """Drops, one after the other, parameters that the gain does not need."""
        best, arm.dropped = arm.candidate, []
        allowed = min(_LARGEST, max(_SMALLEST, statistics.noise(self.found.aa, 2) / 2))
        for names, _ in self._parts(best):
            # from best as reduced so far
            rest = dict(self._parts(best)).get(names)
            if rest is None or self._pairs_beside(self._least_proof_s()) < _ABLATION_PAIRS:
                continue
            self._progress.line(f"ablation: without {', '.join(names)}")
            try:
                done = self._experiment.blocks(
                    "ablation",
                    None,
                    _TRIAL_ORDER,
                    self._baseline | best.values,
                    self._baseline | rest.values,
                    go_on=lambda so_far: (
                        (self._judge.change(so_far) or 0.0) < math.log1p(2 * allowed)
                    ),
                )
            except Refused:
                continue
            change = self._judge.change(done)
            if change is None or math.expm1(change) > allowed or self._judge.missed(done):
                continue
            moved = self._task.objective.shown(math.expm1(change))
            why = (
                f"without it {self._task.objective} changed by {moved:+.0%}, not a detectable loss"
            )
            arm.dropped.append(Dropped(names, math.expm1(change), why))
            self._progress.line(f"{', '.join(names)} dropped: {why}")
            best = rest
        return best

    # --- soak

    def _soak(self) -> None:
        """Looks whether the proved values stay good: one round, if there is time for it, and more
        in half of what is left, since the user waits for a result that is there."""
        outcome = self.found.outcome
        if self._proved is None or outcome is None:
            return
        values = self._baseline | outcome.candidate.values
        spared_s = self._left_s() / 2
        done: list[Record] = []
        for _ in range(soak.ROUNDS):
            if self._left_s() < self._soak_s(values) + (spared_s if done else 0):
                break
            if not done:
                self._progress.line("soak: do the proved values stay good?")
            more = self._blocks("soak", self._proved, soak.ROUND, values)
            if not more:
                self._note("the guard no longer allows the proved values")
                self.found.soak = soak.REFUSED
                break
            done += more
            self.found.soak = soak.judge(done, outcome.records, self._task.objective)
            if not self.found.soak.ok:
                self._note(f"the proved values {self.found.soak.why}")
                break

    # --- what to say

    def _note(self, text: str) -> None:
        self.found.note = text
        self._progress.line(text)

    def _why_nothing(self) -> str:
        if self.found.trials:
            rest = "; there is no time for others, use a longer --budget"
            more = rest if self._search.waiting() else ""
            return f"no candidate looked better than the current values{more}"
        if not self._race.arms and not self._late():
            return "the search has no values left to try"
        return (
            "no time for a candidate and its proof: they take "
            f"{span(self._least_proof_s() + self._experiment.pair_s())} here, "
            f"{span(self._left_s())} are left; use a longer --budget"
        )

    def _more(self) -> str | None:
        """What it would do with more time, or what would have to change; None if nothing."""
        winner = self.found.winner
        times = outlook.Times(
            self._experiment.now_s() + self._task.reserve_s,
            self._left_s(),
            self._experiment.pair_s(),
            self._least_proof_s(),
            self._soak_s(self._baseline | (winner.values if winner else {})),
            self._proof_pair_s,
            self._late(),
        )
        if self._proved is None:
            return outlook.missing(self._task, self._judge, self._race, self.found, times)
        if not self.found.accepted:
            return None
        tried = sum(bool(arm.records or arm.why) for arm in self._race.arms)
        return outlook.further(self.found, self._challenger(), self._waited - tried, times)

    # --- time

    def _left_s(self) -> float:
        left = (self._task.deadline_ns - self._experiment.stop.now()) / SECOND
        return left - self._task.reserve_s

    def _pairs_left(self) -> int:
        return int(self._left_s() / (SPARE * self._experiment.pair_s()))

    def _pairs_free(self) -> int:
        """The pairs of candidates for which there is time beside the ablation and the proof of the
        best of them."""
        proof_s = self._least_proof_s()
        if self._proved is None and self._race.arms:
            proof_s = max(proof_s, self._reserve_s)
        best = self._challenger()
        if best and best.candidate.source != MODEL:
            parts = len(self._parts(best.candidate))
            proof_s += _ABLATION_PAIRS * parts * self._experiment.pair_s()
        return self._pairs_beside(proof_s)

    def _pairs_beside(self, seconds: float) -> int:
        return int((self._left_s() / SPARE - seconds) / self._experiment.pair_s())

    def _least_proof_s(self) -> float:
        """The time of the shortest proof, of a candidate whose txgs are no longer than now."""
        wait_s = self._experiment.settle_s(self._baseline)
        return _FEWEST_PAIRS * 2 * (self._experiment.block_s() + wait_s)

    def _proof_pair_s(self, arm: Arm) -> float:
        """The time of a pair of a proof, whose sides wait equally long."""
        both = (self._baseline, self._baseline | arm.candidate.values)
        waits_s = [self._experiment.settle_s(values) for values in both]
        return 2 * (self._experiment.block_s() + max(waits_s))

    def _late(self) -> bool:
        """Whether there is no time for a proof."""
        return self._left_s() * SPARE < self._least_proof_s()

    def _soak_s(self, values: Mapping[str, int]) -> float:
        """The time of a round of soak."""
        waits_s = map(self._experiment.settle_s, (values, self._baseline))
        return len(soak.ROUND) * self._experiment.block_s() + sum(waits_s)


def _by_two(labels: Sequence[str]) -> list[str]:
    return [one + other for one, other in strict_zip(labels[::2], labels[1::2])]
