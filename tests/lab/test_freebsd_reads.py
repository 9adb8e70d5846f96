"""On FreeBSD reads and writes are counted exactly, by the dataset's name, and hits and misses told
apart."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from lab.rows import Json


@pytest.fixture
def found(scenario: Callable[[str, str], Json], flavour: str) -> Json:
    return scenario("freebsd_reads", flavour)


def rows(found: Json, key: str) -> dict[str, Json]:
    """By dataset; those of one trace, from which nothing was lost."""
    assert found[key]["status"] == 0, found[key]["stderr"]
    assert all(row["type"] == "read" and row["lost"] == 0 for row in found[key]["rows"])
    return {row["dataset"]: row for row in found[key]["rows"]}


def test_reads_that_are_cached_are_hits(found: Json) -> None:
    row = rows(found, "hits")["tank/db"]
    assert (row["reads"], row["hits"], row["misses"]) == (503, 503, 0)
    assert (row["read_bytes"], row["writes"]) == (503 * 4096, 0)
    assert row["hit"]["p50"] <= row["hit"]["p99"] <= row["hit"]["max"]


def test_reads_from_the_disk_are_misses(found: Json) -> None:
    """But for those whose I/O ended before the thread could wait."""
    row = rows(found, "misses")["tank/db"]
    assert row["reads"] == found["cold"]
    assert row["misses"] > found["cold"] * 0.9


def test_reads_by_kstats_are_counted_and_not_timed(found: Json) -> None:
    row = rows(found, "kstat")["tank/db"]
    assert (row["reads"], row["read_bytes"], row["source"]) == (307, 307 * 4096, "kstat")
    assert (row["hits"], row["read"]) == (None, None)


def test_reads_have_writes_beside_them(found: Json) -> None:
    row = rows(found, "writes")["tank/other"]
    assert (row["writes"], row["write_bytes"], row["errors"]) == (211, 211 * 8192, 0)


def test_reads_of_one_dataset_or_process(found: Json) -> None:
    for key in ("by_dataset", "by_pid"):
        got = {name: row["reads"] for name, row in rows(found, key).items()}
        assert got == {"tank/other": 37}, key
