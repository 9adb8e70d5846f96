"""Reads and writes are counted exactly, hits and misses apart, by the dataset's name."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attaching import may_skip, seen
from lab.rows import Json


@pytest.fixture(scope="module")
def found(scenario: Callable[[str, str], Json], flavour: str) -> Json:
    return scenario("reads", flavour)


def rows(found: Json, key: str) -> dict[str, Json]:
    """By dataset; those of one trace, from which nothing was lost but what the kernel skipped."""
    assert found[key]["status"] == 0, found[key]["stderr"]
    assert "Traceback" not in found[key]["stderr"]
    assert all(row["type"] == "read" for row in found[key]["rows"])
    assert all(row["lost"] == 0 or may_skip(found["host"]) for row in found[key]["rows"])
    return {row["dataset"]: row for row in found[key]["rows"]}


@pytest.mark.parametrize(("key", "n"), [("hits", 503), ("kprobes", 307)])
def test_cached_reads_are_hits(found: Json, key: str, n: int) -> None:
    row = rows(found, key)["tank/db"]
    assert seen(found["host"], row, row["reads"], n)
    assert (row["hits"], row["misses"], row["writes"]) == (row["reads"], 0, 0)
    assert row["read_bytes"] == row["reads"] * 4096
    assert row["pool"] == "tank"
    assert row["hit"]["p50"] <= row["hit"]["p99"] <= row["hit"]["max"]
    assert (row["miss"], row["write"]) == (None, None)


@pytest.mark.parametrize("key", ["hits", "kprobes", "misses", "misses_kprobes", "threads"])
def test_the_kstat_counts_the_same_reads(found: Json, key: str) -> None:
    [row] = [row for row in rows(found, key).values() if row["reads"]]
    theirs = found[key]["kstat"]
    assert seen(found["host"], row, row["reads"], theirs["reads"])
    assert row["read_bytes"] * theirs["reads"] == row["reads"] * theirs["nread"]


def test_kstats_alone_count_and_do_not_time(found: Json) -> None:
    row = rows(found, "kstat")["tank/db"]
    assert (row["reads"], row["read_bytes"], row["source"]) == (211, 211 * 4096, "kstat")
    assert [row[name] for name in ("hits", "misses", "read", "hit", "errors")] == [None] * 5
    assert "not timed" in found["kstat"]["stderr"]


@pytest.mark.parametrize(("key", "cached"), [("misses", 0), ("misses_kprobes", 53)])
def test_reads_from_the_disk_are_misses(found: Json, key: str, cached: int) -> None:
    """But for one in a hundred that loses the processor between its I/O's start and its wait, for
    as long as the I/O takes: under emulation that happens."""
    cold = found["cold"]
    row = rows(found, key)["slow/cold"]
    assert seen(found["host"], row, row["reads"], cold + cached)
    assert row["hits"] + row["misses"] == row["reads"]
    assert 0.95 * cold <= row["misses"] <= cold
    assert row["miss_bytes"] == row["misses"] * 8192
    assert row["read_bytes"] == row["reads"] * 8192


def test_the_end_of_a_file_and_mappings_are_no_reads(found: Json) -> None:
    assert not rows(found, "end")
    assert "no read or write seen" in found["end"]["stderr"]


def test_errors_are_counted_apart(found: Json) -> None:
    row = rows(found, "errors")["slow/cold"]
    assert found["failed"] == [-1] * 3
    assert seen(found["host"], row, row["errors"], 3)
    assert row["reads"] == 0


def test_writes(found: Json) -> None:
    row = rows(found, "writes")["tank/other"]
    theirs = found["writes"]["kstat"]
    assert (theirs["writes"], theirs["nwritten"]) == (211, 211 * 8192)
    assert seen(found["host"], row, row["writes"], 211)
    assert row["write_bytes"] == row["writes"] * 8192


def test_the_throttle_is_seen_in_writes(found: Json) -> None:
    row = rows(found, "held")["tank/other"]
    assert seen(found["host"], row, row["writes"], 512)
    assert 0 < row["held"] <= row["writes"]
    assert 0 < row["held_ns"] <= (row["write"]["mean"] + 1) * row["writes"]


def test_filters(found: Json) -> None:
    by_dataset, by_pid, by_pool = (rows(found, f"by_{key}") for key in ("dataset", "pid", "pool"))
    assert [(name, row["reads"]) for name, row in by_dataset.items()] == [("tank/other", 37)]
    assert [(name, row["reads"]) for name, row in by_pid.items()] == [("tank/db", 37)]
    assert [(name, row["reads"]) for name, row in by_pool.items()] == [("side", 41)]


def test_a_dataset_keeps_its_name_when_it_is_mounted_again(found: Json, flavour: str) -> None:
    """Without BTF of the module it is known by the device number of its mount, which two that are
    mounted in another order exchange."""
    reads = {name: row["reads"] for name, row in rows(found, "mounts").items()}
    assert sum(reads.values()) == 13 + 17 + 19 + 23
    if flavour == "trixie":
        assert reads == {"tank/db": 13 + 17 + 23, "tank/other": 19}


def test_many_threads(found: Json) -> None:
    row = rows(found, "threads")["tank/db"]
    assert seen(found["host"], row, row["reads"], 8 * 97)
    assert row["read_bytes"] == row["reads"] * 4096


def test_the_table_of_a_mixed_load(found: Json) -> None:
    lines = found["sample"].splitlines()
    assert lines[0].startswith("slow  ")
    assert [line.split()[0] for line in lines[4:6]] == ["miss", "write"]
    assert "reads did not wait for an I/O" in found["sample"]
    assert "lost 0 " in found["sample"] or may_skip(found["host"])


def test_output_and_traces(found: Json) -> None:
    assert found["text"].splitlines()[0].startswith("no read or write seen in 2.")
    assert "missing probes: none" in found["text"]
    assert found["refused"]["status"] == 3
    assert found["refused"]["stderr"].startswith("zfstune: error: ")
    assert found["programs_left"] == []
