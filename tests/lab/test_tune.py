"""Sessions of `zfstune tune` on real pools: what stays in force is proved, everything else is
restored."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from lab.rows import Json

KEYS = ("resumed", "slow", "fast")


@pytest.fixture
def found(scenario: Callable[[str, str], Json], flavour: str) -> Json:
    return scenario("tune", flavour)


@pytest.fixture
def one(found: Json, key: str) -> Json:
    """A session that came to its end: a resumed one, one on the slow, one on the fast disk."""
    if key not in found:
        pytest.skip("takes a quarter of an hour: make test-matrix")
    session: Json = found[key]
    return session


def kind(session: Json) -> str | None:
    return session["verdict"]["kind"] if session["verdict"] else None


@pytest.mark.parametrize("key", KEYS)
def test_a_session_finishes(one: Json, key: str) -> None:
    session = one["session"]
    assert session, one["stderr"]
    assert session["state"] == "finished", one["stderr"]
    assert one["status"] == (0 if session["in_force"] else 1)
    assert session["in_force"] == (
        kind(session) == "better" and all(limit["ok"] for limit in session["limits"])
    )
    # a proof is begun when it seems to end a tenth late at most; some of its waits take longer
    late = 1.2 if key == "resumed" else 1.1
    assert session["seconds"] <= session["budget_s"] * late
    assert {"session.json", "report.html", "study.db", "before.folded"} <= set(one["files"])
    assert ("after.folded" in one["files"]) == session["in_force"]


@pytest.mark.parametrize("key", KEYS)
def test_only_what_is_proved_is_in_force(one: Json) -> None:
    session = one["session"]
    wanted = session["winner"] if session["in_force"] else {}
    assert {name: int(now) for name, (_, now) in one["in_force"].items()} == wanted
    assert one["revert"]["status"] == 0
    assert one["after_revert"] == {}


@pytest.mark.parametrize("key", KEYS)
def test_nothing_is_left(one: Json) -> None:
    assert one["fio_left"] == "0"
    assert one["programs_left"] == []


@pytest.mark.parametrize("key", KEYS)
def test_blocks_are_what_was_asked_for(one: Json) -> None:
    session = one["session"]
    blocks = session["blocks"]
    assert [b["phase"] for b in blocks[:4]] == ["aa"] * 4
    # born after a change and done before the block: three txgs take their time
    assert any(b["settle_s"] > 0 for b in blocks[4:])
    assert all(b["metrics"]["fsync.p99"] > 0 for b in blocks)
    assert all(b["txgs"] >= 1 for b in blocks)
    assert session["lost"] <= 0.001 * sum(b["fsyncs"] for b in blocks)


@pytest.mark.parametrize("key", ["fast"])
def test_the_right_defaults_stay(one: Json) -> None:
    """A fast disk with nothing but fsyncs: nothing competes with the log. Of those sessions that
    come to a proof, and few do, one in twenty may be wrong (docs/statistics.md)."""
    assert kind(one["session"]) in ("equivalent", "inconclusive", None)
    assert one["in_force"] == {}


@pytest.mark.parametrize("key", ["slow"])
def test_better_values_are_found_where_they_matter(one: Json) -> None:
    """p99 of fsync at least halved at -5 % of throughput or better, by fresh blocks."""
    session = one["session"]
    verdict = session["verdict"]
    assert verdict["kind"] == "better"
    assert verdict["change"] <= -0.5
    assert verdict["high"] < 0
    assert session["in_force"]
    assert all(limit["ok"] for limit in session["limits"])
    assert session["changes"]["write.throughput"]["change"] >= -0.05
    assert session["seconds"] <= 900 * 1.05


def test_a_stopped_session_restores_all_values(found: Json) -> None:
    one = found["stopped"]
    assert one["session"]["state"] == "stopped"
    assert one["status"] == 1
    assert one["after"] == {}
    assert one["fio_left"] == "0"
    assert len(one["session"]["trials"]) >= 1
    assert "Traceback" not in one["stderr"]


def test_a_resumed_session_knows_what_was_tried(found: Json) -> None:
    before, after = found["stopped"]["session"], found["resumed"]["session"]
    assert after is not None, found["resumed"]["stderr"]
    assert after["state"] == "finished"
    # what looked better than the baseline is measured anew, at most once (docs/search.md)
    worse = [trial["values"] for trial in before["trials"] if (trial["change"] or 0) >= 0]
    values = [trial["values"] for trial in after["trials"]]
    assert not [one for one in values if one in worse]
    assert all(values.count(one) == 1 for one in values)
    assert found["resumed"]["after_revert"] == {}


def test_a_pool_without_fsyncs_is_refused(found: Json) -> None:
    one = found["idle"]
    assert one["status"] == 3
    assert "too few to judge" in one["stderr"] or "the load has gone" in one["stderr"]
    assert one["after"] == {}
