"""What a few pairs of blocks say of a candidate, before any proof."""

from __future__ import annotations

import pytest

from zfstune.experiment.blocks import Block
from zfstune.experiment.judging import Judge
from zfstune.experiment.objective import Limit, Objective
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
