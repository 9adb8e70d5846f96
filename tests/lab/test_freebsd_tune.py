"""Sessions of `zfstune tune` on FreeBSD, in plain Python: a gain is proved, and nothing else is
left."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from lab.rows import Json


@pytest.fixture
def found(scenario: Callable[[str, str], Json], flavour: str) -> Json:
    return scenario("freebsd_tune", flavour)


def test_a_gain_beside_full_disk_writes_is_proved(found: Json) -> None:
    whole = found["whole"]
    session = whole["session"]
    assert whole["status"] == 0, whole["stderr"]
    assert session["verdict"]["kind"] == "better", session["note"]
    assert session["in_force"]
    assert all(limit["ok"] for limit in session["limits"])
    assert len(whole["in_force"]) == len(session["winner"])
    assert session["lost"] == 0


def test_revert_restores_all(found: Json) -> None:
    assert found["whole"]["revert"]["status"] == 0
    assert found["whole"]["after_revert"] == {}


def test_what_a_killed_session_has_set_is_recovered(found: Json) -> None:
    killed = found["killed"]
    assert killed["in_force"]
    assert killed["left"] == killed["in_force"]
    assert killed["recover"]["status"] == 0, killed["recover"]["stderr"]
    assert killed["after_recover"] == {}
    assert json.loads(killed["status"]["stdout"])["state"] == "unchanged"
