"""A race gives most pairs to what looks best, and looks again at what was unlucky."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest

from zfstune.experiment import soak
from zfstune.experiment.blocks import Block
from zfstune.experiment.model import Candidate
from zfstune.experiment.objective import Objective
from zfstune.experiment.race import Arm, Race
from zfstune.experiment.runner import Record
from zfstune.experiment.statistics import location

OBJECTIVE = Objective.parse("fsync.p99")


def record(label: str, cost: float) -> Record:
    return Record(1, "trial", 1, label, 0.0, 0.0, Block(10.0, 100, {"fsync.p99": cost}))


def score(records: Sequence[Record]) -> float:
    costs = [record.block.metrics["fsync.p99"] for record in records]
    return location([math.log(b / a) for a, b in zip(costs[::2], costs[1::2], strict=True)])


def measured(race: Race, arm: Arm, ratio: float) -> None:
    arm.records += [record("A", 1e8), record("B", 1e8 * ratio)]


def run(effects: Sequence[float], noise: float, seed: int) -> Race:
    """All pairs that a race asks for, of candidates with these effects (log ratios)."""
    race, chance = Race(score), random.Random(seed)
    arms = [race.enter(Candidate({"zfs_txg_timeout": n}, "model", {})) for n in range(len(effects))]
    while (arm := race.next()) is not None:
        measured(race, arm, math.exp(effects[arms.index(arm)] + chance.gauss(0, noise)))
    return race


def test_all_run_once_and_the_best_most() -> None:
    race = run([-0.1 * n for n in range(8)], 0.01, 1)
    assert [arm.pairs for arm in race.arms] == [1, 1, 1, 1, 3, 3, 7, 7]
    assert [arm.number for arm in race.ranked()] == [8, 7, 6, 5, 4, 3, 2, 1]


def test_luck_does_not_last() -> None:
    """One candidate is good, and a single pair says little: the best single pair is another one
    far more often than the winner is."""
    effects = [0.0] * 7 + [-0.7]
    races = [run(effects, 0.4, seed) for seed in range(100)]
    first = [min(race.arms, key=lambda arm: score(arm.records[:2])).number for race in races]
    won = [race.ranked()[0].number for race in races]
    assert won.count(8) >= 90 > first.count(8)


def test_what_never_shows_a_gain_is_measured_no_more() -> None:
    race = run([0.3], 0.01, 2)
    assert race.arms[0].pairs == 3
    assert race.again() is None


def test_what_is_twice_as_bad_is_measured_once() -> None:
    race = run([0.8], 0.01, 2)
    assert race.arms[0].pairs == 1
    assert race.again() is None


def test_with_time_left_each_is_looked_at_again() -> None:
    race = run([-0.3, -0.2], 0.01, 3)
    while (arm := race.again()) is not None:
        measured(race, arm, math.exp(-0.1 * (4 - arm.number)))
    assert [arm.pairs for arm in race.arms] == [15, 15]


def test_what_is_out_or_failed_is_not_ranked() -> None:
    race = run([-0.3, -0.2, -0.1], 0.01, 4)
    race.arms[0].failed = True
    race.arms[1].why = "refused"
    assert race.ranked() == [race.arms[2]]


# --- the soak


PROOF = [record("A", 1e8), record("B", 5e7), record("B", 5e7), record("A", 1.2e8)]


def test_values_that_stay_good_pass() -> None:
    found = soak.judge([record(label, 5e7) for label in 2 * soak.ROUND], PROOF, OBJECTIVE)
    assert found.ok
    assert found.blocks == 10
    # A of the soak was measured, too
    assert found.mean == pytest.approx(5e7 / ((1e8 + 1.2e8 + 2 * 5e7) / 4))


def test_values_that_get_worse_on_average_fail() -> None:
    later = [record(label, 1e8 if label == "A" else 1.3e8) for label in 2 * soak.ROUND]
    found = soak.judge(later, PROOF, OBJECTIVE)
    assert not found.ok
    assert found.why == "were on average 1.2 times as slow in 10 later blocks"


def test_values_that_are_bad_now_and_then_fail() -> None:
    later = [record(label, 5e7) for label in (2 * soak.ROUND)[:-1]] + [record("B", 4e8)]
    found = soak.judge(later, PROOF, OBJECTIVE)
    assert found.mean < 1.1
    assert not found.ok
    assert found.why == "had a block 3.3 times as slow as the slowest before, in 10 later ones"


def test_a_block_that_cannot_be_judged_fails() -> None:
    silent = Record(1, "soak", 1, "B", 0.0, 0.0, Block(10.0, 0, {}))
    found = soak.judge([record("A", 1e8), record("B", 5e7), silent], PROOF, OBJECTIVE)
    assert not found.ok
    assert found.why == "had a block that cannot be judged, in 2 later ones"
    assert not soak.REFUSED.ok
