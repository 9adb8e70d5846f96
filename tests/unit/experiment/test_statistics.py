"""The statistics of one comparison, with scipy as an oracle. How often it errs is in
test_recorded_noise.py."""

from __future__ import annotations

import itertools
import math
import random
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from zfstune.experiment.statistics import (
    BETTER,
    EQUIVALENT,
    INCONCLUSIVE,
    WORSE,
    Design,
    Sequential,
    Verdict,
    bootstrap,
    design_for,
    interval,
    log_ratios,
    noise,
    order,
    pairs_within,
    sign_flip_p,
    student_quantile,
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
    assert sign_flip_p([]) == 1
    assert sign_flip_p([-1.0] * 6) == 1 / 64
    assert sign_flip_p([1.0] * 6) == 1
    # of 8 assignments -3-2-1, -3-2+1 are as low
    assert sign_flip_p([-3.0, -2.0, 1.0]) == 2 / 8
    assert sign_flip_p([0.0, 0.0]) == 1


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=9))
def test_p_counts_all_assignments_of_signs(ratios: list[float]) -> None:
    """Near ties count as ties."""
    total, size = sum(ratios), sum(map(abs, ratios))
    sums = [
        sum(s * r for s, r in zip(flips, ratios, strict=True))
        for flips in itertools.product((1, -1), repeat=len(ratios))
    ]
    fewest = sum(s <= total - 1e-11 * size for s in sums) / len(sums)
    most = sum(s <= total + 1e-11 * size for s in sums) / len(sums)
    assert fewest <= sign_flip_p(ratios) <= most


# hundredths, so that sums are equal or clearly are not; with ties, zeros and outliers
RATIOS = st.lists(st.integers(-300, 300).map(lambda n: n / 100), min_size=2, max_size=11)


@settings(max_examples=60, deadline=None)
@given(RATIOS)
def test_p_is_scipys(ratios: list[float]) -> None:
    theirs = stats.permutation_test(
        (ratios,),
        np.mean,
        permutation_type="samples",
        alternative="less",
        vectorized=True,
        n_resamples=math.inf,
    ).pvalue
    assert sign_flip_p(ratios) == pytest.approx(theirs, abs=1e-9)


@pytest.mark.parametrize("pairs", [15, 16, 17, 24, 40, 65])
def test_p_of_many_pairs_is_close_to_scipys(pairs: int) -> None:
    """They flip other signs, at random."""
    values = [random.Random(pairs).gauss(-0.1, 0.5) for _ in range(pairs)]
    theirs = stats.permutation_test(
        (values,),
        np.mean,
        permutation_type="samples",
        alternative="less",
        vectorized=True,
        n_resamples=40_000,
        random_state=np.random.default_rng(1),
    ).pvalue
    # four standard errors of the difference
    error = math.sqrt(theirs * (1 - theirs) * (1 / 40_000 + 1 / 32_768))
    assert sign_flip_p(values) == pytest.approx(theirs, abs=4 * error)


class Drawn(np.random.Generator):
    """Draws for scipy the indices that it was given."""

    def __init__(self, draws: list[list[int]]) -> None:
        super().__init__(np.random.PCG64(0))
        self._draws = np.array(draws)

    def integers(self, *_args: Any, **_kwargs: Any) -> Any:
        return self._draws


@settings(max_examples=40, deadline=None)
@given(
    st.one_of(
        st.lists(st.floats(-3, 3), min_size=2, max_size=30),
        st.lists(st.sampled_from([-2.0, -0.1, 0.0, 0.1, 5.0]), min_size=2, max_size=12),
        st.lists(st.floats(-1e-3, 1e-3), min_size=6, max_size=8).map(lambda a: [*a, 3.0]),
    ).filter(lambda a: max(a) - min(a) > 1e-9),
    st.sampled_from([0.8, 0.9, 0.95, 1 - 2 / 64, 0.999]),
    st.integers(0, 99),
)
def test_the_bootstrap_interval_is_scipys(
    values: list[float], confidence: float, seed: int
) -> None:
    """With the same resamples."""
    coins, draws = random.Random(seed), list[list[int]]()

    def draw(population: list[float], k: int) -> list[float]:
        draws.append(coins.choices(range(len(population)), k=k))
        return [population[place] for place in draws[-1]]

    ours = bootstrap(values, confidence, draw)
    for method in ("BCa", "percentile"):  # BCa is not defined for some data
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = stats.bootstrap(
                (values,),
                lambda sample: math.fsum(sample) / len(sample),
                confidence_level=confidence,
                n_resamples=len(draws),
                vectorized=False,
                method=method,
                random_state=Drawn(draws),
            ).confidence_interval
        if math.isfinite(theirs.low) and math.isfinite(theirs.high):
            break
    assert ours == pytest.approx((theirs.low, theirs.high), rel=1e-9, abs=1e-9)


@given(st.floats(0.5, 1 - 1e-6), st.integers(1, 400))
def test_students_quantile_is_scipys(share: float, freedom: int) -> None:
    theirs = stats.t.ppf(share, freedom)
    assert student_quantile(share, freedom) == pytest.approx(theirs, rel=1e-9, abs=1e-9)


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=8), st.sampled_from([1 / 64, 0.02, 0.1]))
def test_the_interval_holds_what_no_sum_of_a_subset_excludes(
    ratios: list[float], alpha: float
) -> None:
    """Hartigan's typical values, by hand."""
    subsets = itertools.chain.from_iterable(
        itertools.combinations(ratios, size) for size in range(1, len(ratios) + 1)
    )
    means = sorted(math.fsum(one) / len(one) for one in subsets)
    excluded = int(alpha * 2 ** len(ratios) + 1e-9) - 1  # one is the empty subset
    low, high = interval(ratios, 1 - 2 * alpha)
    if excluded < 0:
        assert (low, high) == (-math.inf, math.inf)
    else:
        assert low <= means[excluded] + 1e-9
        assert high >= means[-1 - excluded] - 1e-9


def test_p_of_many_pairs_is_repeatable_and_never_0() -> None:
    assert sign_flip_p([-1.0] * 30) == sign_flip_p([-1.0] * 30) == 1 / 32768


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=30), st.floats(0, 1))
def test_p_is_less_when_all_is_less(ratios: list[float], shift: float) -> None:
    assert sign_flip_p([r - shift for r in ratios]) <= sign_flip_p(ratios) + 0.05


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


def test_interval_is_wider_on_the_side_of_the_long_tail() -> None:
    values = [*np.linspace(-0.1, 0.1, 20), 1.5, 2.0]
    low, high = interval(values, 0.9)
    assert np.mean(values) - low < high - np.mean(values)


@given(st.lists(st.floats(-3, 3), min_size=6, max_size=18), st.sampled_from([1 / 64, 0.02, 0.05]))
def test_interval_holds_all_that_the_test_does_not_exclude(
    ratios: list[float], alpha: float
) -> None:
    low, high = interval(ratios, 1 - 2 * alpha)
    step = 1e-9 * (1 + max(ratios) - min(ratios))
    assert sign_flip_p([ratio - high - step for ratio in ratios]) <= alpha
    assert sign_flip_p([low - step - ratio for ratio in ratios]) <= alpha


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
    assert found.change == pytest.approx(math.expm1(-2.71 / 6))


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
    found = run([-1.0, 0.9] * 12)
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
        sign_flip_p(list(rng.normal(shift, 0.3, 24))) <= DESIGN.alphas[-1] for _ in range(1000)
    )
    assert 0.75 < found / 1000 < 0.85


def test_the_detectable_effect_without_pairs_is_everything() -> None:
    assert noise([], 24) == 1
    assert noise([0.1], 1) == 1
    assert noise([0.0, 0.0], 24) == 0
    assert noise([0.3, -0.2], 96) < noise([0.3, -0.2], 24) < 1


def test_pairs_fit_the_budget() -> None:
    assert pairs_within(1800, block=20, settle=10) == 30
    assert pairs_within(59, block=20, settle=10) == 0
