"""Rounds of faults on FreeBSD: afterwards all parameters are as before by sysctl(8), or as the
administrator has set them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from lab.fault_rounds import CASES, FEW
from lab.rows import Json


@pytest.fixture
def faults(scenario: Callable[[str, str], Json], flavour: str) -> Json:
    return scenario("freebsd_faults", flavour)


def rounds(faults: Json, case: str) -> list[Json]:
    return [one for one in faults["rounds"] if one["case"] == case]


def test_every_kind_was_played(faults: Json) -> None:
    played = {one["case"] for one in faults["rounds"]}
    assert played == set(FEW if len(faults["rounds"]) == len(FEW) else CASES)


@pytest.mark.parametrize("case", CASES)
def test_values_are_as_before(faults: Json, case: str) -> None:
    failed = [one for one in rounds(faults, case) if not one["ok"]]
    assert not failed, f"seed {faults['seed']}: {failed}"


def test_limits_in_force_are_compared(faults: Json) -> None:
    names = ("c_max", "c_min", "arc_sys_free", "arc_no_grow_shift")
    assert set(faults["compared"]) == {f"arc {name}" for name in names}


def test_sessions_had_values_in_force(faults: Json) -> None:
    """Of those that are killed at any moment some have written nothing yet."""
    assert any(one["applied"] for one in faults["rounds"])


def test_an_administrator_is_named(faults: Json) -> None:
    for one in rounds(faults, "administrator"):
        assert one["facts"]["override"], one
        assert one["facts"]["pid_right"], one


def test_a_session_ends_without_its_supervisor(faults: Json) -> None:
    for one in rounds(faults, "supervisor killed"):
        assert one["facts"]["error"] == ["SupervisorGone"], one


def test_a_full_disk_ends_the_session(faults: Json) -> None:
    for one in rounds(faults, "disk full"):
        assert "No space left" in one["facts"]["errors"][0]["text"], one
        assert "No space left" in one["facts"]["refused"][0]["text"], one


def test_values_come_back_while_the_state_disk_hangs(faults: Json) -> None:
    for one in faults["rounds"]:
        if one["case"].startswith("state "):
            assert "back_s" in one["facts"], one


def test_no_dtrace_is_left_behind(faults: Json) -> None:
    assert faults["left"] == ""
