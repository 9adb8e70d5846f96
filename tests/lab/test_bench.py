"""`zfstune bench` on a real dataset. No test asserts a time or a rate: the guest is emulated."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from support.errors import ONE_ERROR

Json = dict[str, Any]

SYNCED = ("fdatasync", "fsync", "o_dsync", "two-fdatasync", "committers-3")


@pytest.fixture
def bench(scenario: Callable[[str, str], Json], flavour: str) -> Json:
    return scenario("bench", flavour)


def rows(found: Json) -> list[Json]:
    return [json.loads(line) for line in found["stdout"].splitlines()]


def test_each_sync_is_a_commit(bench: Json) -> None:
    assert bench["json"]["status"] == 0, bench["json"]["stderr"]
    found = {row["test"]: row for row in rows(bench["json"])}
    assert tuple(found) == ("fdatasync", "fsync", "o_dsync", "two-fdatasync", SYNCED[-1], "plain")
    counts = {name: (row["fsync"]["count"], row["count"]) for name, row in found.items()}
    for name in SYNCED:
        traced, told = counts[name]
        assert traced == told > 0, counts
    assert counts["plain"][0] == 0
    assert [row["lost"] for row in found.values()] == [0] * len(found)


def test_syncs_are_of_the_kind_of_the_test(bench: Json) -> None:
    kinds = {"fdatasync": "fdatasync", "fsync": "fsync", "o_dsync": "o_sync"}
    for row in rows(bench["json"]):
        if row["test"] in kinds:
            assert row["fsync"]["kinds"][kinds[row["test"]]] == row["count"]


def test_shares_sum_up(bench: Json) -> None:
    for row in rows(bench["json"]):
        if row["test"] in SYNCED:
            assert sum(row["shares"].values()) == pytest.approx(1, abs=0.001)
            device = row["shares"].get("log_write", 0) + row["shares"].get("flush", 0)
            assert 0 < device <= 1
            times = row["jobs"] * row["count"] * 1e9 / row["limit_per_s"]
            stages = {stage["name"]: stage["total_ns"] for stage in row["fsync"]["stages"]}
            assert times == pytest.approx(stages["log_write"] + stages["flush"], rel=0.001)


def test_json_has_the_schema(bench: Json) -> None:
    for row in rows(bench["json"]):
        assert (row["schema"], row["type"]) == (1, "bench")
        assert row["tool"].startswith("fio 3.")
        assert row["per_s"] > 0
        assert (row["p50_ns"] is None) == (row["times_of"] is None)
        assert row["fsync"]["dataset"] == "tank/db"
        assert row["place"] == "/tank/db (tank/db)"


def test_the_table_fits_100_columns(bench: Json) -> None:
    found = bench["text"]
    assert found["status"] == 0, found["stderr"]
    lines = found["stdout"].splitlines()
    assert re.fullmatch(
        r"/tank/db \(tank/db\), ZFS \S+: fio 3\.\d+, 0\.3 s for each test", lines[0]
    )
    assert "device limit" in lines[2]
    assert lines[3].startswith("8 kB, fsync ")
    assert re.search(r"(flush|log_write|issue) \d+%", lines[3])
    assert lines[4].startswith("8 kB, no sync ")
    assert any(line.startswith("lost 0") for line in lines)
    assert max(map(len, lines)) < 100


def test_fio_runs_the_tests_that_pg_test_fsync_lacks(bench: Json) -> None:
    """fio runs the tests that pg_test_fsync cannot: on ZFS 2.3 and later it fails before the
    last."""
    if not bench["pg"]:
        pytest.skip("the image has no pg_test_fsync")
    assert bench["pg"]["status"] == 0, bench["pg"]["stderr"]
    found = {row["test"]: row for row in rows(bench["pg"])}
    for name in ("fsync", "two-fdatasync"):
        assert found[name]["tool"].startswith("pg_test_fsync")
        assert found[name]["times_of"] == "trace"
        assert found[name]["fsync"]["count"] > 0
    assert found["plain"]["tool"].startswith(("fio", "pg_test_fsync"))


def test_without_a_trace_there_are_rates(bench: Json) -> None:
    for name, why, status in (
        ("no_zfs", "/tmp/bench is not on ZFS", 0),
        ("nobody", "cannot trace", 1),
    ):
        found = bench[name]
        assert found["status"] == status, found
        (row,) = rows(found)
        assert row["fsync"] is None
        assert row["untraced"].startswith(why)
        assert row["count"] > 0


def test_without_a_log_there_are_calls_and_no_commits(bench: Json) -> None:
    """sync=disabled: calls, but no commits, and no limit by the device."""
    (row,) = rows(bench["no_log"])
    assert bench["no_log"]["status"] == 0
    assert row["fsync"]["zil"] is False
    assert row["fsync"]["no_zil"] == row["count"]
    assert row["limit_per_s"] is None


@pytest.mark.parametrize(
    ("case", "status", "hint"),
    [
        ("volume", 2, "has no directory"),
        ("readonly", 3, "Read-only file system"),
        ("no room", 3, "take a smaller --size"),
        ("no fio", 3, "install the package fio"),
        ("not allowed", 3, "Permission denied"),
    ],
)
def test_errors_are_one_line(bench: Json, case: str, status: int, hint: str) -> None:
    found = bench["errors"][case]
    assert found["status"] == status, found
    assert re.search(rf"{ONE_ERROR}\Z", found["stderr"])
    assert hint in found["stderr"]
    assert "Traceback" not in found["stderr"]


def test_nothing_is_left(bench: Json) -> None:
    assert bench["json_left"] == []
    assert bench["without_left"] == []
    assert bench["others"] == []


def test_an_interrupt_at_any_moment_leaves_nothing(bench: Json) -> None:
    assert len(bench["interrupted"]) == bench["rounds"]
    for found in bench["interrupted"]:
        assert (found["left"], found["programs"]) == ([], []), found
        assert "Traceback" not in found["stderr"], found
        # before the handlers are there it ends as any program does
        assert found["status"] in (1, 130, -2, -15), found
        for row in rows(found):
            assert row["count"] > 0
        if found["status"] == 1:
            assert "not measured: " in found["stderr"]


def test_a_failing_disk_ends_it_with_an_error(bench: Json) -> None:
    found = bench["failing"]
    assert found["state"] == "SUSPENDED"
    assert found["status"] == 1, found
    assert "Traceback" not in found["stderr"]
    assert "not measured: fsync, fdatasync" in found["stdout"]
    # what is left is named
    (name,) = found["left"]
    assert f"{name} is left (pool frail is SUSPENDED)" in found["stdout"].replace("\n", " ")
    assert found["again"]["status"] == 3
    assert "cannot write to pool frail: it is SUSPENDED" in found["again"]["stderr"]
