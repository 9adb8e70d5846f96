"""`make test-databases`: PostgreSQL and MariaDB on ZFS. Rates are not judged, since the guest is
emulated; what is: counts, bytes, advice, and what is there after a crash."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import pytest
from lab.rows import Json

from pages.databases import machine, page

# What each cluster that is set up badly must be told.
POSTGRESQL = {
    "sync-disabled",
    "primarycache-none",
    "postgresql-fsync-off",
    "logbias-throughput-sync-load",
    "recordsize-above-page",
    "compression-off",
    "atime-on",
    "full-page-writes",
    "wal-with-data",
    "wal-init-zero",
    "wal-recycle",
}
MARIADB = {
    "sync-disabled",
    "primarycache-none",
    "logbias-throughput-sync-load",
    "recordsize-above-page",
    "compression-off",
    "atime-on",
    "innodb-doublewrite",
    "innodb-durability",
}
DURABLE = ("postgresql", "full_page_writes=off", "mariadb", "innodb_doublewrite=OFF")


@pytest.fixture
def page_file(request: pytest.FixtureRequest) -> Path:
    file = request.config.getoption("--page")
    if not file:
        pytest.skip("takes an hour, run `make test-databases`")
    return Path(file)


@pytest.fixture
def found(page_file: Path, scenario: Callable[[str, str], Json], flavour: str) -> Json:
    return scenario("databases", flavour)


def typical(blocks: Sequence[Json], setting: str, value: Callable[[Json], float]) -> float:
    return median(value(block) for block in blocks if block["setting"] == setting)


def per_transaction(block: Json) -> float:
    return float(block["fsync"]["count"] / block["transactions"])


def disk_bytes(block: Json) -> float:
    return float(block["disk_bytes"])


def test_no_scene_failed(found: Json) -> None:
    assert found["failed"] == {}


def test_installing_starts_no_server(found: Json) -> None:
    assert sorted(found["packages"]) == ["mariadb-server", "postgresql-17", "sysbench"]
    assert found["started_by_installing"] == []


def test_each_fsync_of_postgresql_is_counted(found: Json) -> None:
    counts = found["counts"]
    assert counts["wal"]["kinds"]["fdatasync"] == counts["wal_sync_with_checkpoint"] > 100
    assert counts["data"]["kinds"]["fsync"] >= counts["file_fsyncs"] > 0
    assert (counts["wal"]["lost"], counts["data"]["lost"]) == (0, 0)


def test_nothing_was_lost_by_the_trace(found: Json) -> None:
    blocks = [b for scene in ("knobs", "mariadb") for bs in found[scene].values() for b in bs]
    assert all(block["fsync"]["lost"] == 0 for block in blocks if isinstance(block, dict))


def test_large_records_write_more(found: Json) -> None:
    blocks = found["knobs"]["recordsize"]
    sizes = [typical(blocks, record, disk_bytes) for record in ("8K", "32K", "128K")]
    assert sizes == sorted(sizes)
    assert sizes[2] > 1.5 * sizes[0]


def test_full_page_writes_fill_the_wal(found: Json) -> None:
    on, off = (
        typical(found["knobs"]["full_page_writes"], value, lambda block: float(block["wal_bytes"]))
        for value in ("on", "off")
    )
    assert on > 1.5 * off


@pytest.mark.parametrize(
    ("scene", "name", "waits", "does_not"),
    [
        ("knobs", "synchronous_commit", "on", "off"),
        ("mariadb", "innodb_flush_log_at_trx_commit", "1", "2"),
    ],
)
def test_asynchronous_commits_do_without_fsyncs(
    found: Json, scene: str, name: str, waits: str, does_not: str
) -> None:
    blocks = found[scene][name]
    many, few = (typical(blocks, value, per_transaction) for value in (waits, does_not))
    assert many > 2 * few


def test_sync_disabled_makes_fsyncs_void(found: Json) -> None:
    for block in found["knobs"]["sync"]:
        assert block["fsync"]["count"] > 0
        assert block["fsync"]["zil"] == (block["setting"] == "standard")


def test_the_doublewrite_buffer_writes_more(found: Json) -> None:
    blocks = found["mariadb"]["innodb_doublewrite"]
    assert typical(blocks, "ON", disk_bytes) > typical(blocks, "OFF", disk_bytes)


@pytest.mark.parametrize(
    ("key", "wanted"), [("advised_postgresql", POSTGRESQL), ("advised_mariadb", MARIADB)]
)
def test_advice_names_what_is_bad_and_mends_it(found: Json, key: str, wanted: set[str]) -> None:
    one = found[key]
    assert wanted <= set(one["before"])
    assert not wanted & set(one["after"])
    assert any(command.startswith("zfs set sync=standard") for command in one["commands"])
    assert any(command.startswith("zfs set sync=standard") for command in one["durable_commands"])


def test_the_configuration_that_was_advised_is_in_force(found: Json) -> None:
    one = found["advised_postgresql"]
    assert one["settings"]["fsync"] == "on"
    assert one["in_force"] == one["settings"]


def test_bench_sees_whether_a_sync_reaches_the_device(found: Json) -> None:
    one = found["advised_postgresql"]
    assert not any(test["zil"] for test in one["bench_bad"])
    assert all(test["zil"] and test["commits"] for test in one["bench_durable"])
    assert all(test["zil"] and test["commits"] for test in one["bench_advised"])


def test_a_session_ends_and_leaves_nothing(found: Json) -> None:
    one = found["tune"]
    session = one["session"]
    assert session["state"] == "finished", one["stderr"]
    assert one["status"] == (0 if session["in_force"] else 1)
    assert session["in_force"] == bool(one["in_force"])
    assert all(block["fsyncs"] > 0 for block in session["blocks"])
    assert one["revert"]["status"] == 0
    assert (one["after_revert"], one["left"]) == ({}, {})


@pytest.mark.parametrize("name", DURABLE)
def test_a_crash_takes_no_confirmed_transaction(found: Json, name: str) -> None:
    mine = [row for rows in found["crash"] for row in rows if row["name"] == name]
    assert len(mine) == len(found["crash"]) > 0
    for row in mine:
        assert row["recovered"], row
        assert row["confirmed"] > 0
        assert row["lost"] == 0, row
        assert row.get("bad_pages", 0) == 0


def test_a_crash_takes_the_end_where_commits_do_not_wait(found: Json) -> None:
    rows = [row for rows in found["crash"] for row in rows if row["name"] not in DURABLE]
    assert all(row["only_the_end"] for row in rows if row["recovered"])
    assert any(row["lost"] for row in rows if row["recovered"] and row["name"] == "sync=disabled")


def test_the_page_is_written(found: Json, page_file: Path) -> None:
    text = page([found], machine())
    print(text)
    page_file.write_text(text, encoding="utf-8")
