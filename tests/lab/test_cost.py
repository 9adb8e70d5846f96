"""What a trace adds to an fsync, in instructions and in calls of helpers by its programs: as
recorded in tests/data/cost.json.

A change that makes a trace cheaper or dearer changes that file, and so is seen:
`make bench-instructions COST='--record tests/data/cost.json'`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from lab.rows import Json

RECORDED = Path(__file__).resolve().parents[1] / "data" / "cost.json"
# Two runs agreed within 0.4 %
NEAR = 0.02
# A newer kernel or ZFS has other code: there only the order of magnitude is known
ELSEWHERE = 0.35


@pytest.fixture
def cost(scenario: Callable[[str, str], Json], flavour: str) -> Json:
    return scenario("cost", flavour)


def test_every_fsync_was_a_commit(cost: Json) -> None:
    for one in cost["counted"]:
        assert one["commits"] == (0 if one["dataset"] == "tank/off" else cost["fsyncs"])


def test_every_commit_waited(cost: Json) -> None:
    """Much of what a trace adds is at the wait: with and without do not compare."""
    for one in cost["counted"]:
        wanted = 0 if one["dataset"] == "tank/off" else 1
        assert one["waits"] == pytest.approx(wanted, abs=0.02), one["name"]


def of(one: Json) -> dict[str, float]:
    """What a mode adds, by the name of the number in the file."""
    return {"tracing": one["tracing"], "calls": sum(one["helpers"].values())}


@pytest.mark.parametrize(("what", "least"), [("tracing", 25), ("calls", 0.2)])
def test_a_trace_costs_what_it_did(cost: Json, what: str, least: float) -> None:
    recorded = json.loads(RECORDED.read_text())
    same = recorded["kernel"] == cost["uname"] and recorded["zfs"] == cost["zfs"]
    found = {f"{one['dataset']}, {one['name']}": of(one)[what] for one in cost["counted"]}
    assert found.keys() == recorded[what].keys()
    for mode, number in recorded[what].items():
        if mode.startswith("8 jobs"):  # how many share a log block is left to their order
            continue
        near = NEAR if same else ELSEWHERE
        assert found[mode] == pytest.approx(number, rel=near, abs=least), (mode, found)
