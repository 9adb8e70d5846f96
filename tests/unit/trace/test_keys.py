"""The keys of `zfstune trace`, typed on a terminal (a pty)."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.paths import ROOT
from support.terminal import PtyProgram, on_terminal

PROGRAM = [sys.executable, str(ROOT / "tests/support/keyed_screen.py")]
LFLAG = 3
Start = Callable[..., PtyProgram]


@pytest.fixture
def screen(tmp_path: Path) -> Iterator[PtyProgram]:
    with on_terminal(PROGRAM, tmp_path) as found:
        found.until("? help")
        yield found


def raw(program: PtyProgram) -> bool:
    """Whether keys come one by one and unechoed."""
    flags: int = program.settings()[LFLAG]
    return not flags & (termios.ICANON | termios.ECHO)


def test_a_view_is_shown_alone_with_more_rows(screen: PtyProgram) -> None:
    assert raw(screen)
    screen.type("2")
    frame = screen.until("? help").rpartition("\x1b[J")[2]
    while "trace fsync" in frame:  # one that was drawn before the key came
        frame = screen.until("? help").rpartition("\x1b[J")[2]
    heads = [line for line in frame.splitlines() if "  trace " in line]
    assert len(heads) == 1
    assert "trace txg" in heads[0]
    assert frame.count("tank ") >= 15
    screen.type("0")
    screen.until("trace arc")


def test_sorting_goes_through_the_columns(screen: PtyProgram) -> None:
    screen.type("1s")
    screen.until("by column 1")
    frame = screen.until("? help")
    names = [word for word in frame.split() if word.startswith("tank/db")]
    assert names == [f"tank/db{n}" for n in range(9)]  # by rate: the first has most
    screen.type("ssss")
    screen.until("UTC;")


def test_pools_take_turns(screen: PtyProgram) -> None:
    screen.type("1p")
    screen.until("idle, ")
    frame = screen.until("? help")
    assert "idle/x" in frame
    assert "tank/" not in frame
    screen.type("p")
    screen.until("tank, ")
    assert "idle/x" not in screen.until("? help")
    screen.type("p")
    screen.until("all pools, ")


def test_pause_keeps_the_frame(screen: PtyProgram) -> None:
    screen.type(" ")
    at = screen.until("PAUSED").rpartition("until ")[2]
    screen.until("? help")
    screen.type("2")
    # drawn anew from the same measurement
    assert screen.until("PAUSED").rpartition("until ")[2] == at
    screen.type(" ")
    screen.until("UTC;")


def test_w_writes_all_to_a_file(screen: PtyProgram, tmp_path: Path) -> None:
    screen.type("4p w")
    screen.until("written to zfstune-trace-")
    (file,) = tmp_path.glob("zfstune-trace-*.txt")
    text = file.read_text()
    assert all(f"trace {name}" in text for name in ("fsync", "txg", "throttle", "device", "arc"))
    assert text.count("tank/db") == 9
    assert "\x1b" not in text
    assert "? help" not in text


def test_the_help_stays_until_a_key(screen: PtyProgram) -> None:
    screen.type("?")
    screen.until("sort by the next column")
    screen.until("sort by the next column")  # also at the next frame
    screen.type("x")
    screen.until("trace arc")


def test_q_ends_it_with_the_whole_time(screen: PtyProgram) -> None:
    screen.type("3q")
    text = screen.until("the end")
    last = text.rpartition("all pools, ")[2]
    assert "trace fsync" in last
    assert "missing probes" in last
    assert "? help" not in last
    assert screen.end() == 0
    assert screen.settings() == screen.before


def test_arrows_and_other_keys_do_nothing(screen: PtyProgram) -> None:
    screen.type("\x1b[A\x1bOP\x1b[15~\x7f\xe4X")
    screen.type("2")
    screen.until("trace txg")
    assert screen.process.poll() is None


@pytest.mark.parametrize("keys", ["\x03", "\x04", "q"])
def test_keys_that_end_it_restore_the_terminal(screen: PtyProgram, keys: str) -> None:
    assert screen.settings() != screen.before
    screen.type(keys)
    screen.until("the end")
    assert screen.end() == 0
    assert screen.settings() == screen.before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_signals_restore_the_terminal(screen: PtyProgram, number: int) -> None:
    screen.process.send_signal(number)
    assert screen.end() == (-number if number == signal.SIGQUIT else 0)
    assert screen.settings() == screen.before


def test_an_error_restores_the_terminal(tmp_path: Path) -> None:
    with on_terminal([*PROGRAM, "error"], tmp_path) as program:
        program.until("ZeroDivisionError: a bug")
        assert program.end() == 1
        assert program.settings() == program.before


def test_suspended_it_gives_the_terminal_back(tmp_path: Path) -> None:
    """bash, with job control, runs it, reports its stop, and continues it."""
    program = " ".join(map(shlex.quote, PROGRAM))
    script = f"{program}; echo status $?; read -r line; echo line $line; fg; echo ended $?"
    with on_terminal(["bash", "-m", "-c", script], tmp_path) as shell:
        shell.until("? help")
        assert raw(shell)
        shell.type("\x1a")
        shell.until("status 148")
        assert not raw(shell)
        shell.type("typed\n")
        shell.until("line typed")
        shell.until("? help")
        shell.type("2q")
        shell.until("ended 0")
        shell.end()
        assert shell.settings() == shell.before


def test_in_the_background_it_leaves_the_terminal_alone(tmp_path: Path) -> None:
    program = " ".join(map(shlex.quote, PROGRAM))
    script = f"{program} & read -r line; echo line $line; kill %1; wait %1; echo ended $?"
    with on_terminal(["bash", "-m", "-c", script], tmp_path) as shell:
        shell.until("? help")
        assert not raw(shell)
        shell.type("2q\n")
        shell.until("line 2q")
        shell.until("ended 0")


def test_a_new_size_is_used(screen: PtyProgram) -> None:
    screen.resize(60, 100)
    screen.until("\x1b[H\x1b[2J")
    frame = screen.until("? help")
    assert frame.count("tank/db") == 9  # instead of three


def test_without_a_keyboard_there_are_no_keys(tmp_path: Path) -> None:
    with (
        Path(os.devnull).open() as nothing,
        on_terminal(PROGRAM, tmp_path, stdin=nothing.fileno()) as program,
    ):
        text = program.until("missing probes: ")
        assert "? help" not in text
        assert program.settings() == program.before
        program.process.send_signal(signal.SIGTERM)
        assert program.end() == 0
