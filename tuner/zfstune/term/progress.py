"""Progress of long work: lines that stay, and on a terminal one that is redrawn."""

from __future__ import annotations

import time
from typing import TextIO

from zfstune.term.outlet import outlet
from zfstune.term.table import cut, is_terminal, terminal_size
from zfstune.term.units import format_span

# How often the status goes to a log file if nothing else does.
_LOG_EVERY_S = 30.0


class Progress:
    """Shows the progress of a session on a stream; never waits for its reader. deadline_ns is in
    CLOCK_MONOTONIC."""

    def __init__(self, out: TextIO, deadline_ns: int) -> None:
        self._out = out
        self._outlet = outlet(out)
        self._deadline_ns = deadline_ns
        self._terminal = is_terminal(out)
        self._said = time.monotonic()

    def line(self, text: str) -> None:
        """Prints a line that stays on the screen and in a log file."""
        self._outlet.line(f"zfstune: {text}")
        self._said = time.monotonic()

    def status(self, text: str) -> None:
        """Shows the present status; on a terminal it replaces the previous one."""
        text = f"{text}; {self._left()}"
        if self._terminal:
            self._outlet.draw(cut(text, terminal_size(self._out)[0] - 1))
        elif time.monotonic() - self._said >= _LOG_EVERY_S:
            self.line(text)

    def end(self) -> None:
        """Removes the status from the terminal."""
        self._outlet.draw("")

    def _left(self) -> str:
        left = self._deadline_ns - time.monotonic_ns()
        return f"{format_span(left)} left" if left > 0 else "finishing"
