"""The injected cause comes first, and healthy pools are not accused.

Not produced here, with the reason in causes.toml: `not_produced`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from lab.conftest import flavours_of

from pages.diagnosis import Json, accused, page, rate, right


@pytest.fixture
def diagnose(scenario: Callable[[str, str], Json], flavour: str) -> Json:
    return scenario("diagnose", flavour)


def test_the_injected_cause_comes_first(diagnose: Json) -> None:
    runs = diagnose["runs"]
    wrong = [
        (run["scenario"], run["numbers"], [c["id"] for c in run["diagnosis"]["causes"]])
        for run in runs
        if not right(run) and run["diagnosis"]
    ]
    # of a few one may be wrong on a busy machine
    assert rate(runs) >= (0.9 if len(runs) >= 10 else 0.75), wrong


def test_healthy_pools_are_not_accused(diagnose: Json) -> None:
    assert [(run["scenario"], accused(run)) for run in diagnose["runs"] if accused(run)] == []


def test_each_scenario_ends_with_a_diagnosis(diagnose: Json) -> None:
    assert diagnose["failed"] == {}
    for run in diagnose["runs"]:
        assert run["diagnosis"], run["stderr"]
        assert run["status"] == (run["diagnosis"]["verdict"] in ("causes", "unknown"))


def test_shares_sum_to_one_at_most(diagnose: Json) -> None:
    for run in diagnose["runs"]:
        one = run["diagnosis"]
        for name in ("share_p99", "share_total"):
            shares = [cause[name] or 0 for cause in one["causes"]]
            assert all(0 <= share <= 1 for share in shares)
            assert sum(shares) + (one["rest"][name] or 0) <= 1.001


def test_the_state_of_a_failing_pool_comes_first(diagnose: Json) -> None:
    found = diagnose["in_need"]
    assert found["unknown"]["status"] == 2
    assert "tnak" in found["unknown"]["stderr"]
    assert "The pool is DEGRADED" in found["degraded"]["stdout"].splitlines()[1]
    assert found["state"] == "SUSPENDED"
    assert "The pool is SUSPENDED" in found["suspended"]["stdout"].splitlines()[1]
    assert found["suspended"]["status"] == 1


def test_the_page_is_written(
    scenario: Callable[[str, str], Json], request: pytest.FixtureRequest
) -> None:
    results = [scenario("diagnose", one) for one in flavours_of("diagnose", request.config)]
    text = page(results)
    print(text)
    file = request.config.getoption("--page")
    if file:
        Path(file).write_text(text, encoding="utf-8")


def test_nothing_is_lost(diagnose: Json) -> None:
    assert [run["scenario"] for run in diagnose["runs"] if run["diagnosis"]["lost"]] == []
    assert diagnose["programs_left"] == []
