"""On FreeBSD the views of the write path show what ZFS's own counters say, each cause of slow
fsyncs is found in its stage, and every one-file script sees what it is made for."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from lab.rows import Json, dataset_row, share, stage, total_ns

VIEWS = ("txg", "kstat", "throttle", "device", "arc")
TOOLS = ("zfsflush.d", "fsyncstack.d", "txgstate.d", "zfsthrottle.d", "arcstate.d")
DELAYS = ("dmu_tx_dirty_delay", "dmu_tx_wrlog_delay")


@pytest.fixture
def found(scenario: Callable[[str, str], Json], flavour: str) -> Json:
    return scenario("freebsd_views", flavour)


def of(found: Json, view: str) -> list[Json]:
    rows: list[Json] = found["views"][view]
    return rows


def of_class(rows: list[Json], io_class: str) -> Json:
    (row,) = [row for row in rows if row["class"] == io_class]
    return row


def largest(row: Json) -> str:
    """The name of its largest stage."""
    name: str = max(row["stages"], key=lambda part: int(part["total_ns"]))["name"]
    return name


def timed_lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if re.match(r"\d\d:\d\d:\d\d ", line)]


def hist(text: str, name: str) -> int:
    """How many values are in the histogram below this key."""
    body = re.search(rf"^ *{re.escape(name)}\s*\n +value +-.*\n((?: +-?\d+ \|.*\n)+)", text, re.M)
    assert body, f"no {name} in {text}"
    return sum(int(line.split()[-1]) for line in body[1].splitlines())


# --- views


def test_views_end_well(found: Json) -> None:
    for run in found["ends"].values():
        assert run["status"] == 0, run["stderr"]
        assert "5 of 5 views" in run["stderr"] or "kstats" in run["stderr"]
    for view in VIEWS:
        assert {row.get("lost", 0) for row in of(found, view)} == {0}


@pytest.mark.parametrize("view", ["txg", "kstat"])
def test_txgs_are_those_of_the_kstat(found: Json, view: str) -> None:
    """In number and order, with the same bytes."""
    rows = [row for row in of(found, view) if row["txg"] in {r["txg"] for r in found["txgs"]}]
    theirs = {row["txg"]: row for row in found["txgs"]}
    numbers = [row["txg"] for row in rows]
    assert len(numbers) > 3
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    for row in rows:
        known = theirs[row["txg"]]
        assert (row["dirty_bytes"], row["written_bytes"]) == (known["ndirty"], known["nwritten"])


def test_txgs_have_the_reason_why_they_closed(found: Json) -> None:
    assert {"dirty", "waiter", "timer"} <= {row["reason"] for row in of(found, "txg")}


def test_every_wait_is_counted_and_its_writer_named(found: Json) -> None:
    rows = of(found, "throttle")
    kinds = {kind: sum(row["kinds"][kind]["count"] for row in rows) for kind in rows[0]["kinds"]}
    assert sum(kinds.values()) == sum(found["dmu_tx"][name] for name in DELAYS) > 0
    assert kinds["dirty_hard"] == found["dmu_tx"]["dmu_tx_dirty_over_max"]
    assert kinds["dirty_delay"] > 0
    assert kinds["unknown"] == 0
    assert (rows[0]["comm"], rows[0]["pool"]) == ("dd", "tank")


def test_devices_have_the_bytes_that_were_written(found: Json) -> None:
    rows = of(found, "device")
    assert {(row["pool"], row["vdev"]) for row in rows} == {("tank", "vtbd1")}
    # and what describes them, which is more than usual in so small txgs
    assert 24 << 20 <= of_class(rows, "async_write")["size"] < 48 << 20
    assert of_class(rows, "sync_read")["size"] > 0
    limit = 10  # zfs_vdev_async_write_max_active
    assert 1 <= of_class(rows, "async_write")["active_mean"] <= limit
    assert 1 < of_class(rows, "async_write")["active_max"] <= limit + 1
    assert of_class(rows, "flush")["active_mean"] is None
    assert of_class(rows, "sync_write")["count"] >= 53
    assert of_class(rows, "flush")["count"] >= 53


def test_the_arc_agrees_with_arcstats(found: Json) -> None:
    rows = of(found, "arc")
    before, after = (found["arcstats"][when] for when in ("before", "after"))
    assert (rows[-1]["target_max"], rows[-1]["target_min"]) == (after["c_max"], after["c_min"])
    for name in ("demand_hits", "demand_misses"):
        kind = name.removeprefix("demand_")
        counters = [f"demand_{what}_{kind}" for what in ("data", "metadata")]
        assert sum(row[name] for row in rows) >= sum(after[c] - before[c] for c in counters) > 0
    assert all(row["waits"] is not None for row in rows)


# --- causes


@pytest.mark.parametrize(
    ("dataset", "count", "cause"),
    [
        ("slow", 23, "flush"),
        ("late", 19, "log_write"),
        ("tank/slow_log", 13, "log_write"),
        *((f"tank/new{i}", 1, "txg_fallback") for i in range(5)),
    ],
)
def test_a_cause_is_found_in_its_stage(found: Json, dataset: str, count: int, cause: str) -> None:
    """A slow flush, a slow write, a slow log device, a new log."""
    row = dataset_row(found["causes"]["rows"], dataset)
    assert row["count"] == count
    assert largest(row) == cause


def test_the_first_commit_after_an_import_waits_for_a_txg(found: Json) -> None:
    """For less than a txg, if it is about to end."""
    row = dataset_row(found["causes"]["rows"], "tank/imported")
    assert (row["count"], stage(row, "txg_fallback")["count"]) == (1, 1)


def test_a_busy_cpu_is_wakeup(found: Json) -> None:
    """More of the time than without hogs."""
    row, calm = (dataset_row(found["causes"]["rows"], f"tank/{n}") for n in ("hogged", "calm"))
    assert (row["count"], calm["count"]) == (41, 61)
    assert share(row, "wakeup") > share(calm, "wakeup")


def test_dirty_mapped_pages_are_written_back_first(found: Json) -> None:
    """By the kernel, before ZFS's part begins; then they go through the log."""
    row = dataset_row(found["causes"]["rows"], "tank/mapped")
    calm = dataset_row(found["causes"]["rows"], "tank/calm")
    assert (row["count"], row["kinds"]["fsync"]) == (3, 3)
    assert share(row, "writeback") > share(calm, "writeback")
    assert share(row, "writeback", "issue", "log_write") > 0.5


def test_a_failed_log_write_waits_for_a_txg(found: Json) -> None:
    row = dataset_row(found["causes"]["rows"], "tank/failing")
    assert row["count"] == 9
    errors = found["failing"]["zil_commit_error_count"]
    assert stage(row, "txg_fallback")["count"] == errors >= 1


def test_the_throttle_delays_no_commit(found: Json) -> None:
    """A commit's transaction is exempt: other writers are delayed."""
    row = dataset_row(found["causes"]["rows"], "tank/throttled")
    assert row["count"] == 29
    assert share(row, "tx_assign") < 0.05


def test_no_commit_is_lost_or_unexplained(found: Json) -> None:
    run = found["causes"]
    assert run["status"] == 0
    pools = [row for row in run["rows"] if row["dataset"] is None]
    assert sum(row["commits"] for row in pools) == run["kstat_commits"]
    for row in run["rows"]:
        assert (row["lost"], row["losses"]["log_block"]) == (0, 0)
        assert total_ns(row) // row["count"] == row["latency"]["mean"]
        assert share(row, "other") < 0.05


def test_slow_fsyncs_have_a_line_each(found: Json) -> None:
    rows = found["slow"]["rows"]
    assert found["slow"]["status"] == 0
    assert len(rows) == 23
    for row in rows:
        assert (row["type"], row["pool"], row["dataset"]) == ("slow_fsync", "slow", "slow")
        assert (row["kind"], row["comm"]) == ("fsync", found["comm"])
        assert sum(row["stages"].values()) == row["total_ns"]
        assert row["throttle"]["delayed"] is False


# --- overview, flame graphs


def test_the_overview_has_all_views(found: Json) -> None:
    shown = found["overview"]
    assert shown["status"] == 0, shown["stderr"]
    for name in ("fsync", "txg", "throttle", "device", "arc"):
        assert name in shown["stdout"]
    assert "not available" not in shown["stdout"]
    assert all(len(line) < 100 for line in shown["stdout"].splitlines())


@pytest.mark.parametrize(
    ("kind", "stage", "frame"),
    [
        ("off-cpu", "flush", "_cv_wait"),
        ("wakeup", "flush", "zil_lwb_flush_vdevs_done"),
        ("on-cpu", "issue", "zil_commit"),
    ],
)
def test_flame_graphs_have_the_stacks_of_fsyncs(
    found: Json, kind: str, stage: str, frame: str
) -> None:
    run = found[kind]
    assert (run["status"], run["convert"]["status"]) == (0, 0), run["stderr"]
    assert "lost: 0 stacks not walked, 0 found no room, 0 not counted" in run["stderr"]
    lines = [line.rpartition(" ") for line in run["folded"].splitlines() if line[:1] != "#"]
    weights = {stack: int(weight) for stack, _, weight in lines}
    stacks = list(weights)
    assert {stack.split(";")[0] for stack in stacks} <= {"slow", "[unknown]"}
    assert {stack.split(";")[2] for stack in stacks} == {found["comm"]}
    assert any(stack.split(";")[1] == stage and frame in stack for stack in stacks)
    # each disk flush takes 40 ms
    assert kind == "on-cpu" or max(stacks, key=lambda s: weights[s]).split(";")[1] == "flush"
    assert run["svg"].startswith(("<?xml", "<svg"))
    assert "<title>slow (" in run["svg"]


# --- one-file scripts


@pytest.mark.parametrize("name", TOOLS)
def test_scripts_end_cleanly(found: Json, name: str) -> None:
    run = found["tools"][name]
    assert (run["status"], run["stderr"]) == (0, "")  # no drops
    assert "Never fired" not in run["stdout"]
    assert re.search(r"errors: 0$", run["stdout"], re.M)
    assert max(map(len, run["stdout"].expandtabs(8).splitlines())) <= 110


def test_zfsflush_counts_log_writes_and_flushes(found: Json) -> None:
    text = found["tools"]["zfsflush.d"]["stdout"]
    assert hist(text, "log_write") == hist(text, "log_flush") == 23
    assert "start was not seen: 0," in text
    assert hist(text, "vtbd2") >= 23


def test_fsyncstack_finds_where_fsyncs_wait(found: Json) -> None:
    text = found["tools"]["fsyncstack.d"]["stdout"]
    last = re.search(r"^(\d+) fsyncs of (\d+) ns, off CPU (\d+) ns, lost: (\d+)", text, re.M)
    assert last
    fsyncs, fsync_ns, off_ns, lost = map(int, last.groups())
    assert (fsyncs, lost) == (23, 0)
    assert 0 < off_ns <= fsync_ns
    off = text.partition("Off CPU, ns:\n")[2].partition("\nUntil woken")[0]
    stacks = [block.split() for block in off.split("\n\n") if block.strip()]
    assert sum(int(stack[-1]) for stack in stacks) == off_ns
    longest = max(stacks, key=lambda stack: int(stack[-1]))
    assert longest[:6] == ["pool", "slow", "stage", "flush", "comm", found["comm"]]
    assert any("zil_commit_impl" in frame for frame in longest)


def test_txgstate_has_the_txgs_of_the_kstat(found: Json) -> None:
    lines = timed_lines(found["tools"]["txgstate.d"]["stdout"])
    theirs = {str(row["txg"]) for row in found["slow_txgs"]}
    assert {pool for _, pool, *_ in lines} == {"slow"}
    assert len([line for line in lines if line[2] in theirs]) >= 7


def test_zfsthrottle_counts_every_wait(found: Json) -> None:
    run = found["tools"]["zfsthrottle.d"]
    last = re.search(r"^(\d+) waits, (\d+) delays,", run["stdout"], re.M)
    assert last
    waits, delays = map(int, last.groups())
    assert waits == hist(run["stdout"], "tank") == sum(run["dmu_tx"][name] for name in DELAYS)
    assert waits >= delays > 0
    assert re.search(r"^  dd +\d+ +\d+ ", run["stdout"], re.M)


def test_arcstate_counts_misses(found: Json) -> None:
    lines = timed_lines(found["tools"]["arcstate.d"]["stdout"])
    assert sum(int(line[2]) for line in lines) > 0
    assert all(int(line[1]) > 0 for line in lines)
