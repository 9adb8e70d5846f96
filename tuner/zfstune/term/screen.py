"""The part of the terminal that a live view redraws."""

from __future__ import annotations

from itertools import accumulate
from typing import TextIO

from zfstune.term.table import cut, rows_on_screen, terminal_size


class Screen:
    """A terminal on which each frame replaces the last one."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._drawn = 0

    def keep(self) -> None:
        """Keeps the last frame: the next one is drawn below it."""
        self._drawn = 0

    def clear(self) -> None:
        """Begins anew on an empty terminal: after a change of its size nobody knows where the last
        frame is."""
        self._drawn = 0
        print("\x1b[H\x1b[2J", end="", file=self._out)

    def draw(self, body: list[str], end: list[str], final: bool) -> None:
        """Draws a frame: body, then end (the losses), which always has room. Unless final, lines of
        body that do not fit are left out."""
        columns, rows = terminal_size(self._out)
        up = f"\x1b[{self._drawn}A\r\x1b[J" if self._drawn else ""

        def height(lines: list[str]) -> list[int]:
            """How many rows they take up to each of them."""
            return list(accumulate((rows_on_screen(line, columns) for line in lines), initial=0))

        if not final:
            room = max(rows, 10) - 2
            end = end[: room // 2]
            if height([*body, *end])[-1] > room:
                left = room - height(end)[-1] - 1
                kept = sum(so_far <= left for so_far in height(body)[1:])
                more = f"... {len(body) - kept} more lines at the end; POOL narrows it"
                body = [*body[:kept], cut(more, columns)]
        lines = [*body, *end]
        self._drawn = height(lines)[-1]
        print(up + "\n".join(lines), file=self._out)
