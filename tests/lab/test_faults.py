"""Sessions that die, stop or are disturbed at random moments, and state disks that fail: afterwards
parameters, and the limits in force, are as before, or as the administrator has set them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from lab.fault_rounds import CASES, nearly_all_within

Json = dict[str, Any]


@pytest.fixture
def faults(scenario: Callable[[str, str], Json], flavour: str) -> Json:
    return scenario("faults", flavour)


def rounds(faults: Json, case: str) -> list[Json]:
    return [one for one in faults["rounds"] if one["case"] == case]


@pytest.mark.parametrize("case", CASES)
def test_values_are_as_before(faults: Json, case: str) -> None:
    found = rounds(faults, case)
    failed = [one for one in found if not one["ok"]]
    assert found
    assert not failed, f"seed {faults['seed']}: {failed}"


def test_limits_in_force_are_compared(faults: Json) -> None:
    """What parameters that read 0 stand for: writing 0 back would not restore it."""
    names = ("c_max", "c_min", "arc_sys_free", "arc_grow_retry", "arc_shrink_shift")
    assert set(faults["compared"]) == {f"arc {name}" for name in (*names, "arc_no_grow_shift")}


def test_some_sessions_died_with_values_in_force(faults: Json) -> None:
    """Of those that are killed at any moment some have written nothing yet."""
    dead = [one["facts"] for case in CASES if "killed" in case for one in rounds(faults, case)]
    assert any(facts.get("left") for facts in dead), (
        "values of a killed session were never there to restore"
    )


def test_an_administrator_is_noticed_within_a_second(faults: Json) -> None:
    """Or right after the call that sets values and was running: under emulation one may take
    seconds."""
    found = rounds(faults, "administrator")
    for one in found:
        assert one["facts"]["override"], one
        assert one["facts"]["pid_right"], one
    assert nearly_all_within(1, [one["facts"]["told_after_apply_s"] for one in found]), found


def test_a_dead_supervisor_is_noticed_within_a_second(faults: Json) -> None:
    found = rounds(faults, "supervisor killed")
    for one in found:
        assert one["facts"]["error"] == ["SupervisorGone"], one
    assert nearly_all_within(1, [one["facts"]["noticed_s"] for one in found]), found


def test_no_restore_waits_for_the_state_disk(faults: Json) -> None:
    """It was complete while the file system was frozen, or failed: the round fails otherwise."""
    found = [one for one in faults["rounds"] if one["case"].startswith("state ")]
    assert any(one["facts"].get("left") for one in found)
    for one in found:
        assert "back_s" in one["facts"], one


def test_with_both_copies_damaged_nothing_or_a_part_is_restored(faults: Json) -> None:
    """Rounds in which nothing, and in which something could be used of the journal."""
    found = rounds(faults, "both copies damaged")
    assert any(one["facts"]["unusable"] or one["facts"]["left"] for one in found), found
    assert any(one["facts"]["restored"] for one in found), found


def test_a_full_disk_ends_the_session(faults: Json) -> None:
    for one in rounds(faults, "disk full"):
        assert "No space left" in one["facts"]["errors"][0]["text"], one
        assert "No space left" in one["facts"]["refused"][0]["text"], one


def test_a_second_session_names_the_first(faults: Json) -> None:
    for one in rounds(faults, "second session"):
        assert one["facts"]["names_first"], one


def test_the_kernel_reports_nothing(faults: Json) -> None:
    assert faults["dmesg"] == ""


def test_kept_values_are_loaded_with_the_module(faults: Json) -> None:
    kept = faults["kept"]
    for command in ("set", "keep", "status", "remove"):
        assert kept[command]["status"] == 0, kept[command]
    wanted = {
        "zfs_txg_timeout": 7,
        "zfs_dirty_data_max": 64 << 20,
        "zfs_wrlog_data_max": 128 << 20,
    }
    assert kept["kept"] == wanted, kept
    # what an administrator has written stays, but for what was kept over it
    assert "# mine" in kept["file"]
    assert "zfs_arc_shrink_shift=7" in kept["file"]
    assert "zfs_txg_timeout=9" not in kept["file"]
    assert kept["removed"]["zfs_txg_timeout"] == 5, kept["file_removed"]
    assert kept["removed"]["zfs_dirty_data_max"] > 64 << 20


def test_afterwards_commands_have_nothing_to_do(faults: Json) -> None:
    for name, found in faults["commands"].items():
        assert found["status"] == 0, (name, found)
