"""A D script under dtrace(1): its lines, and how many events dtrace dropped."""

from __future__ import annotations

import re
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Condition, Thread
from typing import IO

from zfs_freebsd.dtrace import probes
from zfstrace.errors import TraceError

# A script prints this when all its probes are enabled.
_BEGUN = re.compile(r"Tracing|\{.*\"type\":\"trace_begin\"")
# Enabling a hundred probes takes a second or two, a minute on a busy emulated machine.
START_S = 180.0
# After this long a wait is explained.
PATIENCE_S = 10.0
# ULE prefers threads that sleep often, such as those of a database; dtrace then may starve.
BUSY = "the host seems busy (rtprio 31 zfstune ... takes precedence over its load)"
END_S = 20.0
# The scripts use nothing of /usr/lib/dtrace, which takes a second to compile.
OPTIONS: Sequence[str] = ("-xnolibs",)
# "dtrace: 12 dynamic variable drops with non-empty dirty list", "dtrace: 3 drops on CPU 1"
# (dt_handle.c of libdtrace)
_DROPS = re.compile(r"(\d+) (?:[\w ]+ )?drops?\b")
_FAULT = "error on enabled probe"
# Most lines kept for the reader, about 400 bytes each.
_MOST_LINES = 1_000_000

# Explains a long wait to the person at the terminal; a program replaces it.
say: Callable[[str], object] = str


class Dtrace:
    """Runs from the constructor, which returns when all probes are enabled, to finish() or
    close(). Raises TraceError.

    Its output is read at once, or it would drop events. It runs in its own session: Ctrl-C in a
    terminal reaches only the reader, which ends it. If the reader dies, it dies at the next line
    that it prints.
    """

    def __init__(self, script: Path, *args: str) -> None:
        self.name = script.name
        self.drops = 0
        self._news = Condition()
        self._lines: deque[str] = deque()
        self._said: deque[str] = deque(maxlen=10)  # on stderr, except drops and faults
        self._begun = self._ended = False
        command = [probes.program(), *OPTIONS, "-Zs", str(script), *args]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                encoding="utf-8",
                errors="replace",
            )
        except OSError as error:
            raise TraceError(f"cannot trace: {command[0]} does not start: {error}") from None
        self._readers = [
            Thread(target=self._follow, args=(self._process.stdout, self._on_line), daemon=True),
            Thread(target=self._follow, args=(self._process.stderr, self._on_error), daemon=True),
        ]
        for reader in self._readers:
            reader.start()
        try:
            self._wait_for_begin()
        except BaseException:
            self.close()
            raise

    def lines(self, timeout_ms: int) -> list[str]:
        """The lines printed since the last call; waits up to timeout_ms for the first, [] if there
        is none. Raises TraceError if the script has exited by itself."""
        with self._news:
            self._news.wait_for(lambda: self._lines or self._ended, timeout_ms / 1000)
            found = list(self._lines)
            self._lines.clear()
        if not found and self._ended:
            raise TraceError(f"{self.name} exited unexpectedly: {self._why()}")
        return found

    def finish(self) -> list[str]:
        """Ends it and returns the remaining lines. Raises TraceError if it does not end."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            raise TraceError(
                f"{self.name} did not end within {END_S:g} s: its data is lost"
            ) from None
        finally:
            self.close()
        return list(self._lines)

    def close(self) -> None:
        """Kills it if it still runs, and discards its output. May be called again."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for reader in self._readers:
            reader.join()

    def _wait_for_begin(self) -> None:
        with self._news:
            if not self._news.wait_for(self._is_up, PATIENCE_S):
                say(f"waiting for dtrace to start {self.name}; {BUSY}")
                self._news.wait_for(self._is_up, START_S)
        if self._begun:
            return
        if self._ended:
            raise TraceError(f"cannot trace: dtrace does not run {self.name}: {self._why()}")
        raise TraceError(f"cannot trace: {self.name} did not start within {START_S:g} s")

    def _is_up(self) -> bool:
        return self._begun or self._ended

    def _why(self) -> str:
        """dtrace's last message, or its status."""
        self._readers[1].join()
        return self._said[-1] if self._said else f"status {self._process.wait()}"

    def _follow(self, pipe: IO[str], take: Callable[[str], None]) -> None:
        """Reads a pipe to its end, in a thread."""
        with pipe:
            for text in pipe:
                if line := text.strip():
                    with self._news:
                        take(line)
        with self._news:
            self._ended = self._ended or take == self._on_line
            self._news.notify_all()

    def _on_line(self, line: str) -> None:
        if len(self._lines) < _MOST_LINES:
            self._lines.append(line)
        else:
            self.drops += 1
        self._begun = self._begun or bool(_BEGUN.match(line))
        self._news.notify_all()

    def _on_error(self, line: str) -> None:
        if drops := _DROPS.search(line):
            self.drops += int(drops[1])
        elif _FAULT not in line:  # the script counts its faults itself
            self._said.append(line.removeprefix("dtrace: "))
