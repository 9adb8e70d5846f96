"""On FreeBSD reads and writes are counted exactly, hits and misses apart, by the dataset's name."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from lab.rows import Json

MIB = 1 << 20


@pytest.fixture(scope="module")
def found(scenario: Callable[[str, str], Json], flavour: str) -> Json:
    return scenario("freebsd_reads", flavour)


def rows(found: Json, key: str) -> dict[str, Json]:
    """By dataset; those of one trace, from which nothing was lost."""
    assert found[key]["status"] == 0, found[key]["stderr"]
    assert "Traceback" not in found[key]["stderr"]
    assert all(row["type"] == "read" and row["lost"] == 0 for row in found[key]["rows"])
    return {row["dataset"]: row for row in found[key]["rows"]}


def test_cached_reads_are_hits(found: Json) -> None:
    row = rows(found, "hits")["tank/db"]
    assert (row["reads"], row["hits"], row["misses"], row["writes"]) == (503, 503, 0, 0)
    assert (row["read_bytes"], row["pool"], row["source"]) == (503 * 4096, "tank", "trace")
    assert row["hit"]["p50"] <= row["hit"]["p99"] <= row["hit"]["max"]
    assert (row["miss"], row["write"]) == (None, None)


@pytest.mark.parametrize("key", ["hits", "misses"])
def test_the_kstat_counts_the_same_reads(found: Json, key: str) -> None:
    (row,) = rows(found, key).values()
    theirs = found[key]["kstat"]
    assert (row["reads"], row["read_bytes"]) == (theirs["reads"], theirs["nread"])


def test_kstats_alone_count_and_do_not_time(found: Json) -> None:
    row = rows(found, "kstat")["tank/db"]
    assert (row["reads"], row["read_bytes"], row["source"]) == (211, 211 * 4096, "kstat")
    assert [row[name] for name in ("hits", "misses", "read", "hit", "errors")] == [None] * 5
    assert "not timed" in found["kstat"]["stderr"]


def test_a_call_into_memory_that_is_not_there_is_one(found: Json) -> None:
    """The kernel calls ZFS again for each few pages."""
    row = rows(found, "untouched")["tank/db"]
    assert (row["reads"], row["read_bytes"], row["errors"]) == (3, 3 * MIB, 0)
    assert found["untouched"]["kstat"]["reads"] > 3


def test_reads_from_the_disk_are_misses(found: Json) -> None:
    """But for one in a hundred that loses the processor between its I/O's start and its wait, for
    as long as the I/O takes: under emulation that happens."""
    cold, row = found["cold"], rows(found, "misses")["slow/cold"]
    assert row["hits"] + row["misses"] == row["reads"] == cold + 53
    assert 0.95 * cold <= row["misses"] <= cold
    assert row["miss_bytes"] == row["misses"] * 8192
    assert row["read_bytes"] == (cold + 53) * 8192


def test_a_read_that_waits_for_that_of_another_thread_is_a_miss(found: Json) -> None:
    row = rows(found, "shared")["slow/cold"]
    assert (row["reads"], row["misses"]) == (2, 2)


def test_the_end_of_a_file_and_mappings_are_no_reads(found: Json) -> None:
    assert not rows(found, "end")
    assert "no read or write seen" in found["end"]["stderr"]


def test_errors_are_counted_apart(found: Json) -> None:
    row = rows(found, "errors")["slow/cold"]
    assert found["failed"] == [-1] * 3
    assert (row["errors"], row["reads"]) == (3, 0)


def test_writes(found: Json) -> None:
    row = rows(found, "writes")["tank/other"]
    assert (row["writes"], row["write_bytes"]) == (211, 211 * 8192)
    theirs = found["writes"]["kstat"]
    assert (row["writes"], row["write_bytes"]) == (theirs["writes"], theirs["nwritten"])


def test_the_throttle_is_seen_in_writes(found: Json) -> None:
    row = rows(found, "held")["tank/other"]
    assert row["writes"] == 512
    assert 0 < row["held"] <= 512
    assert 0 < row["held_ns"] <= row["write"]["mean"] * 512 + 512


def test_filters(found: Json) -> None:
    by_dataset, by_pid, by_pool = (rows(found, f"by_{key}") for key in ("dataset", "pid", "pool"))
    assert [(name, row["reads"]) for name, row in by_dataset.items()] == [("tank/other", 37)]
    assert [(name, row["reads"]) for name, row in by_pid.items()] == [("tank/db", 37)]
    assert [(name, row["reads"]) for name, row in by_pool.items()] == [("side", 41)]


def test_many_threads(found: Json) -> None:
    row = rows(found, "threads")["tank/db"]
    assert (row["reads"], row["read_bytes"]) == (8 * 97, 8 * 97 * 4096)


def test_what_the_kernel_reads_is_counted(found: Json) -> None:
    """As for nfsd(8), no read(2) is above it."""
    row = rows(found, "kernel")["tank/db"]
    assert (row["reads"], row["read_bytes"]) == (29, 29 * 8192)


def test_the_table(found: Json) -> None:
    lines = found["sample"].splitlines()
    assert lines[0].startswith("slow  ")
    assert [line.split()[0] for line in lines[4:6]] == ["miss", "write"]
    assert " of 400 reads did not wait for an I/O" in found["sample"]
    assert "lost 0 " in found["sample"]
    assert all(len(line) < 100 for line in lines)


def test_the_script_by_itself(found: Json) -> None:
    script = found["script"]
    assert (script["status"], script["stderr"]) == (0, "")  # no drops
    last = json.loads(script["stdout"].strip().splitlines()[-1])
    assert (last["count"], last["lost"], last["errors"]) == (17, 0, 0)
    assert last["never_fired"] == [None]


def test_output_and_what_is_refused(found: Json) -> None:
    assert found["text"].splitlines()[0].startswith("no read or write seen in 2.")
    assert "missing probes: none" in found["text"]
    for key, status in (("refused", 3), ("unknown", 2)):
        assert found[key]["status"] == status
        assert found[key]["stderr"].startswith("zfstune: error: ")
    assert found["left"] == ""
