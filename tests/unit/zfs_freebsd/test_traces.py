"""Traces on the command line of a FreeBSD host: stand-ins for sysctl(3) and dtrace(1), of which the
latter replays what it printed on FreeBSD 15.0 (tests/data/dtrace)."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from support.freebsd.machine import Machine

Json = dict[str, Any]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    if os.geteuid() != 0:
        pytest.skip("dtrace needs root")
    return Machine(tmp_path).with_dtrace()


def rows(text: str) -> list[Json]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def trace(machine: Machine, *words: str) -> list[Json]:
    return rows(machine.run("trace", *words, "--json", "--duration", "1s"))


def test_trace_fsync_has_stages_by_dataset(machine: Machine) -> None:
    found = {row["dataset"]: row for row in trace(machine, "fsync", "tank")}
    pool = found[None]
    assert (pool["count"], pool["commits"], pool["no_zil"], pool["lost"]) == (57, 40, 17, 0)
    assert pool["probes"]["missing"] == []
    commits = next(row for row in found.values() if row["dataset"] and row["commits"])
    assert (commits["count"], commits["kinds"]["fsync"]) == (40, 40)
    assert sum(stage["total_ns"] for stage in commits["stages"]) == pytest.approx(
        commits["latency"]["mean"] * 40, abs=40
    )


def test_trace_slow_has_each_commit(machine: Machine) -> None:
    found = [row for row in trace(machine, "slow", "--over", "1us") if row["type"] == "slow_fsync"]
    assert len(found) == 40
    assert all(sum(row["stages"].values()) == row["total_ns"] for row in found)
    assert {row["pool"] for row in found} == {"tank"}


def test_trace_txg_has_reasons(machine: Machine) -> None:
    found = trace(machine, "txg")
    assert len(found) >= 3
    assert {row["source"] for row in found} == {"dtrace"}
    assert {"timer", "waiter"} <= {row["reason"] for row in found}
    assert [row["txg"] for row in found] == sorted(row["txg"] for row in found)


def test_trace_throttle_has_waits_by_kind(machine: Machine) -> None:
    (row,) = trace(machine, "throttle")
    assert (row["pool"], row["comm"]) == ("tank", "dd")
    assert row["count"] == sum(kind["count"] for kind in row["kinds"].values()) > 0


def test_trace_device_has_classes(machine: Machine) -> None:
    found = {row["class"]: row for row in trace(machine, "device")}
    assert found["sync_write"]["count"] >= found["flush"]["count"] >= 7
    assert found["sync_write"]["queue"]["mean"] < found["sync_write"]["device"]["mean"]
    assert found["flush"]["queue"] is None


def test_trace_arc_has_limits(machine: Machine) -> None:
    row = trace(machine, "arc")[-1]
    assert row["waits"] == 0
    assert row["target_max"] == 60 << 30


def test_trace_read_tells_hits_from_misses(machine: Machine) -> None:
    (row,) = trace(machine, "read", "tank")
    assert (row["dataset"], row["hits"], row["misses"], row["writes"]) == ("tank/db", 29, 1, 7)
    assert (row["read_bytes"], row["write_bytes"]) == (30 * 8192, 7 * 8192)
    assert row["hit"]["p50"] < row["miss"]["p50"]
    assert (row["errors"], row["lost"], row["source"]) == (0, 0, "trace")
    said = machine.run("trace", "read", "--dataset", "tank/db", "--pid", "1", "--duration", "1s")
    assert "97 % of 30 reads did not wait for an I/O" in said


def test_trace_has_all_views(machine: Machine) -> None:
    said = machine.run("trace", "--pool", "tank", "--duration", "2s", "--interval", "2s")
    assert "5 of 5 views" in said
    for view in ("fsync", "txg", "throttle", "device", "arc"):
        assert f"trace {view}" in said


def test_flame_records_where_fsyncs_wait(machine: Machine) -> None:
    said = machine.run("flame", "--duration", "1s", "-o", str(machine.root / "fsync.svg"))
    assert "lost: 0 stacks not walked" in said
    assert "zil_commit" in (machine.root / "fsync.svg").read_text()
    said = machine.run("flame", "--wakeup", "--duration", "1s")
    assert ";flush;python3.11;--;" in said


@pytest.mark.parametrize(
    ("setting", "text", "message"),
    [
        ("broken", "zilevent-json.d", "dtrace does not run zilevent-json.d: failed to compile"),
        (
            "missing",
            "fbt:kernel:_cv_timedwait_sbt:entry",
            "missing probe cv_timedwait: `batch_wait`",
        ),
    ],
)
def test_errors_of_dtrace_are_reported(
    machine: Machine, setting: str, text: str, message: str
) -> None:
    (machine.root / setting).write_text(text)
    status = 3 if setting == "broken" else 0
    assert message in machine.run("trace", "fsync", "--duration", "1s", status=status)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("trace fsync --light", "cannot trace lightly: a D script has all of its probes or none"),
        ("doctor --cost", "cannot count what tracing costs: FreeBSD does not time"),
        ("flame --txg-sync", "cannot record threads that sync a txg on FreeBSD"),
        ("flame --all-zfs", "cannot record all threads in ZFS on FreeBSD"),
        ("flame --pid 1", "cannot record a whole process on FreeBSD"),
    ],
)
def test_what_only_linux_can_is_refused(machine: Machine, words: str, message: str) -> None:
    said = machine.run(*words.split(), "--duration", "1s", status=3)
    assert f"zfstune: error: {message}" in said
    assert said.splitlines()[-1].startswith("hint: ")


def test_faults_are_counted(machine: Machine) -> None:
    (machine.root / "faulty").write_text("zilevent-json.d")
    row = trace(machine, "fsync")[0]
    assert row["lost"] == 2


def test_ctrl_c_ends_a_trace(machine: Machine) -> None:
    process = machine.start("trace", "fsync", "--json")
    assert process.stderr
    while "Ctrl-C" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert rows(out)
