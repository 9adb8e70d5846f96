"""`zfstune diagnose` through the command line, on a fake host."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.errors import ONE_ERROR, REFUSED
from support.fake_host import FakeHost, FakeSession, FakeStop
from support.samples import arc, counts, ios, txg, vdev, waits

from zfstrace.errors import NoPrivilege, TraceError
from zfstrace.stages import NAMES
from zfstrace.types import Check, Losses, SlowEvent
from zfstune import cli
from zfstune.diagnose import command
from zfstune.term.units import MS, SECOND


def event(**stages: int) -> SlowEvent:
    times = tuple(stages.get(name, 0) for name in NAMES)
    return SlowEvent(SECOND, sum(times), times, 7, 0, 4711, 4712, "fsync", "postgres")


def host_of(count: int = 100, **stages: int) -> FakeHost:
    """tank/db with this many equal operations, on a disk whose flushes take as long as theirs."""
    many = counts(objset=68, stages={name: [ns] * count for name, ns in stages.items()})
    host = FakeHost()
    host.session = FakeSession([[], [many]], [event(**stages)] * count)
    flush = stages.get("flush", MS)
    disk = vdev(1, sync_write=ios([MS] * count), flush=ios([flush] * count))
    host.sessions = {
        "fsync": FakeSession([[], [many]], [event(**stages)] * count),
        "txg": FakeSession(events=[txg(5)]),
        "throttle": FakeSession([[], []]),
        "device": FakeSession([[], [disk]]),
        "arc": FakeSession([arc(1), arc(2)]),
    }
    # operations polled before the start do not count, and nothing is polled twice
    fsync = host.sessions["fsync"]
    assert isinstance(fsync, FakeSession)
    events = fsync.poll(0)
    polls = iter([[], events])
    fsync.poll = lambda timeout_ms: next(polls, [])  # type: ignore[method-assign]
    return host


@pytest.fixture
def zfstune(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """zfstune(host, words): status, stdout, stderr."""

    def run(host: FakeHost, *words: str) -> tuple[int, str, str]:
        monkeypatch.setattr("zfstune.diagnose.command.open_host", lambda: host)
        monkeypatch.setattr("zfstune.changes.recovery.if_needed", lambda _who: None)
        stop = FakeStop()
        setattr(host, "stop", stop)  # noqa: B010

        class Stop(FakeStop):
            def __init__(self, _out: object) -> None:
                super().__init__()

            def __enter__(self) -> FakeStop:
                return stop

            def __exit__(self, *_: object) -> None:
                pass

        fsync = host.sessions.get("fsync")
        if isinstance(fsync, FakeSession):
            poll = fsync.poll

            def polled(timeout_ms: int) -> list[Any]:
                stop.passed(timeout_ms)
                return poll(timeout_ms)

            fsync.poll = polled  # type: ignore[method-assign]
        monkeypatch.setattr(command, "Stop", Stop)
        status = cli.main(["diagnose", *words])
        out, err = capsys.readouterr()
        return status, out, err

    return run


def test_slow_flushes_are_found_and_explained(zfstune: Any) -> None:
    host = host_of(flush=40 * MS, log_write=MS)
    status, out, err = zfstune(host, "tank")
    assert status == 1
    lines = out.splitlines()
    assert lines[0].startswith("tank, 20.")
    assert "100 fsyncs" in lines[0]
    assert lines[1].startswith("Cache flushes are slow (sure): 98 % of the p99, 98 % of all fsync")
    assert "   98 % of the p99, 98 % of all time; sure: the device itself was timed" in lines
    assert any("on sda p50 40." in line for line in lines)
    assert any(
        line.startswith("the rest: 2.4 % of the p99, 2.4 % of all time (device") for line in lines
    )
    assert lines[-2].startswith("lost 0")
    assert max(map(len, lines)) < 100
    assert "5 of 5 traces" in err
    for session in host.sessions.values():
        assert isinstance(session, FakeSession)
        assert session.closed


def test_long_names_of_busy_pools_are_folded(zfstune: Any, tmp_path: Path) -> None:
    file = tmp_path / "x"
    given = {"pool": "a-name-of-forty-characters-as-some-people-like", "duration_ns": 20 * SECOND}
    given |= {"operations": 1_234_567, "p50_ns": 1_050_000, "p99_ns": 46_500_000}
    given |= {"time": "2026-11-22T04:19:02.930Z"}
    file.write_text(json.dumps({"type": "diagnosis", "schema": 1, "measurements": given}))
    _, out, _ = zfstune(FakeHost(), "--from", str(file))
    assert max(map(len, out.splitlines())) < 100


def test_a_quick_disk_is_healthy(zfstune: Any) -> None:
    status, out, _ = zfstune(host_of(flush=2 * MS, log_write=MS), "tank")
    assert status == 0
    assert "Nothing is wrong: p99 3.00 ms; the device takes 100 % of the time, and its" in out


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "No fsync in 20.0 s: nothing to judge."),
        (3, "Too few fsyncs to judge: 3 in 20.0 s, 5 are needed."),
    ],
)
def test_idle_pools_are_not_accused(zfstune: Any, count: int, text: str) -> None:
    host = host_of(count, flush=400 * MS) if count else host_of(0)
    status, out, _ = zfstune(host, "tank")
    assert status == 0
    assert text in out
    assert "1." not in out.partition("lost")[0].replace("until", "").split("UTC")[1]


def test_a_hanging_fsync_is_reported(zfstune: Any) -> None:
    host = host_of(0)
    host.sessions["fsync"] = FakeSession([[]], losses=Losses(unfinished=3))
    status, out, _ = zfstune(host, "tank")
    assert status == 0
    assert "No fsync in 20.0 s: nothing to judge; 3 on this host have not ended" in out


def test_json_can_be_judged_again(zfstune: Any, tmp_path: Path) -> None:
    status, out, _ = zfstune(host_of(flush=40 * MS), "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert status == 1
    assert [line["pool"] for line in lines] == ["idle", "tank"]
    assert [line["verdict"] for line in lines] == ["idle", "causes"]
    assert {line["type"] for line in lines} == {"diagnosis"}
    assert lines[1]["lost"] == 0
    file = tmp_path / "tank.jsonl"
    file.write_text(out)
    status, again, _ = zfstune(FakeHost(), "--from", str(file), "tank", "--json")
    assert status == 1
    (line,) = map(json.loads, again.splitlines())
    assert line == {name: lines[1][name] for name in line}


def test_when_zpool_hangs_for_a_pool_no_other_is_asked(
    zfstune: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All traces are attached meanwhile."""
    host, asked, now = host_of(flush=40 * MS), list[str](), [100.0]

    def hangs(pool: str) -> None:
        asked.append(pool)
        now[0] += 5

    host.log_vdevs = hangs  # type: ignore[method-assign]
    monkeypatch.setattr("zfstrace.zpool.list.time", SimpleNamespace(monotonic=lambda: now[0]))
    status, out, _ = zfstune(host, "--json")
    assert status == 1
    assert [json.loads(line)["pool"] for line in out.splitlines()] == ["idle", "tank"]
    assert asked == ["idle"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        ("{", "a line that is no diagnosis"),
        ('{"type": "txg"}', "a line that is no diagnosis"),
        ('{"type": "diagnosis", "schema": 2, "measurements": {}}', "is not of schema 1"),
        ('{"type": "diagnosis", "schema": 1, "measurements": {"p50_ns": "x"}}', "not of type int"),
        ('{"type": "diagnosis", "schema": 1, "measurements": {"p50_ns": true}}', "not of type int"),
        (
            f'{{"type": "diagnosis", "schema": 1, "measurements": {{"p50_ns": 1{"0" * 400}}}}}',
            "p50_ns has more than 64 bits",
        ),
        ("[" * 100_000, "a line that is no diagnosis"),
    ],
)
def test_a_file_that_is_not_a_measurement_is_refused(
    zfstune: Any, tmp_path: Path, text: str, problem: str
) -> None:
    file = tmp_path / "x"
    file.write_text(text)
    status, out, err = zfstune(FakeHost(), "--from", str(file))
    assert (status, out) == (2, "")
    assert problem in err
    assert re.fullmatch(ONE_ERROR, err)


def test_a_measurement_without_values_is_idle(zfstune: Any, tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_text('{"type": "diagnosis", "schema": 1, "measurements": {"pool": "tank"}}')
    status, out, _ = zfstune(FakeHost(), "--from", str(file))
    assert status == 0
    assert "nothing to judge" in out


def test_names_in_a_file_print_no_escape_codes(zfstune: Any, tmp_path: Path) -> None:
    file = tmp_path / "x"
    given = {"pool": "t\x1b[1m", "pool_state": "\x1b[2J", "time": "\x1b" * 30, "duration_ns": 1}
    line = {"type": "diagnosis", "schema": 1, "measurements": given}
    file.write_text(json.dumps(line))
    _, out, _ = zfstune(FakeHost(), "--from", str(file))
    assert "\x1b" not in out


def test_a_missing_file_is_an_error(zfstune: Any) -> None:
    status, _, err = zfstune(FakeHost(), "--from", "/nowhere/x")
    assert status == 2
    assert "cannot read /nowhere/x: No such file or directory" in err


def test_an_unknown_pool_is_refused_with_a_guess(zfstune: Any) -> None:
    status, _, err = zfstune(host_of(flush=MS), "tnak")
    assert status == 2
    assert "did you mean tank?" in err


def test_without_privilege_it_is_status_3(zfstune: Any) -> None:
    host = host_of(flush=MS)
    host.check_list = [
        Check("privileges", "privilege", "none", "blocking", "no BPF", "run as root")
    ]
    status, out, err = zfstune(host, "tank")
    assert (status, out) == (3, "")
    assert re.fullmatch(REFUSED, err)
    assert "privileges none: no BPF" in err
    assert "run as root" in err


def test_without_a_trace_of_fsyncs_it_is_status_3(zfstune: Any) -> None:
    host = host_of(flush=MS)
    host.sessions["fsync"] = NoPrivilege("root is needed")
    assert zfstune(host, "tank")[0] == 3


def test_traces_other_than_fsync_may_be_missing(zfstune: Any) -> None:
    host = host_of(flush=40 * MS)
    lack = TraceError("no probe")
    host.sessions |= {"device": lack, "throttle": lack, "arc": lack, "arc kstat": lack}
    status, out, err = zfstune(host, "tank")
    assert "2 of 5 traces" in err
    assert out.count("not available: no probe") == 3
    assert "not judged: cache flushes are slow (device_flush_p50_ns is not known)" in out
    assert status == 0


@pytest.mark.parametrize("state", ["DEGRADED", "SUSPENDED"])
def test_the_state_of_the_pool_comes_first(zfstune: Any, state: str) -> None:
    host = host_of(flush=2 * MS)
    host.state = state
    status, out, err = zfstune(host, "tank")
    assert err.startswith(f"zfstune: pool tank is {state}; see `zpool status tank`\n")
    assert out.splitlines()[1].startswith(f"The pool is {state}: ")
    assert status == (state == "SUSPENDED")


def test_a_suspended_pool_without_fsyncs_is_reported(zfstune: Any) -> None:
    host = host_of(0)
    host.state = "SUSPENDED"
    status, out, _ = zfstune(host, "tank")
    assert status == 1
    assert "The pool does not write (sure)" in out


def test_a_suspended_pool_is_not_traced(zfstune: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one of its writers spins in the kernel, no BPF program can be detached."""

    def never(*_: Any) -> None:
        raise AssertionError("attached")

    host = host_of(flush=2 * MS)
    host.state = "SUSPENDED"
    monkeypatch.setattr(host, "open_fsync_trace", never)
    assert zfstune(host, "tank")[0] == 1
    status, out, err = zfstune(host, "tank", "--json")
    assert (status, json.loads(out)["causes"][0]["id"]) == (1, "suspended")
    assert "attaching" not in err


def test_a_diagnosis_of_all_pools_says_what_detaching_waits_for(zfstune: Any) -> None:
    host = host_of(flush=2 * MS)
    host.state = "SUSPENDED"
    _, out, err = zfstune(host)
    assert "The pool is SUSPENDED" in out
    assert err.endswith("detaching may last until `zpool clear tank`\n")


def test_the_diagnosis_is_printed_before_the_traces_detach(
    zfstune: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, show, closed = host_of(flush=40 * MS), command.show, []
    session = host.sessions["fsync"]
    assert isinstance(session, FakeSession)

    def shown(*args: Any, **named: Any) -> int:
        closed.append(session.closed)
        return show(*args, **named)

    monkeypatch.setattr(command, "show", shown)
    zfstune(host, "tank")
    assert closed == [False]
    assert session.closed


def test_ctrl_c_judges_what_was_measured(zfstune: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeHost, "tick", lambda self: _ask(self))
    status, out, _ = zfstune(host_of(flush=40 * MS), "tank", "--duration", "1h")
    assert status == 1
    assert out.startswith(("tank, 1.0 s", "tank, 1.2 s", "tank, 2.0 s"))


def _ask(host: FakeHost) -> None:
    # not at the first reading of names, before the observation
    if hasattr(host, "stop"):
        host.stop.asked = host.stop.clock > 3 * SECOND


def test_an_unloaded_module_ends_it(zfstune: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeHost, "tick", lambda self: setattr(self, "unloaded", True))
    status, out, err = zfstune(host_of(flush=40 * MS), "tank", "--duration", "1h")
    assert status == 1
    assert "ZFS was unloaded: the trace ends" in err
    assert out.startswith("tank, ")


def test_with_many_commits_only_slow_ones_are_seen_singly(zfstune: Any) -> None:
    """A short trace says from which duration on; here it has counted nothing."""
    host = host_of(flush=40 * MS)
    commits = iter(range(0, 10**9, 10**6))
    host.kstat = lambda name: (  # type: ignore[method-assign]
        {"zil_commit_count": next(commits)} if name == "zil" else {}
    )
    seen = []
    open_it = host.open_fsync_trace

    def opened(options: Any) -> FakeSession:
        seen.append(options.slow_ns)
        return (
            open_it(options)
            if len(seen) > 1
            else FakeSession([[], [counts(objset=68, stages={"flush": [MS] * 90 + [9 * MS] * 10})]])
        )

    host.open_fsync_trace = opened  # type: ignore[method-assign]
    zfstune(host, "tank")
    assert seen[0] == 0
    assert MS <= seen[1] < 2 * MS
    # to detach that trace would hang before anything is known
    seen[:], host.state = [1], "SUSPENDED"
    zfstune(host)
    assert seen[1:] == [1]


def test_a_throttled_writer_is_reported_beside(zfstune: Any) -> None:
    host = host_of(flush=2 * MS)
    busy = waits(dirty_hard=[SECOND] * 9)
    host.sessions["throttle"] = FakeSession([[], [busy]])
    status, out, _ = zfstune(host, "tank")
    assert status == 1
    assert "The write throttle delays writers, outside their fsyncs (sure)." in out
    assert "most by fio 4711" in out


def test_help_ends_in_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["diagnose", "-h"])
    text = capsys.readouterr().out
    assert "examples:" in text
    assert max(map(len, text.splitlines())) < 100
