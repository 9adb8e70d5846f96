"""`zfstune bench` on a real dataset of FreeBSD. No test asserts a time or a rate: the guest is
emulated."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from lab.rows import Json
from support.errors import ONE_ERROR

TESTS = ("fdatasync", "fsync", "o_dsync", "two-fdatasync", "committers-3", "plain")


@pytest.fixture
def bench(scenario: Callable[[str, str], Json], flavour: str) -> Json:
    found = scenario("freebsd_bench", flavour)
    if not found["fio"]:
        pytest.skip("the guest has no fio: see ZFSTUNE_FREEBSD_PROGRAMS in docs/lab.md")
    return found


def rows(found: Json) -> list[Json]:
    return [json.loads(line) for line in found["stdout"].splitlines()]


def test_each_sync_is_a_commit(bench: Json) -> None:
    assert bench["json"]["status"] == 0, bench["json"]["stderr"]
    found = {row["test"]: row for row in rows(bench["json"])}
    assert tuple(found) == TESTS
    for name, row in found.items():
        assert row["tool"].startswith("fio 3.")
        assert row["fsync"]["count"] == (0 if name == "plain" else row["count"])
        assert row["lost"] == 0
        assert name == "plain" or row["fsync"]["count"] > 0


def test_shares_sum_up(bench: Json) -> None:
    for row in rows(bench["json"])[:-1]:
        assert sum(row["shares"].values()) == pytest.approx(1, abs=0.001)
        assert 0 < row["shares"].get("log_write", 0) + row["shares"].get("flush", 0) <= 1


def test_the_table_fits_100_columns(bench: Json) -> None:
    found = bench["text"]
    assert found["status"] == 0, found["stderr"]
    lines = found["stdout"].splitlines()
    assert re.match(r"/tank/db \(tank/db\), ZFS \S+: fio 3\.\d+, 0\.3 s for each test", lines[0])
    assert any(line.startswith("lost 0") for line in lines)
    assert max(map(len, lines)) < 100


def test_without_zfs_there_are_rates(bench: Json) -> None:
    assert bench["no_zfs"]["status"] == 0, bench["no_zfs"]
    (row,) = rows(bench["no_zfs"])
    assert row["untraced"].startswith("/tmp/bench is not on ZFS")
    assert row["count"] > 0


def test_without_a_log_there_are_calls_and_no_commits(bench: Json) -> None:
    assert bench["no_log"]["status"] == 0, bench["no_log"]
    (row,) = rows(bench["no_log"])
    assert (row["fsync"]["zil"], row["fsync"]["no_zil"]) == (False, row["count"])


def test_a_volume_is_refused_in_one_line(bench: Json) -> None:
    found = bench["volume"]
    assert found["status"] == 2
    assert re.fullmatch(ONE_ERROR, found["stderr"])
    assert "has no directory" in found["stderr"]


def test_ctrl_c_leaves_nothing(bench: Json) -> None:
    found = bench["interrupted"]
    assert found["status"] == 1, found
    assert "not measured: fsync" in found["stderr"]
    assert "Traceback" not in found["stderr"]
    assert bench["left"] == []
