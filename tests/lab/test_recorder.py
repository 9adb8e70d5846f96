"""The recorder keeps an incident that was over before anybody looked, and its cause is found in the
file where there is no ZFS; nobody who asks it badly stops it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime

import pytest
from attaching import may_skip
from lab.rows import Json
from support.errors import ONE_ERROR


@pytest.fixture
def recorder(scenario: Callable[[str, str], Json], flavour: str) -> Json:
    return scenario("recorder", flavour)


def seconds(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def is_whole(file: Json) -> None:
    assert file["head"]["type"] == "incident" and file["head"]["schema"] == 1
    assert file["end"]["type"] == "end"
    assert file["end"]["records"] == file["records"] > 0
    assert file["mode"] == 0o600
    assert file["intervals"] == sorted(file["intervals"])


def test_a_trigger_leaves_a_file(recorder: Json) -> None:
    file = recorder["incident"]
    is_whole(file)
    assert file["head"]["reason"].startswith("trigger commit.p99>400ms for 10s: ")
    assert file["head"]["reason"].endswith(" on tank")
    assert file["head"]["pools"]["tank"]
    assert file["types"]["light_summary"] > 3 and file["types"]["diagnosis"] >= 1
    # what was before is in it
    assert seconds(file["head"]["time_from"]) < recorder["from"]
    assert seconds(file["head"]["time_to"]) <= recorder["to"] + 1
    assert re.search(rf"{file['name']} is written: trigger ", recorder["said"])


def test_it_is_asked_in_all_ways(recorder: Json) -> None:
    is_whole(recorder["sigusr1"])
    assert recorder["sigusr1"]["head"]["reason"] == "SIGUSR1"
    for key in ("all", "last", "anonymous"):
        assert recorder[key]["status"] == 0, recorder[key]
        is_whole(recorder[key]["file"])
    last, whole = recorder["last"]["file"], recorder["all"]["file"]
    begin, end = (seconds(last["head"][name]) for name in ("time_from", "time_to"))
    # whole chunks, of a minute each
    assert seconds(whole["head"]["time_from"]) < begin and 30 <= end - begin < 120
    assert "tank" not in json.dumps(recorder["anonymous"]["file"])
    nobody = recorder["nobody"]
    assert nobody["status"] == 3 and re.fullmatch(ONE_ERROR, nobody["stderr"]), nobody


def test_its_state_is_told(recorder: Json) -> None:
    status = json.loads(recorder["status"]["stdout"])
    assert status["memory_locked"] is True
    assert 0 < status["memory_bytes"] < status["memory_limit_bytes"] == 8 << 20
    assert status["triggers"][0]["text"] == "commit.p99>400ms for 10s"
    assert (status["dumps"], status["dumps_failed"], status["errors"]) == (1, 0, 0)
    assert not status["off"]
    assert not any(status["lost"].values()) or may_skip(recorder["host"])
    assert recorder["status_text"]["status"] == 0


def test_it_records_without_a_pool(recorder: Json) -> None:
    file = recorder["without_pool"]
    is_whole(file)
    assert file["head"]["pools"] == {}


def test_a_suspended_pool_holds_up_only_the_end(recorder: Json) -> None:
    found = recorder["suspended"]
    assert (found["state"], found["commits"], found["stopped"]) == ("SUSPENDED", 13, 0)
    assert "pool frail is SUSPENDED: detaching may last until `zpool clear frail`" in found["said"]
    assert found["dump"]["status"] == 0, found["dump"]
    is_whole(found["dump"]["file"])
    assert found["dump"]["file"]["head"]["pools"].keys() == {"tank", "frail"}


def test_hostile_clients_stop_nobody(recorder: Json) -> None:
    got = recorder["hostile"]["got"]
    assert len(got) == 5
    for answer in got:
        # one that sent too much may lose its answer
        assert (
            answer.startswith(("ConnectionResetError", "BrokenPipeError"))
            or (json.loads(answer)["error"])
        ), answer


def test_a_full_directory_is_said(recorder: Json) -> None:
    full = recorder["full"]
    assert "cannot write an incident file to /mnt/small: No space left on device" in full["stderr"]
    assert full["dump"]["status"] == 3
    assert re.fullmatch(ONE_ERROR, full["dump"]["stderr"]), full["dump"]
    assert full["none"] and full["failed"] >= 2
    is_whole(full["after"])
    assert full["status"] == 0
    assert "recorded.jsonl.gz" in full["left"]
    assert not [name for name in full["left"] if "part" in name or name == "record.sock"]


def test_a_restart_goes_on(recorder: Json) -> None:
    restarts = recorder["restarts"]
    assert (restarts["stopped"], restarts["saved"]) == (0, True)
    # times in the file have milliseconds
    begun = seconds(recorder["all"]["file"]["head"]["time_from"])
    assert abs(seconds(restarts["continued"]) - begun) < 0.01
    assert "the record of the previous process is continued" in restarts["stderr"]
    assert "Traceback" not in restarts["stderr"]


def test_what_is_cut_short_is_not_read(recorder: Json) -> None:
    restarts = recorder["restarts"]
    assert "the record of the previous process is lost: recorded.jsonl.gz: " in restarts["stderr"]
    assert restarts["after"]["status"] == 0
    is_whole(restarts["after"]["file"])
    for name, done in restarts["readable"].items():
        assert done["status"] in (0, 1), (name, done)
    assert restarts["programs"] == []


def first_cause(done: Json) -> str:
    assert done["status"] == 1, done
    diagnosis = json.loads(done["stdout"].splitlines()[0])
    cause: str = diagnosis["causes"][0]["id"]
    return cause


def test_the_cause_is_in_the_file(recorder: Json) -> None:
    found = recorder["long_after"]
    assert found["loaded"] is False
    assert first_cause(found["diagnose"]) == "slow_flush"
    assert found["diagnose_text"]["status"] == 1
    assert "flush" in found["diagnose_text"]["stdout"]
    assert first_cause(found["anonymous"]) == "slow_flush"
    assert "tank" not in found["anonymous"]["stdout"]


def test_a_moment_of_it_is_shown(recorder: Json) -> None:
    found = recorder["long_after"]
    for key in ("clock", "date", "trace"):
        assert found[key]["status"] == 0, found[key]
        assert "tank" in found[key]["stdout"]
    rows = [json.loads(line) for line in found["trace"]["stdout"].splitlines()]
    pool = next(row for row in rows if row.get("dataset") is None and "latency" in row)
    assert pool["latency"]["p99"] > 400_000_000
    outside = found["outside"]
    assert outside["status"] == 2 and re.fullmatch(ONE_ERROR, outside["stderr"])


def test_a_page_is_made_of_it(recorder: Json) -> None:
    found = recorder["long_after"]
    assert found["report"]["status"] == 0, found["report"]
    assert found["page"].startswith("<!DOCTYPE html>") and "tank" in found["page"]


def test_a_file_that_is_cut_short_is_read(recorder: Json) -> None:
    cut = recorder["long_after"]["cut"]
    assert cut["status"] == 0 and "cut short after" in cut["stderr"], cut


def test_nothing_stays(recorder: Json) -> None:
    assert recorder["programs_left"] == []
