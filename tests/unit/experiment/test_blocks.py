"""Blocks are cut from a running trace, and throughput is counted by whole txgs."""

from __future__ import annotations

import pytest
from support.fake_host import FakeHost, FakeSession
from support.samples import counts, txg_row

from zfstrace.kstat import txgs
from zfstune.experiment import blocks
from zfstune.experiment.blocks import BlockMeter
from zfstune.term.units import MS, SECOND


def row(txg: int, state: str = "C", birth: int = 0, open_s: int = 4) -> txgs.TxgRow:
    """A txg that opens at birth (s), and syncs 100 MB in 1 s."""
    spans = {"open_ns": open_s * SECOND, "sync_ns": SECOND, "dirty_bytes": 100_000_000}
    return txg_row(txg, state, birth * SECOND, **spans)


ROWS = [row(10, birth=0), row(11, birth=4), row(12, birth=8), row(13, "S", birth=12)]


# What programs have written up to 3, 5, 11 and 13 s.
WRITTEN = [(3 * SECOND, 0), (5 * SECOND, 50), (11 * SECOND, 150), (13 * SECOND, 250)]


def test_throughput_covers_whole_txgs() -> None:
    """Txgs 11 and 12 take what comes from 4 s (25 bytes were there) to 12 s (200); they end at
    9 s and 13 s, and 10 ended at 5 s."""
    found = blocks.txg_metrics(ROWS, 10, WRITTEN)
    assert found == {"write.throughput": 175 / 8, "txg.sync": SECOND}


@pytest.mark.parametrize("after", [9, 12, 99])
def test_throughput_needs_a_txg_on_both_ends(after: int) -> None:
    assert blocks.txg_metrics(ROWS, after, WRITTEN) == {}


@pytest.mark.parametrize("written", [WRITTEN[1:], WRITTEN[:3], []])
def test_throughput_needs_readings_before_and_after(written: list[tuple[int, int]]) -> None:
    assert blocks.txg_metrics(ROWS, 10, written) == {"txg.sync": SECOND}


def test_readings_outlive_the_rows_of_the_kstat() -> None:
    """Of a kstat with four rows only, and txgs of a second: a block of ten seconds."""
    host = FakeHost(FakeSession([()]))
    meter = BlockMeter(host, "tank", host.session)
    for now in range(10, 30):
        host.txgs = [row(n, "C" if n < now else "O", n, open_s=0) for n in range(now - 3, now + 1)]
        host.bytes_written = (now * SECOND + 1, {54: 1000 + 7 * now, 60: 5 * now})
        if now == 15:
            meter.start(now * SECOND)
        meter.look()
    block = meter.end(29 * SECOND)
    assert len(block.txgs) == 14
    assert block.metrics["write.throughput"] == pytest.approx(12)


def test_a_block_of_half_an_hour_has_a_throughput() -> None:
    """It needs what was written before it, which is older than what is kept otherwise."""
    host = FakeHost(FakeSession([()]))
    meter = BlockMeter(host, "tank", host.session)
    for now in range(10, 2011):
        host.txgs = [row(n, "C" if n < now else "O", n, open_s=0) for n in range(now - 3, now + 1)]
        host.bytes_written = (now * SECOND + 1, {54: 7 * now})
        if now == 20:
            meter.start(now * SECOND)
        meter.look()
    block = meter.end(2010 * SECOND)
    assert len(block.txgs) == 1990
    assert block.metrics["write.throughput"] == pytest.approx(7)


class Hurried(FakeHost):
    """A reading takes a second, and a txg opens during each."""

    def __init__(self) -> None:
        super().__init__(FakeSession([()]))
        self.clock = 0

    def txg_rows(self, pool: str) -> list[txgs.TxgRow]:
        self.clock += 1
        first, last = max(0, self.clock - 9), self.clock
        return [row(n, "C" if n < last else "O", n, open_s=0) for n in range(first, last + 1)]

    def written(self, pool: str) -> tuple[int, dict[int, int]]:
        self.clock += 1
        return self.clock * SECOND, {54: 7 * self.clock}


def test_a_txg_born_during_a_reading_is_counted_once() -> None:
    host = Hurried()
    meter = BlockMeter(host, "tank", host.session)
    for _ in range(3):
        meter.look()
    meter.start(0)
    meter.count_written()
    meter.note_txgs()
    assert meter.end(SECOND).metrics["write.throughput"] == pytest.approx(7)


def test_only_growth_counts_when_datasets_come_and_go() -> None:
    """One is remounted and counts from 0, one is new, one disappears: only growth counts."""
    host = FakeHost(FakeSession([()]))
    meter = BlockMeter(host, "tank", host.session)
    looks = [{1: 100, 2: 500}, {1: 130, 2: 0}, {1: 140, 2: 20, 3: 900}, {2: 25, 3: 910}]
    for n, found in enumerate(looks):
        host.bytes_written = (n, found)
        meter.look()
    assert [total for _, total in meter._written] == [0, 30, 60, 75]


def test_old_readings_are_dropped() -> None:
    host = FakeHost(FakeSession([()]))
    meter = BlockMeter(host, "tank", host.session)
    for now in range(4000):
        host.txgs = [row(now, birth=now)]
        host.bytes_written = (now * SECOND, {1: now})
        meter.look()
    assert len(meter._written) <= 901
    assert len(meter._rows) <= 1400
    assert meter._written[-1] == (3999 * SECOND, 3999)


def test_the_newest_txg_and_the_newest_synced_one_differ() -> None:
    assert (txgs.newest(ROWS), txgs.newest_done(ROWS)) == (13, 12)
    assert (txgs.newest([]), txgs.newest_done([])) == (0, 0)
    assert [r.txg for r in txgs.done_since(ROWS, 10)] == [11, 12]


def test_a_block_has_what_came_since_its_start() -> None:
    early = counts(stages={"flush": [100 * MS] * 50})
    late = counts(stages={"flush": [100 * MS] * 50 + [1 * MS] * 30})
    host = FakeHost(FakeSession([(early,), (late,)]))
    host.kstats["dmu_tx"] = {"dmu_tx_dirty_delay": 5}
    host.txgs = [ROWS[0], row(11, "O", birth=4)]
    meter = BlockMeter(host, "tank", host.session)
    for when, written in WRITTEN[:2]:
        host.bytes_written = (when, {54: written})
        meter.look()
    meter.start(0)
    host.txgs = ROWS
    for when, written in WRITTEN[2:]:
        host.bytes_written = (when, {54: written})
        meter.look()
    host.kstats["dmu_tx"] = {"dmu_tx_dirty_delay": 15, "dmu_tx_wrlog_delay": 10}
    block = meter.end(10 * SECOND)
    assert (block.seconds, block.fsyncs, block.lost) == (10.0, 30, 0)
    assert block.metrics["fsync.rate"] == 3.0
    assert block.metrics["fsync.p99"] == pytest.approx(1 * MS, rel=0.04)
    assert block.metrics["write.throughput"] == 175 / 8
    assert block.metrics["throttle.delays"] == 2.0
    assert sum(n for _, _, n in block.histogram) == 30
    assert [r.txg for r in block.txgs] == [11, 12]


def test_a_block_without_an_fsync_has_no_latency() -> None:
    host = FakeHost(FakeSession([()]))
    meter = BlockMeter(host, "tank", host.session)
    meter.start(0)
    block = meter.end(SECOND)
    assert block.fsyncs == 0
    assert block.metrics == {"fsync.rate": 0.0, "throttle.delays": 0.0}
    assert meter.longest_ns() == 0
