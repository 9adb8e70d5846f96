"""Every synchronous operation is counted, once, and timed as others time it."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import pytest
from attaching import may_skip, seen, ways
from lab.rows import Json, dataset_row, pool_row, share, total_ns

# Those that fio did, several times each: guest/counts.py, TRIES.
FIOS = ("fsync", "fdatasync", "threads")


def tries(counts: Json, key: str) -> list[Json]:
    found = counts[key]
    return found if isinstance(found, list) else [found]


@pytest.fixture
def counts(scenario: Callable[[str, str], Json], flavour: str) -> Json:
    return scenario("counts", flavour)


@pytest.mark.parametrize(
    ("key", "dataset", "kind", "expected"),
    [
        ("fsync", "tank/db", "fsync", 1009),
        ("fdatasync", "tank/db", "fdatasync", 997),
        ("threads", "tank/db", "fsync", 8 * 251),
        ("joined", "tank/db", "fsync", 4 * 211 + 307),
        ("o_dsync", "tank/db", "o_sync", 499),
        ("msync", "tank/db", "msync", 53),
        ("zvol", "tank/vol", "zvol", 97),
        ("disabled", "tank/off", "fsync", 211),
    ],
)
def test_the_count_is_exact(counts: Json, key: str, dataset: str, kind: str, expected: int) -> None:
    for one in tries(counts, key):
        row = dataset_row(one["rows"], dataset)
        assert seen(counts["host"], row, row["kinds"][kind], expected)
        assert row["count"] == sum(row["kinds"].values())
        if key != "zvol":  # closing a volume flushes it once more
            assert seen(counts["host"], row, row["count"], expected)
        assert row["errors"] == 0
        assert row["unfinished"] <= row["lost"]
        assert one["status"] == 0


@pytest.mark.parametrize("key", FIOS)
def test_the_count_is_that_of_fio(counts: Json, key: str) -> None:
    for one in tries(counts, key):
        row = dataset_row(one["rows"], "tank/db")
        assert seen(counts["host"], row, row["count"], one["fio"]["syncs"])


@pytest.mark.parametrize("key", [*FIOS, "joined", "o_dsync", "msync", "zvol"])
def test_commits_are_those_of_the_kstat(counts: Json, key: str) -> None:
    for one in tries(counts, key):
        row = pool_row(one["rows"])
        assert seen(counts["host"], row, row["commits"], one["kstat_commits"])


@pytest.mark.parametrize("key", FIOS)
@pytest.mark.parametrize("percentile", ["50.000000", "99.000000"])
def test_percentiles_are_those_of_fio(counts: Json, key: str, percentile: str) -> None:
    """fio's time includes the system call itself, ours the probes. The median of the tries is
    judged: more of them wrong than right is an error of the tracer, not of a busy host."""
    if counts["comparable"] == 1:
        pytest.skip("one try is not judged: a sample")
    name = {"50.000000": "p50", "99.000000": "p99"}[percentile]
    ratios = [
        dataset_row(one["rows"], "tank/db")["latency"][name]
        / one["fio"]["lat"]["percentile"][percentile]
        for one in tries(counts, key)
    ]
    assert median(ratios) == pytest.approx(1, rel=0.10), ratios


def test_times_of_zil_commit_are_those_of_bpftrace(counts: Json) -> None:
    row = dataset_row(counts["o_dsync"]["rows"], "tank/db")
    assert seen(counts["host"], row, row["count"], counts["bpftrace"]["n"])
    assert total_ns(row) == pytest.approx(counts["bpftrace"]["sum"], rel=0.10)


def test_waits_for_blocks_of_others_are_of_the_disk(counts: Json) -> None:
    row = dataset_row(counts["joined"]["rows"], "tank/db")
    # a block may have been issued before the trace began
    assert row["losses"]["log_block"] <= 5
    # which has what a thread lost of the CPU within ZFS, if it can
    assert share(row, "other") < (0.1 if may_skip(counts["host"]) else 0.05)
    assert share(row, "log_write", "flush") > 0.2


def test_sync_always_counts_every_write(counts: Json) -> None:
    row = dataset_row(counts["always"]["rows"], "tank/always")
    assert row["count"] >= 101  # and one for creating the file
    assert row["kinds"]["o_sync"] + row["kinds"]["other"] == row["count"]
    assert row["lost"] == 0


def test_sync_disabled_has_no_zil(counts: Json) -> None:
    row = dataset_row(counts["disabled"]["rows"], "tank/off")
    assert row["zil"] is False
    assert row["commits"] == 0
    assert row["no_zil"] == 211
    assert share(row, "writeback", "other") == 1.0


def test_dataset_pid_and_no_fentry_select(counts: Json) -> None:
    rows = counts["by_dataset"]["rows"]
    assert [(r["dataset"], r["count"]) for r in rows] == [("tank/other", 37)]
    assert dataset_row(counts["by_pid"]["rows"], "tank/db")["count"] == 37
    assert dataset_row(counts["kprobes"]["rows"], "tank/db")["count"] == 31 + 37


def test_fentry_is_used_where_it_is_right(counts: Json) -> None:
    first = counts["fsync"][0]["rows"][0]["probes"]
    how = set(first["how"].values())
    assert "tracepoint" in how and how - {"tracepoint"} in ways(counts["host"]), counts["host"]
    assert set(counts["kprobes"]["rows"][0]["probes"]["how"].values()) == {"kprobe", "tracepoint"}
    assert first["missing"] == []


def test_the_timeline_has_every_operation_and_txg(counts: Json) -> None:
    """Its slices are the lines that were printed, their stages inside, and txgs beside."""
    found = counts["timeline"]
    slices = [one for one in found["file"]["traceEvents"] if one["ph"] == "X"]
    operations = [one for one in slices if one["cat"] == "operation"]
    assert len(operations) == len(found["rows"]) == 2 * 53
    assert {one["name"] for one in operations} == {"fsync tank/db"}
    for one, row in zip(operations, found["rows"], strict=True):
        assert one["tid"] == row["tid"]
        assert abs(one["dur"] - row["total_ns"] / 1000) <= 1  # whole us
        assert sum(one["args"]["ns"].values()) == row["total_ns"]
    stages = [one for one in slices if one["cat"] == "stage"]
    inside = sum(one["dur"] for one in stages)
    assert inside == pytest.approx(sum(one["dur"] for one in operations), rel=0.001)
    # each `zpool sync` ended the txg with the writes before it
    assert len({one["name"] for one in slices if one["cat"] == "txg"}) >= 2
    synced = [one for one in slices if one["cat"] == "txg" and one["args"]["dirty bytes"]]
    last = operations[-1]
    assert any(one["ts"] > operations[52]["ts"] for one in synced)
    assert max(one["ts"] + one["dur"] for one in synced) > last["ts"] + last["dur"]
    assert found["file"]["otherData"]["left_out"] == found["file"]["otherData"]["lost"] == 0


def program(found: Json, probe: str) -> Json:
    """What `doctor --cost` says of the program of a probe of the tracer "fsync"."""
    named = {one["probe"]: one for one in found["programs"] if one["tracer"] == "fsync"}
    row: Json = named[probe]
    return row


def test_cost_counts_the_programs_of_every_fsync(counts: Json) -> None:
    """The kernel's count of runs is the number of calls; each took time."""
    found = counts["cost"]
    assert found["status"] == 0
    assert found["operations"] == 307
    assert found["lost"] == 0
    assert found["unavailable"] == {}
    assert {one["tracer"] for one in found["programs"]} >= {"fsync", "txg", "device", "arc"}
    for probe in ("zpl_fsync", "zpl_fsync:return"):
        assert program(found, probe)["runs"] == 307
    for probe in ("zil_commit", "zil_commit:return"):
        assert program(found, probe)["runs"] == found["kstat_commits"]
        assert program(found, probe)["run_ns"] > 0
    parts = [one["run_ns"] for one in found["programs"] if one["tracer"] != "read"]
    assert found["run_ns"] == sum(parts)
    assert found["per_operation_ns"] == round(found["run_ns"] / 307)
    assert 0 < found["cpu_share"] < 2  # of two CPUs


def test_cost_on_an_idle_pool_has_no_number_per_fsync(counts: Json) -> None:
    found = counts["cost_idle"]
    assert (found["status"], found["operations"]) == (0, 0)
    assert found["per_operation_ns"] is None
    assert program(found, "zil_commit")["runs"] == found["kstat_commits"] == 0
    assert "the pool is idle" in " ".join(counts["cost_text"].split())


def test_stages_sum_to_the_total(counts: Json) -> None:
    for key in (*FIOS, "joined", "o_dsync", "msync", "zvol", "always"):
        for row in (row for one in tries(counts, key) for row in one["rows"]):
            if row["count"]:
                assert total_ns(row) // row["count"] == row["latency"]["mean"]
                assert sum(n for _, _, n in row["histogram"]) == row["count"]


def test_no_program_is_left(counts: Json) -> None:
    assert counts["programs_left"] == []
