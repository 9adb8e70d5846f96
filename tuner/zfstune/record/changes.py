"""Writes of module parameters while a recorder or an exporter runs: which, and whether zfstune made
them.

The journal announces each write of a session, of `params set` and of a restore before it is done. A
write is zfstune's if it was announced; all others are by "other". The name of a program proves
nothing: zfstune may run as `python3`, and any program may be called `zfstune`.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from zfstrace.clock import iso_now
from zfstrace.errors import TraceError
from zfstrace.host import Host
from zfstrace.params import Watch
from zfstrace.types import SCHEMA, Json
from zfstune.changes.copies import LAST, Content, Copy
from zfstune.changes.paths import FILE
from zfstune.changes.records import History, Record
from zfstune.changes.state_dir import Places, places
from zfstune.tunables import catalogue

OURS, OTHER = "zfstune", "other"
# A write follows its announcement at once. One that was refused, or that changed no value where
# values are compared, must not claim the next one.
_CLAIM_S = 30.0


@dataclass(frozen=True)
class Write:
    """The writes of a parameter between two looks: its value before and after them, how many were
    zfstune's and how many others', and who made the last, None if the journal cannot be read."""

    time: str
    name: str
    old: int | None
    new: int | None
    ours: int
    others: int
    by: str | None

    def to_json(self) -> Json:
        """A ``parameter_change`` object of the schema."""
        return {
            "schema": SCHEMA,
            "type": "parameter_change",
            "time": self.time,
            "name": self.name,
            "old": self.old,
            "new": self.new,
            "by": self.by,
        }


@dataclass
class Claim:
    """A write that the journal has announced: when that was seen, and what may be read after it."""

    at: float
    values: set[int]


class Journals:
    """The journal in memory and the one before it, read when they have changed. The copy on disk is
    never touched: it may be on a pool in trouble."""

    def __init__(self, where: Places) -> None:
        self._run = where.run
        self._marks: tuple[object, ...] = ()
        # of each journal, how many records are known
        self._known: dict[str, int] | None = None
        self._claims: dict[str, list[Claim]] = {}
        self.history = History()
        # why it cannot be read, in one line
        self.error = ""

    def look(self, now: float) -> None:
        """Reads what has changed; now is a time in s."""
        paths = (self._run, self._run / FILE, self._run / LAST)
        marks = tuple(map(_mark, paths))
        if marks == self._marks and self._known is not None:
            return
        copy = Copy(self._run, limited=False)
        copy.look(0)
        self.error = copy.failed.in_one_line() if copy.failed else ""
        contents = [Content(copy.found.last or None), copy.content]
        self.history = copy.content.history
        # what was written before the first look is not new
        known, first = self._known or {}, self._known is None
        for content in [] if first else contents:
            for record in content.records[known.get(content.id, 0) :]:
                self._note(record, now)
        self._known = {content.id: len(content.records) for content in contents}
        self._marks = marks

    def _note(self, record: Record, now: float) -> None:
        if record["type"] == "intend":
            # without the old ones: there may be many of a parameter that is not watched
            claims = [*self._valid(record["name"], now), Claim(now, {int(record["new"])})]
            self._claims[record["name"]] = claims
        elif record["type"] == "wrote" and self._claims.get(record["name"]):
            # a limit may read as another value than was written
            self._claims[record["name"]][-1].values.add(int(record["value"]))

    def claim(self, name: str, events: int, value: int | None, now: float) -> tuple[int, bool]:
        """How many of these writes are zfstune's, and whether the last one is, after which the
        parameter has this value."""
        claims = self._valid(name, now)
        last = any(value in one.values for one in claims)
        ours = min(len(claims), events if last else events - 1)
        self._claims[name] = claims[ours:]
        return ours, last

    def _valid(self, name: str, now: float) -> list[Claim]:
        return [one for one in self._claims.get(name, []) if now - one.at <= _CLAIM_S]


def _mark(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode


class Writes:
    """Watches the parameters of the catalogue, across reloads of the module. Waits for nothing."""

    def __init__(
        self, host: Host, where: Places | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._host, self._clock = host, clock
        self._watch: Watch | None = None
        self.journals = Journals(where or places())
        # the module that is watched, and the values that its parameters had last
        self.module = ""
        self.values: dict[str, int | None] = {}

    def poll(self) -> list[Write]:
        """Those since the last call. With another module all values are new, which is no write."""
        module = self._host.parameters().identity()
        if module != self.module:
            self.journals.look(self._clock())
            self._begin(module)
            return []
        # the events first: what they tell of has been announced by then
        events = Counter(change.name for change in (self._watch.poll() if self._watch else ()))
        now = self._clock()
        self.journals.look(now)
        found = [self._write(name, events[name], now) for name in events if name in self.values]
        return [one for one in found if one]

    def _begin(self, module: str) -> None:
        self.close()
        self.values = {}
        if module:
            parameters, known = self._host.parameters(), catalogue.load()
            names = [name for name in parameters.names() if name in known]
            # watched first, so that no write is missed in between
            self._watch = parameters.watch(names)
            self.values = {name: parameters.read(name) for name in names}
        # last: what has failed is tried again
        self.module = module

    def _write(self, name: str, events: int, now: float) -> Write | None:
        """None if the parameter is gone with its module."""
        old, new = self.values[name], self._host.parameters().read(name)
        if new is None and not self._host.loaded():
            return None
        self.values[name] = new
        ours, last = self.journals.claim(name, events, new, now)
        by = OURS if last else None if self.journals.error else OTHER
        return Write(iso_now(), name, old, new, ours, events - ours, by)

    def close(self) -> None:
        """Ends the watch. May be called again."""
        watch, self._watch = self._watch, None
        if watch:
            with contextlib.suppress(TraceError, OSError):
                watch.close()
