"""The part of the terminal that a live view redraws."""

from __future__ import annotations

from typing import TextIO

from zfstune.term.table import rows_on_screen, terminal_size


class Screen:
    """A terminal on which the last frame is drawn over."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._drawn = 0

    def keep(self) -> None:
        """Leaves the last frame where it is."""
        self._drawn = 0

    def draw(self, body: list[str], end: list[str], final: bool) -> None:
        """What does not fit on the screen is left out, except at the end; the losses
        always fit."""
        columns, rows = terminal_size(self._out)
        up = f"\x1b[{self._drawn}A\r\x1b[J" if self._drawn else ""
        if not final:
            room = max(rows, 10) - 2
            end = end[: room // 2]
            if len(body) + len(end) > room:
                kept = room - len(end) - 1
                more = f"... {len(body) - kept} more lines at the end; POOL narrows it"
                body = [*body[:kept], more]
        lines = [*body, *end]
        self._drawn = sum(rows_on_screen(line, columns) for line in lines)
        print(up + "\n".join(lines), file=self._out)
