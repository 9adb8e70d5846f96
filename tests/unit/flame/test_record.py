"""`zfstune flame`: from the session to the file, and its messages."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import pytest
from support.fake_host import FakeHost, FakeStop
from support.samples import PROBES

from zfstrace.recording import Recording, StackLosses, StackOptions
from zfstrace.stacks import Stacks
from zfstrace.types import Probe
from zfstune.errors import CommandError, UsageError
from zfstune.flame import command
from zfstune.term.units import SECOND

STACKS = Stacks("off-cpu", "ns", "", {"tank;flush;fio;a;b": 1_500_000_000})


class FakeStacks:
    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.open = True

    def probes(self) -> tuple[Probe, ...]:
        return PROBES

    def finish(self) -> Recording:
        return self.recording

    def close(self) -> None:
        self.open = False


class Host(FakeHost):
    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self.recorder = self.stacks = FakeStacks(recording)


Runner = Callable[[Recording, argparse.Namespace], Host]


def args(output: Path | str, **given: object) -> argparse.Namespace:
    defaults: dict[str, object] = {
        "mode": "off-cpu",
        "target": "fsync",
        "pid": None,
        "pool": None,
        "duration": 12 * SECOND,
        "title": None,
        "inverted": False,
    }
    return argparse.Namespace(output=str(output), **(defaults | given))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Runner:
    def call(recording: Recording, given: argparse.Namespace) -> Host:
        host = Host(recording)
        monkeypatch.setattr(command, "open_host", lambda: host)
        monkeypatch.setattr(command, "Stop", lambda _: FakeStop())
        assert command.run(given) == 0
        return host

    return call


def test_a_recording_is_written_and_reported(
    run: Runner, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "x.folded"
    host = run(
        Recording(STACKS, StackLosses(asleep=2, asleep_ns=3 * SECOND)), args(out, pool="tank")
    )
    assert out.read_text() == "tank;flush;fio;a;b 1500000000\n"
    assert host.asked == StackOptions("off-cpu", "fsync", None, "tank")
    assert not host.recorder.open
    said = capsys.readouterr().err
    assert "1 of 2 probes attached, recording off-CPU time of threads in an fsync" in said
    assert "missing probe cv_timedwait (" in said
    assert "5.0 s recorded" in said
    assert "10.0 s recorded" in said
    assert "lost: 0 stacks not walked, 0 found no room" in said
    assert "2 threads still asleep" in said
    assert f"1.50 s in 1 stacks, written to {out}" in said


def test_of_a_suspended_pool_it_is_written_before_what_detaching_waits_for(
    run: Runner, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "x.folded"

    def suspended(_host: Host) -> list[str]:
        return ["tank"] if out.exists() else []

    monkeypatch.setattr(Host, "pools_blocking_detach", suspended)
    host = run(Recording(STACKS, StackLosses()), args(out))
    said = capsys.readouterr().err.splitlines()
    assert said[-2].endswith(f"written to {out}")
    assert said[-1].endswith("detaching may last until `zpool clear tank`")
    assert not host.recorder.open


def test_a_dash_writes_to_stdout(run: Runner, capsys: pytest.CaptureFixture[str]) -> None:
    run(Recording(STACKS, StackLosses()), args("-"))
    assert capsys.readouterr().out == "tank;flush;fio;a;b 1500000000\n"


def test_losses_and_idle_threads_are_reported(
    run: Runner, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    losses = StackLosses(sums_full=3, lost_ns=2 * SECOND, asleep=100)
    run(Recording(STACKS, losses, idle=7 * SECOND), args(tmp_path / "x.folded", target="zfs"))
    said = capsys.readouterr().err
    assert "3 not counted (2.00 s)" in said
    assert "7.00 s of threads that waited for work" in said
    assert "asleep" not in said


def test_an_empty_recording_writes_no_file(run: Runner, tmp_path: Path) -> None:
    out = tmp_path / "x.folded"
    out.write_text("before")
    with pytest.raises(CommandError, match=r"nothing was recorded of threads that sync a txg"):
        run(Recording(Stacks("off-cpu", "ns", ""), StackLosses()), args(out, target="txg-sync"))
    assert out.read_text() == "before"


def test_requests_are_checked_first(run: Runner, tmp_path: Path) -> None:
    recording = Recording(STACKS, StackLosses())
    with pytest.raises(UsageError, match="no pool"):
        run(recording, args(tmp_path / "x.svg", pool="nope"))
    with pytest.raises(Exception, match="format"):
        run(recording, args(tmp_path / "x.jpg"))
