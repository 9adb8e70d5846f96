"""A real Prometheus watches `zfstune exporter` on real pools: what the dashboard and the rules ask
for has an answer, and each alert fires once, by its cause and by no other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from lab.rows import Json
from monitored_causes import ALSO, CAUSES, EMPTY, INTERVAL_S, LASTING, Alert, alert
from support.monitoring import expected
from support.paths import ROOT

RULES = sorted((ROOT / "platform/monitoring").glob("*.yml"))
ALERTS = sorted(rule["alert"] for rule in expected(RULES) if "alert" in rule)


@pytest.fixture
def monitored(scenario: Callable[[str, str], Json], flavour: str) -> Json:
    return scenario("monitored", flavour)


def spans(times: Sequence[float]) -> list[tuple[float, float]]:
    """From when to when it fired, each time."""
    found: list[tuple[float, float]] = []
    for time in times:
        if found and time - found[-1][1] < 1.5 * INTERVAL_S:
            found[-1] = found[-1][0], time
        else:
            found.append((time, time))
    return found


def fired(monitored: Json) -> dict[Alert, list[tuple[float, float]]]:
    return {alert(one["labels"]): spans(one["times"]) for one in monitored["fired"]}


def test_all_that_is_asked_has_an_answer(monitored: Json) -> None:
    """But for EMPTY, which has none on a healthy host."""
    assert monitored["problems"] == []


def test_what_is_empty_is_not_always(monitored: Json) -> None:
    assert set(monitored["filled"]) == set(EMPTY)
    assert [where for where, series in monitored["filled"].items() if not series] == []


def test_each_alert_has_a_cause() -> None:
    """A new one needs one as well, or a table of those without, and why."""
    assert sorted(name for alerts in CAUSES.values() for name, _, _ in alerts) == ALERTS


@pytest.mark.parametrize("cause", CAUSES)
def test_a_cause_fires_its_alerts_once(monitored: Json, cause: str) -> None:
    begin, end = monitored["moments"][cause]
    found = fired(monitored)
    for one in CAUSES[cause]:
        assert len(found[one]) == 1, (one, found[one])
        assert begin <= found[one][0][0] <= end + INTERVAL_S, one


def test_no_other_alert_fires(monitored: Json) -> None:
    """But for those of the objective, which are right: beside other work on this machine more than
    a few in a thousand commits take 100 ms, on any pool."""
    others = fired(monitored).keys() - ALSO.union(*CAUSES.values())
    assert {one for one in others if one[0] not in LASTING} == set()


def test_alerts_end_after_their_cause(monitored: Json) -> None:
    killed, _ = monitored["moments"]["kill -9"]
    for (name, subject, exporter), found in fired(monitored).items():
        if exporter == "all" and name not in LASTING and name != "ZfstuneDown":
            assert found[-1][1] < killed, (name, subject)


def test_an_alert_says_where_and_what_to_run(monitored: Json) -> None:
    assert sorted(monitored["told"]) == ALERTS
    for texts in monitored["told"].values():
        assert "`zfstune diagnose" in texts["summary"] and "on 127.0.0.1" in texts["summary"]
        assert "error expanding" not in str(texts) and "no value" not in str(texts)
    assert "(budget)" in monitored["told"]["ZfstuneBlind"]["summary"]


def test_rules_never_fail(monitored: Json) -> None:
    assert {name: was for name, was in monitored["rules"].items() if was != ["ok", ""]} == {}
    assert "Evaluating rule failed" not in monitored["log"]


def test_the_exporters_are_well(monitored: Json) -> None:
    exporters = monitored["exporters"]
    assert {name: one["status"] for name, one in exporters.items()} == {
        "all": -9,
        "light": 0,
        "fsync": 0,
    }
    for one in exporters.values():
        assert "Traceback" not in one["stderr"]
    assert monitored["programs_left"] == []
