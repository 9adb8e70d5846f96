"""Sessions of `zfstune tune` on FreeBSD, in plain Python: only what is proved stays, and what a
killed one has set is restored."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from lab.rows import Json


@pytest.fixture
def found(scenario: Callable[[str, str], Json], flavour: str) -> Json:
    return scenario("freebsd_tune", flavour)


def test_a_session_finishes(found: Json) -> None:
    whole, session = found["whole"], found["whole"]["session"]
    assert session["state"] == "finished", whole["stderr"]
    assert whole["status"] == (0 if session["in_force"] else 1)
    # what dtrace drops while it waits for the processor
    assert session["lost"] <= 0.02 * sum(block["fsyncs"] for block in session["blocks"])
    assert {"session.json", "report.html", "before.folded"} <= set(whole["files"])


def test_only_what_is_proved_is_in_force(found: Json) -> None:
    whole, session = found["whole"], found["whole"]["session"]
    proved = session["verdict"] and session["verdict"]["kind"] == "better"
    good = [one["ok"] for one in (*session["limits"], session["soak"]) if one]
    assert session["in_force"] == bool(proved and all(good))
    assert len(whole["in_force"]) == (len(session["winner"]) if session["in_force"] else 0)


def test_a_gain_beside_writes_that_fill_the_disk_is_proved(
    found: Json, pytestconfig: pytest.Config
) -> None:
    if pytestconfig.getoption("--tune") != "full":
        pytest.skip("takes half an hour: make test-matrix")
    session = found["whole"]["session"]
    assert session["verdict"]["kind"] == "better", session["note"]
    assert session["in_force"]
    assert session["verdict"]["high"] < 0


def test_a_python_without_sqlite_keeps_the_study_in_memory(found: Json) -> None:
    """The image has no py311-sqlite3."""
    assert "the study is in memory, for this Python has no sqlite3" in found["whole"]["stderr"]
    assert "study.db" not in found["whole"]["files"]


def test_revert_restores_all(found: Json) -> None:
    assert found["whole"]["revert"]["status"] == 0
    assert found["whole"]["after_revert"] == {}


@pytest.mark.parametrize("how", ["by_command", "by_service"])
def test_what_a_killed_session_has_set_is_recovered(found: Json, how: str) -> None:
    killed = found[how]
    assert killed["in_force"]
    # the service restores at once
    assert how == "by_service" or killed["left"] == killed["in_force"]
    assert killed["recover"]["status"] == 0, killed["recover"]["stderr"]
    assert killed["after_recover"] == {}
    assert json.loads(killed["status"]["stdout"])["state"] == "unchanged"
