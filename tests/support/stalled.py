"""Outputs whose reader has stopped reading."""

from __future__ import annotations

import contextlib
import os
import pty
import termios
from collections.abc import Iterator


@contextlib.contextmanager
def full_pipe() -> Iterator[int]:
    """The writing end of a full pipe whose reader reads nothing."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(writer, 4096 * b"x"):
            pass
    os.set_blocking(writer, True)
    yield writer
    os.close(reader)
    os.close(writer)


@contextlib.contextmanager
def stopped_terminal() -> Iterator[int]:
    """A terminal after Ctrl-S."""
    master, slave = pty.openpty()
    termios.tcflow(slave, termios.TCOOFF)
    yield slave
    os.close(slave)
    os.close(master)
