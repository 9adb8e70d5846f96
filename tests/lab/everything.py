"""Judges what tests/lab/guest/uses.py found."""

from __future__ import annotations

import json
from typing import Any

Json = dict[str, Any]


def counts_exactly(trace: Json) -> None:
    whole = [row["count"] for row in trace["summaries"] if row["dataset"] is None]
    assert whole == [trace["syncs"]]
    assert trace["kstat_commits"] == trace["syncs"]


def reads_and_traces(found: Json) -> None:
    """doctor, trace, params, advise, diagnose and flame."""
    counts_exactly(found["trace"])
    assert found["version"]["stdout"].startswith("zfstune ")
    for key in ("doctor", "advise"):  # 1: it found something to say
        assert found[key]["status"] in (0, 1), found[key]
        assert json.loads(found[key]["stdout"])
    assert found["params"]["status"] == 0, found["params"]
    assert "zfs_dirty_data_max" in found["params"]["stdout"]
    assert found["diagnose"]["status"] in (0, 1), found["diagnose"]
    assert json.loads(found["diagnose"]["stdout"].splitlines()[-1])
    assert found["flame"]["status"] == 0, found["flame"]
    assert "<svg" in found["picture"]


def sets_and_reverts(found: Json) -> None:
    assert found["set"]["status"] == 0, found["set"]
    assert found["in_force"] == {"zfs_txg_timeout": "1"}
    assert found["revert"]["status"] == 0, found["revert"]
    assert found["after"] == {}


def tunes(found: Json) -> None:
    """What each session finds differs; that it measured does not."""
    assert found["tune"]["status"] in (0, 1), found["tune"]
    session = json.loads(found["tune"]["stdout"])
    assert session["blocks"], session
    assert {"report.html", "session.json"} <= set(found["session"]), found["session"]
