"""Progress of long work: lines that stay, and on a terminal one that is drawn over."""

from __future__ import annotations

import contextlib
import time
from typing import TextIO

from zfstune.table import cut, is_terminal, screen
from zfstune.units import format_span

_LOG_EVERY_S = 30.0
"""In a log file the state is told this often when nothing else is."""


class Progress:
    """Says on stderr how a session goes. deadline_ns is of CLOCK_MONOTONIC."""

    def __init__(self, out: TextIO, deadline_ns: int) -> None:
        self._out = out
        self._deadline_ns = deadline_ns
        self._terminal = is_terminal(out)
        self._drawn = False
        self._said = time.monotonic()

    def line(self, text: str) -> None:
        """A line that stays."""
        self._clear()
        self._print(f"zfstune: {text}\n")
        self._said = time.monotonic()

    def status(self, text: str) -> None:
        """What is going on; on a terminal in place of the last status."""
        text = f"{text}; {self._left()}"
        if self._terminal:
            self._clear()
            self._print(cut(text, screen(self._out)[0] - 1))
            self._drawn = True
        elif time.monotonic() - self._said >= _LOG_EVERY_S:
            self.line(text)

    def end(self) -> None:
        self._clear()

    def _left(self) -> str:
        left = self._deadline_ns - time.monotonic_ns()
        return f"{format_span(left)} left" if left > 0 else "finishing"

    def _clear(self) -> None:
        if self._drawn:
            self._print("\r\x1b[K")
            self._drawn = False

    def _print(self, text: str) -> None:
        # a session must come to its end also when nobody reads any more
        with contextlib.suppress(OSError):
            print(text, end="", file=self._out, flush=True)
