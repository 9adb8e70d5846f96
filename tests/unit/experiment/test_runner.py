"""Blocks wait until values have settled, are long enough, and end when they must."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from support.fake_host import FakeHost, FakeSession, FakeStop
from support.samples import txg_row

from zfstrace.kstat import txgs as kstat_txgs
from zfstune.experiment.blocks import Block, BlockMeter
from zfstune.experiment.runner import Abort, BlockPlan, Experiment, Stopped, too_few
from zfstune.term.progress import Progress
from zfstune.term.units import SECOND

ROW = txg_row(1, "C", 0)
PLAN = BlockPlan(seconds=10, min_fsyncs=50)


class Pool(FakeHost):
    """A txg every txg_s seconds of the fake clock, synced in sync_ns(number)."""

    def __init__(self, stop: FakeStop, txg_s: float = 4.0) -> None:
        super().__init__(FakeSession([()]))
        self._stop, self._txg_s = stop, txg_s
        self.sync_ns: Callable[[int], int] = lambda _number: SECOND // 2

    def txg_rows(self, pool: str) -> list[kstat_txgs.TxgRow]:
        last = int(self._stop.clock / SECOND / self._txg_s)
        return [
            txg_row(n, "C" if n < last - 1 else "O", n * SECOND, sync_ns=self.sync_ns(n))
            for n in range(max(0, last - 20), last + 1)
        ]


class Meter(BlockMeter):
    """Counts rate fsyncs per second of the fake clock."""

    def __init__(self, host: FakeHost, stop: FakeStop, rate: float) -> None:
        super().__init__(host, "tank", host.session)
        self._stop, self._rate, self._since = stop, rate, 0
        self.done: tuple[kstat_txgs.TxgRow, ...] = ()

    def start(self, now_ns: int) -> None:
        super().start(now_ns)
        self._since = now_ns

    def so_far(self) -> int:
        return round((self._stop.clock - self._since) / SECOND * self._rate)

    def end(self, now_ns: int) -> Block:
        seconds = (now_ns - self._since) / SECOND
        return Block(seconds, self.so_far(), {"fsync.p99": 1e6}, txgs=self.done)


def make(rate: float = 20.0, plan: BlockPlan = PLAN) -> tuple[Experiment, list[object], Pool]:
    stop = FakeStop()
    host = Pool(stop)
    seen: list[object] = []

    def apply(values: Mapping[str, int]) -> bool:
        seen.append(dict(values))
        return True

    def watch(_meter: BlockMeter | None, measuring: bool) -> None:
        seen.append("block" if measuring else "settle")

    progress = Progress(io.StringIO(), 0)
    meter = Meter(host, stop, rate)
    one = Experiment(host, "tank", meter, plan, apply, watch, stop, progress, stop.clock)
    return one, seen, host


def test_abba_changes_values_only_when_they_differ() -> None:
    one, seen, _ = make()
    done = one.blocks("trial", 3, "ABBA", {"x": 1}, {"x": 2})
    assert [s for s in seen if isinstance(s, dict)] == [{"x": 1}, {"x": 2}, {"x": 1}]
    assert [r.label for r in done] == list("ABBA")
    assert [r.settle_s > 0 for r in done] == [True, True, False, True]
    assert [r.number for r in done] == [1, 2, 3, 4]
    assert {(r.phase, r.trial) for r in done} == {("trial", 3)}
    assert [round(r.block.seconds) for r in done] == [10] * 4


def test_three_txgs_born_after_the_change_are_done_first() -> None:
    one, _, host = make()
    born_before = kstat_txgs.newest(host.txg_rows("tank"))
    one.block("aa", None, "A", {"x": 1})
    started_at = one.records[0].start_s
    # numbers born_before + 1 to + 3 are committed two txgs' time after they are born
    assert started_at >= 4.0 * 4
    assert born_before == 0


@pytest.mark.parametrize(
    ("name", "txgs"), [("zfs_vdev_async_write_max_active", 2), ("zfs_dirty_data_max", 3), ("x", 3)]
)
def test_a_pair_waits_for_what_its_values_need(name: str, txgs: int) -> None:
    """Only what differs between the two counts, and both blocks wait for it."""
    one, _, _ = make()
    same = {"zfs_txg_timeout": 5}
    done = one.blocks("trial", 1, "ABAB", {name: 1, **same}, {name: 2, **same})
    # a txg takes 4 s, and is committed two of them after it is born
    assert [int(record.settle_s / 4) for record in done[1:]] == [txgs + 1] * 3


@pytest.mark.parametrize(
    ("sync_s", "txgs"),
    [
        ([1, 1, 1, 1, 1], 3),
        # writers that wait for room in memory make large and small ones in turns
        ([2, 6, 2, 6, 2], 3),
        ([1, 1, 6, 1, 1], 4),
        ([1, 3, 9, 10, 10], 4),
        ([1, 3, 9, 27, 81], 5),
    ],
)
def test_it_waits_for_similar_syncs_with_a_limit(sync_s: list[int], txgs: int) -> None:
    one, _, host = make()
    # the first is born after the change
    host.sync_ns = lambda n: sync_s[min(max(n, 1), 5) - 1] * SECOND
    one.block("aa", None, "A", {"x": 1})
    alike, _, _ = make()
    alike.block("aa", None, "A", {"x": 1})
    # a txg takes 4 s
    waited = one.records[0].settle_s - alike.records[0].settle_s
    assert round(waited / 4) == txgs - 3


class Bursts(FakeHost):
    """Programs write 120 MB at the begin of each txg, in half a second, then wait for room."""

    def __init__(self, stop: FakeStop, txg_s: float = 3.7) -> None:
        super().__init__(FakeSession([()]))
        self._stop, self._txg_s = stop, txg_s
        self.counts: list[int] = []

    def txg_rows(self, pool: str) -> list[kstat_txgs.TxgRow]:
        period = round(self._txg_s * SECOND)
        last = self._stop.clock // period
        rows = [(n, "C" if n < last - 1 else "O") for n in range(max(0, last - 20), last + 1)]
        return [
            txg_row(n, state, n * period, open_ns=period, sync_ns=period // 2) for n, state in rows
        ]

    def written(self, pool: str) -> tuple[int, dict[int, int]]:
        self.counts.append(self._stop.clock)
        txg, into_s = divmod(self._stop.clock / SECOND, self._txg_s)
        return self._stop.clock, {1: round(120e6 * (txg + min(1.0, into_s / 0.5)))}


def bursts(monkeypatch: pytest.MonkeyPatch, cost_ns: int) -> tuple[list[float], list[int]]:
    """Throughput of blocks when each count takes this much CPU time, and the intervals between
    counts."""
    stop = FakeStop()
    host = Bursts(stop)
    monkeypatch.setattr("time.thread_time_ns", lambda: len(host.counts) * cost_ns)
    meter, plan = BlockMeter(host, "tank", host.session), BlockPlan(seconds=8, min_fsyncs=0)
    progress = Progress(io.StringIO(), 0)
    one = Experiment(
        host, "tank", meter, plan, lambda _: True, lambda *_: None, stop, progress, stop.clock
    )
    done = one.blocks("aa", None, "ABBA" * 4, {}, {})
    gaps = [b - a for a, b in itertools.pairwise(host.counts) if b > a]
    return [r.block.metrics["write.throughput"] for r in done], gaps


def test_throughput_of_bursts_is_measured_right(monkeypatch: pytest.MonkeyPatch) -> None:
    found, gaps = bursts(monkeypatch, cost_ns=SECOND // 1000)
    assert found == [pytest.approx(120e6 / 3.7, rel=0.03)] * 16
    assert set(gaps) == {SECOND // 10}


@pytest.mark.parametrize(("cost_ms", "gap_ms"), [(25, 500), (40, 800), (300, 1000)])
def test_counting_written_bytes_takes_a_twentieth_of_the_time(
    monkeypatch: pytest.MonkeyPatch, cost_ms: int, gap_ms: int
) -> None:
    """Or once a second."""
    _, gaps = bursts(monkeypatch, cost_ns=cost_ms * SECOND // 1000)
    assert max(gaps) == gap_ms * SECOND // 1000


def test_the_first_wait_is_not_what_values_need() -> None:
    """It was for the load to settle, and may be much longer."""
    one, _, _ = make()
    one.block("aa", None, "A", {"x": 1})
    one.records[0] = replace(one.records[0], block=replace(one.records[0].block, txgs=(ROW,) * 2))
    # four txgs of 5 s
    assert one.settle_s({"x": 1}) == 20
    one.block("trial", 1, "B", {"x": 2})
    assert one.settle_s({"x": 1}) == one.settle_s({"x": 2}) == one.records[1].settle_s


def test_a_wait_is_expected_from_the_txgs_under_its_values() -> None:
    """Those of a candidate may be much shorter."""
    one, _, _ = make()
    assert isinstance(one.meter, Meter)
    one.meter.done = (ROW,) * 2
    one.block("aa", None, "A", {"x": 1})
    one.meter.done = (ROW,) * 20
    one.block("trial", 1, "B", {"x": 2})
    # four txgs of 5 s
    assert one.settle_s({"x": 1}) == 20
    assert one.settle_s({"x": 2}) == one.settle_s({"x": 3}) == one.records[1].settle_s
    one.block("trial", 1, "A", {"x": 1})
    assert one.settle_s({"x": 1}) == one.records[2].settle_s


def test_a_pool_that_does_not_sync_ends_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    one, _, host = make()
    monkeypatch.setattr(host, "txg_rows", lambda _pool: [])
    with pytest.raises(Abort, match="no 3 txgs"):
        one.block("aa", None, "A", {"x": 1})


@pytest.mark.parametrize(("rate", "seconds"), [(20.0, 10), (4.0, 20), (2.0, 30), (0.1, 30)])
def test_a_block_with_too_few_fsyncs_is_longer(rate: float, seconds: int) -> None:
    one, _, _ = make(rate)
    record = one.block("aa", None, "A", {"x": 1})
    assert round(record.block.seconds) == seconds
    assert (too_few(PLAN, [record]) is None) == (rate * 30 >= 50)


def test_too_few_says_how_many_are_needed() -> None:
    one, _, _ = make(0.5)
    said = too_few(PLAN, [one.block("aa", None, "A", {"x": 1})])
    assert said is not None
    assert "15 fsyncs in 30 s (0.5/s)" in said
    assert "needs 50 (5.0/s)" in said


def test_a_pair_may_end_a_trial() -> None:
    one, _, _ = make()
    done = one.blocks("trial", 1, "ABBA", {"x": 1}, {"x": 2}, go_on=lambda _: False)
    assert [r.label for r in done] == ["A", "B"]


def test_a_signal_ends_a_block_at_once() -> None:
    one, _, _ = make()
    one.stop.asked = True
    with pytest.raises(Stopped):
        one.block("aa", None, "A", {"x": 1})


def test_guardrails_are_checked_every_second() -> None:
    one, seen, _ = make()
    one.block("aa", None, "A", {"x": 1})
    assert seen.count("block") == 10
    # and once more before the block
    assert seen.count("settle") == round(one.records[0].settle_s) + 1


def test_a_block_ends_within_a_second_of_the_clock() -> None:
    """Where it holds whole periods that are no whole seconds."""
    one, _, _ = make()
    one.plan = replace(PLAN, seconds=12.3)
    assert one.block("aa", None, "A", {"x": 1}).block.seconds == pytest.approx(12.3, abs=0.01)


def test_the_time_of_a_pair_is_that_of_the_blocks_to_come() -> None:
    one, _, _ = make()
    one.block("aa", None, "A", {})
    one.plan = replace(PLAN, seconds=15.0)
    assert one.block_s() == 15


def test_in_the_proof_every_block_waits() -> None:
    one, _, _ = make()
    done = one.blocks("confirm", None, "ABBA", {"x": 1}, {"x": 2}, wait_s=0.0)
    assert all(r.settle_s > 8 for r in done)


def test_in_the_proof_a_block_without_a_change_waits_as_long() -> None:
    one, _, _ = make()
    depth = "zfs_vdev_async_write_max_active"
    done = one.blocks("confirm", None, "ABBAAB", {depth: 10}, {depth: 3}, wait_s=0.0)
    assert [int(record.settle_s / 4) for record in done[1:]] == [3] * 5


def test_in_the_proof_no_block_waits_less_than_it_must() -> None:
    one, _, _ = make()
    done = one.blocks("confirm", None, "ABBA", {"x": 1}, {"x": 2}, wait_s=50.0)
    assert all(50 <= r.settle_s < 52 for r in done)
    # what the values need is another matter
    assert one.settle_s({"x": 1}) < 30


def test_the_time_of_a_pair_is_learned() -> None:
    one, _, _ = make(4.0)
    assert one.pair_s() == 2 * (10 + 20)
    one.blocks("trial", 1, "AB", {"x": 1}, {"x": 2})
    assert one.pair_s() == pytest.approx(2 * (20 + one.records[1].settle_s))
