"""What a session would do with more time, and what would have to change for it to find something.

What is returned is a sentence without its full stop, and names the option that makes it true.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from zfstune.experiment import statistics
from zfstune.experiment.found import Found, Outcome, Task
from zfstune.experiment.judging import Judge
from zfstune.experiment.objective import Limit, Objective
from zfstune.experiment.proof import LimitResult, listed
from zfstune.experiment.race import Arm, Race
from zfstune.experiment.wording import budget, describe, pairs

# Safety factor: the remaining work may take 10 % longer than measured so far
SPARE = 1.1
# A gain that only a limit rules out is worth a word from this size on
_LARGE = math.log1p(-0.2)
# Nobody is asked for more than so many times the budget. Half the noise takes as much
_MOST = 4


@dataclass(frozen=True)
class Times:
    """Of a session at its end, in s: passed, with what is reserved for the time after the last
    block; left; of a pair in the race, the shortest proof, and a round of soak. proof_pair is that
    of a pair in the proof of an arm. late: whether there is no time for a proof."""

    passed: float
    left: float
    pair: float
    proof: float
    soak: float
    proof_pair: Callable[[Arm], float]
    late: bool

    def budget(self, more: float) -> str:
        """The budget with which there would have been so much more time."""
        return budget(self.passed + SPARE * more)


def missing(task: Task, judge: Judge, race: Race, found: Found, times: Times) -> str:
    """What would have to change for such a session to find something."""
    if not any(arm.records for arm in race.arms):
        if times.late or any(not arm.why for arm in race.arms):
            enough = times.budget(times.pair + times.proof)
            return f"{enough} has time for a candidate and its proof"
        return "other --parameters, or another load, would give it something to try"
    if found.outcome is not None and (said := accepting(task.objective, found.outcome)):
        return said
    ruled_out = [
        (change, arm, missed)
        for arm in race.arms
        if (change := judge.change(arm.records)) is not None and change < _LARGE
        if (missed := judge.missed(arm.records))
    ]
    if ruled_out:
        change, arm, missed = min(ruled_out, key=lambda one: one[0])
        return (
            f"{describe(arm.candidate.values)} showed {task.objective.words(math.expm1(change))}, "
            f"but the limit {listed(missed)}; with another --limit it could be proved"
        )
    best = next((arm for arm in race.ranked() if arm.records), None)
    change = judge.change(best.records) if best else None
    if best and change and race.score(best) < 0:
        more_s = statistics.pairs_for(found.aa, change) * times.proof_pair(best)
        if more_s < _MOST * (times.passed + times.left):
            return (
                f"with more time it would look again at {describe(best.candidate.values)}, which "
                f"showed {task.objective.words(math.expm1(change))} in {pairs(best.pairs)}: "
                f"{times.budget(more_s)} has time for the proof of such a gain"
            )
    return (
        f"gains below {found.effect:.0%} cannot be told from the noise in this time; "
        f"{budget(_MOST * (times.passed + times.left))} would show those of about "
        f"{1 - math.sqrt(1 - found.effect):.0%}, a steadier load smaller ones, too"
    )


def accepting(objective: Objective, outcome: Outcome) -> str | None:
    """The limits with which a proved gain would have been accepted; None if there was none, if
    these limits are not known, or if something else was against it, too."""
    missed = [one for one in outcome.limits if not one.ok]
    wider = [limit for one in missed if (limit := _wider(one))]
    if outcome.verdict.kind != statistics.BETTER or not missed or len(wider) < len(missed):
        return None
    if outcome.tails and not outcome.tails.ok:
        return None
    options = " ".join(f"--limit '{limit}'" for limit in wider)
    said = (
        f"{describe(outcome.candidate.values)} is better beyond doubt, "
        f"{objective.words(outcome.verdict.change)}: {options} would have accepted it"
    )
    unsettled = all(one.change is not None and one.limit.allows(one.change) for one in missed)
    return f"{said}, and so may a longer --budget" if unsettled else said


def _wider(missed: LimitResult) -> Limit | None:
    """The limit that would have been kept, in steps of 5 %; None if no interval is known."""
    less = missed.limit.metric.less_is_better
    end = missed.high if less else missed.low
    if missed.change is None or not -0.95 < end < math.inf:
        return None
    return replace(missed.limit, share=(math.ceil if less else math.floor)(20 * end) / 20)


def further(found: Found, challenger: Arm | None, untried: int, times: Times) -> str | None:
    """What a session with proved values would do next. challenger looks better still; untried is
    the number of candidates that have not been measured. None if there is nothing left."""
    if found.soak is None:
        return (
            "there was no time to see whether the proved values stay good: "
            f"{times.budget(times.soak)} has time for that"
        )
    if challenger is not None:
        return (
            f"{describe(challenger.candidate.values)} may be better still: "
            f"{times.budget(times.proof)} has time for its proof"
        )
    if untried > 0:
        others = f"{untried} other candidate{'s were' if untried > 1 else ' was'} not tried"
        return f"{others}: {times.budget(untried * times.pair + times.proof)} has time for that"
    return None
