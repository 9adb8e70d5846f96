"""The part of a terminal that is redrawn."""

from __future__ import annotations

import io

import pytest

from zfstune.term import screen
from zfstune.term.screen import Screen
from zfstune.term.table import rows_on_screen


@pytest.mark.parametrize(
    ("width", "kept"),
    [(30, 20), (60, 10), (90, 6)],  # characters of a line: one row, two, three
)
def test_lines_that_wrap_take_the_room_of_several(
    width: int, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frame higher than the terminal would scroll it at each redraw."""
    monkeypatch.setattr(screen, "terminal_size", lambda _out: (40, 24))
    out = io.StringIO()
    Screen(out).draw(["x" * width] * 30, ["lost 0"], final=False)
    *body, more, end = out.getvalue().splitlines()
    assert (len(body), end) == (kept, "lost 0")
    assert more.startswith(f"... {30 - kept} more lines")
    assert sum(rows_on_screen(line, 40) for line in [*body, more, end]) <= 22


def test_the_last_frame_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screen, "terminal_size", lambda _out: (40, 24))
    out = io.StringIO()
    Screen(out).draw(["x" * 60] * 30, ["lost 0"], final=True)
    assert len(out.getvalue().splitlines()) == 31
