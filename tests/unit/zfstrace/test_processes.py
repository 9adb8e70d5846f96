"""Programs that are run: those that fail, hang or are missing, and what they have started."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest
from support.waiting import alive, wait_for

from zfstrace import processes


def test_undecodable_bytes_of_output_are_replaced() -> None:
    assert processes.output(["printf", "a\\377\\n"], 20) == "a\ufffd\n"


def test_a_failing_program_has_no_output() -> None:
    assert processes.output(["sh", "-c", "echo text; exit 1"], 20) == ""
    assert processes.output(["/no/such/command"], 20) == ""


def test_a_hanging_program_is_not_waited_for() -> None:
    assert processes.output(["sleep", "100000"], 0.1) == ""


def test_the_end_of_a_program_is_described() -> None:
    assert processes.run(["sh", "-c", "echo a; echo b >&2; exit 3"], 20) == (3, "a\n", "b\n")
    done = processes.run(["sh", "-c", "kill -9 $$"], 20)
    assert processes.how_ended(done.status) == "signal 9"
    assert processes.how_ended(3) == "status 3"
    with pytest.raises(FileNotFoundError):
        processes.run(["/no/such/command"], 20)


def test_children_of_a_hanging_program_end_with_it(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    with pytest.raises(TimeoutError):
        processes.run(["sh", "-c", f"sleep 1000 & echo $! > {file}; wait"], 0.5)
    wait_for(lambda: not alive(int(file.read_text())))


def test_children_that_ignore_sigterm_are_killed(tmp_path: Path) -> None:
    """The program itself ends by SIGTERM; its child ignores that."""
    file = tmp_path / "pid"
    script = f"sh -c 'trap \"\" TERM; echo $$ > {file}; while :; do sleep 1; done' & wait"
    process = processes.start(["sh", "-c", script], subprocess.DEVNULL, subprocess.DEVNULL)
    wait_for(lambda: file.exists() and file.read_text())
    processes.end(process, 5.0)
    assert process.returncode == -signal.SIGTERM
    wait_for(lambda: not alive(int(file.read_text())))


def test_a_process_exists_until_it_is_waited_for() -> None:
    with subprocess.Popen(["true"]) as process:
        pass
    assert not processes.exists(process.pid)
    assert not processes.exists(2**40)
    assert all(processes.exists(pid) for pid in (1, os.getpid()))


def test_the_last_line_of_a_file_is_found() -> None:
    with tempfile.TemporaryFile() as file:
        assert processes.last_line(file) == ""
        file.write(b"\0" * 5000 + b"one\n" + b"x" * 300 + b"\n\n \n")
        file.flush()
        assert processes.last_line(file) == "x" * 200


def test_behind_many_that_hang_no_other_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What hangs in the kernel cannot be killed."""
    file = tmp_path / "started"
    argv = ["sh", "-c", f"echo $$ >> {file}; exec sleep 1000"]
    monkeypatch.setattr(processes, "_left", [])
    with monkeypatch.context() as hanging:
        hanging.setattr(processes, "signal_all", lambda *_: None)
        for _ in range(processes.MOST_LEFT):
            assert processes.output(argv, 0.5) == ""
        with pytest.raises(TimeoutError, match=f"sh is not run: {processes.MOST_LEFT} processes"):
            processes.run(argv, 0.5)
    pids = [int(line) for line in file.read_text().splitlines()]
    assert len(pids) == processes.MOST_LEFT
    os.kill(pids[0], signal.SIGKILL)
    wait_for(lambda: processes.output(["echo", "again"], 5.0) == "again\n")
    for pid in pids[1:]:
        os.kill(pid, signal.SIGKILL)
