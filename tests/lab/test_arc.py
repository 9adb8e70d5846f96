"""`zfstune tune --arc` finds the larger cache, says beforehand what it saves, and shows what is
true."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import pytest
from lab.rows import Json

MIB = 1 << 20


@pytest.fixture(scope="module")
def found(scenario: Callable[[str, str], Json], flavour: str) -> Json:
    return scenario("arc", flavour)


@pytest.fixture(scope="module")
def session(found: Json) -> Json:
    one: Json = found["session"]["session"]
    assert one, found["session"]["stderr"]
    return one


def test_a_plan_changes_nothing(found: Json) -> None:
    plan = found["plan"]
    assert plan["status"] == 0, plan["stderr"]
    assert "ghost lists" in plan["stdout"] and "zfs_arc_max" in plan["stdout"]
    assert plan["arc_max"] == 112 * MIB


def test_a_larger_cache_is_proved(found: Json, session: Json) -> None:
    assert session["verdict"]["kind"] == "better", found["session"]["stderr"]
    assert all(limit["ok"] for limit in session["limits"]), session["limits"]
    assert session["in_force"]
    assert found["session"]["status"] == 0
    assert found["session"]["arc_max"] == session["winner"]["zfs_arc_max"] > 112 * MIB


def test_the_forecast_is_about_right(session: Json) -> None:
    """By the ghost lists, before anything was changed; within 15 points."""
    forecast = session["forecast"]
    misses = session["changes"]["arc.miss"]["change"]
    assert misses == pytest.approx(forecast["misses_change"], abs=0.15)


def test_what_is_shown_is_true(found: Json, session: Json) -> None:
    """Within 10 points of fio's mean read, each size held."""
    held = {name: median(means) for name, means in found["truth"].items()}
    assert session["verdict"]["change"] == pytest.approx(held["large"] / held["small"] - 1, abs=0.1)


def test_both_sides_wait_alike(session: Json) -> None:
    waits = [block["settle_s"] for block in session["blocks"] if block["phase"] == "confirm"]
    assert len(waits) >= 12
    assert min(waits) >= 60


def test_revert_brings_the_smaller_one_back(found: Json) -> None:
    assert found["revert"]["status"] == 0
    assert found["revert"]["arc_max"] == 112 * MIB
