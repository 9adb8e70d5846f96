"""Writing to people without ever waiting for them.

A terminal stopped by Ctrl-S, a pager that does not read or a hanging log daemon must not hold up a
guardrail, a signal or a restore. A write larger than the free space blocks even after poll(2), and
O_NONBLOCK belongs to the open file description, which we share with a shell. So the terminal or
pipe is opened again, and O_NONBLOCK set on that description.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import select
import socket
import stat
import threading
import time
from collections import deque
from typing import TextIO

from zfstrace.printable import printable

# How many lines wait for a reader that has stopped.
KEPT = 100
AT_END_S = 1.0


class Outlet:
    """A stream for people, of all threads. Lines that it does not accept now wait for the next
    call; if too many wait, the oldest are dropped and counted. Only printable characters are
    written."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        # by a thread again: at its exit, or in a signal handler
        self._lock = threading.RLock()
        self._rest = b""  # of a partial write
        self._lines: deque[str] = deque()
        self._left_out = 0
        self._drawn = False

    def line(self, text: str) -> None:
        """Prints a line that stays, in the order of the calls; never waits."""
        with self._lock:
            if len(self._lines) == KEPT:
                self._lines.popleft()
                self._left_out += 1
            self._lines.append(printable(text))
            self.go_on()

    def draw(self, text: str) -> None:
        """On a terminal: prints a text without a line break, which the next text or line replaces.
        Skipped if the terminal does not accept it now."""
        with self._lock:
            if self.go_on() and (text or self._drawn):
                data = self._encode(self._erase() + printable(text))
                taken = self._write(data)
                self._rest = data[taken:] if taken else b""
                self._drawn = bool(text) if taken else self._drawn

    def go_on(self) -> bool:
        """Writes what waits, as far as possible; returns whether all of it was written."""
        with self._lock:
            while self._rest or self._next():
                self._rest = self._rest[self._write(self._rest) :]
                if self._rest:
                    return False
            return True

    def deliver(self) -> None:
        """At exit: gives a slow reader another second."""
        deadline = time.monotonic() + AT_END_S
        with contextlib.suppress(KeyboardInterrupt):
            while not self.go_on() and time.monotonic() < deadline:
                time.sleep(0.02)

    def _next(self) -> bool:
        """Makes the next line what is written; False if there is none."""
        if self._left_out:
            text = f"zfstune: {self._left_out} lines were left out"
            self._left_out = 0
        elif self._lines:
            text = self._lines.popleft()
        else:
            return False
        self._rest = self._encode(f"{self._erase()}{text}\n")
        self._drawn = False
        return True

    def _erase(self) -> str:
        return "\r\x1b[K" if self._drawn else ""

    def _encode(self, text: str) -> bytes:
        return text.encode(getattr(self._out, "encoding", None) or "utf-8", "backslashreplace")

    def _write(self, data: bytes) -> int:
        try:
            fd = self._out.fileno()
        except (OSError, ValueError):
            # no descriptor, or a closed one: it cannot block
            with contextlib.suppress(OSError, ValueError):
                self._out.write(data.decode(getattr(self._out, "encoding", None) or "utf-8"))
            return len(data)
        return write_now(fd, data)


@functools.lru_cache(maxsize=8)
def outlet(out: TextIO) -> Outlet:
    """The only outlet of a stream, so that lines from all parts of the program keep their order."""
    made = Outlet(out)
    # registered before a session registers its restore, so it runs after that
    atexit.register(made.deliver)
    return made


def write_now(fd: int, data: bytes) -> int:
    """Writes as many bytes as possible without waiting and returns their number: all if nobody will
    ever read them (EPIPE, EIO of a hung-up terminal, a closed descriptor). Only a regular file can
    make it wait."""
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISSOCK(mode):
            with socket.socket(fileno=os.dup(fd)) as end:
                return end.send(data, socket.MSG_DONTWAIT)
        if not (stat.S_ISFIFO(mode) or os.isatty(fd)):
            return os.write(fd, data)
        own = _own_description(fd)
        if own is None:
            return _in_pieces(fd, data, select.PIPE_BUF if stat.S_ISFIFO(mode) else 1)
        with contextlib.closing(os.fdopen(own, "wb", buffering=0)) as file:
            return file.write(data) or 0
    except BlockingIOError:
        return 0
    except OSError:
        return len(data)


def _own_description(fd: int) -> int | None:
    """A non-blocking descriptor of the same terminal or pipe with a description of its own; None if
    there is no way to get one. Linux reopens files through /proc; on FreeBSD only a terminal has a
    name."""
    for name in (f"/proc/self/fd/{fd}", _terminal(fd)):
        with contextlib.suppress(OSError):
            own = os.open(name, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
            if not os.get_blocking(own):
                return own
            os.close(own)  # fdescfs(5) duplicates, with the flags of the original
    return None


def _terminal(fd: int) -> str:
    """The terminal's name; "" if it is not a terminal."""
    with contextlib.suppress(OSError):
        return os.ttyname(fd)
    return ""


def _in_pieces(fd: int, data: bytes, size: int) -> int:
    """For a shared description. A pipe that poll(2) calls writable has room for PIPE_BUF bytes
    (Linux: a page is free, fs/pipe.c; FreeBSD: sys_pipe.c), a terminal for one."""
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    done = 0
    with contextlib.suppress(BlockingIOError):
        while done < len(data) and poll.poll(0):
            # after an error or a hangup the write fails without blocking
            done += os.write(fd, data[done : done + size])
    return done
