"""The page of `make bench-demo`, of made-up runs, and what runs beside them."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks import demo

MADE_UP: dict[str, Any] = {
    "in_force": True,
    "note": None,
    "verdict": {"kind": "better", "change": -0.58, "low": -0.64, "high": -0.47},
    "blocks": [
        {"phase": "aa", "start_s": 10.0, "seconds": 6.0},
        {"phase": "confirm", "start_s": 60.0, "seconds": 6.0},
        {"phase": "confirm", "start_s": 174.0, "seconds": 6.0},
        {"phase": "soak", "start_s": 300.0, "seconds": 6.0},
    ],
}
PROVED = demo.Run(0, 450.0, 90.0, MADE_UP)
MADE_UP_NOTE = MADE_UP | {"in_force": False, "note": "the limit a|b\nis missed"}


def test_a_row_has_the_change_and_the_minutes() -> None:
    assert demo.row("3", PROVED) == "| 3 | yes | -58% (-64% to -47%) | 7.5 | 4.5 |\n"


@pytest.mark.parametrize(
    ("run", "cells"),
    [
        (demo.Run(2, 30.0, None, None), "no: it ended with status 2 | - | 0.5 | -"),
        (demo.Run(0, 30.0, None, None), "no: there was no session | - | 0.5 | -"),
        (
            demo.Run(0, 480.0, 90.0, MADE_UP_NOTE),
            "no: the limit a/b is missed | -58% (-64% to -47%) | 8.0 | -",
        ),
        (
            demo.Run(0, 480.0, 90.0, MADE_UP_NOTE | {"note": None}),
            "no: better | -58% (-64% to -47%) | 8.0 | -",
        ),
        (
            demo.Run(0, 480.0, 90.0, MADE_UP_NOTE | {"note": None, "verdict": None}),
            "no: no verdict | - | 8.0 | -",
        ),
    ],
)
def test_a_row_without_a_proof_says_why(run: demo.Run, cells: str) -> None:
    assert demo.row("1", run) == f"| 1 | {cells} |\n"


def test_the_last_line_counts_those_that_proved_a_gain() -> None:
    text = demo.table(None, [PROVED, demo.Run(2, 30.0, None, None), PROVED])
    assert text.splitlines()[-1] == "2 of 3 runs proved a gain."
    assert text.count("\n| 2 | no: ") == 1


def test_the_run_from_nothing_is_apart_and_not_counted() -> None:
    text = demo.table(PROVED, [demo.Run(2, 30.0, None, None)])
    above, _, below = text.partition("With the image there:")
    assert "| 0 | yes |" in above
    assert "| 0 |" not in below
    assert below.splitlines()[-1] == "0 of 1 runs proved a gain."


def test_the_head_says_command_and_what_ran_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["demo.py", "--runs", "3", "--beside", "sleep 1"])
    monkeypatch.setattr(demo, "accelerated", lambda: "emulated")
    text = demo.head("sleep 1")
    assert "`make bench-demo DEMO=\"--runs 3 --beside 'sleep 1'\"`" in text
    assert "again and again: `sleep 1`" in text
    assert ", guests emulated." in text


def test_a_command_beside_is_begun_again_and_ends_with_its_group(tmp_path: Path) -> None:
    """Also what it has left in the background."""
    pids = tmp_path / "pids"
    with demo.beside(f"echo $$ >> {pids}; sleep 300 & echo $! >> {pids}"):
        until = time.monotonic() + 60
        while not pids.exists() or len(pids.read_text().split()) < 4:
            assert time.monotonic() < until
            time.sleep(0.05)
    for pid in pids.read_text().split():
        assert not Path("/proc", pid).exists() or "\nState:\tZ" in status(pid)


def status(pid: str) -> str:
    return Path("/proc", pid, "status").read_text()


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for make(1) that runs this script; the session's file is beside it."""
    program = tmp_path / "make"
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("MAKEFLAGS", "-j8")
    monkeypatch.setattr(demo, "SESSION", tmp_path / "session.json")
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return program


def test_a_run_has_the_session_and_when_it_began(make: Path) -> None:
    session = make.with_name("session.json")
    make.write_text(
        '#!/bin/sh\n[ -z "$MAKEFLAGS" ] && [ "$XDG_CACHE_HOME" = /empty ] || exit 3\n'
        "sleep 0.2\necho 'zfstune: session on tank, 6 m 0 s' >&2\n"
        f"echo '{{\"in_force\": true}}' >{session}\nsleep 0.2\n"
    )
    found = demo.run({"XDG_CACHE_HOME": "/empty"})
    assert (found.status, found.session) == (0, {"in_force": True})
    assert found.began_s is not None
    assert 0 < found.began_s < found.seconds


def test_a_run_that_fails_does_not_have_the_session_of_the_one_before(make: Path) -> None:
    make.with_name("session.json").write_text('{"in_force": true}')
    make.write_text("#!/bin/sh\nexit 2\n")
    found = demo.run({})
    assert (found.status, found.began_s, found.session) == (2, None, None)


def test_the_rows_so_far_survive_an_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = iter([PROVED])

    def run(_environment: dict[str, str]) -> demo.Run:
        for one in runs:
            return one
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "run", run)
    monkeypatch.setattr(demo, "PAGE", tmp_path / "demo.md")
    monkeypatch.setattr(demo, "accelerated", lambda: "emulated")
    monkeypatch.setattr("sys.argv", ["demo.py"])
    assert demo.main() == 130
    assert (tmp_path / "demo.md").read_text().endswith("\n1 of 1 runs proved a gain.\n")
