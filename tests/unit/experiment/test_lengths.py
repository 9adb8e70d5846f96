"""Blocks are as long as their fsyncs and the rhythm of the load need."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zfstune.experiment import lengths
from zfstune.experiment.blocks import Block
from zfstune.experiment.runner import BlockPlan

PLAN = BlockPlan(seconds=10, min_fsyncs=100)


@pytest.mark.parametrize(
    ("seconds", "fsyncs", "wanted"),
    [
        (10, 100, 10),
        (10, 5000, 10),
        (20, 100, 20),
        (20, 150, 14),
        (30, 101, 30),
        # not even three times as long is enough: it is refused as it is
        (30, 99, 10),
        (30, 0, 10),
    ],
)
def test_a_block_has_the_fsyncs_that_it_needs(seconds: float, fsyncs: int, wanted: float) -> None:
    assert lengths.for_fsyncs(PLAN, Block(seconds, fsyncs, {})).seconds == wanted


@pytest.mark.parametrize(
    ("period", "wanted"),
    [
        *((None, 10), (5, 10), (6, 12), (9, 18), (10, 10), (21, 21), (30, 30)),
        *((5.5, 11), (7.3, 14.6), (16.4, 16.4), (29.9, 29.9)),
        # as exact as a period is
        *((9.9, 10), (10.1, 10), (9.7, 19.4)),
    ],
)
def test_a_block_has_whole_periods(period: float | None, wanted: float) -> None:
    plan = lengths.for_period(PLAN, period)
    assert plan is not None
    assert plan.seconds == wanted


def test_a_period_of_more_than_three_blocks_is_too_long() -> None:
    assert lengths.for_period(PLAN, 30.5) is None


def test_a_load_that_fits_the_block_leaves_the_plan_alone() -> None:
    assert lengths.for_period(PLAN, None) is PLAN
    assert lengths.for_period(PLAN, 5) is PLAN


def written(period: float, burst_s: float = 1.0, seed: int = 0) -> list[float]:
    """Bytes in each of 60 s: bursts, and a little beside them."""
    chance = random.Random(seed)
    first = chance.random() * period
    starts = [first + period * k for k in range(int(60 / period) + 1)]

    def share(second: int) -> float:
        ends = [min(second + 1, one + burst_s) - max(second, one) for one in starts]
        return sum(max(0.0, end) for end in ends) / burst_s

    return [3e8 * share(second) + 1e7 * chance.random() for second in range(60)]


@pytest.mark.parametrize("period", [4, 9, 21])
def test_bursts_have_a_period(period: int) -> None:
    chance = random.Random(period)
    written = [3e8 * (second % period == 0) + chance.random() * 1e6 for second in range(60)]
    assert lengths.period(written) == period


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("period", [4.5, 5.3, 5.5, 7.5, 12.5, 16.6, 20.0])
def test_a_period_need_not_be_whole_seconds(period: float, seed: int) -> None:
    found = lengths.period(written(period, 1.5, seed))
    assert found is not None
    assert abs(found - period) <= 0.2


def test_a_burst_within_a_second_has_a_multiple_of_its_period_at_least() -> None:
    """Half of them are in one second, half in the next: two periods show what one does not."""
    assert lengths.period(written(5.5, 0.1)) in (5.5, 11.0)


@pytest.mark.parametrize("seed", range(20))
def test_noise_has_no_period(seed: int) -> None:
    chance = random.Random(seed)
    assert lengths.period([chance.lognormvariate(15, 0.5) for _ in range(60)]) is None


@given(st.lists(st.floats(0, 1e12), max_size=80))
def test_any_load_has_a_period_within_what_was_seen_or_none(written: list[float]) -> None:
    found = lengths.period(written)
    assert found is None or 2.5 <= found <= len(written) / 2.5 + 0.5


def test_a_steady_load_has_none() -> None:
    assert lengths.period([7.0] * 60) is None
    assert lengths.period([]) is None


def test_parts_are_whole_blocks() -> None:
    assert lengths.parts([1, 2, 3, 4, 5, 6, 7], 3) == [6, 15]
    assert math.fsum(lengths.parts([1.0] * 60, 20)) == 60


def test_parts_may_end_within_a_second() -> None:
    assert lengths.parts([1, 2, 3, 4, 5, 6, 7], 2.5) == [4.5, 10.5]
    assert lengths.parts([2.0] * 5, 2.5) == [5, 5]
    assert lengths.parts([], 2.5) == []
