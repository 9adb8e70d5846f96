"""What the keys of `zfstune trace` do: they change what its screen shows, and how."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

# Rows of a block, at least: those of five blocks fit a terminal of 24 lines.
ROWS = 3
KEYS = "1-5 view  0 all  p pool  s sort  space pause  w write  q quit  ? help"
# where there is no room for that
SHORT_KEYS = "keys: 1-5 0 p s space w q   ? help"
_HELP = (
    "1 2 3 4 5   only the view fsync, txg, throttle, device or arc; again: all views",
    "0           all views",
    "p           only the next pool, after the last one all pools",
    "s           sort by the next column of numbers, after the last one by importance",
    "space       pause: the screen stays, and what is counted meanwhile comes after it",
    "w           write what is measured, all of it, to a file in the working directory",
    "q, Ctrl-C   end the trace, and show the whole time",
    "?           this help",
)
_END_OF_FILE = "\x04"  # Ctrl-D


@dataclass(frozen=True)
class Look:
    """What is shown, and how. view and pool are "" for all of them; order is 0 for importance, else
    the number of a column of numbers; keys: there are any."""

    view: str = ""
    pool: str = ""
    order: int = 0
    rows: int = ROWS
    keys: bool = False
    paused: bool = False
    note: str = ""

    @property
    def state(self) -> str:
        """What is unusual, for the title; "" if nothing is."""
        order = f", by column {self.order}" if self.order else ""
        return f"{order}{', PAUSED' if self.paused else ''}"


class Console:
    """The look of a screen with these views. pools gives those that can be chosen, save writes a
    file and returns what to say about it."""

    def __init__(
        self, views: Sequence[str], pools: Callable[[], Sequence[str]], save: Callable[[], str]
    ) -> None:
        self.look = Look()
        self.help: tuple[str, ...] = ()
        self._views, self._pools, self._save = views, pools, save

    def press(self, key: str) -> bool:
        """Changes the look; returns whether the trace is to end."""
        look = replace(self.look, note="")
        self.help = _HELP if key in "?h" and not self.help else ()
        if key in ("q", "Q", _END_OF_FILE):
            return True
        if key == "0":
            look = replace(look, view="")
        elif key.isdigit() and int(key) <= len(self._views):
            view = self._views[int(key) - 1]
            look = replace(look, view="" if view == look.view else view)
        elif key == "p":
            names = ["", *self._pools()]
            at = names.index(look.pool) if look.pool in names else -1
            look = replace(look, pool=names[(at + 1) % len(names)])
        elif key == "s":
            look = replace(look, order=(look.order + 1) % 5)
        elif key == " ":
            look = replace(look, paused=not look.paused)
        elif key == "w":
            look = replace(look, note=self._save())
        self.look = look
        return False

    def fit(self, lines: int) -> Look:
        """The look on a terminal of so many lines: with more rows than ROWS where they fit."""
        # two lines of the terminal and the last one are free, three are the title's and the sign's
        around = 2 + 1 + 3
        room = lines - around - 1 if self.look.view else (lines - around - 6) // 4
        return replace(self.look, rows=max(ROWS, room))
