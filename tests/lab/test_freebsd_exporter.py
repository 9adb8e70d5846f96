"""The exporter on FreeBSD counts what `zfstune trace` and ZFS count, and its rc.d script does what
it says under the real rc.subr(8) and daemon(8)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from lab.rows import Json, dataset_row


@pytest.fixture
def exporter(scenario: Callable[[str, str], Json], flavour: str) -> Json:
    return scenario("freebsd_exporter", flavour)


def test_it_is_installed_and_not_enabled(exporter: Json) -> None:
    assert exporter["install"]["status"] == 0, exporter["install"]
    assert "Set zfstune_exporter_enable to YES" in exporter["disabled"]["stdout"]


def test_it_is_started_once(exporter: Json) -> None:
    before, status = exporter["before"], exporter["status"]
    assert (before["status"], before["stdout"]) == (1, "zfstune_exporter is not running.\n")
    assert exporter["start"]["status"] == status["status"] == 0, exporter["start"]
    assert re.fullmatch(r"zfstune_exporter is running as pid \d+\.\n", status["stdout"])
    assert "already running" in exporter["again"]["stdout"]
    assert exporter["same"] is True


def test_its_recorder_has_memory_of_its_own_and_the_options(exporter: Json) -> None:
    rows = [line.split() for line in exporter["mounts"].splitlines()]
    assert [row[2] for row in rows if row[1] == "/var/run/zfstune-exporter"] == ["tmpfs"]
    assert exporter["recorder"]["status"] == 0, exporter["recorder"]
    status = json.loads(exporter["recorder"]["stdout"])
    assert [one["text"] for one in status["triggers"]] == ["fsync.p99>200ms for 30s"]


@pytest.mark.parametrize("key", ["counted", "counted_again"])
def test_it_counts_what_the_trace_and_zfs_count(exporter: Json, key: str) -> None:
    found = exporter[key]
    row = dataset_row(found["rows"], "tank/db")
    assert found["exported"] == row["count"] == found["kstat_commits"] == found["wrote"]


def test_it_is_started_again_30_s_after_it_was_killed(exporter: Json) -> None:
    assert exporter["pause_s"] >= 29


def test_stopping_leaves_nothing_but_the_record(exporter: Json) -> None:
    assert exporter["stop"]["status"] == 0, exporter["stop"]
    assert exporter["stopped"]["status"] == 1
    files = exporter["left"].pop("files")
    assert exporter["left"] == {"answers": False, "pidfile": False, "dtrace": ""}
    assert "recorded.jsonl.gz" in files and "record.sock" not in files


def test_a_recorder_alone_has_all_fsyncs_in_its_file(exporter: Json) -> None:
    found = exporter["recorded"]
    assert found["dump"]["status"] == 0, found["dump"]
    recorded = sum(
        record["count"]
        for record in found["records"]
        if record["type"] == "fsync_summary" and record["dataset"] == "tank/db"
    )
    row = dataset_row(found["rows"], "tank/db")
    assert recorded == row["count"] == found["kstat_commits"] == 97


def test_its_trigger_has_fired_and_it_ends_cleanly(exporter: Json) -> None:
    found = exporter["recorded"]
    assert found["ended"] == 0 and found["dtrace"] == "", found["said"]
    (trigger,) = found["status"]["triggers"]
    assert trigger["text"] == "fsync.p99>1us for 1s"
    assert found["status"]["fired"] >= 1 and found["status"]["dumps"] >= 1


def test_its_file_is_read_without_the_pool(exporter: Json) -> None:
    found = exporter["recorded"]
    assert found["trace"]["status"] == found["report"]["status"] == 0, found
    assert "tank/db" in found["trace"]["stdout"]
    assert found["diagnose"]["status"] in (0, 1), found["diagnose"]
