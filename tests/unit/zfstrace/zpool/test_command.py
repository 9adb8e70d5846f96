"""The output of commands, also of those that fail, hang or are not there."""

from __future__ import annotations

from zfstrace.zpool import command


def test_output() -> None:
    assert command.output(["printf", "a\\377\\n"], 20) == "a\ufffd\n"


def test_nothing_of_one_that_fails() -> None:
    assert command.output(["sh", "-c", "echo text; exit 1"], 20) == ""
    assert command.output(["/no/such/command"], 20) == ""


def test_one_that_hangs_is_not_waited_for() -> None:
    assert command.output(["sleep", "100000"], 0.1) == ""
