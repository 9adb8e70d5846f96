"""`zfstune trace`: all views on one screen."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from support.fake_host import FakeHost, FakeSession, FakeStop, Terminal, run_of
from support.samples import PROBES, arc, counts, ios, txg, vdev, waits

from zfstrace.errors import NoPrivilege, TraceError
from zfstrace.types import Check, Losses, Probe
from zfstune.term.table import Style
from zfstune.term.units import MS, SECOND
from zfstune.trace.console import Look
from zfstune.trace.overview import VIEWS, screen, trace
from zfstune.trace.signs import Sign, first, sign_rules
from zfstune.trace.sources import Reading


def host_of(**sessions: FakeSession | TraceError) -> FakeHost:
    """A quiet host, except for the given sessions."""
    host = FakeHost()
    quiet: dict[str, FakeSession | TraceError] = {
        "fsync": FakeSession([[counts(objset=68, stages={"flush": [MS] * 10})]]),
        "txg": FakeSession(events=[txg(n) for n in range(1, 6)]),
        "throttle": FakeSession([[]]),
        "device": FakeSession([[vdev(1, sync_write=ios([MS] * 20))]]),
        "arc": FakeSession([arc(1), arc(2)]),
    }
    quiet |= {name.replace("_", " "): s for name, s in sessions.items()}
    host.sessions = dict(quiet)
    for name, session in quiet.items():
        # the first refresh is at the start of the span
        if isinstance(session, FakeSession) and not name.startswith(("arc", "txg")):
            session.states.insert(0, [])
    return host


def run(host: FakeHost, out: io.StringIO | None = None, **options: Any) -> str:
    out = out or io.StringIO()
    trace(run_of(host, out, FakeStop(), **({"duration": 4 * SECOND} | options)))
    for session in host.sessions.values():
        assert not isinstance(session, FakeSession) or session.closed or not session.states
    return out.getvalue()


def test_without_a_terminal_there_is_one_block_at_the_end() -> None:
    lines = run(host_of()).splitlines()
    assert lines[0].startswith("all pools, 4.0 s until ")
    assert lines[1] == "nothing stands out"
    heads = [line.split()[:2] for line in lines if line.startswith("  trace ")]
    assert heads == [["trace", name] for name in VIEWS]
    assert "tank/db" in lines[3]
    # the last three of five
    assert [line.split()[1] for line in lines[5:8]] == ["5", "4", "3"]
    assert "(+2)" in lines[4]
    assert "nothing was throttled" in lines[9]
    assert lines[-1].startswith("lost 0   missing probes: 5 (")
    assert max(map(len, lines)) < 80


@pytest.mark.parametrize("probes", [None, ()])
def test_it_says_what_detaching_from_a_suspended_pool_waits_for(
    capsys: pytest.CaptureFixture[str], probes: tuple[Probe, ...] | None
) -> None:
    """Not with kstats alone."""
    failed = TraceError("there is no BPF")
    host = host_of(
        fsync=failed,
        throttle=failed,
        device=failed,
        txg=FakeSession(events=[txg(1)], probes=probes),
        arc=FakeSession([arc(1), arc(2)], probes=()),
    )
    host.state = "SUSPENDED"
    run(host)
    said = "detaching may last until `zpool clear tank`" in capsys.readouterr().err
    assert said is (probes is None)


def test_it_fits_a_small_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    slow = {f"tank/{n}": 0 for n in range(9)}
    many = [counts(objset=n, stages={"log_write": [90 * MS] * 9}) for n in range(len(slow))]
    busy = [waits(pid=n, dirty_hard=[SECOND] * 9) for n in range(1, 9)]
    disks = [vdev(n, sync_write=ios([MS * n] * 20)) for n in range(1, 9)]
    host = host_of(
        fsync=FakeSession([many]), throttle=FakeSession([busy]), device=FakeSession([disks])
    )
    text = run(host, Terminal(), duration=5 * SECOND)
    assert text.count("\x1b[J") == 1
    assert "more lines" not in text
    frame = text.partition("\x1b")[0].splitlines()
    assert len(frame) <= 22
    assert max(map(len, frame)) < 80
    # the whole time stays below the last interval
    assert text.count("2.0 s until") == 2
    assert text.count("5.0 s until") == 1


def test_the_most_suspicious_is_marked() -> None:
    slow = [vdev(1, sync_write=ios([MS] * 20)), vdev(2, sync_write=ios([90 * MS] * 20))]
    lines = run(host_of(device=FakeSession([slow]))).splitlines()
    assert lines[1].startswith("> device: vdev sdb of tank is 89 times as slow as its siblings")
    assert [line.split()[2] for line in lines if line.startswith("> trace")] == ["device"]


def test_a_cause_is_named_before_its_effect() -> None:
    cause, *_, effect = sign_rules()
    found = first([Sign(effect, True, ""), Sign(cause, True, "")])
    assert found and found.name == cause
    assert first([Sign("flush", False, "")]) is None


def test_the_other_views_continue() -> None:
    lack = NoPrivilege("root is needed", "run it with sudo")
    host = host_of(fsync=lack, device=lack)
    lines = run(host).splitlines()
    assert sum("not available: root is needed; run it with sudo" in line for line in lines) == 2
    assert any(line.startswith("    tank 5 ") for line in lines)


def test_without_bpf_kstats_are_used() -> None:
    lack = NoPrivilege("root is needed")
    host = host_of(
        fsync=lack, throttle=lack, device=lack, txg=lack, arc=lack,
        txg_kstat=FakeSession(events=[txg(9, source="kstat")], probes=()),
        arc_kstat=FakeSession([arc(1, None)], probes=()),
    )  # fmt: skip
    text = run(host)
    assert text.count("not available") == 3
    assert "tank 9" in text


def test_a_view_that_is_not_available_has_a_tool_in_its_place(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lack = NoPrivilege("no BPF")
    run(host_of(fsync=lack, arc=lack, arc_kstat=FakeSession([arc(1, None)], probes=())))
    err = capsys.readouterr().err
    assert "in place of `trace fsync`: " in err
    assert "tracers/bpftrace/zilcommit.bt\n" in err
    assert err.count("in place of") == 1  # the cache comes from kstats


def test_a_lack_of_privilege_has_its_own_words() -> None:
    host = host_of(
        txg_kstat=FakeSession(events=[txg(9)], probes=()),
        arc_kstat=FakeSession([arc(1, None)], probes=()),
    )
    lack = Check("privileges", "privilege", "none", "blocking", "no BPF", "run it as root")
    host.check_list = [lack]
    out = io.StringIO()
    trace(run_of(host, out, duration=SECOND))
    text = out.getvalue()
    assert text.count("not available: cannot trace: privileges none: no BPF") == 3
    assert "tank 9" in text


def test_without_any_view_the_lack_keeps_its_hint() -> None:
    host = host_of(txg_kstat=NoPrivilege("no txgs"), arc_kstat=NoPrivilege("no arcstats"))
    host.check_list = [Check("privileges", "privilege", "none", "blocking", "no BPF", "use sudo")]
    with pytest.raises(TraceError) as lack:
        trace(run_of(host, duration=SECOND))
    assert "use sudo" in lack.value.in_one_line()


def test_without_any_view_it_is_an_error() -> None:
    names = ("fsync", "txg", "txg_kstat", "throttle", "device", "arc", "arc_kstat")
    with pytest.raises(NoPrivilege, match="fsync"):
        run(host_of(**{name: NoPrivilege(name) for name in names}))


def test_a_view_that_fails_later_says_so() -> None:
    session = FakeSession([[], TraceError("the pool is gone")])
    text = run(host_of(throttle=session), interval=2 * SECOND)
    assert text.count("nothing was throttled") == 1
    assert text.count("not available: the pool is gone") == 1


def test_json_has_all_types(capsys: pytest.CaptureFixture[str]) -> None:
    host = host_of(throttle=FakeSession([[waits(dirty_hard=[SECOND])]]))
    text = run(host, json=True, interval=2 * SECOND, pool="tank")
    types = [json.loads(line)["type"] for line in text.splitlines()]
    assert set(types) == {"fsync_summary", "txg", "throttle", "device", "arc"}
    # each txg once, the others in each interval with rows
    assert types.count("txg") == 5
    assert types.count("arc") == 2
    assert "lost 0" in capsys.readouterr().err


def test_a_view_that_fails_between_two_frames_says_so() -> None:
    def fail(_ms: int) -> None:
        raise TraceError("the pool is gone")

    text = run(host_of(txg=FakeSession(on_poll=fail)))
    assert text.count("not available: the pool is gone") == 1
    assert "tank/db" in text


def test_losses_name_their_view() -> None:
    text = run(host_of(device=FakeSession([[]], losses=Losses(start=3, event=1))))
    assert "lost 4 (device 4)   missing probes" in text


def test_the_last_txgs_stay_on_the_screen() -> None:
    text = run(host_of(), interval=2 * SECOND)
    assert text.count("    tank 5 ") == 2


def test_the_last_frame_judges_the_txgs_of_the_whole_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each came with the frame of its interval."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    events = [txg(1, sync_ns=30 * SECOND), *(txg(n) for n in range(2, 6))]
    text = run(host_of(txg=FakeSession(events=events)), Terminal(), duration=5 * SECOND)
    last = text.rpartition("all pools, ")[2]
    assert last.startswith("5.0 s until ")
    assert "> txg: txg 1 of tank took 30.0 s to sync" in last


@pytest.mark.parametrize("lost", [0, 1, 123_456_789])
@pytest.mark.parametrize("missing", [0, 5])
@pytest.mark.parametrize("note", ["", "written to zfstune-trace-20261124T202729Z.txt"])
def test_the_last_line_names_the_keys_in_one_line(lost: int, missing: int, note: str) -> None:
    readings = [
        Reading(name, losses=Losses(event=lost), probes=PROBES[1:] * missing) for name in VIEWS
    ]
    look = Look(keys=True, note=note)
    _, end = screen(readings, Style(), "2026-11-21T09:49:12.123Z", SECOND, "tank", look)
    assert len(end) == 1
    assert note[:14] in end[0]
    assert note or "? help" in end[0]
    if not lost:
        assert len(end[0]) < 80
        assert note in end[0]
        assert note or "space" in end[0]
