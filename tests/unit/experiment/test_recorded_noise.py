"""How often a session errs, on noise that was recorded on real pools: an fsync load beside bulk
writes that fill the disk (`bulk`), and alone on a fast one (`wal`). docs/statistics.md has
the curves.

A session drawn from the recording contains no change but the one put in, so its right verdict is
known."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from support import recorded_noise
from support.recorded_noise import Floats, Plan

from zfstune.experiment.statistics import (
    BETTER,
    EQUIVALENT,
    WORSE,
    Design,
    design_for,
    noise,
    order,
    pairs_within,
)

BUDGET = 30 * 60
SHARE = 0.85  # of it; the rest is for the A/A run and the search
# With bulk writes txgs last longer.
PLANS = {
    "bulk": Plan(pairs_within(SHARE * BUDGET, 10, 10), block=10, settle=10),
    "wal": Plan(pairs_within(SHARE * BUDGET, 10, 5), block=10, settle=5),
}


def drawn(load: str, sessions: int, seed: int) -> Floats:
    plan = PLANS[load]
    costs = recorded_noise.quantiles(recorded_noise.load(load), plan.block)
    return recorded_noise.draw(costs, plan, sessions, seed)


def design(load: str) -> Design:
    return design_for(PLANS[load].pairs, margin=0.05)


@pytest.mark.parametrize("load", list(PLANS))
def test_at_most_one_session_in_twenty_accepts_without_a_gain(load: str) -> None:
    """With 1,000 sessions the number would vary by 6 from seed to seed, so there are more."""
    ratios = drawn(load, 4000, seed=1)
    found = recorded_noise.better(ratios, design(load))
    print(f"{load}, nothing changed: {found} of 4,000 sessions end better")
    assert found <= 0.05 * 4000


@pytest.mark.parametrize("load", list(PLANS))
def test_a_gain_of_20_percent_is_found(load: str) -> None:
    ratios = drawn(load, 200, seed=2) + math.log(0.8)
    verdicts = recorded_noise.judge(ratios, design(load))
    found = Counter(one.kind for one in verdicts)
    print(f"{load}, 20 % less: 200 sessions of {ratios.shape[1]} pairs end {dict(found)}")
    assert found[BETTER] >= 0.8 * 200
    assert found[WORSE] == found[EQUIVALENT] == 0


def test_a_gain_of_half_is_found_in_eight_minutes() -> None:
    plan = Plan(pairs_within(8 * 60, 10, 10), 10, 10)
    ratios = drawn("bulk", 100, 3)[:, : plan.pairs] + math.log(0.5)
    verdicts = recorded_noise.judge(ratios, design_for(plan.pairs, margin=0.05))
    assert sum(found.kind == BETTER for found in verdicts) >= 90


@pytest.mark.parametrize("load", list(PLANS))
def test_intervals_contain_the_true_change(load: str) -> None:
    """90 % intervals of sessions that are not ended early."""
    truth = -0.2
    ratios = drawn(load, 200, 4)[:, :24] + math.log1p(truth)
    found = [recorded_noise.final(row) for row in ratios]
    held = sum(one.low <= truth <= one.high for one in found)
    print(f"{load}: {held} of 200 intervals hold the true change")
    assert held >= 180 - 2 * math.sqrt(200 * 0.9 * 0.1)


def test_random_pairs_accept_less_noise_than_abba_quads() -> None:
    """With ABBA quads and a wait only after a change, the coins decide on when a block is, and
    two pairs err together: where latency comes in waves (txgs) that accepts too much."""
    plan = Plan(40, block=20, settle=10)
    costs = recorded_noise.quantiles(recorded_noise.load("bulk"), plan.block)
    rates = {}
    for how in ("coin", "abba"):
        ratios = recorded_noise.draw(costs, plan, 2000, 5, how)
        rates[how] = float(recorded_noise.accepted(ratios, design_for(plan.pairs, 0.05)).mean())
    print(f"accepted without a gain, by order of blocks: {rates}")
    assert rates["coin"] <= 0.05
    assert rates["abba"] > 0.07


@pytest.mark.parametrize("how", ["steps", "waves", "drift", "bursts"])
def test_no_noise_makes_it_accept_more(how: str) -> None:
    rng = np.random.default_rng(6)
    time = np.arange(4000)
    logs = {
        "steps": np.repeat(rng.normal(0, 1, 80), 50),
        "waves": 2 * np.sin(2 * np.pi * time / 40) + rng.normal(0, 0.2, 4000),
        "drift": time / 200 + rng.normal(0, 0.2, 4000),
        "bursts": rng.standard_cauchy(4000).clip(-300, 300),
    }[how]
    plan = Plan(24, block=10, settle=0)
    ratios = recorded_noise.draw(np.exp(logs), plan, 1000, 7)
    assert recorded_noise.accepted(ratios, design_for(24, 0.05)).mean() <= 0.06


def test_the_order_of_blocks_is_fair() -> None:
    """draw() makes its coins itself, for many sessions at once; both are fair."""
    coins = [order(1, seed) for seed in range(400)]
    assert 160 < coins.count(["A", "B"]) < 240


@pytest.mark.parametrize("load", list(PLANS))
def test_the_detectable_effect_is_known_from_a_short_run(load: str) -> None:
    """From a short A/A run: within a factor of two of what the whole record says."""
    whole = drawn(load, 50, 8)
    said = noise(list(whole.ravel()), PLANS[load].pairs)
    first = [noise(list(row[:8]), PLANS[load].pairs) for row in whole]
    print(f"{load}: smallest gain that can be seen {said:.0%}")
    assert said / 2 < np.median(first) < said * 2
    assert said < 0.25
