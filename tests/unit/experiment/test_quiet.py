"""The first phase makes blocks as long as the load needs, if the budget has room for a proof of
such blocks, and never refuses a load for its rhythm."""

from __future__ import annotations

import io

import pytest
from support.fake_host import FakeHost, FakeStop

from zfstune.experiment import quiet
from zfstune.experiment.blocks import Block, BlockMeter
from zfstune.experiment.judging import Judge
from zfstune.experiment.objective import Limit, Objective
from zfstune.experiment.runner import BlockPlan, Experiment, Record, Values
from zfstune.term.progress import Progress
from zfstune.term.units import SECOND

HOUR_S = 3600.0
OBJECTIVE = Objective.parse("fsync.p99")


class Rhythmic(Experiment):
    """Blocks of a load that writes for two seconds of each period. Its throughput by txgs is now
    less, now twice as much."""

    def __init__(self, period_s: float, block_s: float = 10.0, fsyncs_per_s: float = 50.0) -> None:
        self._said = io.StringIO()
        stop, host = FakeStop(), FakeHost()
        super().__init__(
            host,
            "tank",
            BlockMeter(host, "tank", host.session),
            BlockPlan(seconds=block_s, min_fsyncs=100),
            lambda _values: None,
            lambda _meter, _measuring: None,
            stop,
            Progress(self._said, 0),
            stop.clock,
        )
        self._period_s, self._rate = period_s, fsyncs_per_s

    def block(
        self,
        phase: str,
        trial: int | None,
        label: str,
        values: Values,
        *,
        wait_s: float | None = None,
    ) -> Record:
        assert isinstance(self.stop, FakeStop)
        start_s, seconds = self.now_s(), self.plan.seconds
        while self._rate * seconds < self.plan.min_fsyncs:
            seconds += self.plan.seconds
        for _ in range(round(10 * seconds)):
            self.stop.clock += SECOND // 10
            whole, part = divmod(self.stop.clock / SECOND, self._period_s)
            written = round(3e8 * (whole + min(1.0, part / 2)))
            self.meter._written.append((self.stop.clock, written))
        metrics = {"fsync.p99": 1e8, "write.throughput": 3e7 * (1 + len(self.records) % 2)}
        block = Block(seconds, round(self._rate * seconds), metrics)
        record = Record(len(self.records) + 1, phase, trial, label, start_s, 0.0, block)
        self.records.append(record)
        return record

    def measured(self, left_s: float = HOUR_S) -> list[str]:
        """What it says while it measures."""
        judge = Judge(OBJECTIVE, [Limit.parse("write.throughput>=-5%")])
        quiet.measure(self, {}, judge, left_s, False)
        return self._said.getvalue().splitlines()


@pytest.mark.parametrize(("period_s", "block_s"), [(3.0, 10), (6.5, 13), (12.5, 12.5), (20.0, 20)])
def test_a_block_holds_whole_periods(period_s: float, block_s: float) -> None:
    experiment = Rhythmic(period_s)
    said = experiment.measured()
    assert abs(experiment.plan.seconds - block_s) <= 0.2
    assert any("since the load repeats" in line for line in said) == (block_s > 10)
    # what was written in each of them tells the throughput, as it is always the same
    assert experiment.meter.periodic == (block_s > 10)


def test_a_load_with_a_long_period_is_measured_with_the_block_asked_for() -> None:
    experiment = Rhythmic(20.0, block_s=6.0)
    said = experiment.measured()
    assert experiment.plan.seconds == 6
    assert not experiment.meter.periodic
    assert [line for line in said if "--block" in line] == [
        "zfstune: the load repeats every 20 s, and a block of 6 s holds now more, now less of it: "
        "use --block 20s for steadier ones"
    ]


def test_blocks_are_not_lengthened_beyond_the_room_for_a_proof() -> None:
    """Six pairs of two blocks of 20 s and a wait each, and half as many more."""
    enough_s = 60 + 1.5 * 6 * 2 * (20 + Rhythmic(20.0).settle_s())
    tight, wide = Rhythmic(20.0), Rhythmic(20.0)
    said = tight.measured(0.9 * enough_s)
    assert tight.plan.seconds == 10
    assert [line for line in said if "--budget" in line] == [
        "zfstune: the load repeats every 20 s, and a block of 10 s holds now more, now less of it: "
        "a longer --budget would have time for blocks of 20 s"
    ]
    wide.measured(1.1 * enough_s)
    assert wide.plan.seconds == 20


def test_blocks_get_their_fsyncs_with_little_time_too() -> None:
    """They would be extended to 20 s otherwise."""
    experiment = Rhythmic(3.0, fsyncs_per_s=7)
    experiment.measured(60)
    assert experiment.plan.seconds == 15


def test_the_time_of_a_proof_is_that_of_longer_blocks() -> None:
    experiment = Rhythmic(20.0)
    experiment.measured()
    assert experiment.block_s() == 20
