"""On FreeBSD, too, the injected cause comes first, and healthy pools are not accused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from lab import diagnoses
from lab.conftest import flavours_of

from pages.diagnosis import Json


@pytest.fixture
def diagnose(scenario: Callable[[str, str], Json], flavour: str) -> Json:
    return scenario("freebsd_diagnose", flavour)


@pytest.mark.parametrize("check", diagnoses.ALL, ids=lambda check: check.__name__)
def test_diagnoses(diagnose: Json, check: Callable[[Json], None]) -> None:
    check(diagnose)


def test_the_page_is_written(
    scenario: Callable[[str, str], Json], request: pytest.FixtureRequest
) -> None:
    flavours = flavours_of("freebsd_diagnose", request.config)
    diagnoses.write_page(scenario, "freebsd_diagnose", flavours, request.config.getoption("--page"))
