"""The injected cause comes first, and healthy pools are not accused: while it is there, and long
after it, from a file of the recorder.

Not produced here, with the reason in causes.toml: `not_produced`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from lab import diagnoses
from lab.conftest import flavours_of

from pages.diagnosis import Json


@pytest.fixture
def diagnose(scenario: Callable[[str, str], Json], flavour: str) -> Json:
    return scenario("diagnose", flavour)


@pytest.mark.parametrize("runs", ["runs", "recorded"])
@pytest.mark.parametrize("check", diagnoses.ALL, ids=lambda check: check.__name__)
def test_diagnoses(diagnose: Json, check: Callable[[Json], None], runs: str) -> None:
    check(diagnose | {"runs": diagnose[runs]})


def test_each_cause_was_recorded_and_asked_for_without_zfs(diagnose: Json) -> None:
    assert diagnose["loaded"] is False
    live, later = ({run["scenario"] for run in diagnose[key]} for key in ("runs", "recorded"))
    assert later == live - set(diagnose.get("left_out", ()))


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
    flavours = flavours_of("diagnose", request.config)
    diagnoses.write_page(scenario, "diagnose", flavours, request.config.getoption("--page"))
