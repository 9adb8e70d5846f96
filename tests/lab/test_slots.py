"""A trace takes little of the kernel's memory, whatever the machine could have; datasets that come
and go are all counted, and leave their room to others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from lab.rows import Json, dataset_row, pool_row

LIMIT = 256 << 20


@pytest.fixture
def slots(scenario: Callable[[str, str], Json], flavour: str) -> Json:
    return scenario("slots", flavour)


def test_memory_is_taken_for_present_cpus_only(slots: Json, flavour: str) -> None:
    many = slots["many"]
    # 6.1 believes in CPUs that could be plugged in: for those the tables would have 500 MB
    if flavour.startswith("bookworm"):
        assert many["possible"].strip() == "0-63"
    assert "slot_data" in many["maps"]
    assert sum(many["maps"].values()) < LIMIT // 4
    assert many["took"] < LIMIT


def test_many_datasets_are_counted_apart(slots: Json) -> None:
    many = slots["many"]
    for i in range(many["datasets"]):
        assert dataset_row(many["rows"], f"tank/d/{i}")["kinds"]["fsync"] == 3
    row = pool_row(many["rows"])
    assert row["commits"] == many["kstat_commits"]
    assert row["losses"]["overflow"] == row["lost"] == 0
    assert many["status"] == 0


def test_slots_are_reused(slots: Json) -> None:
    """Including those of datasets known only by their superblock."""
    turns = slots["turns"]
    log = {f"tank/d/{i}" for i in range(turns["datasets_in_turns"]) if i % 8 != 7}
    assert {name: turns["found"].get(name) for name in log} == {
        name: turns["wrote"][name] for name in log
    }
    silent = sum(n for name, n in turns["wrote"].items() if name not in log)
    assert turns["found"]["unknown"] == silent
    assert turns["found"].get("rest", 0) == 0
    assert turns["in_use"] == 0
    assert turns["lost"]["overflow"] == 0


def test_a_cpu_plugged_in_later_loses_nothing(slots: Json) -> None:
    late = slots["late_cpu"]
    assert sum(late["counts"]) == 11 + 13
    assert late["lost"]["return"] == late["lost"]["start"] == 0
