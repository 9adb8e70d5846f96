"""A terminal with a program on it, by a pty."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

_SECONDS = 60.0


class PtyProgram:
    """A program whose controlling terminal is a pty; size is rows and columns."""

    def __init__(
        self,
        command: Sequence[str],
        cwd: Path,
        size: tuple[int, int] = (24, 80),
        stdin: int | None = None,
    ) -> None:
        self._master, self._slave = pty.openpty()
        self._seen = ""
        self.resize(*size)
        self.before = self.settings()
        environment = {**os.environ, "TERM": "xterm", "NO_COLOR": "1"}

        def own_terminal() -> None:
            os.setsid()
            fcntl.ioctl(self._slave, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            command,
            stdin=self._slave if stdin is None else stdin,
            stdout=self._slave,
            stderr=self._slave,
            cwd=cwd,
            env=environment,
            preexec_fn=own_terminal,
        )

    def settings(self) -> list[Any]:
        return termios.tcgetattr(self._slave)

    def resize(self, rows: int, columns: int) -> None:
        """The kernel tells the program in the foreground."""
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def until(self, text: str) -> str:
        """Waits for a text that has not been waited for yet; returns all before it, and it."""
        end = time.monotonic() + _SECONDS
        while text not in self._seen:
            left = end - time.monotonic()
            assert left > 0, f"{text!r} did not come: {self._seen!r}"
            if select.select([self._master], [], [], min(left, 0.2))[0]:
                self._seen += os.read(self._master, 4096).decode()
        before, found, self._seen = self._seen.partition(text)
        return before + found

    def end(self) -> int:
        """Reads on until the program has ended; returns its status."""
        end = time.monotonic() + _SECONDS
        while self.process.poll() is None:
            assert time.monotonic() < end, f"it does not end: {self._seen!r}"
            if select.select([self._master], [], [], 0.1)[0]:
                self._seen += os.read(self._master, 4096).decode()
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for fd in (self._master, self._slave):
            with contextlib.suppress(OSError):
                os.close(fd)


@contextlib.contextmanager
def on_terminal(command: Sequence[str], cwd: Path, **given: Any) -> Iterator[PtyProgram]:
    """A program, killed with the block."""
    found = PtyProgram(command, cwd, **given)
    try:
        yield found
    finally:
        found.close()
