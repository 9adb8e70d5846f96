"""The views of the write path show what ZFS's own counters say."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable

import pytest
from attaching import may_skip
from lab.rows import Json

VIEWS = ("txg", "throttle", "device", "arc", "fsync")


@pytest.fixture
def views(scenario: Callable[[str, str], Json], flavour: str) -> Json:
    return scenario("views", flavour)


def of(views: Json, key: str, tracer: str) -> list[Json]:
    rows: list[Json] = views[key][tracer]["rows"]
    return rows


def kinds(rows: list[Json]) -> dict[str, int]:
    """Waits by kind, of all processes."""
    found: dict[str, int] = {}
    for row in rows:
        for kind, waits in row["kinds"].items():
            found[kind] = found.get(kind, 0) + waits["count"]
    return found


def of_class(rows: list[Json], io_class: str) -> Json:
    (row,) = [r for r in rows if r["class"] == io_class]
    return row


@pytest.mark.parametrize(
    "key", ["dd", "delay", "hard", "wrlog", "slow", "tank_only", "scrub", "flush"]
)
def test_all_end_well(views: Json, key: str) -> None:
    assert set(views[key]["status"].values()) == {0}
    for tracer in views[key]["status"]:
        assert all(row.get("lost", 0) == 0 for row in of(views, key, tracer)), tracer


# --- txg


def test_txgs_have_the_bytes_that_were_written(views: Json) -> None:
    """512 MiB and what describes it, within 5 %."""
    for tracer in ("txg", "kstat"):
        written = sum(row["written_bytes"] for row in of(views, "dd", tracer))
        assert written == pytest.approx(views["dd"]["bytes"], rel=0.05), tracer


@pytest.mark.parametrize("tracer", ["txg", "kstat"])
def test_txgs_are_those_of_the_kstat(views: Json, tracer: str) -> None:
    """In number, order and, within 10 % or 10 ms, in sync time."""
    rows = of(views, "dd", tracer)
    numbers = [row["txg"] for row in rows]
    theirs = {row["txg"]: row for row in views["dd"]["kstat_rows"]}
    assert len(numbers) > 5
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    near = 0
    for row in rows:
        known = theirs[row["txg"]]
        assert row["dirty_bytes"] == known["ndirty"]
        assert row["written_bytes"] == known["nwritten"]
        near += row["sync_ns"] == pytest.approx(known["stime"], rel=0.10, abs=1e7)
    # a thread may be off its CPU between ZFS's look at the clock and ours
    assert near >= 0.8 * len(rows)
    total = sum(theirs[n]["stime"] for n in numbers)
    assert sum(row["sync_ns"] for row in rows) == pytest.approx(total, rel=0.10)


def test_txgs_have_the_reason_why_they_closed(views: Json) -> None:
    reasons = [row["reason"] for row in of(views, "dd", "txg")]
    assert reasons.count("dirty") >= 3
    assert "timer" in reasons
    assert "waiter" in reasons


def test_passes_and_zil_sync(views: Json) -> None:
    for row in of(views, "dd", "txg"):
        assert 1 <= row["passes"] <= 10
        assert 0 <= row["zil_sync_ns"] <= row["sync_ns"]


def test_delays_are_counted_in_their_txgs(views: Json) -> None:
    rows = of(views, "delay", "txg")
    waits = of(views, "delay", "throttle")
    delayed = sum(row["delayed_tx"] or 0 for row in rows)
    # those of the txg that was open when the trace began are not reported
    assert delayed == pytest.approx(sum(row["count"] for row in waits), rel=0.05)


# --- throttle


def test_every_delay_is_counted(views: Json) -> None:
    found = kinds(of(views, "delay", "throttle"))
    counted = views["delay"]["dmu_tx"]
    assert sum(found.values()) == counted["dmu_tx_dirty_delay"] + counted["dmu_tx_wrlog_delay"]
    assert found["dirty_delay"] > 100
    assert found["unknown"] == 0


def test_the_delayed_writer_is_named(views: Json) -> None:
    worst = of(views, "delay", "throttle")[0]
    assert worst["comm"] == "dd"
    assert worst["pool"] == "tank"
    assert worst["total_ns"] > 0
    assert 0 < worst["dirty_bytes"] <= 80 << 20


def test_delays_and_waits_at_the_limit_are_told_apart(views: Json) -> None:
    """Distinguished from delays by the dirty data when the wait begins, just before ZFS checks
    it."""
    found = kinds(of(views, "hard", "throttle"))
    counted = views["hard"]["dmu_tx"]
    assert sum(found.values()) == counted["dmu_tx_dirty_delay"] + counted["dmu_tx_wrlog_delay"]
    # a computed sleep may look like one for log data when dirty data drops meanwhile
    assert found["wrlog_delay"] == pytest.approx(
        counted["dmu_tx_wrlog_delay"], abs=0.05 * counted["dmu_tx_dirty_delay"]
    )
    assert counted["dmu_tx_dirty_over_max"] > 0
    assert found["dirty_hard"] == pytest.approx(counted["dmu_tx_dirty_over_max"], rel=0.1, abs=3)


def test_waits_for_log_data_are_kept_apart(views: Json) -> None:
    found = kinds(of(views, "wrlog", "throttle"))
    counted = views["wrlog"]["dmu_tx"]
    assert counted["dmu_tx_wrlog_delay"] > 100
    assert sum(found.values()) == counted["dmu_tx_dirty_delay"] + counted["dmu_tx_wrlog_delay"]
    # the shortest delays are over before a sleep, and look like the wait before them
    assert found["wrlog_delay"] == pytest.approx(counted["dmu_tx_wrlog_delay"], rel=0.05, abs=3)


def test_slow_fsyncs_have_the_state_of_the_throttle(views: Json) -> None:
    rows = of(views, "slow", "slow")
    assert len(rows) >= 101
    known = [row["throttle"] for row in rows if row["throttle"]]
    assert len(known) == len(rows)
    assert any(state["delayed"] for state in known)
    assert any(state["dirty_bytes"] for state in known)
    assert {row["txg_state"] for row in rows} & {"syncing", "quiescing", "open"}


# --- two pools


def test_two_pools_do_not_mix(views: Json) -> None:
    for tracer in ("throttle", "txg", "device"):
        assert {row["pool"] for row in of(views, "tank_only", tracer)} <= {"tank"}
    assert {row["pool"] for row in of(views, "tank_only", "all_txg")} == {"tank", "side"}
    both = of(views, "tank_only", "all_device")
    written = {
        pool: sum(r["size"] for r in both if r["pool"] == pool and r["class"] == "async_write")
        for pool in ("tank", "side")
    }
    assert written["side"] >= 100 << 20
    assert written["tank"] < 20 << 20
    assert {row["vdev"] for row in both} == {"vdb", "vdc"}
    ours = {r["txg"]: r for r in of(views, "tank_only", "txg")}
    theirs = {r["txg"]: r for r in of(views, "tank_only", "all_txg") if r["pool"] == "tank"}
    assert set(ours) & set(theirs)


# --- device


def test_the_disk_got_the_bytes_of_the_txgs(views: Json) -> None:
    """What the txgs wrote is what the disk got."""
    row = of_class(of(views, "dd", "device"), "async_write")
    assert row["vdev"] == "vdb"
    assert row["size"] == pytest.approx(views["dd"]["bytes"], rel=0.05)
    assert row["queue"]["p50"] <= row["queue"]["p99"] <= row["queue"]["max"]
    assert 0 < row["device"]["p50"] <= row["device"]["p99"] <= row["device"]["max"]


def test_active_io_stays_within_the_limit(views: Json, flavour: str) -> None:
    row = of_class(of(views, "dd", "device"), "async_write")
    if flavour in ("bookworm", "bookworm-2.2"):  # no module BTF, and no way to find it without
        assert row["active_mean"] is None
    else:
        assert 1 <= row["active_mean"] <= row["active_max"] <= 10 + 1


def test_a_scrub_reads_all_used_space(views: Json) -> None:
    row = of_class(of(views, "scrub", "device"), "scrub")
    assert row["size"] == pytest.approx(views["scrub"]["used"], rel=0.10)


def test_every_flush_is_counted(views: Json) -> None:
    """As many as ZFS has handed to the kernel, none lost, by one writer and eight."""
    row = of_class(of(views, "flush", "device"), "flush")
    (queued,) = views["flush"]["queued"]
    assert queued >= 331 + 101  # eight writers share some
    assert row["count"] == queued
    assert row["queue"] is None
    assert 0 < row["device"]["p50"] <= row["device"]["p99"] <= row["device"]["max"]
    assert of_class(of(views, "flush", "device"), "sync_write")["count"] >= 331


# --- ARC


def test_the_arc_agrees_with_arcstats(views: Json) -> None:
    rows = of(views, "read", "arc")
    stats = views["arcstats"]
    last = rows[-1]
    assert last["target_max"] == stats["c_max"]
    assert last["target_min"] == stats["c_min"]
    assert last["size"] == pytest.approx(stats["size"], rel=0.3)
    assert sum(row["demand_misses"] for row in rows) > 0
    assert sum(row["demand_hits"] for row in rows) > 0
    assert all(row["waits"] is not None for row in rows)


def test_iohits_are_kept_apart(views: Json, flavour: str) -> None:
    known = [row["demand_iohits"] is not None for row in of(views, "read", "arc")]
    old = flavour in ("bookworm", "bookworm-btf")  # ZFS 2.1
    assert all(known) if not old else not any(known)


# --- all at once


def test_the_overview_has_all_views(views: Json) -> None:
    shown = views["overview"]
    assert shown["status"] == 0
    for name in VIEWS:
        assert name in shown["stdout"]
    assert all(len(line) < 100 for line in shown["stdout"].splitlines())
    assert views["overview_json"]["status"] == 0
    assert views["overview_programs"] == []


def test_a_check_agrees_with_the_kstats(views: Json) -> None:
    found = {name: json.loads(done["stdout"]) for name, done in views["check"].items()}
    status = {name: done["status"] for name, done in views["check"].items()}
    assert status == {"all": 0, "bad": 2, "kstats": 0, "nobody": 3}, found
    assert all(done["stderr"] == "" for done in views["check"].values())
    values = {one["name"]: one["value"] for one in found["all"]["metrics"]}
    assert values["fsync.rate"] == pytest.approx(values["zil.commits"], rel=0.2)
    assert values["fsync.p99"] > 0
    assert values["device.flush.p99"] > 0
    assert values["lost"] == 0
    assert {one["name"]: one["value"] for one in found["kstats"]["metrics"]}["zil.commits"] > 0
    assert "CAP_SYS_ADMIN" in found["nobody"]["metrics"][0]["why"]


def test_a_trace_survives_export_and_import(views: Json) -> None:
    for name, found in views["exported"].items():
        assert found["status"] == 0, name
        assert "Traceback" not in found["stderr"]
    assert (
        sum(r["kinds"]["fsync"] for r in views["exported"]["fsync"]["rows"] if r["dataset"]) == 24
    )
    txgs = [row["txg"] for row in views["exported"]["txg"]["rows"] if row["pool"] == "tank"]
    # an export syncs some that the pool does not keep: an import continues before them
    back = [a for a, b in itertools.pairwise(txgs) if b <= a]
    assert len(txgs) > 3
    assert len(back) <= 1


def test_fentry_holds_the_module(views: Json, flavour: str) -> None:
    by_fentry = flavour in ("trixie", "bookworm-btf")
    assert ("held" in views) == by_fentry or may_skip(views["host"])
    if "held" in views:
        assert views["held"]["status"] != 0
        assert "in use" in views["held"]["stderr"]


def test_loading_the_module_anew_ends_a_trace(views: Json) -> None:
    """Its probes have gone, and would count nothing without a word."""
    assert views["reloaded"]["status"] == 0
    assert re.search(
        r"ZFS was unloaded( and loaded again)?: the trace ends", views["reloaded"]["stderr"]
    )


def test_unloading_the_module_ends_every_trace(views: Json) -> None:
    assert views["unload"]["status"] == 0, views["unload"]["stderr"]
    for name, found in views["unloaded"].items():
        assert found["status"] == 0, (name, found)
        assert "ZFS was unloaded" in found["stderr"]
        assert "Traceback" not in found["stderr"]
    assert views["unloaded_programs"] == []
    assert "zfstune" not in views["unloaded_events"]
    assert views["dmesg"] == ""
