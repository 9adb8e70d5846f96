"""Plain text tables, bars and colours, as far as the output can show them."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

from zfstrace.printable import printable
from zfstrace.strict import strict_zip

WIDTH = 99
_HEADER_EVERY = 50

_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_EIGHTHS = "▏▎▍▌▋▊▉█"
_CODES = {"bold": "1", "dim": "2", "hot": "1;33", "bad": "1;31"}


@dataclass(frozen=True)
class Style:
    """What an output can show: colours, block characters, the number of columns. clip: values too
    long for their column are cut."""

    color: bool = False
    blocks: bool = False
    clip: bool = False
    width: int = WIDTH

    def paint(self, text: str, how: str) -> str:
        """how is ``bold``, ``dim``, ``hot`` or ``bad``."""
        return f"\x1b[{_CODES[how]}m{text}\x1b[0m" if self.color and text else text

    def bar(self, share: float, width: int) -> str:
        """A share from 0 to 1 as a bar of at most width characters."""
        share = min(1.0, max(0.0, share))
        if not self.blocks:
            return "#" * round(share * width)
        eighths = round(share * width * 8)
        full, part = divmod(eighths, 8)
        return _EIGHTHS[-1] * full + (_EIGHTHS[part - 1] if part else "")


def style_of(out: TextIO) -> Style:
    """The style of a stream: colour only on a terminal and without NO_COLOR, block characters if
    its encoding has them."""
    terminal = is_terminal(out)
    try:
        _EIGHTHS.encode(getattr(out, "encoding", None) or "ascii")
        blocks = True
    except (UnicodeEncodeError, LookupError):
        blocks = False
    color = terminal and not os.environ.get("NO_COLOR")
    width = min(WIDTH, max(60, terminal_size(out)[0] - 1)) if terminal else WIDTH
    return Style(color, blocks, terminal, width)


def terminal_size(out: TextIO) -> tuple[int, int]:
    """Columns and lines of a terminal; 80 and 24 if they are not known."""
    try:
        size = os.get_terminal_size(out.fileno())
    except (OSError, ValueError):
        return 80, 24
    return size.columns or 80, size.lines or 24


def rows_on_screen(line: str, columns: int) -> int:
    """The number of terminal rows that a line takes; colours take no room."""
    return max(1, -(-len(_COLOR.sub("", line)) // columns))


def is_terminal(out: TextIO) -> bool:
    """Whether it is a terminal on which lines can be redrawn."""
    return out.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def cut(text: str, width: int, *, tail: bool = False) -> str:
    """At most width characters of a text; its end (with tail: its beginning) is cut."""
    if len(text) <= width:
        return text
    return "~" + text[len(text) - width + 1 :] if tail else text[: width - 1] + "~"


def aligned(
    rows: Sequence[Sequence[str]], align: str, gap: str = "  ", indent: str = ""
) -> list[str]:
    """Rows of cells as aligned lines, printable. align has ``<`` or ``>`` for each column."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(len(align))]
    lines = []
    for row in rows:
        cells = (
            cell.ljust(width) if side == "<" else cell.rjust(width)
            for cell, width, side in strict_zip(row, widths, align)
        )
        lines.append((indent + gap.join(cells)).rstrip())
    return lines


def fit(
    rows: Sequence[Sequence[str]], align: str, style: Style, name: int, *, tail: bool = False
) -> list[str]:
    """Indented, aligned rows, made to fit by smaller gaps, then by cutting the column with index
    name (only on a terminal: a file keeps whole names)."""
    width = min(style.width, WIDTH)
    for gap in ("  ", " "):
        lines = aligned(rows, align, gap, "  ")
        over = max(map(len, lines)) - width
        if over <= 0:
            return lines
    if not style.clip:
        return lines
    room = max(4, max(len(row[name]) for row in rows) - over)
    return aligned(
        [[*row[:name], cut(row[name], room, tail=tail), *row[name + 1 :]] for row in rows],
        align,
        " ",
        "  ",
    )


@dataclass(frozen=True)
class Column:
    """A column of Lines; tail: a cut text keeps its end."""

    name: str
    width: int
    left: bool = False
    tail: bool = False

    def cell(self, text: str, clip: bool) -> str:
        """A text, printable and padded to the column's width; with clip also cut to it."""
        text = printable(text)
        text = cut(text, self.width, tail=self.tail) if clip else text
        return text.ljust(self.width) if self.left else text.rjust(self.width)


class Lines:
    """Prints lines of fixed columns one by one; repeats the header after each screenful, and when
    the columns change."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._style = style_of(out)
        self._columns: Sequence[Column] = ()
        self._left = 0

    def print(self, columns: Sequence[Column], cells: Sequence[str]) -> None:
        """Prints a line of cells, one per column, and before it a header if one is due."""
        if columns != self._columns or not self._left:
            self._columns = columns
            # a file has no screen, but a pager that shows it does
            self._left = (
                max(5, terminal_size(self._out)[1] - 2) if self._style.clip else _HEADER_EVERY
            )
            header = self._line([column.name for column in columns])
            print(self._style.paint(header, "bold"), file=self._out)
        self._left -= 1
        print(self._line(cells), file=self._out)

    def _line(self, cells: Sequence[str]) -> str:
        clip = self._style.clip
        parts = (c.cell(text, clip) for c, text in strict_zip(self._columns, cells))
        return " ".join(parts).rstrip()


def wrap(text: str, indent: str = "", width: int = WIDTH) -> list[str]:
    """The words of a text in indented lines of at most width characters; printable."""
    lines: list[str] = []
    line = ""
    for word in map(printable, text.split()):
        if line and len(indent) + len(line) + 1 + len(word) > width:
            lines.append(indent + line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [*lines, indent + line] if line else lines
