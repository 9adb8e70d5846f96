"""Each known cause of a slow fsync is found in its stage.

Not produced here: an exhausted log (log blocks come from reserved space), and `tx_assign` from
2.1.12 on (a commit's transaction waits there only while the pool is suspended).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attaching import may_skip, seen
from lab.rows import Json, dataset_row, pool_row, share, stage, total_ns


@pytest.fixture
def causes(scenario: Callable[[str, str], Json], flavour: str) -> Json:
    return scenario("causes", flavour)


@pytest.mark.parametrize("cause", ["flush", "log_write"])
def test_a_slow_device_is_found_in_its_stage(causes: Json, cause: str) -> None:
    """40 ms of delay, put into one of the two: dm-delay counts ticks of 4 ms, and may begin in
    the middle of one."""
    row = dataset_row(causes[cause]["rows"], "tank/db")
    assert seen(causes["host"], row, row["count"], 61)
    assert share(row, cause) > 0.5
    assert stage(row, cause)["p50"] >= 35_000_000


def test_committers_wait_for_each_other(causes: Json) -> None:
    alone = dataset_row(causes["crowd1"]["rows"], "tank/db")
    crowd = dataset_row(causes["crowd16"]["rows"], "tank/db")
    assert all(seen(causes["host"], row, row["count"], 800) for row in (alone, crowd))
    together = ("issuer_lock", "batch_wait")
    assert share(crowd, *together) > 0.1
    assert (
        sum(stage(crowd, s)["total_ns"] for s in together)
        > sum(stage(alone, s)["total_ns"] for s in together) * 3
    )


def test_dirty_mapped_pages_are_writeback(causes: Json) -> None:
    """Only `issue` may come near: the same fsync then issues a log record for each page, which
    takes a half to 1.1 times as long. Written by write(2), nothing is left to write back."""
    row = dataset_row(causes["writeback"]["rows"], "tank/db")
    calm = dataset_row(causes["crowd1"]["rows"], "tank/db")
    assert row["kinds"]["fsync"] == row["count"] == 3
    assert share(row, "writeback") > 0.3
    others = [s for s in row["stages"] if s["name"] != "issue"]
    assert max(others, key=lambda s: int(s["total_ns"]))["name"] == "writeback"
    assert share(calm, "writeback") < 0.05


def test_first_commits_wait_for_a_txg(causes: Json) -> None:
    row = pool_row(causes["first"]["rows"])
    assert row["count"] == 7
    assert stage(row, "txg_fallback")["count"] == 7
    assert share(row, "txg_fallback") > 0.5


def test_a_failed_log_write_waits_for_a_txg(causes: Json) -> None:
    row = dataset_row(causes["failing"]["rows"], "tank/db")
    assert row["count"] == 30
    assert stage(row, "txg_fallback")["count"] >= 1
    errors = causes["failing"]["zil"].get("zil_commit_error_count")  # 2.3 and later
    if errors is not None:
        assert errors >= 1
        assert stage(row, "txg_fallback")["count"] >= errors


def test_a_busy_cpu_is_wakeup(causes: Json) -> None:
    """Of the time after it began to wait. What it loses before that is `issue`: on a
    preemptible kernel most of it, and the log is often on disk before the wait begins."""
    row = dataset_row(causes["wakeup"]["rows"], "tank/db")
    calm = dataset_row(causes["crowd1"]["rows"], "tank/db")
    assert row["count"] == 60
    assert share(row, "wakeup") > share(row, "log_write", "flush")
    assert stage(row, "wakeup")["p50"] > stage(calm, "wakeup")["p50"] * 5


def test_the_throttle_delays_commits_of_old_zfs(causes: Json) -> None:
    row = dataset_row(causes["throttled"]["rows"], "tank/db")
    assert row["count"] == 29
    assert row["lost"] == 0
    assert share(row, "other") < 0.05
    if causes["zfs"].startswith("2.1.11"):
        assert stage(row, "tx_assign")["count"] >= 1


def test_a_mixed_load_leaves_little_unexplained(causes: Json) -> None:
    row = dataset_row(causes["mixed"]["rows"], "tank/db")
    assert row["lost"] == 0
    assert share(row, "other") < 0.05


def test_slow_events_sum_up(causes: Json) -> None:
    rows = causes["slow"]["rows"]
    assert causes["slow"]["status"] == 0
    assert len(rows) > 20
    for row in rows:
        assert row["type"] == "slow_fsync"
        assert sum(row["stages"].values()) == row["total_ns"] >= 2_000_000
        assert row["pool"] == "tank"
    assert sum(r["stages"]["other"] for r in rows) < 0.05 * sum(r["total_ns"] for r in rows)
    assert {r["comm"] for r in rows if r["dataset"] == "tank/db"} == {"fio"}


@pytest.mark.parametrize(
    "key",
    ["flush", "log_write", "crowd1", "crowd16", "writeback", "first", "failing", "wakeup", "mixed"],
)
def test_nothing_is_lost(causes: Json, key: str) -> None:
    for row in causes[key]["rows"]:
        assert row["lost"] == 0 or may_skip(causes["host"])
        assert row["losses"]["log_block"] <= row["count"] // 100
        if row["count"]:
            assert total_ns(row) // row["count"] == row["latency"]["mean"]
    row = pool_row(causes[key]["rows"])
    assert seen(causes["host"], row, row["commits"], causes[key]["kstat_commits"])


def test_no_program_is_left(causes: Json) -> None:
    assert causes["programs_left"] == []
