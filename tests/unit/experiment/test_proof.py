"""The proof of a candidate: the objective and each limit, pair by pair."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from zfstune.experiment.blocks import Block
from zfstune.experiment.objective import Limit, Objective
from zfstune.experiment.proof import KEPT, MISSED, UNKNOWN, Proof, Tails, shown, tails
from zfstune.experiment.runner import Record
from zfstune.experiment.statistics import BETTER, INCONCLUSIVE, WORSE, design_for

THROUGHPUT = "write.throughput>=-5%"


def pair(p99: float, throughput: float | None, label: str = "AB") -> list[Record]:
    """A pair whose B has these log ratios to A; None: the metric is missing."""
    records = []
    for number, name in enumerate(label):
        metrics = {"fsync.p99": 1e8 * (math.exp(p99) if name == "B" else 1.0)}
        if throughput is not None:
            metrics["write.throughput"] = 3e7 * (math.exp(throughput) if name == "B" else 1.0)
        records.append(Record(number, "confirm", None, name, 0.0, 0.0, Block(10.0, 100, metrics)))
    return records


def proof(pairs: int = 24, limits: Sequence[str] = (THROUGHPUT,)) -> Proof:
    return Proof(
        Objective.parse("fsync.p99"), [Limit.parse(one) for one in limits], design_for(pairs, 0.05)
    )


def run(one: Proof, ratios: Sequence[tuple[float, float | None]]) -> int:
    """Adds pairs until it ends; their number."""
    for number, (p99, throughput) in enumerate(ratios, 1):
        if one.add(pair(p99, throughput, "AB" if number % 3 else "BA")):
            return number
    return len(ratios)


def test_six_clear_pairs_are_enough() -> None:
    one = proof()
    assert run(one, [(-0.5, 0.001 * n) for n in range(24)]) == 6
    assert one.verdict().kind == BETTER
    (limit,) = one.limits()
    assert (limit.ok, limit.state) == (True, KEPT)
    assert -0.05 < limit.low <= 0.0 <= limit.high < 0.01
    assert limit.change == pytest.approx(0.0025, abs=1e-4)


def test_it_goes_on_while_a_limit_is_open() -> None:
    """The gain is clear after six pairs, that throughput is kept after twelve."""
    one = proof()
    assert run(one, [(-0.5, -0.08 if n == 2 else 0.01) for n in range(24)]) == 12
    assert one.verdict().pairs == 6
    assert one.limits()[0].state == KEPT


def with_longer_limits() -> Proof:
    return Proof(
        Objective.parse("fsync.p99"),
        [Limit.parse(THROUGHPUT)],
        design_for(9, 0.05, 0.03),
        design_for(20, 0.0),
    )


def test_limits_may_have_more_pairs_than_the_gain() -> None:
    """What it costs is shown after 20 pairs, with those in which the gain was."""
    one = with_longer_limits()
    ratios = [(-0.5, (-0.10, 0.08, -0.01, 0.02)[n % 4]) for n in range(40)]
    assert run(one, ratios) == 20
    assert (one.verdict().kind, one.verdict().pairs) == (BETTER, 6)
    (limit,) = one.limits()
    assert limit.state == KEPT
    assert limit.low > -0.05
    assert one.spent == pytest.approx(1 / 64)
    assert one.limits_spent == pytest.approx(0.05)


def test_no_gain_ends_it_whatever_limits_may_have() -> None:
    one = with_longer_limits()
    assert run(one, [((-0.1, 0.1)[n % 2], (-0.10, 0.08)[n % 2]) for n in range(40)]) == 9
    assert one.verdict().kind == INCONCLUSIVE


def test_a_missed_limit_ends_it() -> None:
    one = proof()
    assert run(one, [(-0.5, -0.2 - 0.001 * n) for n in range(24)]) == 6
    (limit,) = one.limits()
    assert (limit.ok, limit.state) == (False, MISSED)
    assert limit.why.startswith("was missed: -18.")


def test_a_limit_that_no_longer_matters_spends_nothing() -> None:
    """Of two that are open at the first look, one is missed then; and of a proof that is broken
    off."""
    missed = proof(limits=(THROUGHPUT, "fsync.p99<=-45%"))
    run(missed, [(-0.6 + 0.05 * (n % 2), -0.2 - 0.001 * n) for n in range(24)])
    assert [one.state for one in missed.limits()] == [MISSED, UNKNOWN]
    assert missed.limits_spent == pytest.approx(1 / 64)
    broken_off = proof()
    run(broken_off, [(-0.5, -0.08 if n == 2 else 0.01) for n in range(8)])
    assert [one.state for one in broken_off.limits(False)] == [UNKNOWN]
    assert broken_off.limits_spent == pytest.approx(1 / 64)
    broken_off.limits()
    assert broken_off.limits_spent == pytest.approx(0.05)


def test_what_is_not_known_is_not_kept() -> None:
    one = proof(limits=("fsync.mean<=+10%",))
    for n in range(6):
        both = [
            Record(0, "confirm", None, name, 0.0, 0.0, Block(10.0, 100, metrics))
            for name, metrics in (
                ("A", {"fsync.p99": 2.0, "fsync.mean": 1.0}),
                ("B", {"fsync.p99": 1.0, "fsync.mean": 1.3 if n % 2 else 0.9}),
            )
        ]
        ended = one.add(both)
    assert not ended
    assert one.verdict().kind == BETTER
    (limit,) = one.limits()
    assert (limit.ok, limit.state) == (False, UNKNOWN)
    assert limit.why == "may be missed: +8.2%, -10% to +30%"


def test_a_block_without_the_metric_may_be_the_worst() -> None:
    one = proof()
    run(one, [(-0.5, None if n == 3 else 0.01) for n in range(24)])
    (limit,) = one.limits()
    assert (limit.ok, limit.change, limit.why) == (False, None, "could not be measured")


def test_a_block_without_the_objective_proves_nothing() -> None:
    one = proof()
    both = pair(-0.5, 0.0)
    both[1].block.metrics["fsync.p99"] = 0.0
    with pytest.raises(ValueError, match="not a positive number"):
        one.add(both)
    assert one.so_far().kind == INCONCLUSIVE


def test_more_throughput_is_said_as_more() -> None:
    """And not as a lower cost."""
    one = Proof(Objective.parse("write.throughput"), [], design_for(24, 0.05))
    for n in range(6):
        assert one.words() == f"write.throughput {'+25%' if n else '+0%'}"
        one.add(pair(0.0, math.log(1.25)))
    assert one.words() == "write.throughput +25% (+25% to +25%)"


def test_it_says_for_which_limit_it_goes_on() -> None:
    """Once the gain is proved, until the limit is kept beyond doubt."""
    one, said = proof(), []
    for n in range(12):
        one.add(pair(-0.5, -0.08 if n == 2 else 0.01))
        said.append(one.goes_on_for())
    assert said[4] == ""
    assert said[5] == ", limit write.throughput>=-5% may be missed: +1.0%, -8% to +1%"
    assert said[11] == ""


def test_worse_ends_it() -> None:
    one = proof()
    assert run(one, [(0.5, 0.0)] * 24) == 6
    assert one.verdict().kind == WORSE


def test_without_limits_the_objective_decides() -> None:
    one = proof(limits=())
    assert run(one, [(-0.5, 0.0)] * 24) == 6
    assert one.limits() == []


@pytest.mark.parametrize(
    ("true", "least", "most"), [(-0.08, 0.0, 0.02), (-0.07, 0.0, 0.05), (0.0, 0.9, 1.0)]
)
def test_a_limit_that_is_missed_in_truth_is_seldom_kept(
    true: float, least: float, most: float
) -> None:
    """With the noise of the lab, 5.2 % in each pair, and 38 pairs at most."""
    rng = np.random.default_rng(7)
    kept = 0
    for _ in range(400):
        one = proof(38)
        run(one, [(-0.5, ratio) for ratio in math.log1p(true) + rng.normal(0, 0.052, 38)])
        kept += one.limits()[0].ok
    assert least <= kept / 400 <= most


def histograms(*blocks: tuple[str, tuple[int, int]]) -> list[Record]:
    """Blocks of fsyncs of 10 to 11 ms (count) and 100 to 110 ms (count)."""
    return [
        Record(n, "confirm", None, label, 0.0, 0.0, Block(10.0, fast + slow, {}, rows))
        for n, (label, (fast, slow)) in enumerate(blocks)
        for rows in [((10_000_000, 11_000_000, fast), (100_000_000, 110_000_000, slow))]
    ]


def test_the_p99_of_all_fsyncs_may_not_rise() -> None:
    """B is bad in one block of three."""
    found = tails(histograms(("A", (100, 0)), ("B", (70, 30)), ("B", (100, 0)), ("A", (100, 0))))
    assert found is not None
    assert not found.ok
    assert found == Tails(10_990_000, 109_333_333, 100)
    assert found.why.startswith("the p99 of all fsyncs of the proof rose from 11.0 ms to 109 ms")


def test_it_may_fall_and_vary() -> None:
    assert tails(histograms(("A", (100, 5)), ("B", (100, 0)))).ok  # type: ignore[union-attr]
    assert tails(histograms(("A", (100, 0)), ("B", (50, 0)))).ok  # type: ignore[union-attr]


def test_without_fsyncs_there_are_no_tails() -> None:
    assert tails([]) is None
    assert tails(histograms(("A", (100, 0)), ("B", (0, 0)))) is None


def test_few_pairs_show_a_limit_and_prove_nothing() -> None:
    assert shown(Limit.parse(THROUGHPUT), pair(-0.5, -0.01)).ok
    missed = shown(Limit.parse(THROUGHPUT), pair(-0.5, -0.1))
    assert missed.why == "was missed: -9.5%"
    assert shown(Limit.parse(THROUGHPUT), pair(-0.5, None)).why == "could not be measured"
