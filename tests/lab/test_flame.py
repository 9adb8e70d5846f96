"""The stacks of `zfstune flame` show what made threads sleep or run."""

from __future__ import annotations

import re
from collections.abc import Callable
from statistics import median

import pytest
from attaching import may_skip
from lab.rows import Json

HZ = 99
OFF_CPU = ("off_cpu", "off_cpu_2", "off_cpu_3")  # the same load, three times
RECORDED = (
    *OFF_CPU,
    *("wakeup", "pid", "on_cpu", "zip", "txg_sync", "all_zfs", "both", "fast_only"),
)


@pytest.fixture
def flame(scenario: Callable[[str, str], Json], flavour: str) -> Json:
    return scenario("flame", flavour)


def total(recorded: Json, *parts: str, stage: str = "") -> int:
    """The weight of the stacks that have all the parts in them, in one stage or in all."""
    return sum(
        weight
        for stack, weight in recorded["counts"].items()
        if all(part in stack for part in parts) and (not stage or stack.split(";")[1] == stage)
    )


def labels(recorded: Json, i: int) -> set[str]:
    """The pools (0), stages (1) or comms (2)."""
    return {stack.split(";")[i] for stack in recorded["counts"]}


@pytest.mark.parametrize("key", RECORDED)
def test_nothing_is_lost(flame: Json, key: str) -> None:
    """But for fsyncs that are under way when kprobes take over: these are counted as lost."""
    recorded = flame[key]
    assert recorded["status"] == 0
    lost = re.search(
        "lost: 0 stacks not walked, 0 found no room, 0 not counted, 0 sleepers, 0 probe hits, "
        r"(\d+) fsyncs",
        recorded["stderr"],
    )
    assert lost
    assert lost[1] == "0" or may_skip(flame["host"])
    assert not any("[no stack]" in stack for stack in recorded["counts"])
    assert not any("[bpf]" in stack or "bpf_" in stack for stack in recorded["counts"])
    assert not any("zpl_fsync [zfs];zpl_fsync" in stack for stack in recorded["counts"])
    assert recorded["reading"] < 30


def test_off_cpu_time_is_that_of_fio(flame: Json) -> None:
    """In most tries: a host that is held up makes threads run for longer, which fio counts too."""
    ratios = [total(flame[key]) / flame[key]["fio"]["total_ns"] for key in OFF_CPU]
    assert median(ratios) == pytest.approx(1, rel=0.10), ratios


def test_threads_sleep_in_slow_flushes(flame: Json) -> None:
    recorded = flame["off_cpu"]
    assert total(recorded, stage="flush") > 0.5 * total(recorded)
    assert total(recorded, "zil_commit_impl [zfs]", "[spl];schedule") > 0.9 * total(recorded)
    assert total(recorded, "zil_commit_impl [zfs]", "cv_wait", "[spl];schedule")
    assert labels(recorded, 0) == {"tank"}
    assert labels(recorded, 2) == {"fio"}
    assert "outside" not in labels(recorded, 1)


def test_the_end_of_a_log_block_wakes_fsyncs(flame: Json) -> None:
    recorded = flame["wakeup"]
    woken = total(recorded, ";--;", "zil_lwb_flush_vdevs_done [zfs]", "taskq_thread [spl]")
    assert woken > 0.6 * total(recorded)
    assert total(recorded, "zil_commit_impl [zfs]", ";--;", "cv_broadcast [spl]", stage="flush")
    assert total(recorded, "[no waker]") < 0.02 * total(recorded)
    # a batch wait is ended by its timer
    assert total(recorded, "cv_timedwait_hires [spl]", ";--;", "hrtimer", ";[irq]")
    assert all(stack.split(";")[-1] != "swapper/0" for stack in recorded["counts"])


def test_a_process_is_seen_in_and_outside_of_fsyncs(flame: Json) -> None:
    recorded = flame["pid"]
    assert labels(recorded, 2) == {"python3"}
    assert total(recorded, stage="flush") > 20 * 20_000_000
    # 20 times 50 ms less what passes before the processor is left; the wait for input is not over
    assert total(recorded, "nanosleep", stage="outside") > 900_000_000


def test_on_cpu_samples_are_of_fsyncs(flame: Json) -> None:
    recorded = flame["on_cpu"]
    samples = total(recorded)
    assert labels(recorded, 0) <= {"fast", "[unknown]"}
    assert total(recorded, "zil_commit_impl [zfs]") > 0.5 * samples
    # two threads that never sleep would be 2 * HZ; in the lab fsyncs are mostly emulation
    assert 0.05 * HZ < samples / recorded["seconds"] < 2.1 * HZ


def test_compression_is_found(flame: Json) -> None:
    recorded = flame["zip"]
    assert total(recorded, "z_wr_iss", "gzip", "deflate") > 0.3 * total(recorded)
    assert total(recorded) < 2.1 * HZ * recorded["seconds"]


def test_txg_sync_has_the_threads_that_sync(flame: Json) -> None:
    recorded = flame["txg_sync"]
    assert labels(recorded, 1) == {"txg_sync"}
    assert labels(recorded, 2) == {"txg_sync"}
    assert "fast" in labels(recorded, 0)
    waits = [total(recorded, "spa_sync [zfs]", f) for f in ("zio_wait [zfs]", "taskq_wait [spl]")]
    assert waits[0]
    assert sum(waits) > 0.5 * total(recorded)
    # waiting for the next txg is not syncing
    assert not total(recorded, "txg_thread_wait")


def test_target_zfs_has_all_threads_of_zfs(flame: Json) -> None:
    recorded = flame["all_zfs"]
    assert {"txg_sync", "outside"} & labels(recorded, 1)
    assert "fio" in labels(recorded, 2)
    assert total(recorded, "taskq_thread [spl]", "zio_execute [zfs]")
    assert not any(stack.endswith("taskq_thread [spl];schedule") for stack in recorded["counts"])
    # an fsync whose return was missed has not ended where it leaves ZFS
    theirs = ("[zfs]", "[spl]", *(["do_fsync"] if may_skip(flame["host"]) else []))
    assert all(any(part in stack for part in theirs) for stack in recorded["counts"])
    assert " of threads that waited for work" in recorded["stderr"]


def test_pools_do_not_mix(flame: Json) -> None:
    assert {"tank", "fast"} <= labels(flame["both"], 0)
    assert labels(flame["fast_only"], 0) == {"fast"}
    assert labels(flame["tank_sync_only"], 0) <= {"tank"}


def test_a_recording_leaves_no_program_and_no_link(flame: Json) -> None:
    assert flame["programs_after"] == []
    assert flame["programs_after_kill"] == []
    assert flame["nothing"]["status"] == 1
    assert "nothing was recorded of threads in an fsync" in flame["nothing"]["stderr"]
    assert flame["nothing_left"] == "old"
    assert flame["events_left"].strip() == ""
    assert flame["svg"]["status"] == 0
    assert flame["svg_begins"] in ("<?xml", "<svg ")
    assert flame["no_pool"]["status"] == 2
    assert "tp_sched" not in flame["links_left"]
