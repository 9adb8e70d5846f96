"""The role for Ansible, on a host of its own: it does what it says, once, and undoes it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from lab.rows import Json

RUNS = ("check", "first", "second", "off", "on", "revert", "revert_again")


@pytest.fixture
def role(scenario: Callable[[str, str], Json], flavour: str) -> Json:
    return scenario("role", flavour)


@pytest.mark.parametrize("key", RUNS)
def test_its_runs_end_well(role: Json, key: str) -> None:
    run = role[key]
    assert (run["status"], run["failed"], run["unreachable"]) == (0, 0, 0), run["stdout"]
    assert "WARNING" not in run["stderr"]


def test_a_check_does_nothing(role: Json) -> None:
    assert role["check"]["changed"] > 0
    assert role["check"]["there"] == []


def test_a_file_with_another_checksum_is_refused(role: Json) -> None:
    found = role["refused"]
    assert (found["status"], found["failed"], found["changed"]) == (2, 1, 0)
    assert "copy it again, or correct zfstune_checksum" in found["stdout"]
    assert found["there"] is False


def test_the_exporter_runs_with_its_options(role: Json) -> None:
    first = role["first"]
    assert first["changed"] > 0
    assert (first["ActiveState"], first["UnitFileState"]) == ("active", "enabled")
    assert "\"--max-datasets 8 --trigger 'commit.p99>200ms for 30s'\"" in role["options"]


@pytest.mark.parametrize("key", ["counted", "counted_again"])
def test_it_counts(role: Json, key: str) -> None:
    assert role[key] == {"kstat": 101, "exported": 101}


def test_a_second_run_changes_nothing(role: Json) -> None:
    assert role["second"]["changed"] == 0, role["second"]["stdout"]
    assert role["second"]["MainPID"] == role["first"]["MainPID"]


def test_the_exporter_is_off_and_on(role: Json) -> None:
    off, on = role["off"], role["on"]
    assert (off["ActiveState"], off["UnitFileState"]) == ("inactive", "disabled")
    assert (on["ActiveState"], on["UnitFileState"]) == ("active", "enabled")
    # the unit, and nothing else
    assert off["changed"] == on["changed"] == 1


def test_records_of_all_hosts_are_fetched(role: Json) -> None:
    found = role["dumped"]
    for key in ("dump", "fetch", "read"):
        assert found[key]["status"] == 0, found[key]
    assert found["files"] == ["localhost/run/night.jsonl.gz"]
    assert "tank/db" in found["read"]["stdout"]


def test_parameters_are_reverted(role: Json) -> None:
    assert role["set"]["status"] == 0, role["set"]
    assert role["values"] == ["9", "5", "5"]
    assert (role["revert"]["changed"], role["revert_again"]["changed"]) == (1, 0)
    # and the exporter goes on
    assert role["revert_again"]["MainPID"] == role["on"]["MainPID"]
