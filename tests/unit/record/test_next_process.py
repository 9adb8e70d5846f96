"""What a recorder leaves for the next process, and what that makes of it, damaged or not."""

from __future__ import annotations

import gzip
import os
from typing import Any

import pytest
from support.driven import Driven, all_of, incident
from support.recording import NOON

from zfstune.record.dumps import SAVED
from zfstune.term.units import SECOND

HOUR = 3600 * SECOND


def test_the_next_process_continues_the_record(drive: Any, capsys: Any) -> None:
    one = drive()
    one.seconds(125)
    two = drive(clock=one.clock)
    assert "is continued: it began 2 m 5 s ago" in capsys.readouterr().err
    two.seconds(20)
    two.recorder._dump("asked", two.clock.steady())
    found = two.read()
    ends = [interval.end_ns for interval in found.intervals]
    assert len(ends) == 15
    assert ends == sorted(ends)
    assert found.span[0] == NOON
    texts = [note["text"] for note in all_of(found, "note")]
    assert texts == ["the recorder began", "the recorder ended", "the recorder began"]


def test_what_is_older_than_six_hours_is_not_continued(drive: Any) -> None:
    one = drive()
    one.seconds(60)
    one.recorder.close()
    one.clock.now += 7 * HOUR
    two = drive(clock=one.clock)
    assert two.recorder.ring.records == 0


def test_a_record_of_the_future_is_not_continued(drive: Any, capsys: Any) -> None:
    one = drive()
    one.seconds(60)
    one.recorder.close()
    one.clock.set(-HOUR)
    two = drive(clock=one.clock)
    assert "not continued: the clock was set back" in capsys.readouterr().err
    assert two.recorder.ring.records == 0


def kill(one: Driven) -> None:
    """Ends a process as it is: nothing is saved."""
    for fd in (one.recorder.dumps._lock, one.recorder.dumps._fd):
        os.close(fd)
    one.recorder.dumps._lock = one.recorder.dumps._fd = -1
    one.recorder._start = None


def test_the_gap_after_kill_9_is_named(drive: Any, capsys: Any) -> None:
    one = drive()
    one.seconds(60)
    two = drive(clock=one.clock)
    two.seconds(600)
    kill(two)
    three = drive(clock=two.clock)
    assert "it began 11 m 0 s ago and ended 10 m 0 s ago" in capsys.readouterr().err
    three.recorder._dump("asked", three.clock.steady())
    assert [note["text"] for note in all_of(three.read(), "note")] == [
        "the recorder began",
        "the recorder ended",
        "the recorder began; nothing was recorded in the 10 m 0 s before that",
    ]


def test_after_kill_9_nothing_is_corrupt(drive: Any) -> None:
    """The process has written a file, has the lock and the socket, and ends as it is."""
    one = drive()
    one.seconds(60)
    one.recorder._dump("asked", one.clock.steady())
    directory = one.recorder.dumps.path
    (directory / ".part").write_bytes(b"half a file")
    kill(one)
    assert (directory / "record.sock").exists()
    two = drive(clock=one.clock)
    two.seconds(20)
    two.recorder._dump("asked", two.clock.steady())
    assert len(two.files) == 2
    for name in two.files:
        two.read(name)
    two.recorder.close()
    left = {path.name for path in directory.iterdir() if not path.match("incident-*")}
    assert left == {"record.lock", SAVED}


def test_a_saved_record_that_is_damaged_is_said_and_left_behind(drive: Any, capsys: Any) -> None:
    one = drive()
    one.seconds(60)
    one.recorder.close()
    path = one.recorder.dumps.path / SAVED
    path.write_bytes(path.read_bytes()[:-9])
    two = drive(clock=one.clock)
    assert "is lost: recorded.jsonl.gz: it is cut short" in capsys.readouterr().err
    two.seconds(60)
    two.recorder.close()
    incident(path)


@pytest.mark.parametrize("last", [b"[]\n", b"[" * 100_000 + b"\n", b"7\n"])
def test_whatever_a_saved_record_holds_the_recorder_starts(
    drive: Any, capsys: Any, last: bytes
) -> None:
    one = drive()
    one.recorder.close()
    head = gzip.compress(b'{"type":"incident"}\n')
    (one.recorder.dumps.path / SAVED).write_bytes(head + gzip.compress(last))
    two = drive(clock=one.clock)
    assert "is lost: recorded.jsonl.gz: " in capsys.readouterr().err
    assert two.recorder.counts["errors"] == 1
