"""Writes of module parameters while the exporter runs: which, and whether zfstune made them.

The journal announces each write of a session, of `params set` and of a restore before it is done. A
write is zfstune's if it was announced; all others are by "other".
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.core import Metric

from zfstrace.errors import TraceError
from zfstrace.host import Host
from zfstrace.params import Watch
from zfstune.changes.copies import LAST, Content, Copy
from zfstune.changes.paths import FILE
from zfstune.changes.records import History, Record
from zfstune.changes.state_dir import Places
from zfstune.exporter.families import Counters, gauge
from zfstune.tunables import catalogue

MOST = 64
ZFSTUNE, OTHER = "zfstune", "other"
# A write follows its announcement at once. One that was refused, or that changed no value where
# values are compared, must not claim the next one.
_CLAIM_S = 30.0


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
        # what was written before the exporter started is not new
        known, first = self._known or {}, self._known is None
        for content in [] if first else contents:
            for record in content.records[known.get(content.id, 0) :]:
                self._note(record, now)
        self._known = {content.id: len(content.records) for content in contents}
        self._marks = marks

    def _note(self, record: Record, now: float) -> None:
        if record["type"] == "intend":
            claims = self._claims.setdefault(record["name"], [])
            claims.append(Claim(now, {int(record["new"])}))
        elif record["type"] == "wrote" and self._claims.get(record["name"]):
            # a limit may read as another value than was written
            self._claims[record["name"]][-1].values.add(int(record["value"]))

    def claim(self, name: str, events: int, value: int | None, now: float) -> tuple[int, bool]:
        """How many of these writes are zfstune's, and whether the last one is, after which the
        parameter has this value."""
        claims = [one for one in self._claims.get(name, []) if now - one.at <= _CLAIM_S]
        last = any(value in one.values for one in claims)
        ours = min(len(claims), events if last else events - 1)
        self._claims[name] = claims[ours:]
        return ours, last


def _mark(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode


class Written:
    """Counts the writes of at most MOST parameters, those that zfstune could write."""

    def __init__(
        self, host: Host, where: Places, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._host, self._clock = host, clock
        self._journals = Journals(where)
        self._writes = Counters("zfstune_parameter_writes_total")
        self._watch: Watch | None = None
        self._module = ""
        # of each parameter: the last value, the one that it is compared with, who has changed it
        self._values: dict[str, int | None] = {}
        self._base: dict[str, int | None] = {}
        self._by: dict[str, str] = {}

    @property
    def history(self) -> History:
        """The journal's."""
        return self._journals.history

    @property
    def error(self) -> str:
        """Why the journal cannot be read, so that all writes are by "other"."""
        return self._journals.error

    def poll(self) -> None:
        """Counts the writes since the last call, and follows the module: its values are anew when
        it is loaded, which is no write."""
        module = self._host.parameters().identity()
        if module != self._module:
            self._journals.look(self._clock())
            self._follow(module)
            return
        # the events first: what they tell of has been announced by then
        events = Counter(change.name for change in (self._watch.poll() if self._watch else ()))
        now = self._clock()
        self._journals.look(now)
        for name, number in events.items():
            if name in self._values:
                self._add(name, number, now)

    def _follow(self, module: str) -> None:
        self.close()
        self._module = module
        self._values, self._base, self._by = {}, {}, {}
        if not module:
            return
        parameters = self._host.parameters()
        names = watched(parameters.names())
        # watched first: a write between the two is seen
        self._watch = parameters.watch(names)
        self._values = {name: parameters.read(name) for name in names}
        self._base = dict(self._values)
        for name in names:
            for by in (ZFSTUNE, OTHER):
                self._writes.add(0, name, by)
        history = self._journals.history
        here = any(layer.identity == module for layer in history.in_force)
        for name in sorted(history.written & history.base.keys() & self._values.keys()):
            if here:
                self._base[name], self._by[name] = history.base[name].value, ZFSTUNE

    def _add(self, name: str, number: int, now: float) -> None:
        value = self._host.parameters().read(name)
        if value is None and not self._host.loaded():
            return
        self._values[name] = value
        ours, last = self._journals.claim(name, number, value, now)
        self._writes.add(ours, name, ZFSTUNE)
        self._writes.add(number - ours, name, OTHER)
        self._by[name] = ZFSTUNE if last else OTHER

    def families(self) -> Iterator[Metric]:
        yield gauge("zfstune_parameter_changed", dict(self._changed()))
        yield self._writes.family()

    def _changed(self) -> Iterator[tuple[tuple[str, str], float]]:
        for name, by in self._by.items():
            value = self._values[name]
            if value is not None and value != self._base[name]:
                yield (name, by), value

    def close(self) -> None:
        watch, self._watch = self._watch, None
        if watch:
            with contextlib.suppress(TraceError, OSError):
                watch.close()


def watched(names: list[str]) -> list[str]:
    """Which parameters of a module are watched: those of a session first."""
    known, here = catalogue.load(), set(names)
    first = dict.fromkeys([*catalogue.default_set(), *known])
    return [name for name in first if name in here and known[name].access == "rw"][:MOST]


def sessions(history: History, pools: list[str]) -> Mapping[str, bool]:
    """The pools, and whether a session holds parameters for one of them; "" is one for a pool that
    is not imported."""
    layer = history.open_layer
    found = dict.fromkeys(pools, False)
    if layer and layer.kind == "session" and _alive(layer.pid):
        mine = [word for word in layer.command.split() if word in found]
        found[mine[0] if mine else ""] = True
    return found


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
