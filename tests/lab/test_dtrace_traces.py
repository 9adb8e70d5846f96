"""`zfstune trace` made of D scripts shows what libzfstrace shows, at the same time."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import pytest
from lab.rows import Json, dataset_row, share, stage

FLUSH_NS = 38_000_000  # 40 ms by the slow pool's disk, which at times is early by a tick or two
VIEWS = ("fsync", "dataset", "threads", "slow", "throttle", "device", "txg", "arc")


@pytest.fixture
def traces(scenario: Callable[[str, str], Json], flavour: str) -> Json:
    return scenario("dtrace_traces", flavour)


def of(rows: list[Json], kind: str) -> list[Json]:
    return [row for row in rows if row["type"] == kind]


@pytest.mark.parametrize("view", VIEWS)
def test_ends_cleanly(traces: Json, view: str) -> None:
    assert "failed" not in traces
    assert traces[view]["status"] == 0
    assert {row.get("lost", 0) for row in traces[view]["dtrace"]} == {0}


def test_fsyncs_are_counted_by_dataset(traces: Json) -> None:
    run = traces["fsync"]
    assert run["kstat_commits"] == 211 + 13
    for dataset, count in (("tank/db", 211), ("slow", 13)):
        row = dataset_row(run["dtrace"], dataset)
        theirs = dataset_row(run["zfstune"], dataset)
        assert (row["count"], row["commits"], row["no_zil"]) == (count, count, 0)
        assert row["kinds"]["fsync"] == theirs["count"] == count
        # the call of zil_commit() is the most of an fsync
        for name in ("mean", "p50"):
            assert row["latency"][name] == pytest.approx(theirs["latency"][name], rel=0.2)
        assert stage(row, "flush")["total_ns"] == pytest.approx(
            stage(theirs, "flush")["total_ns"], rel=0.25
        )
        assert share(row, "other") < 0.02


def test_fsyncs_past_the_log_are_counted(traces: Json) -> None:
    row = dataset_row(traces["fsync"]["dtrace"], "tank/off")
    assert (row["count"], row["no_zil"], row["commits"], row["zil"]) == (17, 17, 0, False)
    assert row["kinds"]["other"] == 17
    assert 0 < row["latency"]["mean"] <= row["latency"]["max"]


def test_only_the_asked_dataset_is_counted(traces: Json) -> None:
    rows = of(traces["dataset"]["dtrace"], "fsync_summary")
    assert [(row["dataset"], row["count"]) for row in rows] == [("tank/db", 19)]


def test_fsyncs_of_many_threads_are_counted(traces: Json) -> None:
    run = traces["threads"]
    row, theirs = (dataset_row(run[who], "tank/db") for who in ("dtrace", "zfstune"))
    assert row["count"] == theirs["count"] == run["kstat_commits"] == 8 * 31
    total = sum(part["total_ns"] for part in row["stages"])
    assert total == pytest.approx(row["latency"]["mean"] * row["count"], rel=0.01)


def test_slow_fsyncs_have_the_same_stages(traces: Json) -> None:
    run = traces["slow"]
    rows, theirs = (of(run[who], "slow_fsync") for who in ("dtrace", "zfstune"))
    assert len(rows) == len(theirs) == run["kstat_commits"] == 23
    for row, their in zip(rows, theirs, strict=True):
        assert (row["pool"], row["dataset"], row["kind"]) == ("slow", "slow", "fsync")
        for name in ("pid", "tid", "comm", "object"):
            assert row[name] == their[name]
        assert row["time"][:16] == their["time"][:16] or row["time"] > their["time"]
        assert row["total_ns"] <= their["total_ns"] * 1.02
        device = sum(row["stages"][name] for name in ("log_write", "flush", "wakeup"))
        assert device >= FLUSH_NS * 0.6  # it may begin before the thread waits
        assert sum(row["stages"].values()) == row["total_ns"]
        assert row["txg_state"] in ("open", "quiescing", "syncing")
        assert row["throttle"]["delayed"] is False
    for name in ("total_ns", "flush"):
        ours, other = (
            median(row.get(name) or row["stages"][name] for row in r) for r in (rows, theirs)
        )
        assert ours == pytest.approx(other, rel=0.15)


def test_waits_of_the_throttle_are_counted(traces: Json) -> None:
    run = traces["throttle"]
    rows, theirs = (
        {row["comm"]: row for row in of(run[who], "throttle") if row["pool"] == "tank"}
        for who in ("dtrace", "zfstune")
    )
    assert set(rows) == set(theirs)
    assert rows["dd"]["count"] == theirs["dd"]["count"] > 100
    # ZFS's own times, around which those of libzfstrace lie
    assert rows["dd"]["total_ns"] == pytest.approx(theirs["dd"]["total_ns"], rel=0.25)
    kinds, their_kinds = (
        {k: w["count"] for k, w in r["dd"]["kinds"].items()} for r in (rows, theirs)
    )
    assert kinds["dirty_hard"] == run["dmu_tx"]["dmu_tx_dirty_over_max"]
    for kind in kinds:
        assert kinds[kind] == pytest.approx(their_kinds[kind], abs=0.1 * rows["dd"]["count"])


def test_io_has_the_same_times_by_class(traces: Json) -> None:
    run = traces["device"]
    rows, theirs = (
        {row["class"]: row for row in of(run[who], "device")} for who in ("dtrace", "zfstune")
    )
    assert {"sync_write", "async_write", "flush"} <= set(rows)
    for name in ("sync_write", "async_write", "flush"):
        row, their = rows[name], theirs[name]
        assert (row["pool"], row["vdev"], row["guid"]) == ("slow", their["vdev"], their["guid"])
        assert (row["count"], row["size"]) == (their["count"], their["size"])
        assert row["device"]["mean"] == pytest.approx(their["device"]["mean"], rel=0.1)
        assert row["device"]["p50"] == pytest.approx(their["device"]["p50"], rel=0.1)
        for key in ("active_mean", "active_max"):
            assert row[key] == their[key]
    assert rows["flush"]["count"] >= 23
    assert rows["flush"]["device"]["p50"] >= FLUSH_NS
    # ZFS times these itself: the same numbers, to the ns
    assert rows["async_write"]["queue"]["mean"] == theirs["async_write"]["queue"]["mean"]


def test_txgs_have_the_same_times_and_reasons(traces: Json) -> None:
    run = traces["txg"]
    rows, theirs = (
        {row["txg"]: row for row in of(run[who], "txg")} for who in ("dtrace", "zfstune")
    )
    both = sorted(rows)
    assert len(both) >= 13
    assert set(both) <= set(theirs)  # which begins earlier and ends later
    for txg in both:
        row, their = rows[txg], theirs[txg]
        assert row["source"] == "dtrace"
        for name in ("dirty_bytes", "written_bytes", "writes", "passes"):
            assert row[name] == their[name]
        assert row["sync_ns"] == pytest.approx(their["sync_ns"], rel=0.05, abs=20_000_000)
    reasons = [rows[txg]["reason"] for txg in both[1:]]
    assert reasons == [theirs[txg]["reason"] for txg in both[1:]]
    assert {"timer", "waiter"} <= set(reasons)


def test_the_arc_has_the_same_size_and_waits(traces: Json) -> None:
    row, their = of(traces["arc"]["dtrace"], "arc")[-1], of(traces["arc"]["zfstune"], "arc")[-1]
    assert row["size"] == pytest.approx(their["size"], rel=0.05)
    assert row["waits"] == their["waits"]


def test_trace_has_all_views(traces: Json) -> None:
    run = traces["overview"]
    assert run["status"] == 0
    for word in ("fsync", "txg", "device", "throttle", "arc"):
        assert word in run["stdout"].lower()


def test_flame_records_where_fsyncs_wait(traces: Json) -> None:
    """Where the 23 fsyncs of 40 ms waited, from the recording to the picture."""
    run = traces["flame"]
    assert run["status"] == 0
    assert "lost: 0 stacks not walked, 0 found no room, 0 not counted" in run["stderr"]
    stacks = [line.rpartition(" ") for line in run["stdout"].splitlines() if line[:1] != "#"]
    waited = {stack: int(ns) for stack, _, ns in stacks if "zil_commit" in stack}
    assert sum(waited.values()) > 23 * FLUSH_NS
    assert {stack.split(";")[0] for stack in waited} == {"slow"}


def test_no_script_outlives_its_reader(traces: Json) -> None:
    assert traces["killed"] == {"left": False}
