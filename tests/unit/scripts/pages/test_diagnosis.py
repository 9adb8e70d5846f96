"""The code that judges the lab's diagnoses, on sample results; and that its scenarios exist."""

from __future__ import annotations

import re
from typing import Any

import pytest
from support.paths import ROOT

from pages.diagnosis import accused, found_first, page, rate, right
from zfstune.diagnose import causes

GUEST = ROOT / "tests/lab/guest/diagnose.py"


def run(
    scenario: str, *found: str, first: tuple[str, ...] = (), among: tuple[str, ...] = ()
) -> Any:
    return {
        "scenario": scenario,
        "numbers": {"ms": 40},
        "first": list(first),
        "among": list(among),
        "diagnosis": {
            "verdict": "causes" if found else "healthy",
            "causes": [{"id": name, "share_p99": 0.5} for name in found],
        },
    }


FLUSH = run("slow_flush", "slow_flush", "cpu", first=("slow_flush",))
CROWD = run("committers", "cpu", "committers", first=("committers",))
THROTTLE = run("write_throttle", "a", first=("a", "b"), among=("b",))
WELL, BLAMED = run("healthy"), run("healthy", "cpu")


@pytest.mark.parametrize(
    ("one", "fine"),
    [(FLUSH, True), (CROWD, False), (THROTTLE, False), (WELL, True), (BLAMED, False)],
)
def test_a_run_is_right_when_its_cause_comes_first(one: Any, fine: bool) -> None:
    assert right(one) == fine


def test_a_cause_on_a_healthy_pool_is_an_accusation() -> None:
    assert accused(BLAMED) == ["cpu"]
    assert accused(WELL) == accused(CROWD) == []
    beside = run("idle", "throttled_writers", first=("throttled_writers",))
    assert right(beside)
    assert accused(beside) == []


def test_a_run_without_output_is_not_right() -> None:
    none = FLUSH | {"diagnosis": None}
    assert not right(none)
    assert found_first(none) == "no output"
    assert rate([]) == 0


def test_the_page_has_rates_and_confusions() -> None:
    runs = [FLUSH, CROWD, WELL, WELL]
    host = {"zfs": "2.3.9", "uname": "6.12", "date": "2026-11-22", "cpus": 2}
    text = page([{**host, "runs": runs, "failed": {"cpu": "no\nfio"}}])
    assert "Right in 3 of 4 runs (75 %); a cause was named on a healthy pool in 0 runs." in text
    assert "| injected | runs | right | `slow_flush` | `cpu` | `healthy` |" in text
    assert "| healthy | 2 | 2 |  |  | 2 |" in text
    assert "* committers (ms 40): cpu 50 %, committers 50 %" in text
    assert "The scenario `cpu` failed in the lab: no fio" in text
    assert "(`block_layer`) | it cannot be seen |" in text
    assert "From a file" not in text


def test_the_page_has_what_the_recorder_kept() -> None:
    host = {"zfs": "2.3.9", "uname": "6.12", "date": "2026-11-22", "cpus": 2, "failed": {}}
    text = page([{**host, "runs": [FLUSH], "recorded": [FLUSH, CROWD]}])
    live, later = text.split("\n### From a file of the recorder\n")
    assert "Right in 1 of 1 runs" in live and "Right in 1 of 2 runs" in later
    assert "| committers | 1 | 0 |  | 1 |" in later


def test_each_cause_names_a_scenario_that_expects_it() -> None:
    text = GUEST.read_text(encoding="utf-8")
    scenarios = set(re.findall(r'runs\.diagnose\(\s*"(\w+)"', text))
    for cause in causes.load():
        if cause.lab:
            assert cause.lab in scenarios, cause.id
            assert f'"{cause.id}"' in text, cause.id
