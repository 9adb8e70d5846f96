"""A light trace counts every commit, estimates what a trace of everything measures, and takes
little of the kernel's memory, whatever the machine could have."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from lab.rows import Json

LIMIT = 16 << 20


@pytest.fixture
def light(scenario: Callable[[str, str], Json], flavour: str) -> Json:
    return scenario("light", flavour)


def row_of(rows: list[Json], dataset: str | None) -> Json:
    return next(row for row in rows if row.get("dataset") == dataset and "commits" in row)


def test_every_commit_is_counted(light: Json) -> None:
    exact = light["exact"]
    assert exact["status"] == 0
    db = row_of(exact["rows"], "tank/db")
    assert db["commits"] == exact["kstat_commits"] == 7 * 149
    # with sync=disabled an fsync makes none
    assert "tank/off" not in {row["dataset"] for row in exact["rows"]}
    assert db["lost"] == db["unfinished"] == 0


def test_every_log_block_is_timed(light: Json) -> None:
    """One writer: each of its commits writes a block or more."""
    db = row_of(light["exact"]["rows"], "tank/db")
    assert db["log_blocks"] >= db["commits"]
    assert db["log_write"]["mean"] + db["flush"]["mean"] < db["latency"]["mean"] * 1.1


def test_estimates_are_those_of_a_trace_of_everything(light: Json) -> None:
    estimates = light["estimates"]
    light_row, whole = (row_of(estimates[way], "tank/db") for way in ("light", "whole"))
    total = sum(stage["total_ns"] for stage in whole["stages"])
    found = light_row["estimated"]
    assert found["windows"] >= 8
    # of the fsyncs that began in a quarter of the time
    assert 0.1 < found["fsyncs"] / whole["count"] < 0.45
    assert found["lost"] == 0
    truth = {stage["name"]: stage["total_ns"] / total for stage in whole["stages"]}
    off = {one["name"]: abs(one["share"] - truth[one["name"]]) for one in found["stages"]}
    assert max(off.values()) < 0.1, off


def test_a_slow_commit_keeps_a_window(light: Json) -> None:
    rows = light["kept"]["rows"]
    windows = [row for row in rows if row["type"] == "light_window"]
    # 30 s have room for three or four
    assert 2 <= len(windows) <= 5
    for window in windows:
        assert window["dataset"] == "slow"
        assert window["cause"]["comm"] == "fio" and window["cause"]["total_ns"] >= 30_000_000
        assert max(window["stages"], key=lambda name: window["stages"][name]) == "flush"


def test_it_takes_little_memory(light: Json, flavour: str) -> None:
    if flavour.startswith("bookworm"):
        assert light["possible"] == "0-63"
    assert "slot_data" in light["maps"]
    assert sum(light["maps"].values()) < LIMIT, light["maps"]


def test_nothing_stays(light: Json) -> None:
    assert light["programs_left"] == []
    refused = light["refused"]
    assert refused["status"] == 2 and "use it with --light" in refused["stderr"]
