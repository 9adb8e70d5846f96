"""Sessions in which a limit is hard to be sure of."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from support.made_up import ASYNC, DIRTY, SMALL, MadeUp, dirty_counts, session

from zfstune.experiment.found import Found
from zfstune.experiment.runner import Record
from zfstune.experiment.stake import Stake, stake


def test_noise_on_a_limit_does_not_end_a_candidate() -> None:
    """Throughput varies by 20 % whatever is in force."""
    experiment = MadeUp(dirty_counts, 0.1, 6)
    noise = random.Random(1)

    def noisy(record: Record) -> Record:
        metrics = dict(record.block.metrics)
        metrics["write.throughput"] *= math.exp(noise.gauss(0, 0.2))
        if record.trial:
            metrics["write.throughput"] = 2.7e7 if record.label == "B" else 3e7
        return replace(record, block=replace(record.block, metrics=metrics))

    experiment.change = noisy
    found, listed = session(experiment, [SMALL])
    assert found.trials[0].note == "limit write.throughput>=-5% was missed: -10.0%"
    assert -1 < listed.told[0][1] < 0
    assert found.verdict is not None


def test_a_first_proof_goes_on_while_only_a_limit_is_open() -> None:
    """A gain of two thirds is clear at the first look, a loss of throughput of 3 % beside a noise
    of 10 % is not."""
    experiment = MadeUp(lambda v: (dirty_counts(v)[0], 0.97 if v[DIRTY] < 64 << 20 else 1), 0.1, 4)
    noise = random.Random(5)

    def change(record: Record) -> Record:
        metrics = dict(record.block.metrics)
        metrics["write.throughput"] *= math.exp(noise.gauss(0, 0.07))
        return replace(record, block=replace(record.block, metrics=metrics))

    experiment.change = change
    found, _ = session(experiment, [SMALL], minutes=60)
    looks = [
        len(list(pairs)) // 2
        for trial, pairs in itertools.groupby(
            record.trial for record in experiment.records if record.phase == "confirm"
        )
    ]
    assert looks[0] > 12
    assert found.outcome is not None
    assert found.outcome.limits[0].state in ("kept", "unknown")


def open_limit(minutes: float, seed: int, kept: float = 1.0) -> tuple[Found, list[str]]:
    """A gain that is clear at the first look, a throughput of which that part is kept, beside a
    noise of 8 % of a pair; and what the session said."""
    experiment = MadeUp(
        lambda v: (dirty_counts(v)[0], kept if v[DIRTY] < 64 << 20 else 1), 0.03, seed
    )
    noise = random.Random(seed)

    def change(record: Record) -> Record:
        metrics = dict(record.block.metrics)
        metrics["write.throughput"] *= math.exp(noise.gauss(0, 0.055))
        return replace(record, block=replace(record.block, metrics=metrics))

    experiment.change = change
    found, _ = session(experiment, [SMALL], minutes)
    return found, experiment.said.getvalue().splitlines()


@pytest.mark.parametrize("seed", [2, 3, 5])
def test_what_a_gain_costs_may_take_longer_than_the_gain(seed: int) -> None:
    """In one proof, with the pairs that showed the gain."""
    found, said = open_limit(20, seed)
    proofs = [line for line in said if "proof on fresh blocks" in line]
    assert len(proofs) == 1 and "6 to 10 pairs, up to 17 for limits: " in proofs[0]
    assert found.accepted and found.outcome is not None
    assert found.outcome.verdict.pairs == 6
    assert len(found.outcome.records) == 2 * 17


@pytest.mark.parametrize(
    ("minutes", "kept", "fewest", "most"),
    [(20, 0.99, 40, 100), (20, 0.95, 0, 5), (60, 0.95, 0, 5)],
)
def test_how_often_a_cost_is_accepted(minutes: int, kept: float, fewest: int, most: int) -> None:
    """Of a limit of 5 %; one that is just missed in at most 5 % of the sessions."""
    accepted = sum(open_limit(minutes, seed, kept)[0].accepted for seed in range(100))
    print(f"{kept - 1:.0%} in {minutes} minutes: {accepted} of 100 accepted")
    assert fewest <= accepted <= most


def test_a_proof_that_left_a_limit_open_says_more_than_that_time_is_over() -> None:
    found, said = open_limit(14, 5)
    assert not found.accepted
    assert not any("no time for its proof" in line for line in said)
    assert found.note and found.note.startswith("the limit write.throughput>=-5% may be missed")
    assert found.more and "--limit 'write.throughput>=-10%' would have accepted it" in found.more


def test_limits_of_all_proofs_share_one_alpha(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first candidate is at the limit, so its proof takes what it may."""
    staked: list[tuple[float, Stake]] = []

    def spy(
        alpha: float, limits_alpha: float, left_s: float, pair_s: float, most: int | None
    ) -> Stake:
        staked.append((limits_alpha, stake(alpha, limits_alpha, left_s, pair_s, most)))
        return staked[-1][1]

    monkeypatch.setattr("zfstune.experiment.phases.stake", spy)
    experiment = MadeUp(
        lambda v: (0.5, 0.92) if v[DIRTY] < 64 << 20 else (0.6 if v[ASYNC] == 1 else 1.0, 1.0),
        0.03,
        2,
    )
    found, _ = session(
        experiment, [SMALL, {ASYNC: 1}], minutes=60, limits=["write.throughput>=-8%"]
    )
    assert found.accepted and found.winner and found.winner.values == {ASYNC: 1}
    (first, one), (second, _) = staked
    assert first == pytest.approx(0.05)
    assert one.limits_alpha == pytest.approx(0.03)
    assert 0.0199 < second <= 0.05 - 1 / 64  # by its looks


def candidate_1(throughput: Callable[[int], float], seconds: Callable[[int], int]) -> MadeUp:
    """A candidate that halves fsyncs, whose throughput in a pair of its proof is that part, and
    whose block takes so much longer; another one gains less."""
    experiment = MadeUp(
        lambda v: (0.5 if v[DIRTY] < 64 << 20 else 0.6 if v[ASYNC] == 1 else 1.0, 1.0), 0.03, 2
    )
    numbers = itertools.count(1)

    def change(record: Record) -> Record:
        if (record.phase, record.trial, record.label) != ("confirm", 1, "B"):
            return record
        number = next(numbers)
        experiment.take_s(seconds(number))
        metrics = record.block.metrics | {"write.throughput": 3e7 * throughput(number)}
        return replace(record, block=replace(record.block, metrics=metrics))

    experiment.change = change
    return experiment


def test_a_proof_that_is_broken_off_leaves_alpha_for_the_next() -> None:
    """After its first look throughput falls by a fifth."""
    experiment = candidate_1(lambda n: 0.9 if n == 2 else 0.8 if n > 4 else 1.0, lambda _: 0)
    found, _ = session(experiment, [SMALL, {ASYNC: 1}], minutes=30)
    assert "no proof for now: limit write.throughput" in experiment.said.getvalue()
    assert found.accepted and found.winner and found.winner.values == {ASYNC: 1}


def test_what_is_open_when_time_is_over_has_the_rest_of_alpha() -> None:
    """There is none for the second look, since pairs take longer than the first ones."""
    experiment = candidate_1(lambda n: 0.94 if n == 2 else 1.0, lambda n: 300 if n > 7 else 0)
    found, _ = session(experiment, [SMALL], minutes=16)
    assert found.accepted and found.outcome is not None
    assert len(found.outcome.records) == 2 * 8
    said = experiment.said.getvalue()
    assert ", limit write.throughput" in next(x for x in said.splitlines() if "pair 7: " in x)
