"""The one file alone on a minimal system: it does everything, and says why where it cannot."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from lab import everything

Json = dict[str, Any]


@pytest.fixture
def dist(scenario: Callable[[str, str], Json], flavour: str) -> Json:
    return scenario("dist", flavour)


def test_the_system_has_nothing_that_the_file_could_use(dist: Json) -> None:
    assert dist["absent"] == []
    assert dist["imports"] != 0


def test_it_traces_and_diagnoses(dist: Json) -> None:
    everything.reads_and_traces(dist["everything"])
    assert "loaded from memory" in dist["everything"]["doctor"]["stdout"]
    said = dist["everything"]["diagnose"]["stdout"]
    assert '"slow_flush"' in said, said


def test_it_sets_and_reverts(dist: Json) -> None:
    everything.sets_and_reverts(dist["everything"])


def test_it_tunes(dist: Json) -> None:
    if "tune" in dist.get("left_out", ()):
        pytest.skip("not in a sample")
    everything.tunes(dist["everything"])


@pytest.mark.parametrize("key", ["noexec", "read_only"])
def test_it_runs_where_nothing_may_run_or_be_written(dist: Json, key: str) -> None:
    everything.counts_exactly(dist[key]["trace"])
    assert f"/mnt/{key}/zfstune.pyz, loaded from memory" in dist[key]["doctor"]["stdout"]


def test_it_runs_where_memory_files_must_not_be_programs(dist: Json) -> None:
    if "read_only" in dist and "memfd_noexec" not in dist:
        pytest.skip("this kernel has no vm.memfd_noexec")
    everything.counts_exactly(dist["memfd_noexec"]["trace"])


def test_a_full_tmp_is_one_line_where_it_matters(dist: Json) -> None:
    full = dist["full"]
    assert full["doctor"]["status"] in (0, 1), full["doctor"]
    assert full["flame"]["status"] not in (0, 1), full["flame"]
    assert one_error(full["flame"]["stderr"]).endswith("No space left on device")
    assert full["left"] == ["fill"]


def test_another_machines_file_is_refused(dist: Json) -> None:
    done = dist["other_machine"]
    assert done["status"] == 3, done
    assert "is for aarch64, and this machine is x86_64" in one_error(done["stderr"])


@pytest.mark.parametrize("size", [5000, 500_000])
def test_a_file_cut_short_is_refused(dist: Json, size: int) -> None:
    done = dist[f"cut_{size}"]
    assert done["status"] != 0
    assert done["stdout"] == ""
    assert "copy-the-file-again" in done["stderr"].splitlines()[-1]


def test_what_runs_goes_on_when_its_file_is_written_anew(dist: Json) -> None:
    """The trace ends with its table, and the values of a killed session are restored."""
    found = dist["replaced"]
    assert found["version"].startswith("zfstune ")
    assert (found["status"], found["alive"]) == (0, True), found["stderr"]
    whole = [row["count"] for row in found["rows"] if row["type"] == "fsync_summary"]
    assert whole[0] == 31
    assert found["in_force"] == {"zfs_delay_scale": "600000"}
    assert found["after"] == {}


def test_two_versions_run_at_once_and_know_the_same_journal(dist: Json) -> None:
    found = dist["beside"]
    for rows in found["rows"].values():
        whole = [row for row in rows if row["type"] == "fsync_summary" and row["dataset"] is None]
        assert [row["count"] for row in whole] == [41]
    assert found["set"]["status"] == 0, found["set"]
    assert found["in_force"] == {"zfs_txg_timeout": "7"}
    assert json.loads(found["status"]["stdout"])["state"] == "changed"
    assert found["revert"]["status"] == 0, found["revert"]
    assert found["after"] == {}


def test_it_leaves_nothing_behind(dist: Json) -> None:
    assert dist["changed"] == {}
    assert [path for path in dist["left"] if not path.startswith(("/root/", "/tmp/"))] == []


def one_error(stderr: str) -> str:
    """The one error of a command's stderr, which may have progress before and a hint after it."""
    (line,) = [line for line in stderr.splitlines() if line.startswith("zfstune: error: ")]
    return line
