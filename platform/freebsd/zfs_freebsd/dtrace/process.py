"""A D script under dtrace(1): its lines, and what dtrace says of events that it dropped."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from collections import deque
from collections.abc import Callable
from pathlib import Path
from threading import Condition, Thread
from typing import IO

from zfstrace.errors import TraceError

# What a script prints when all its probes are enabled.
_BEGUN = re.compile(r"Tracing|\{.*\"type\":\"trace_begin\"")
# Enabling hundreds of probes takes a second or two, on an emulated machine a minute.
_START_S = 180.0
_END_S = 20.0
# "dtrace: 12 dynamic variable drops with non-empty dirty list", "dtrace: 3 drops on CPU 1"
# (dt_handle.c of libdtrace)
_DROPS = re.compile(r"(\d+) (?:[\w ]+ )?drops?\b")
_FAULT = "error on enabled probe"
# Lines that wait for the reader, about 400 bytes each.
_MOST_LINES = 1_000_000


class Dtrace:
    """Runs from the constructor, which returns when all probes are enabled, to finish() or
    close(). Raises TraceError.

    What it prints is taken from it at once, or it would drop events. It has a session of its own:
    Ctrl-C in a terminal is for its reader, who ends it. When the reader dies, it does so with the
    next line that it prints.
    """

    def __init__(self, script: Path, *args: str) -> None:
        self.name = script.name
        self.drops = 0
        self._news = Condition()
        self._lines: deque[str] = deque()
        self._said: deque[str] = deque(maxlen=10)  # on stderr, but for drops and faults
        self._begun = self._ended = False
        command = [shutil.which("dtrace") or "/usr/sbin/dtrace", "-Zs", str(script), *args]
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
            raise TraceError(f"cannot trace, {command[0]} does not start: {error}") from None
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
        """The lines that have come; waits so long for the first. May be empty. Raises TraceError
        when the script has ended by itself."""
        with self._news:
            self._news.wait_for(lambda: self._lines or self._ended, timeout_ms / 1000)
            found = list(self._lines)
            self._lines.clear()
        if not found and self._ended:
            raise TraceError(f"{self.name} ended by itself: {self._why()}")
        return found

    def finish(self) -> list[str]:
        """Ends it; the lines that were left. Raises TraceError when it does not end."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            raise TraceError(
                f"{self.name} did not end in {_END_S:g} s, what it had is lost"
            ) from None
        finally:
            self.close()
        return list(self._lines)

    def close(self) -> None:
        """Kills it if it still runs; what it has printed is lost. May be called again."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for reader in self._readers:
            reader.join()

    def _wait_for_begin(self) -> None:
        with self._news:
            self._news.wait_for(lambda: self._begun or self._ended, _START_S)
        if self._begun:
            return
        if self._ended:
            raise TraceError(f"cannot trace, dtrace does not run {self.name}: {self._why()}")
        raise TraceError(f"cannot trace, {self.name} did not begin in {_START_S:g} s")

    def _why(self) -> str:
        """What dtrace said last."""
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
