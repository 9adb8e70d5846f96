"""What a few pairs of blocks say of a candidate, before any proof."""

from __future__ import annotations

import pytest

from zfstune.experiment.blocks import Block
from zfstune.experiment.judging import Judge
from zfstune.experiment.objective import Limit, Objective
from zfstune.experiment.proof import listed
from zfstune.experiment.runner import Record


def pair(lacks: str = "") -> list[Record]:
    """Equal blocks, of which the second lacks a metric."""
    records = []
    for label in "AB":
        metrics = {"fsync.p99": 1e8, "fsync.mean": 1e7, "write.throughput": 3e7}
        if label == "B":
            metrics.pop(lacks, None)
        records.append(Record(1, "trial", 1, label, 0.0, 0.0, Block(10.0, 100, metrics)))
    return records


@pytest.mark.parametrize("name", ["write.throughput", "fsync.mean"])
def test_a_pair_in_which_a_limit_is_unknown_misses_it(name: str) -> None:
    """That pair, and no other."""
    limits = [Limit.parse(text) for text in ("write.throughput>=-5%", "fsync.mean<=+10%")]
    judge = Judge(Objective.parse("fsync.p99"), limits)
    judge.quiet([*pair(), *pair()])
    assert judge.pairs_that_miss([*pair(), *pair(name), *pair()]) == 1
    assert judge.pairs_that_miss([*pair(), *pair()]) == 0


def worse(**factors: float) -> list[Record]:
    """A pair of which the second block has the values times these."""
    first, second = pair()
    metrics = dict(second.block.metrics)
    for name, factor in factors.items():
        metrics[name.replace("_", ".")] *= factor
    return [first, Record(2, "trial", 1, "B", 0.0, 0.0, Block(10.0, 100, metrics))]


def test_the_limit_that_is_missed_most_clearly_is_named_first() -> None:
    """By the noise of its own metric: 8 % of a steady one is more than 15 % of one that varies."""
    limits = [Limit.parse(text) for text in ("write.throughput>=-5%", "fsync.mean<=+10%")]
    judge = Judge(Objective.parse("fsync.p99"), limits)
    judge.quiet([*worse(write_throughput=0.8), *worse(write_throughput=1.25)])
    assert judge.missed(pair()) == []
    both = judge.missed(worse(write_throughput=0.85, fsync_mean=1.18))
    assert listed(both) == (
        "fsync.mean<=+10% was missed: +18.0% and write.throughput>=-5% was missed: -15.0%"
    )
    unknown = judge.missed([*pair("write.throughput"), *worse(fsync_mean=1.18)])
    assert [one.limit.metric.name for one in unknown] == ["write.throughput"]
