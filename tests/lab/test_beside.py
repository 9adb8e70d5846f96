"""Traces do not disturb each other, and the least capabilities are enough for kprobes."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from attaching import may_skip, ways
from lab.rows import Json, dataset_row

WHY = "another trace has fentry programs there"


@pytest.fixture
def beside(scenario: Callable[[str, str], Json], flavour: str) -> Json:
    return scenario("beside", flavour)


def how(probes: list[Json], name: str, tracer: str) -> str:
    (found,) = (one["how"] for one in probes if (one["name"], one["of"]) == (name, tracer))
    assert isinstance(found, str)
    return found


def test_every_commit_is_counted_whatever_begins_and_ends(beside: Json) -> None:
    found = beside["beside"]
    assert found["status"] == 0
    losses = dict(found["losses"])
    lost = losses.pop("return")
    assert lost == 0 or may_skip(beside["host"])
    assert 2003 - lost <= found["commits"] <= found["kstat_commits"] == 2003
    assert set(losses.values()) == {0}
    # in a thread, and in other processes
    assert found["begun"][0] >= 2 and found["begun"][1] >= 1
    assert found["errors"] == found["failed"] == []


def test_a_function_with_fentry_programs_gets_kprobes(beside: Json) -> None:
    """The light trace came first. Without BTF of the module, nobody has any but stand-ins; where
    the kernel may skip programs, the one that has kprobes somewhere has them everywhere, and the
    light trace may have let them take over."""
    light, fsyncs = beside["beside"]["light"], beside["beside"]["others"]["FsyncTrace"]
    assert not [one for one in fsyncs if one["how"] == "missing"]
    commits = "zil_commit", "zil_commit:return"
    first = {how(light, name, "commit") for name in commits}
    assert len(first) == 1 and any(first <= way for way in ways(beside["host"]))
    if first == {"kprobe"} and may_skip(beside["host"]):
        return  # since when is not known
    assert {how(fsyncs, name, "fsync") for name in commits} == {"kprobe"}
    if first == {"fentry"}:
        taken = {one["name"] for one in fsyncs if one["why"] == WHY}
        assert {*commits, "zil_free"} <= taken
        rest = "kprobe" if may_skip(beside["host"]) else "fentry"
        assert how(fsyncs, "zpl_fsync:return", "fsync") == rest


def test_windows_beside_others_miss_nothing(beside: Json) -> None:
    found = beside["beside"]
    # one in each four seconds, and each takes one and the tick after it
    assert found["windows"] >= found["seconds"] // 10
    assert found["unsampled"] == 0


def test_what_has_ended_disturbs_nobody(beside: Json) -> None:
    """Each of these traces had the host to itself."""
    assert len(beside["alone"]) == 3
    for probes in beside["alone"]:
        here = {one["how"] for one in probes} - {"tracepoint"}
        assert any(here <= way for way in ways(beside["host"]))
        assert not [one for one in probes if one["why"]]


def test_of_two_that_begin_at_once_one_takes_kprobes(beside: Json) -> None:
    found = beside["together"]
    assert [one["status"] for one in found] == [0, 0], found
    first, second = (json.loads(one["stdout"].splitlines()[0])["probes"] for one in found)
    assert first["missing"] == second["missing"] == []
    both = [name for name, way in first["how"].items() if way == second["how"][name] == "fentry"]
    assert both == []
    if {"fentry"} in ways(beside["host"]):
        assert "fentry" in {*first["how"].values(), *second["how"].values()}


@pytest.mark.parametrize("user", ["root", "nobody"])
def test_the_least_capabilities_do_for_kprobes(beside: Json, user: str) -> None:
    found = beside[user]
    assert found["status"] == 0, found["stderr"]
    row = dataset_row([json.loads(line) for line in found["stdout"].splitlines()], "tank/db")
    assert row["commits"] == row["count"] == found["kstat_commits"] == 23
    assert row["lost"] == 0 and row["probes"]["missing"] == []
    assert row["probes"]["how"]["zil_commit"] == "kprobe"


def test_a_level_that_forbids_them_is_named(beside: Json) -> None:
    """By the trace, and by doctor before it."""
    found = beside["forbidden"]
    assert found["status"] == 3
    assert "kernel.perf_event_paranoid is 3" in found["stderr"]
    assert "sysctl kernel.perf_event_paranoid=2" in found["stderr"]
    checks = {one["name"]: one for one in json.loads(found["doctor"]["stdout"])["checks"]}
    assert checks["privileges"]["status"] == "missing"
    assert "kernel.perf_event_paranoid is 3" in checks["privileges"]["value"]


def test_nothing_stays(beside: Json) -> None:
    assert beside["programs_left"] == []
    assert beside["events_left"] == ""
