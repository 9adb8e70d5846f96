"""The statistics of one comparison, with scipy as an oracle. How often it errs is in
test_recorded_noise.py."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from zfstrace.student import student_quantile
from zfstune.experiment.statistics import (
    BETTER,
    EQUIVALENT,
    INCONCLUSIVE,
    WORSE,
    Design,
    Sequential,
    Verdict,
    critical,
    design_for,
    interval,
    location,
    log_ratios,
    noise,
    order,
    pairs_for,
    pairs_within,
    signed_rank_p,
)

DESIGN = design_for(24, 0.05)


def run(ratios: list[float], design: Design = DESIGN) -> Verdict:
    """The verdict at which the comparison stops, at the latest after all pairs."""
    comparison = Sequential(design)
    for ratio in ratios:
        found = comparison.add(ratio)
        if found is not None:
            return found
    return comparison.verdict()


def test_order_has_both_in_each_pair_and_all_kinds_of_quads() -> None:
    blocks = order(400, seed=7)
    assert blocks == order(400, seed=7) != order(400, seed=8)
    pairs = ["".join(pair) for pair in zip(blocks[::2], blocks[1::2], strict=True)]
    assert set(pairs) == {"AB", "BA"}
    assert 160 < pairs.count("AB") < 240
    quads = ["".join(quad) for quad in zip(pairs[::2], pairs[1::2], strict=True)]
    assert min(quads.count(q) for q in ("ABBA", "BAAB", "ABAB", "BABA")) > 30


def test_log_ratios_pair_neighbouring_blocks() -> None:
    blocks = [("A", 2.0), ("B", 1.0), ("B", 4.0), ("A", 1.0), ("A", 5.0)]
    assert log_ratios(blocks) == pytest.approx([math.log(0.5), math.log(4)])
    assert log_ratios([]) == []


@pytest.mark.parametrize(
    "blocks",
    [
        [("A", 1.0), ("A", 1.0)],
        [("A", 1.0), ("C", 1.0)],
        [("A", 1.0), ("B", 0.0)],
        [("A", 1.0), ("B", -1.0)],
        [("A", math.nan), ("B", 1.0)],
        [("A", 1.0), ("B", math.inf)],
    ],
)
def test_blocks_that_form_no_pair_are_refused(blocks: list[tuple[str, float]]) -> None:
    with pytest.raises(ValueError, match="block"):
        log_ratios(blocks)


def test_p_agrees_with_values_by_hand() -> None:
    assert signed_rank_p([]) == 1
    assert signed_rank_p([-1.0] * 6) == 1 / 64
    assert signed_rank_p([1.0] * 6) == 1
    # of 8 assignments -3-2-1, -3-2+1 are as low
    assert signed_rank_p([-3.0, -2.0, 1.0]) == 2 / 8
    assert signed_rank_p([0.0, 0.0]) == 1


# with ties and zeros, or with hardly any
RATIOS = st.one_of(
    st.lists(st.integers(-5, 5).map(lambda n: n / 10), min_size=1, max_size=10),
    st.lists(st.floats(-3, 3), min_size=1, max_size=10),
)


@given(RATIOS)
def test_p_counts_all_assignments_of_signs(ratios: list[float]) -> None:
    ranks = stats.rankdata(np.abs(ratios)) * (np.array(ratios) != 0)
    seen = ranks[np.array(ratios) > 0].sum()
    sums = [
        sum(itertools.compress(ranks, way)) for way in itertools.product((0, 1), repeat=len(ratios))
    ]
    assert signed_rank_p(ratios) == pytest.approx(np.mean(np.array(sums) <= seen), abs=1e-12)


@pytest.mark.parametrize("pairs", [6, 15, 24, 65, 300])
def test_p_is_scipys(pairs: int) -> None:
    coins = random.Random(pairs)
    for _ in range(10):
        values = [coins.gauss(-0.1, 0.5) for _ in range(pairs)]
        theirs = stats.wilcoxon(values, alternative="less", method="exact").pvalue
        assert signed_rank_p(values) == pytest.approx(theirs, abs=1e-9)


@given(st.integers(1, 80), st.sampled_from([1 / 64, 0.0115, 0.05, 0.5]))
def test_the_critical_sum_is_the_largest_that_is_accepted(pairs: int, tail: float) -> None:
    found = critical(pairs, tail)
    ranks = list(range(1, pairs + 1))
    # the ranks of positive ratios, the largest first
    positive: set[int] = set()
    left = found
    for rank in reversed(ranks):
        if rank <= left:
            positive.add(rank)
            left -= rank
    if found < 0:
        assert 0.5**pairs > tail
        return
    assert left == 0
    assert signed_rank_p([rank if rank in positive else -rank for rank in ranks]) <= tail
    assert critical(pairs, tail) < sum(ranks)
    more = next(
        rank for rank in ranks if rank not in positive and (rank == 1 or rank - 1 in positive)
    )
    moved = positive - {more - 1} | {more}  # a sum that is larger by one
    assert signed_rank_p([rank if rank in moved else -rank for rank in ranks]) > tail


@given(st.floats(0.5, 1 - 1e-6), st.integers(1, 400))
def test_students_quantile_is_scipys(share: float, freedom: int) -> None:
    theirs = stats.t.ppf(share, freedom)
    assert student_quantile(share, freedom) == pytest.approx(theirs, rel=1e-9, abs=1e-9)


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=30), st.floats(0, 1))
def test_p_is_less_when_all_is_less(ratios: list[float], shift: float) -> None:
    assert signed_rank_p([r - shift for r in ratios]) <= signed_rank_p(ratios) + 1e-12


@pytest.mark.parametrize("pairs", [10, 16, 24])
def test_interval_of_normal_data_is_close_to_students(pairs: int) -> None:
    values = stats.norm.ppf((np.arange(pairs) + 0.5) / pairs)
    low, high = interval(list(values), 0.95)
    half = stats.t.ppf(0.975, pairs - 1) * values.std(ddof=1) / math.sqrt(pairs)
    assert low == pytest.approx(-half, rel=0.2)
    assert high == pytest.approx(half, rel=0.2)


def test_interval_of_six_pairs_agrees_with_the_test() -> None:
    """At 1/64 on each side the test excludes nothing within the ratios seen."""
    low, high = interval([-0.5, -0.3, -0.9, -0.1, -0.4, -0.6], 1 - 2 / 64)
    assert (low, high) == pytest.approx((-0.9, -0.1))


def test_how_far_out_an_outlier_is_does_not_matter() -> None:
    values = np.linspace(-0.4, 0.1, 20).tolist()
    near, far = [*values, 2.0], [*values, 200.0]
    assert interval(far, 0.9) == interval(near, 0.9)
    assert location(far) == location(near)
    assert signed_rank_p(far) == signed_rank_p(near)


@given(st.lists(st.floats(-3, 3), max_size=12))
def test_the_location_is_that_of_hodges_and_lehmann(ratios: list[float]) -> None:
    means = [np.mean(two) for two in itertools.combinations_with_replacement(ratios, 2)]
    assert location(ratios) == pytest.approx(np.median(means) if means else 0.0)


@given(
    st.lists(st.integers(-3000, 3000), min_size=6, max_size=18, unique=True),
    st.sampled_from([1 / 64, 0.02, 0.05]),
)
def test_interval_holds_all_that_the_test_does_not_exclude(
    thousandths: list[int], alpha: float
) -> None:
    """Equal ratios may have another p by a little, as they share their ranks; so may those that a
    shift makes equal, for they differ by less than it can keep."""
    ratios = [n / 1000 for n in thousandths]
    low, high = interval(ratios, 1 - 2 * alpha)
    step = 1e-9 * (1 + max(ratios) - min(ratios))
    assert signed_rank_p([ratio - high - step for ratio in ratios]) <= alpha
    assert signed_rank_p([low - step - ratio for ratio in ratios]) <= alpha


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        ([], (-math.inf, math.inf)),
        ([0.3], (-math.inf, math.inf)),
        ([0.3, 0.3, 0.3], (-math.inf, math.inf)),
        ([0.3] * 8, (0.3, 0.3)),
        ([0.0] * 8, (0.0, 0.0)),
        ([-1.0, 1.0], (-math.inf, math.inf)),
    ],
)
def test_interval_of_few_pairs_is_wide(ratios: list[float], expected: tuple[float, float]) -> None:
    assert interval(ratios, 0.95) == pytest.approx(expected)


@given(st.lists(st.sampled_from([-2.0, -0.1, 0.0, 0.1, 5.0]), min_size=6, max_size=12))
def test_interval_is_finite_and_ordered(ratios: list[float]) -> None:
    low, high = interval(ratios, 1 - 2 / 64)
    assert min(ratios) - 1e-6 <= low <= high + 1e-6 <= max(ratios) + 2e-6


@pytest.mark.parametrize(
    ("pairs", "looks"),
    [(5, (5,)), (6, (6,)), (7, (6, 7)), (12, (6, 12)), (20, (6, 10, 20)), (24, (6, 12, 24))],
)
def test_looks_are_halfway_and_at_the_end(pairs: int, looks: tuple[int, ...]) -> None:
    assert design_for(pairs, 0.05).looks == looks


@given(st.integers(5, 5000), st.sampled_from([0.05, 0.04, 0.1]))
def test_the_looks_of_a_design_share_its_alpha(pairs: int, alpha: float) -> None:
    design = design_for(pairs, 0.05, alpha)
    assert design.looks[-1] == pairs
    assert list(design.looks) == sorted(set(design.looks))
    assert len(design.looks) <= 3
    assert sum(design.alphas) == pytest.approx(alpha)
    # each look can accept
    assert all(a >= 0.5**n for n, a in zip(design.looks, design.alphas, strict=True))


def test_too_few_pairs_are_refused() -> None:
    with pytest.raises(ValueError, match="4 pairs of blocks cannot prove a gain: 5 are"):
        design_for(4, 0.05)
    with pytest.raises(ValueError, match="6 pairs of blocks cannot prove a gain: 7 are"):
        design_for(6, 0.05, 0.01)


def test_six_pairs_of_one_sign_are_enough() -> None:
    found = run([-0.5, -0.3, -0.9, -0.01, -0.4, -0.6])
    assert (found.kind, found.pairs, found.p) == (BETTER, 6, 1 / 64)
    assert found.low < found.change < found.high < 0
    assert found.change == pytest.approx(math.expm1(-0.45))


def test_worse_ends_early_too() -> None:
    found = run([0.5, 0.3, 0.9, 0.01, 0.4, 0.6])
    assert (found.kind, found.pairs) == (WORSE, 6)
    assert 0 < found.low < found.change < found.high


def test_small_changes_end_as_equivalent() -> None:
    found = run([0.01, -0.01, 0.02, -0.015, 0.005, -0.01])
    assert (found.kind, found.pairs) == (EQUIVALENT, 6)
    assert -0.05 <= found.low < found.high <= 0.05


def test_a_gain_below_the_margin_is_none() -> None:
    assert run([-0.011, -0.012, -0.01, -0.014, -0.013, -0.012]).kind == EQUIVALENT


def test_all_pairs_may_end_inconclusive() -> None:
    found = run([-1.0, 0.8, -0.4, 0.5] * 6)
    assert (found.kind, found.pairs) == (INCONCLUSIVE, 24)
    assert found.low < 0 < found.high


def test_no_gain_at_half_time_ends_it() -> None:
    found = run([1.0, -0.9] * 12)
    assert (found.kind, found.pairs) == (INCONCLUSIVE, 12)


def test_a_gain_that_is_ruled_out_ends_it() -> None:
    found = run([0.1, -0.01, 0.12, 0.0, 0.11, -0.01])
    assert (found.kind, found.pairs) == (INCONCLUSIVE, 6)
    assert found.low > -0.05


def test_a_stop_gives_a_verdict_on_the_pairs_so_far() -> None:
    comparison = Sequential(DESIGN)
    for ratio in [-0.5, -0.3, -0.9, -0.1, -0.4]:
        assert comparison.add(ratio) is None
    assert comparison.so_far().kind == INCONCLUSIVE
    found = comparison.verdict()  # nothing is spent yet: 1/32 <= 5 %
    assert (found.kind, found.p) == (BETTER, 1 / 32)
    assert comparison.verdict() is comparison.so_far() is found
    with pytest.raises(ValueError, match="has ended"):
        comparison.add(-0.5)


def test_a_late_stop_spends_only_what_is_left() -> None:
    comparison = Sequential(DESIGN)
    ratios = [-0.5, 0.45, -0.5, -0.2, -0.3, -0.3, -0.05]
    assert [comparison.add(ratio) for ratio in ratios] == [None] * 7
    found = comparison.verdict()
    assert found.p > 0.05 - 1 / 64
    assert found.kind == INCONCLUSIVE


def test_before_the_first_pair_the_verdict_is_inconclusive() -> None:
    found = Sequential(DESIGN).so_far()
    assert found == Verdict(INCONCLUSIVE, 0.0, -1.0, math.inf, 1.0, 0)


@given(st.lists(st.floats(-3, 3), min_size=24, max_size=24), st.integers(5, 24))
def test_verdict_and_interval_agree(ratios: list[float], pairs: int) -> None:
    found = run(ratios, design_for(pairs, 0.1))
    assert found.low <= found.change + 1e-9 and found.change <= found.high + 1e-9
    assert 5 <= found.pairs <= pairs
    if found.kind == BETTER:
        assert found.high < 0 and found.low < -0.1
    if found.kind == WORSE:
        assert found.low > 0 and found.high > 0.1
    if found.kind == EQUIVALENT:
        assert found.low >= -0.1 and found.high <= 0.1


def test_the_detectable_effect_is_found_in_four_of_five_sessions() -> None:
    rng = np.random.default_rng(5)
    smallest = noise(list(rng.normal(0, 0.3, 2000)), 24)
    assert 0.1 < smallest < 0.25
    shift = math.log(1 - smallest)
    found = sum(
        signed_rank_p(rng.normal(shift, 0.3, 24).tolist()) <= DESIGN.alphas[-1] for _ in range(1000)
    )
    assert 0.75 < found / 1000 < 0.85


def test_the_detectable_effect_without_pairs_is_everything() -> None:
    assert noise([], 24) == 1
    assert noise([0.1], 1) == 1
    assert noise([0.0, 0.0], 24) == 0
    assert noise([0.3, -0.2], 96) < noise([0.3, -0.2], 24) < 1


@pytest.mark.parametrize("pairs", [24, 96, 384])
def test_the_pairs_for_a_gain_are_those_that_detect_it(pairs: int) -> None:
    noisy = [0.3, -0.25, 0.1, -0.4]
    change = math.log1p(-noise(noisy, pairs))
    assert pairs_for(noisy, change) == pytest.approx(pairs, rel=0.15)
    assert pairs_for(noisy, -5.0) == pairs_for([0.0, 0.0], -0.1) == 6


def test_pairs_fit_the_budget() -> None:
    assert pairs_within(1800, block=20, settle=10) == 30
    assert pairs_within(59, block=20, settle=10) == 0
