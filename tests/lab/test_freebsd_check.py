"""`scripts/freebsd-check` passes all its items, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from lab.rows import Json

from freebsd.items import ITEMS


@pytest.fixture
def check(scenario: Callable[[str, str], Json], flavour: str) -> Json:
    return scenario("freebsd_check", flavour)


@pytest.mark.parametrize("item", [name for name, _ in ITEMS])
def test_each_item_passes(check: Json, item: str) -> None:
    (found,) = [one for one in check["found"]["items"] if one["item"] == item]
    assert found["verdict"] == "PASS", found


def test_its_status_is_0(check: Json) -> None:
    assert check["status"] == 0, check["stderr"]
    assert check["found"]["failed"] == 0


def test_nothing_stays_in_the_directory(check: Json) -> None:
    assert check["left"] == ""


def test_its_text_names_no_pool(check: Json) -> None:
    assert "tank" not in str(check["found"])
