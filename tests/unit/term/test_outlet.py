"""Output that nobody reads."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import select
import socket
import sys
import termios
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from support.stalled import full_pipe, stopped_terminal

from zfstune.term import outlet
from zfstune.term.log import say
from zfstune.term.outlet import Outlet, write_now
from zfstune.term.progress import Progress


def within(what: Callable[[], object], seconds: float = 30) -> None:
    """Fails if it hangs; the hanging thread ends with the tests."""
    thread = threading.Thread(target=what, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive()


def taken(fd: int, seconds: float = 0.5) -> bytes:
    """Everything that arrives until nothing does."""
    found = b""
    while select.select([fd], [], [], seconds)[0]:
        found += os.read(fd, 1 << 16)
    return found


@pytest.fixture
def no_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on FreeBSD, where a pipe cannot be reopened."""
    opened = os.open

    def refused(path: str, *rest: int) -> int:
        if str(path).startswith("/proc"):
            raise FileNotFoundError(2, "No such file or directory")
        return opened(path, *rest)

    monkeypatch.setattr(os, "open", refused)


@pytest.fixture
def no_names(no_proc: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlet, "_terminal", lambda _fd: "")


@pytest.mark.parametrize("how", [None, "no_proc", "no_names"])
@pytest.mark.parametrize("stalled", [full_pipe, stopped_terminal])
def test_a_session_never_waits_for_its_reader(
    stalled: Callable[[], contextlib.AbstractContextManager[int]],
    how: str | None,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    if how:
        request.getfixturevalue(how)

    def talk() -> None:
        progress = Progress(out, 0)
        for _ in range(300):
            progress.line(1000 * "x")
            progress.status("settling")
        progress.end()
        say("done")

    with stalled() as fd, os.fdopen(os.dup(fd), "w") as out, monkeypatch.context() as patch:
        patch.setattr("sys.stderr", out)
        within(talk)
        assert os.get_blocking(fd), "the description is the shell's, too"


@pytest.mark.parametrize("how", [None, "no_proc"])
def test_dropped_lines_are_counted(how: str | None, request: pytest.FixtureRequest) -> None:
    if how:
        request.getfixturevalue(how)
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as out, os.fdopen(reader, "rb"):
        one = Outlet(out)
        for n in range(1000):
            one.line(f"{n:04} " + 994 * "x")
        first = taken(reader)
        one.line("end")
        within(lambda: [taken(reader, 0.05) for _ in iter(one.go_on, True)])
        one.line("really")
        lines = (first + taken(reader)).decode().splitlines()
    shown = [int(line[:4]) for line in lines if line.endswith("x")]
    assert shown[:10] == list(range(10))
    assert all(len(line) == 999 for line in lines if line.endswith("x"))
    assert lines[-1] == "really"


def test_each_line_of_several_threads_comes_once() -> None:
    out = io.StringIO()
    one = Outlet(out)

    def say(n: int) -> None:
        for i in range(2000):
            one.line(f"{n} {i}")

    threads = [threading.Thread(target=say, args=(n,)) for n in range(4)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    wanted = sorted(f"{n} {i}" for n in range(4) for i in range(2000))
    assert sorted(out.getvalue().splitlines()) == wanted


def test_lines_appear_when_the_terminal_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    master, slave = pty.openpty()
    with os.fdopen(slave, "w") as out, os.fdopen(master, "rb", buffering=0):
        progress = Progress(out, 0)
        progress.status("settling")
        assert taken(master).startswith(b"settling")
        termios.tcflow(slave, termios.TCOOFF)
        progress.status("measuring")
        for n in range(outlet.KEPT + 20):
            progress.line(f"pair {n}")
        assert taken(master) == b""
        termios.tcflow(slave, termios.TCOON)
        progress.line("verdict")
        lines = taken(master).decode().replace("\r\n", "\n").split("\n")
    # one was on its way when the terminal was stopped
    assert lines[0] == "\r\x1b[Kzfstune: pair 0"
    assert lines[1] == "zfstune: 20 lines were left out"
    assert lines[2] == "zfstune: pair 21"
    assert lines[-2:] == ["zfstune: verdict", ""]


def test_a_line_stays_whole_over_partial_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    written = bytearray()
    room = iter([3, 0, 5, 0, 1, 1, 0, 10**6, 10**6, 10**6])

    def some(_fd: int, data: bytes) -> int:
        n = min(next(room), len(data))
        written.extend(data[:n])
        return n

    monkeypatch.setattr(outlet, "write_now", some)
    with open(os.devnull, "w") as out:  # noqa: PTH123
        one = Outlet(out)
        one.line("first line")
        one.draw("settling")
        one.line("second line")
        while not one.go_on():
            pass
    assert written.decode() == "first line\nsecond line\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("text", ["\x1b]0;root\x07", "a\nb\rc", "name \udcff", "\x9b31m"])
def test_names_never_reach_a_terminal_raw(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    progress = Progress(out, 0)
    progress.line(f"trial 1 ({text})")
    progress.status(f"trial {text}")
    say(text)
    for shown in (out.getvalue().replace("\r\x1b[K", ""), capsys.readouterr().err):
        assert all(c.isprintable() or c == "\n" for c in shown)
    assert out.getvalue().count("\n") == 1


def test_a_reader_that_has_gone_blocks_nothing() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    assert write_now(writer, b"lost") == 4
    os.close(writer)
    assert write_now(writer, b"lost") == 4
    master, slave = pty.openpty()
    os.close(master)
    assert write_now(slave, b"lost") == 4
    os.close(slave)


def test_a_full_socket_does_not_block() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert write_now(ours.fileno(), b"line\n") == 5
        assert theirs.recv(100) == b"line\n"
        total = []
        within(lambda: total.append(sum(iter(lambda: write_now(ours.fileno(), b"x" * 1000), 0))))
        assert total[0] > 0
        assert os.get_blocking(ours.fileno())


def test_a_file_gets_what_its_encoding_lacks_escaped(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w", encoding="ascii") as out:
        Outlet(out).line("größe")
    assert (tmp_path / "log").read_text() == "gr\\xf6\\xdfe\n"


def test_at_its_end_a_program_waits_for_a_slow_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlet, "AT_END_S", 60)
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as out, os.fdopen(reader, "rb", buffering=0) as file:
        one = Outlet(out)
        for _ in range(90):
            one.line(2000 * "x")
        thread = threading.Thread(target=one.deliver, daemon=True)
        thread.start()
        got = 0
        while got < 90 * 2001:
            got += len(file.read(1 << 16))
        thread.join(30)
        assert not thread.is_alive()


def test_at_its_end_a_program_does_not_wait_forever() -> None:
    with full_pipe() as fd, os.fdopen(os.dup(fd), "w") as out:
        one = Outlet(out)
        one.line("x")
        within(one.deliver)
