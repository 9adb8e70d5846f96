"""Light traces: exact counts, and estimates from windows that hold what they promise."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake_host import FakeHost
from support.samples import from_values

from zfstrace.light import CommitCounts, CommitSums, Sample, SlowCommit, Window, shares
from zfstrace.light_summary import kept, rows, since
from zfstrace.stages import NAMES
from zfstrace.summary import Span
from zfstrace.types import Losses

STAGES = len(NAMES)
FLUSH, LOG_WRITE = NAMES.index("flush"), NAMES.index("log_write")
SPAN = Span("2026-11-26T12:00:00.000Z", 60_000_000_000, Losses(), ())
WHO = SlowCommit(1_500_000_000, 12, "postgres")


def stages(**ns: int) -> tuple[int, ...]:
    return tuple(ns.get(name, 0) for name in NAMES)


def sample(objset: int = 68, count: int = 1, pool: str = "tank", **ns: int) -> Sample:
    return Sample(pool, objset, (0, 0), False, count, stages(**ns))


def window(*samples: Sample, cause: SlowCommit | None = None, lost: int = 0) -> Window:
    return Window("2026-11-26T11:59:58.000Z", 2_000_000_000, samples, cause, lost)


def commits(*values: int, objset: int = 68, log: Sequence[int] = ()) -> CommitCounts:
    hist = from_values
    return CommitCounts("tank", objset, (0, 0), False, hist(values), hist(log), hist(log))


def test_a_share_is_that_of_all_windows_together() -> None:
    """Windows with more time weigh more: one of mean shares would say 50 %."""
    found = shares([stages(flush=900, log_write=100), stages(flush=10, log_write=90)])
    assert found[FLUSH].share == pytest.approx(910 / 1100)
    assert found[LOG_WRITE].share == pytest.approx(190 / 1100)
    assert sum(one.share for one in found) == pytest.approx(1)


def test_one_window_has_no_interval_and_none_no_share() -> None:
    (one,) = (one for one in shares([stages(flush=5)]) if one.share)
    assert (one.name, one.low, one.high) == ("flush", None, None)
    assert shares([]) == shares([stages(), stages()]) == ()


def test_windows_that_are_alike_leave_no_doubt() -> None:
    found = shares([stages(flush=3, log_write=1)] * 5)
    assert (found[FLUSH].low, found[FLUSH].high) == pytest.approx((0.75, 0.75))


@given(
    st.lists(
        st.lists(st.integers(0, 10**15), min_size=STAGES, max_size=STAGES), min_size=1, max_size=60
    )
)
def test_shares_are_shares(windows: list[list[int]]) -> None:
    found = shares(windows)
    assert len(found) in (0, STAGES)
    for one in found:
        assert 0 <= one.share <= 1
        if one.low is not None and one.high is not None:
            assert 0 <= one.low <= one.share + 1e-9
            assert one.share - 1e-9 <= one.high <= 1


def test_the_interval_has_the_truth_as_often_as_it_says() -> None:
    """In windows of a load whose share of flushes differs from window to window, as does its
    rate."""
    coins, inside = random.Random(7), 0
    for _ in range(400):
        found = shares(
            [
                stages(flush=round(of * time), log_write=round((1 - of) * time))
                for of, time in (
                    (min(1.0, max(0.0, coins.gauss(0.4, 0.1))), coins.uniform(5e8, 2e9))
                    for _ in range(20)
                )
            ]
        )[FLUSH]
        inside += found.low is not None and found.high is not None and found.low < 0.4 < found.high
    assert inside / 400 > 0.92


def test_rows_are_of_pools_and_their_datasets() -> None:
    now = [commits(), commits(5_000_000, 7_000_000, log=[4_000_000]), commits(1, objset=70)]
    windows = [window(sample(flush=3, log_write=1), lost=2), window(sample(70, 4, flush=8))]
    found = rows(now, windows, FakeHost(), SPAN, "tank")
    assert [(row.pool, row.dataset, row.commits) for row in found] == [
        ("tank", None, 3),
        ("tank", "tank/db", 2),
        ("tank", "tank/home", 1),
    ]
    pool, db, home = found
    assert (pool.sampled, db.sampled, home.sampled) == (5, 1, 4)
    assert (db.windows, db.unsampled) == (2, 2)
    assert db.latency and db.latency.max == 7_000_000
    assert db.log_write and db.log_blocks == 1 and home.log_write is None
    # half of its windows had nothing of it: they count as such
    share = db.shares[FLUSH]
    assert share.share == 0.75
    assert pool.shares[FLUSH].share == pytest.approx(11 / 12)


def test_rows_are_limited_to_what_was_asked_for() -> None:
    now = [commits(5, objset=68), commits(5, objset=70)]
    found = rows(now, [], FakeHost(), SPAN, "tank", "tank/db")
    assert [row.dataset for row in found] == ["tank/db"]
    found = rows([], [], FakeHost(), SPAN, "tank")
    assert [(row.pool, row.dataset, row.commits) for row in found] == [("tank", None, 0)]
    assert found[0].to_json()["latency"] is None


def test_what_was_before_is_subtracted() -> None:
    earlier, now = [commits(5, 6)], [commits(5, 6, 7), commits(8, objset=70)]
    assert [one.total.count for one in since(now, earlier)] == [1, 1]


def test_a_window_with_a_cause_is_a_row_of_its_own() -> None:
    slow = window(sample(flush=3, log_write=1), sample(70, log_write=5), cause=WHO)
    found = kept(slow, FakeHost(), None, "tank/db")
    assert [(row.dataset, row.fsyncs, row.stages["flush"]) for row in found] == [("tank/db", 1, 3)]
    assert found[0].to_json()["cause"] == {"total_ns": 1_500_000_000, "pid": 12, "comm": "postgres"}
    assert len(kept(slow, FakeHost())) == 2
    assert kept(window(sample(flush=3)), FakeHost()) == []


def test_a_slow_commit_without_an_fsync_after_it_is_a_row() -> None:
    for slow in (window(cause=WHO), window(sample(70, flush=3), cause=WHO)):
        (row,) = kept(slow, FakeHost(), "tank", "tank/db")
        assert (row.pool, row.dataset, row.cause, row.fsyncs) == ("tank", "tank/db", WHO, 0)
        assert set(row.stages.values()) == {0}
    (row,) = kept(window(cause=WHO), FakeHost())
    assert (row.pool, row.dataset) == (None, None)


REST = CommitCounts("", 0, (0, 0), True)


def test_sessions_are_summed_as_if_they_were_one() -> None:
    sums = CommitSums()
    assert sums.of(()) == []
    first = [REST, commits(1), commits(2, 3, objset=70)]
    assert sums.of(first) == first
    sums.end(first)
    assert sums.of(()) == first
    second = [REST, commits(5, objset=71), commits(4)]
    found = sums.of(second)
    assert [one.objset for one in found] == [0, 68, 70, 71]
    assert [one.total.count for one in found] == [0, 2, 2, 1]
    # also when they are in use later
    third = [*second, commits(8, objset=70)]
    found = sums.of(third)
    assert [one.total.count for one in found] == [0, 2, 3, 1]
    sums.end(third)
    assert sums.of(()) == found


def test_without_an_id_datasets_are_told_apart_by_device() -> None:
    sums = CommitSums()
    one, other = (replace(commits(1, objset=0), dev=(0, minor)) for minor in (40, 41))
    sums.end([REST, one])
    assert [each.total.count for each in sums.of([REST, other, one])] == [0, 2, 1]


def test_too_many_datasets_are_in_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CommitSums, "MOST", 3)
    sums = CommitSums()
    sums.end([REST, commits(1), commits(1, objset=70)])
    found = sums.of([REST, commits(1, objset=71), commits(1)])
    assert [(one.rest, one.objset, one.total.count) for one in found] == [
        (True, 0, 1),
        (False, 68, 2),
        (False, 70, 1),
    ]
