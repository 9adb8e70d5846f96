"""What a trace adds to an fsync, in instructions: as recorded in tests/data/cost.json, within 2 %.

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
# A newer kernel or ZFS has other code: there only the order of magnitude is known
NEAR, ELSEWHERE = 0.02, 0.35


@pytest.fixture
def cost(scenario: Callable[[str, str], Json], flavour: str) -> Json:
    return scenario("cost", flavour)


def test_every_fsync_was_a_commit(cost: Json) -> None:
    for one in cost["counted"]:
        assert one["commits"] == (0 if one["dataset"] == "tank/off" else cost["fsyncs"])


def test_a_trace_costs_what_it_did(cost: Json) -> None:
    recorded = json.loads(RECORDED.read_text())
    same = recorded["kernel"] == cost["uname"] and recorded["zfs"] == cost["zfs"]
    found = {f"{one['dataset']}, {one['name']}": one["tracing"] for one in cost["counted"]}
    assert found.keys() == recorded["tracing"].keys()
    for mode, instructions in recorded["tracing"].items():
        within = pytest.approx(instructions, rel=NEAR if same else ELSEWHERE, abs=25)
        assert found[mode] == within, (mode, found)
