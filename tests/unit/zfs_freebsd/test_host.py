"""FreeBSDHost on a stand-in for sysctl(3): names, checks, and what is missing."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest
from support.freebsd import standin
from support.freebsd.standin import ROOT, Table

from zfs_freebsd import mounts
from zfs_freebsd.dtrace import probes, scripts
from zfs_freebsd.host import FreeBSDHost
from zfstrace import processes
from zfstrace.errors import NoZfs, TraceError
from zfstrace.recording import StackOptions
from zfstrace.types import FsyncOptions, TraceOptions
from zfstune.tunables import catalogue
from zfstune.tune import production


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    monkeypatch.setenv("SYSCTL_STANDIN_TABLE", str(tmp_path / "table"))
    return Table(tmp_path / "table").host().write()


@pytest.fixture
def host(table: Table, tmp_path: Path) -> FreeBSDHost:
    return FreeBSDHost(catalogue.freebsd_names, root=tmp_path, library=str(standin.build()))


def test_facts_come_from_sysctl(host: FreeBSDHost) -> None:
    assert host.loaded()
    assert host.version() == standin.VERSION
    assert host.memory_bytes() == standin.MEMORY
    assert host.pools() == ["tank"]
    assert host.pool_state("tank") == "ONLINE"
    assert host.parameter("zfs_txg_timeout") == 5
    assert host.kstat("arcstats")["c_max"] == 60 << 30
    assert host.kstat("nothing") == {}
    assert host.parameter("zfs_dirty_data_max") == 4 << 30


def test_names_of_datasets_outlive_the_pool(host: FreeBSDHost, table: Table) -> None:
    assert host.dataset_names() == ["tank/db"]
    assert host.dataset_name("tank", 0x4B, (0, 0)) == "tank/db"
    assert host.dataset_name("tank", 99, (0, 0)) is None
    host.tick()
    table.remove("kstat/zfs/tank").write()
    assert host.dataset_name("tank", 0x4B, (0, 0)) == "tank/db"
    assert host.dataset_names() == host.pools() == []
    assert host.pool_state("tank") == ""


def test_written_bytes_come_with_their_time(host: FreeBSDHost) -> None:
    before = time.monotonic_ns()
    now, found = host.written("tank")
    assert found == {0x4B: 163840}
    assert before <= now <= time.monotonic_ns()


def test_the_state_of_a_txg_is_found_by_time(host: FreeBSDHost) -> None:
    rows = [row for row in host.txg_rows("tank") if row.done]
    moment = rows[-1].closed_ns + 1
    state = host.txg_state("tank", moment, moment)
    assert state is not None
    assert state.state in ("quiescing", "syncing")
    assert host.txg_state("gone", 0, 1) is None


def test_a_missing_process_is_an_error(host: FreeBSDHost) -> None:
    assert host.process_error(os.getpid()) is None
    assert host.process_error(1) is None
    for pid in (2**22 + 1, 2**40):
        assert host.process_error(pid) == f"there is no process {pid}"


def test_each_finished_row_is_a_txg(host: FreeBSDHost, table: Table) -> None:
    head = "\ntxg birth state ndirty nread nwritten reads writes otime qtime wtime stime\n"
    table.add("kstat/zfs/tank/txgs", "string", f"{head}4 400 C 1 0 2 0 1 50 1 1 40\n", "s").write()
    session = host.open_txg_trace(TraceOptions(kstat=True))
    text = f"{head}4 400 C 1 0 2 0 1 50 1 1 40\n5 500 C 1 0 2 0 1 50 1 1 40\n"
    table.add("kstat/zfs/tank/txgs", "string", text, "s").write()
    assert [(txg.pool, txg.txg, txg.source) for txg in session.poll(0)] == [("tank", 5, "kstat")]
    session.close()


def test_the_arc_trace_works_without_dtrace(host: FreeBSDHost) -> None:
    session = host.open_arc_trace(TraceOptions(kstat=True))
    session.refresh()
    assert session.state().stats["c_min"] == 2 << 30
    assert session.state().waits is None


def test_traces_without_dtrace_are_refused(
    host: FreeBSDHost, table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    opens = (
        lambda: host.open_fsync_trace(FsyncOptions()),
        lambda: host.open_txg_trace(TraceOptions()),
        lambda: host.open_throttle_trace(TraceOptions()),
        lambda: host.open_device_trace(TraceOptions()),
        lambda: host.open_arc_trace(TraceOptions()),
        lambda: host.open_stack_trace(StackOptions("off-cpu", "fsync")),
    )
    for open_trace in opens:
        with pytest.raises(TraceError, match="/usr/sbin/dtrace does not start"):
            open_trace()
    table.remove("vfs/zfs").write()
    with pytest.raises(NoZfs) as caught:
        opens[0]()
    assert caught.value.hint == "run `kldload zfs`"


def test_checks_tell_ok_from_missing_and_blocking(
    host: FreeBSDHost, table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found() -> dict[str, str]:
        return {check.name: check.status for check in host.checks()}

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    (tmp_path / "dtrace").symlink_to(ROOT / "tests/support/freebsd/dtrace_standin.py")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("DTRACE_STANDIN", str(tmp_path))
    (tmp_path / "dev/dtrace").mkdir(parents=True)
    (tmp_path / "dev/dtrace/dtrace").touch()
    assert found() == {
        "ZFS": "ok",
        "kernel": "ok",
        "privileges": "ok",
        "dtrace": "ok",
        "kstat zil": "ok",
        "kstat tank/txgs": "ok",
    }
    assert {tool.why for tool in host.tools()} == {""}
    assert {probe.how for probe in host.survey().probes} == {"found"}
    assert host.survey().layout == "ctf"
    (tmp_path / "missing").write_text("fbt:kernel:_cv_wait:entry")
    probes._look_up.cache_clear()
    missing = [(probe.tracer, probe.name) for probe in host.survey().probes if probe.missing]
    assert missing == [(tracer, "cv_wait") for tracer in ("fsync", "read", "stacks")]
    (tmp_path / "dev/dtrace/dtrace").unlink()
    assert host.survey().probes == ()
    assert {tool.why for tool in host.tools()} == {"dtrace has no modules loaded"}
    assert scripts.check(tmp_path).fix == "run `kldload dtraceall`, outside jails"
    table.add("security/jail/jailed", "int", 1).add(
        "kstat/zfs/tank/txgs", "string", "", "s"
    ).write()
    assert found()["privileges"] == found()["kstat tank/txgs"] == "missing"
    table.add("kstat/zfs/tank/misc/state", "string", "SUSPENDED\n", "s").write()
    assert found()["pool tank"] == "missing"
    table.remove("vfs").remove("kstat").write()
    assert found()["ZFS"] == "blocking"


def test_mounts_of_zfs_are_read() -> None:
    text = (
        "zroot/ROOT/default\t\t/\t\t\tzfs\trw,noatime\t0 0\n"
        "tank/my data\t\t/tank/my data\t\tzfs\trw,nfsv4acls \t0 0\n"
        "tank/a name of 24 bytes or more /mnt/a long mount point zfs\trw\t0 0\n"
        "tank/db@now\t\t/mnt\tzfs\tro\t0 0\n"
        "devfs\t/dev\tdevfs\trw\t0 0\n"
        "rubbish\n"
    )
    assert mounts.parse_mounts(text) == {
        "zroot/ROOT/default": "/",
        "tank/my data": "/tank/my data",
        "tank/a name of 24 bytes or more": "/mnt/a long mount point",
    }


def test_running_databases_are_read_from_ps() -> None:
    # of "pid=,etimes=" ps(1) of FreeBSD makes one column (parsefmt() in bin/ps/keyword.c)
    assert not any("=" in word.rstrip("=") for word in production.PS)
    if shutil.which("ps"):
        found = production.parse_ps(processes.output(production.PS, 5))
        assert str(os.getpid()) in [pid for pid, _comm, _run_s in found]
    text = " 4711  360000 postgres\n   12      50 sh\nrubbish\n"
    assert list(production.parse_ps(text)) == [("4711", "postgres", 360000.0), ("12", "sh", 50.0)]
