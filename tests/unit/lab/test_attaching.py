"""What the lab expects of how probes attach, by what a host can do."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
from support.paths import ROOT

VOLUNTARY, LAZY, FULL = "none (voluntary) full", "full (lazy)", "none voluntary (full)"


@pytest.fixture(scope="module")
def attaching() -> Any:
    path = ROOT / "tests/lab/guest/attaching.py"
    spec = importlib.util.spec_from_file_location("guest_attaching", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("btf", "preemption", "ways"),
    [
        (True, VOLUNTARY, [{"fentry"}]),  # trixie, bookworm-btf
        (True, LAZY, [{"fentry"}, {"kprobe"}]),  # trixie-backports
        (True, FULL, [{"kprobe"}]),
        (False, VOLUNTARY, [{"fentry", "kprobe"}]),  # bookworm
        (False, LAZY, [{"kprobe"}]),
        (False, FULL, [{"kprobe"}]),
    ],
)
def test_ways_follow_from_btf_and_preemption(
    attaching: Any, btf: bool, preemption: str, ways: list[set[str]]
) -> None:
    host = {"btf": btf, "preemption": preemption}
    assert list(attaching.ways(host)) == ways
    assert attaching.may_skip(host) == (len(ways) > 1)
