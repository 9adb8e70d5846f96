"""Traces made of what D scripts print. dtrace(1) is a shell script here: it prints lines of the
form of docs/dtrace-json.md, a state again and again, and the last line after SIGINT."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.samples import from_values, txg_row

from zfs_freebsd.dtrace import fsync, probes, process, scripted, scripts
from zfs_freebsd.dtrace.arc import ScriptedArc
from zfs_freebsd.dtrace.device import ScriptedDevices
from zfs_freebsd.dtrace.fsync import ScriptedFsyncs
from zfs_freebsd.dtrace.process import Dtrace
from zfs_freebsd.dtrace.read import ScriptedReads
from zfs_freebsd.dtrace.throttle import ScriptedThrottle
from zfs_freebsd.dtrace.txg import ScriptedTxgs
from zfstrace import throttle
from zfstrace.errors import TraceError
from zfstrace.hist import Hist, low
from zfstrace.kstat.txgs import TxgRow
from zfstrace.read import Op
from zfstrace.stages import KINDS, NAMES
from zfstrace.types import FsyncOptions, Json, TraceOptions

BEGIN = '{"schema":1,"type":"trace_begin","tool":"x"}'
STANDIN = """\
#!/bin/sh
# stand-in for dtrace(1): the script's lines are in its own file
trap 'printf "%s\\n" "{end}"; exit 0' INT
cat "$3.lines"
cat "$3.errors" >&2
while :; do
    [ -z '{state}' ] || printf '\\n%s\\n' '{state}'
    sleep 0.05
done
"""
STATE: Json = {"schema": 1, "type": "trace_state", "lost": 2, "errors": 1}


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of a script that prints nothing but its begin; see printing()."""
    path = tmp_path / "some.d"
    path.write_text("")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(scripts, "script", lambda name: path)
    monkeypatch.setattr(probes, "survey", lambda tracers: ())
    printing(path, [])
    return path


def printing(
    path: Path, rows: list[Json | str], errors: str = "", state: Json | None = None, end: str = ""
) -> None:
    lines = [BEGIN, *(row if isinstance(row, str) else json.dumps(row) for row in rows)]
    Path(f"{path}.lines").write_text("\n\n".join(lines) + "\n")
    Path(f"{path}.errors").write_text(errors)
    program = path.parent / "dtrace"
    program.write_text(STANDIN.format(end=end, state=json.dumps(STATE if state is None else state)))
    program.chmod(0o755)


# --- the process


def test_a_script_begins_and_ends(script: Path) -> None:
    printing(script, ["a", "b"], end="last")
    running = Dtrace(script)
    found: list[str] = []
    while "b" not in found:
        found += running.lines(1000)
    assert found[:3] == [BEGIN, "a", "b"]
    assert running.finish()[-1] == "last"
    running.close()
    running.close()


def test_drops_are_counted(script: Path) -> None:
    printing(
        script,
        [],
        errors="dtrace: 3 drops on CPU 1\n"
        "dtrace: 40 dynamic variable drops with non-empty dirty list\n"
        "dtrace: 500 aggregation drops on CPU 0\n"
        "dtrace: 1 dynamic variable drop\n"
        "dtrace: error on enabled probe ID 3 (ID 1: fbt:zfs:zil_commit:entry): invalid address\n"
        "dtrace: script 'x' matched 99 probes\n",
    )
    running = Dtrace(script)
    end = time.monotonic() + 10
    while running.drops != 544 and time.monotonic() < end:
        running.lines(100)
    assert running.drops == 544
    running.close()


def test_a_script_that_does_not_compile_is_an_error(script: Path) -> None:
    program = script.parent / "dtrace"
    program.write_text(
        "#!/bin/sh\necho 'dtrace: failed to compile script x: line 3: oh' >&2; exit 1\n"
    )
    with pytest.raises(TraceError, match=r"dtrace does not run some\.d: failed to compile .* oh$"):
        Dtrace(script)


def test_without_dtrace_it_is_an_error(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(TraceError, match="dtrace does not start"):
        Dtrace(script)


def test_a_script_that_ends_by_itself_ends_the_trace(script: Path) -> None:
    program = script.parent / "dtrace"
    program.write_text(f"#!/bin/sh\necho '{BEGIN}'; echo 'dtrace: processing aborted: oh' >&2\n")
    running = Dtrace(script)
    with pytest.raises(TraceError, match=r"some\.d exited unexpectedly: processing aborted: oh"):
        for _ in range(100):
            running.lines(100)
    running.close()


def test_a_script_that_does_not_end_is_killed(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "END_S", 0.3)
    program = script.parent / "dtrace"
    program.write_text(f"#!/bin/sh\ntrap '' INT\necho '{BEGIN}'\nwhile :; do sleep 0.05; done\n")
    running = Dtrace(script)
    with pytest.raises(TraceError, match=r"did not end within 0\.3 s"):
        running.finish()
    assert running._process.returncode == -signal.SIGKILL


def test_a_script_that_never_begins_is_an_error(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "START_S", 0.3)
    program = script.parent / "dtrace"
    program.write_text("#!/bin/sh\nwhile :; do sleep 0.05; done\n")
    with pytest.raises(TraceError, match=r"did not start within 0\.3 s"):
        Dtrace(script)


# --- fsyncs


def commit(**fields: object) -> Json:
    names = [*(n for n in NAMES if n != "other"), "device_wait"]
    base: Json = {
        "schema": 1,
        "type": "commit",
        "time": "2026-11-21T21:05:13.046812Z",
        "pid": 7,
        "tid": 8,
        "comm": "postgres",
        "pool": "tank",
        "dataset": None,
        "objset": 54,
        "object": 128,
        "total_ns": 1000,
        "stages": dict.fromkeys(names, 0)
        | {"writeback": 20, "flush": 880, "issue": 60, "device_wait": 30},
        "txg_state": None,
        "kind": "fsync",
    }
    return base | fields


def none(name: str) -> int | None:
    return None


def test_commits_are_summed(script: Path) -> None:
    past = {"schema": 1, "type": "bypassed", "pool": "tank", "objset": 99}
    printing(
        script,
        [
            commit(),
            commit(total_ns=3000, kind="other"),
            commit(objset=77),
            past | {"count": 1, "total_ns": 5, "max_ns": 5},
            past | {"count": 4, "total_ns": 48, "max_ns": 20},
        ],
    )
    session = ScriptedFsyncs(FsyncOptions(), 0, none)
    session.refresh()
    first, second, third = session.datasets()
    session.close()
    assert (first.pool, first.objset, first.commits, first.no_zil) == ("tank", 54, 2, 0)
    assert first.kinds == tuple({"fsync": 1, "other": 1}.get(kind, 0) for kind in KINDS)
    assert first.total == from_values([1000, 3000])
    stages = dict(zip(NAMES, first.stages, strict=True))
    assert stages["flush"] == from_values([880, 880])
    assert stages["issue"] == from_values([60, 60])
    assert stages["writeback"] == from_values([20, 20])
    # 1000 - 960 and 3000 - 960: what was not kept apart, and what no probe sees
    assert stages["other"] == from_values([40, 2040])
    assert sum(stage.sum_ns for stage in first.stages) == first.total.sum_ns
    assert (second.objset, second.commits) == (77, 1)
    assert (third.objset, third.commits, third.no_zil) == (99, 0, 4)
    assert (third.total.count, third.total.sum_ns, third.total.max_ns) == (4, 48, 20)
    assert third.kinds[KINDS.index("other")] == 4
    assert third.stages[NAMES.index("other")] == third.total
    losses = session.losses()
    assert (losses.missed, losses.start, losses.log_block) == (2, 1, 3)


def test_slow_commits_are_events(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[Json | str] = [commit(total_ns=999), commit(objset=9, total_ns=1000), commit(pid=3)]
    printing(script, rows)
    monkeypatch.setattr(fsync, "ScriptedThrottle", _no_throttle)
    session = ScriptedFsyncs(FsyncOptions(slow_ns=1000, pid=7), 0, none)
    assert session.held_up("tank", 0, 1) is None
    session.refresh()
    (slow,) = session.poll(0)
    assert session.poll(0) == []
    session.close()
    assert (slow.total_ns, slow.object, slow.pid, slow.tid, slow.comm) == (
        1000,
        128,
        7,
        8,
        "postgres",
    )
    assert slow.dataset == 1
    assert sum(slow.stage_ns) == 1000
    wall = 1_795_295_113_046_812_000
    assert slow.wall_ns == wall
    assert abs(slow.start_ns - time.monotonic_ns() + time.time_ns() - wall) < 1_000_000_000
    assert sum(d.total.count for d in session.datasets()) == 2


def _no_throttle(*args: object) -> None:
    raise TraceError("no")


def test_only_the_asked_dataset_is_counted(script: Path) -> None:
    printing(script, [commit(), commit(objset=9)])
    session = ScriptedFsyncs(FsyncOptions(dataset="tank/db"), 9, none)
    session.refresh()
    assert [d.objset for d in session.datasets()] == [9]
    session.close()


def test_lines_cut_short_are_losses(script: Path) -> None:
    row = json.dumps(commit())
    printing(script, [row[: len(row) // 2], row, "[]", "7", '{"type":"commit"}', "\ufffd"])
    session = ScriptedFsyncs(FsyncOptions(), 0, none)
    session.refresh()
    assert session.datasets()[0].commits == 1
    assert session.losses().lost == 2 + 1 + 5
    session.close()


def test_the_name_of_a_program_may_have_any_character(script: Path) -> None:
    """D prints it as it is."""
    printing(script, [json.dumps(commit(comm="a b")).replace("a b", "a\t\x1b[2Jb")])
    session = ScriptedFsyncs(FsyncOptions(), 0, none)
    session.refresh()
    assert session.datasets()[0].commits == 1
    # what the state itself counts
    assert session.losses().lost == 2 + 1
    session.close()


def test_a_silent_script_is_an_error(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripted, "STATE_S", 0.3)
    printing(script, [], state={"type": "other"})
    session = ScriptedFsyncs(FsyncOptions(), 0, none)
    with pytest.raises(TraceError, match=r"some\.d printed nothing for 0\.3 s"):
        session.refresh()
    session.close()


def test_a_long_wait_is_explained(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    printing(script, [], state={"type": "other"})
    session = ScriptedFsyncs(FsyncOptions(), 0, none)
    monkeypatch.setattr(process, "say", said.append)
    monkeypatch.setattr(process, "PATIENCE_S", 0.0)
    monkeypatch.setattr(process, "START_S", 0.3)
    monkeypatch.setattr(scripted, "STATE_S", 0.3)
    with pytest.raises(TraceError):
        session.refresh()
    session.close()
    (script.parent / "dtrace").write_text("#!/bin/sh\nwhile :; do sleep 0.05; done\n")
    with pytest.raises(TraceError):
        Dtrace(script)
    assert [text.split(";")[0] for text in said] == [
        "waiting for the counts of some.d",
        "waiting for dtrace to start some.d",
    ]


# --- the other views


def wait(**fields: object) -> Json:
    base: Json = {
        "schema": 1,
        "type": "throttle_wait",
        "pool": "tank",
        "pid": 7,
        "comm": "dd",
        "wall_ns": time.time_ns(),
        "ns": 1000,
        "dirty_wait": True,
        "dirty_bytes": 700,
        "delay_ns": 0,
    }
    return base | fields


LIMITS = {"zfs_dirty_data_max": 1000, "zfs_delay_min_dirty_percent": 60, "zfs_delay_scale": 100}


def test_waits_are_counted_by_kind(script: Path) -> None:
    printing(
        script,
        [
            wait(),
            wait(dirty_bytes=1000, ns=5000),
            wait(dirty_bytes=500, delay_ns=900),  # too little to be delayed for: log data
            wait(dirty_bytes=500),  # as the one before
            wait(delay_ns=33),  # 100 * (700 - 600) / (1000 - 700)
            wait(delay_ns=800),
            wait(dirty_wait=False),
            wait(dirty_wait=None, dirty_bytes=None),
            wait(pid=8, pool="slow"),
        ],
    )
    session = ScriptedThrottle(None, None, LIMITS.get)
    session.refresh()
    rest, first, second = session.waits()
    now = time.monotonic_ns()
    assert session.held_up("tank", now - 10_000_000_000, now) == 1
    assert session.held_up("slow", now + 1_000_000_000, now + 2_000_000_000) == 0
    session.close()
    assert (rest.rest, rest.latency.count) == (True, 0)
    assert {kind: waits.count for kind, waits in first.kinds.items()} == {
        "dirty_delay": 2,
        "dirty_hard": 1,
        "wrlog_delay": 3,
        "txg_wait": 1,
        "unknown": 1,
    }
    assert (first.latency.count, first.latency.sum_ns) == (8, 12_000)
    assert (first.kinds["dirty_hard"].total_ns, first.kinds["dirty_hard"].max_ns) == (5000, 5000)
    assert (first.pool, first.pid, first.comm, first.dirty_bytes) == ("tank", 7, "dd", None)
    assert (second.pool, second.pid, second.latency.count) == ("slow", 8, 1)


def test_processes_that_have_ended_are_released(script: Path) -> None:
    """Else each would stay for the months of an exporter, and another process that gets its id
    would add to its waits, under its name."""
    with subprocess.Popen(["true"]) as ended:
        pass
    printing(script, [wait(pid=ended.pid), wait(pid=os.getpid())])
    session = ScriptedThrottle(None, None, LIMITS.get)
    session.refresh()
    before = session.waits()
    session.tick()
    assert list(session._waiters) == [("tank", os.getpid())]
    now = session.waits()
    assert [(one.rest, one.pid, one.latency.count) for one in now] == [
        (True, 0, 0),
        (False, ended.pid, 1),
        (False, os.getpid(), 1),
    ]
    assert not any(one.latency.count for one in throttle.since(now, before))
    # the same id again
    session._on_row(wait(pid=ended.pid, comm="another"))
    assert [one.comm for one in session.waits() if one.pid == ended.pid] == ["dd", "another"]
    (more,) = (one for one in throttle.since(session.waits(), now) if one.latency.count)
    assert (more.comm, more.latency.count) == ("another", 1)
    session.close()


ACTIVE = {"schema": 1, "sum": 9, "max": 2}


def io(number: int, part: str, bucket: int, count: int, size: int = 0) -> Json:
    times = {"bucket": bucket, "count": count, "total_ns": count * low(bucket)}
    where = {"pool": "tank", "guid": 2**64 - 1, "class": number, "part": part}
    most = {"max_ns": low(bucket), "bytes": size}
    return {"schema": 1, "type": "device_times"} | where | times | most


def test_io_is_counted_by_vdev_and_class(script: Path) -> None:
    printing(
        script,
        [
            io(1, "device", 300, 1, 4096),
            io(1, "queue", 100, 1),
            io(1, "device", 300, 5, 20480),  # the same again, later
            io(1, "queue", 100, 5),
            io(1, "device", 310, 1, 512),
            io(1, "queue", 0, 1),
            {"type": "device_active", "pool": "tank", "guid": 2**64 - 1, "class": 1} | ACTIVE,
            io(10, "device", 500, 2),
            io(44, "device", 500, 2, 7),
        ],
    )
    session = ScriptedDevices("tank")
    session.refresh()
    (vdev,) = session.devices()
    session.close()
    assert (vdev.pool, vdev.guid, vdev.rest) == ("tank", 2**64 - 1, False)
    log = vdev.classes["sync_write"]
    assert (log.count, log.size, log.active_sum, log.active_max) == (6, 20992, 9, 2)
    assert log.device == Hist(6, 5 * low(300) + low(310), low(310), {300: 5, 310: 1})
    assert log.queue == Hist(6, 5 * low(100), low(100), {100: 5, 0: 1})
    assert (vdev.classes["flush"].count, vdev.classes["flush"].active_max) == (2, None)
    assert vdev.classes["unknown"].size == 7


def test_of_sums_only_the_last_print_is_read(script: Path) -> None:
    """Each has them all; a broken line of an earlier one loses nothing."""
    broken = '{"type":"device_times","pool"'
    printing(script, [broken, json.dumps(STATE), io(0, "device", 300, 5, 99)])
    session = ScriptedDevices(None)
    session.refresh()
    for _ in range(2):
        (vdev,) = session.devices()
        assert [row.count for row in vdev.classes.values()] == [5]
    session.close()
    # what the state itself counts
    assert session.losses().lost == 1 + 2


def read_sums(op: int, bucket: int, count: int, size: int, objset: int = 54) -> Json:
    times = {"bucket": bucket, "count": count, "total_ns": count * low(bucket)}
    where = {"pool": "tank", "objset": objset, "op": op}
    return {"type": "read_times", "max_ns": low(bucket), "bytes": size} | where | times


READS: list[Json | str] = [
    read_sums(0, 300, 1, 4096),
    json.dumps(STATE),
    read_sums(0, 300, 5, 20480),  # the same again, later
    read_sums(0, 310, 1, 512),
    read_sums(1, 600, 2, 8192),
    read_sums(2, 400, 3, 3000),
    {"type": "read_rest", "pool": "tank", "objset": 54, "errors": 2, "held": 1, "held_ns": 70},
    read_sums(2, 500, 1, 7, objset=9),
]


def test_reads_are_counted_by_dataset_and_kind(script: Path) -> None:
    printing(script, READS)
    session = ScriptedReads(TraceOptions(), 0, lambda: {"demand_data_hits": 3})
    session.refresh()
    first, second = session.state().datasets
    assert session.state().arc == {"demand_data_hits": 3}
    session.close()
    assert (first.pool, first.objset, first.rest) == ("tank", 54, False)
    hits = Hist(6, 5 * low(300) + low(310), low(310), {300: 5, 310: 1})
    assert first.hit == Op(6, 20992, hits)
    assert first.miss == Op(2, 8192, Hist(2, 2 * low(600), low(600), {600: 2}))
    assert (first.write.count, first.write.size) == (3, 3000)
    assert (first.errors, first.held, first.held_ns) == (2, 1, 70)
    assert (second.objset, second.hit, second.write.count) == (9, Op(), 1)
    assert session.losses().lost == 1 + 2  # what the state itself counts


def test_reads_of_the_asked_dataset_alone(script: Path) -> None:
    printing(script, [*READS, read_sums(7, 300, 1, 1)])
    session = ScriptedReads(TraceOptions(pool="tank", pid=7, dataset="tank/db"), 9, dict)
    session.refresh()
    assert [dataset.objset for dataset in session.state().datasets] == [9]
    session.close()


def test_an_operation_that_no_script_prints_is_lost(script: Path) -> None:
    printing(script, [read_sums(7, 300, 1, 1)])
    session = ScriptedReads(TraceOptions(), 0, dict)
    session.refresh()
    assert not any(dataset.busy for dataset in session.state().datasets)
    assert session.losses().lost == 1 + 2 + 1
    session.close()


class Rows:
    """A kstat of one pool."""

    def pools(self) -> list[str]:
        return ["tank"]

    def rows(self, pool: str) -> list[TxgRow]:
        return [txg_row(41, dirty_bytes=5, written_bytes=6, writes=7)]

    def timeout_s(self) -> int | None:
        return 5

    def now_ns(self) -> int:
        return 0


@pytest.mark.parametrize(
    ("reason", "since_ns", "want"),
    [("dirty", 5 * 10**9, "dirty"), ("unknown", 5 * 10**9, "timer"), ("unknown", None, "unknown")],
)
def test_rows_become_txgs(script: Path, reason: str, since_ns: int | None, want: str) -> None:
    row: Json = {
        "schema": 1,
        "type": "txg",
        "time": "2026-11-21T21:05:13.046812Z",
        "pool": "tank",
        "txg": 41,
        "since_sync_ns": since_ns,
        "open_ns": None,
        "quiesce_ns": 12,
        "wait_ns": 8,
        "sync_ns": 100,
        "passes": 3,
        "dirty_bytes": None,
        "written_bytes": None,
        "delayed_tx": None,
        "delay_ns": None,
        "reason": reason,
    }
    printing(script, [row | {"txg": 40, "sync_ns": None}, row])
    session = ScriptedTxgs(None, Rows())
    session.refresh()
    (txg,) = session.poll(0)
    session.close()
    assert (txg.txg, txg.time, txg.reason, txg.source) == (
        41,
        "2026-11-21T21:05:13.046Z",
        want,
        "dtrace",
    )
    assert (txg.open_ns, txg.quiesce_ns, txg.wait_ns, txg.sync_ns, txg.passes) == (
        None,
        12,
        8,
        100,
        3,
    )
    assert (txg.dirty_bytes, txg.written_bytes, txg.writes) == (5, 6, 7)


def test_the_arc_has_kstats_and_waits(script: Path) -> None:
    printing(script, [{"type": "arc", "misses": 1}, {"type": "arc_wait", "ns": 30}])
    session = ScriptedArc(lambda: {"size": 3})
    session.refresh()
    state = session.state()
    session.close()
    assert state.stats == {"size": 3}
    assert state.waits == from_values([30])


@given(st.text() | st.binary().map(lambda b: b.decode("utf-8", "replace")))
def test_any_line_is_read_or_counted_as_lost(line: str) -> None:
    """Whatever a script prints is read, or counted as lost."""
    session = ScriptedFsyncs.__new__(ScriptedFsyncs)
    session._state, session._state_s, session._unread = {}, 0.0, 0
    session._options, session._objset, session._datasets = FsyncOptions(), 0, {}
    session._dtrace = _Says([line, json.dumps({"type": "commit", "pid": line})])  # type: ignore[assignment]
    session._read(0)
    assert session._unread >= 1


class _Says:
    def __init__(self, lines: list[str]) -> None:
        self._lines = lines

    def lines(self, timeout_ms: int) -> list[str]:
        return self._lines
