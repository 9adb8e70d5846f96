"""Objectives and limits, as written and as judged."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zfstune.experiment.objective import METRICS, Limit, Objective

BLOCK = {
    "fsync.p50": 2e6,
    "fsync.p99": 80e6,
    "fsync.p999": 200e6,
    "fsync.mean": 5e6,
    "write.throughput": 30e6,
    "write.p99": 20e6,
    "read.p99": 9e6,
    "read.mean": 30e3,
    "arc.miss": 0.02,
}


def test_one_metric_is_an_objective() -> None:
    objective = Objective.parse("fsync.p99")
    assert str(objective) == "fsync.p99"
    assert objective.value(BLOCK) == pytest.approx(80e6)
    assert objective.shown(-0.2) == -0.2
    assert objective.fsyncs() == 100


def test_weights_are_shares() -> None:
    objective = Objective.parse(" fsync.p99=7, fsync.p50=3")
    assert str(objective) == "fsync.p99=0.7,fsync.p50=0.3"
    better = {**BLOCK, "fsync.p99": 40e6}
    assert objective.value(better) / objective.value(BLOCK) == pytest.approx(0.5**0.7)
    assert str(Objective.parse("fsync.p50,fsync.p999")) == "fsync.p50=0.5,fsync.p999=0.5"
    assert Objective.parse("fsync.p50,fsync.p999").fsyncs() == 1000


def test_the_cost_of_throughput_is_its_inverse() -> None:
    objective = Objective.parse("write.throughput")
    more = {**BLOCK, "write.throughput": 37.5e6}
    ratio = objective.value(more) / objective.value(BLOCK)
    assert ratio == pytest.approx(0.8)
    assert objective.shown(ratio - 1) == pytest.approx(0.25)
    assert objective.words(ratio - 1) == "write.throughput +25%"
    assert objective.shown(-1.0) == math.inf
    assert objective.shown(math.inf) == -1.0
    assert objective.fsyncs() == 0


def test_a_mixed_objective_weighs_its_metrics() -> None:
    objective = Objective.parse("fsync.p99=0.5,write.throughput=0.5")
    twice_of_both = {**BLOCK, "fsync.p99": 160e6, "write.throughput": 60e6}
    assert objective.value(twice_of_both) == pytest.approx(objective.value(BLOCK))
    assert objective.shown(-0.1) == -0.1


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "a metric is missing\nchoose from fsync.p50, fsync.p99"),
        ("fsync.p98", "no metric 'fsync.p98'\nchoose from"),
        ("fsync.p99,", "a metric is missing"),
        ("fsync.p99=0", "has no weight\nwrite it like"),
        ("fsync.p99=", "has no weight"),
        ("fsync.p99=-1", "has no weight"),
        ("fsync.p99=nan", "has no weight"),
        ("fsync.p99=1,fsync.p99=2", "is given twice"),
    ],
)
def test_an_invalid_objective_says_why(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Objective.parse(text)


@pytest.mark.parametrize("value", [None, 0.0, -1.0, math.inf, math.nan])
def test_a_metric_that_is_not_positive_is_an_error(value: float | None) -> None:
    metrics = {} if value is None else {"fsync.p99": value}
    with pytest.raises(ValueError, match=r"fsync\.p99 of a block is .*, not a positive number"):
        Objective.parse("fsync.p99").value(metrics)


@pytest.mark.parametrize(
    ("text", "shown", "worst"),
    [
        ("write.throughput>=-5%", "write.throughput>=-5%", -0.05),
        (" write.throughput >= +2.5 % ", "write.throughput>=+2.5%", 0.025),
        ("fsync.p50<=+20%", "fsync.p50<=+20%", 0.2),
        ("fsync.p50<=20%", "fsync.p50<=+20%", 0.2),
        ("fsync.p999<=-10%", "fsync.p999<=-10%", -0.1),
        ("fsync.mean<=900%", "fsync.mean<=+900%", 9.0),
    ],
)
def test_a_limit_allows_changes_up_to_its_share(text: str, shown: str, worst: float) -> None:
    limit = Limit.parse(text)
    assert str(limit) == shown
    assert Limit.parse(str(limit)) == limit
    assert limit.share == pytest.approx(worst)
    step = 0.001 if limit.metric.less_is_better else -0.001
    assert limit.allows(limit.share)
    assert limit.allows(limit.share - step)
    assert not limit.allows(limit.share + step)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not a limit\nwrite it like"),
        ("write.throughput", "is not a limit"),
        ("write.throughput>-5%", "is not a limit"),
        ("write.throughput>=-5", "is not a limit"),
        ("fsync.p99<=200ms", "is not a limit"),
        ("disk.rpm>=-5%", "no metric 'disk.rpm'"),
        (">=-5%", "a metric is missing"),
        ("write.throughput<=-5%", "less is worse\nwrite write.throughput>=-5%"),
        ("fsync.p50>=5%", "more is worse\nwrite fsync.p50<="),
        ("write.throughput>=-100%", "no metric falls by 100 %"),
        ("write.throughput>=-5%\n-7%", r"-5%\\n-7%' is not a limit"),
    ],
)
def test_an_invalid_limit_says_why(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Limit.parse(text)


def test_a_missed_limit_is_measured_in_logs() -> None:
    least, most = Limit.parse("write.throughput>=-5%"), Limit.parse("fsync.mean<=+10%")
    assert least.missed_by(-0.1) == pytest.approx(math.log(0.95 / 0.9))
    assert most.missed_by(0.21) == pytest.approx(math.log(1.1))
    assert least.missed_by(-0.05) == 0
    assert most.missed_by(-0.5) < 0
    assert (least.missed_by(-1), most.missed_by(-1)) == (math.inf, -math.inf)


names = st.sampled_from(sorted(METRICS))


@given(st.dictionaries(names, st.integers(1, 999), min_size=1))
def test_weights_are_read_as_written(weights: dict[str, int]) -> None:
    objective = Objective.parse(",".join(f"{name}={w}" for name, w in weights.items()))
    assert [one.name for one, _ in objective.weights] == list(weights)
    assert sum(weight for _, weight in objective.weights) == pytest.approx(1)
    assert objective.value(BLOCK) > 0


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused_with_at_most_a_hint(text: str) -> None:
    for parse in (Objective.parse, Limit.parse):
        try:
            parse(text)
        except ValueError as error:
            assert len(str(error).splitlines()) <= 2
