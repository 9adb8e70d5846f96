"""Writes of module parameters as metrics, and whether a session holds parameters."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import Metric

from zfstrace.host import Host
from zfstune.changes.records import History
from zfstune.changes.state_dir import Places
from zfstune.exporter.families import Counters, gauge
from zfstune.record.changes import OTHER, OURS, Write, Writes
from zfstune.tunables import catalogue

MOST = 64
# Of the writes that the recorder has not taken yet; without one nobody takes them.
_MOST_RECENT = 256


class Written:
    """Counts the writes of at most MOST parameters, those that zfstune could write."""

    def __init__(
        self, host: Host, where: Places, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._writes = Writes(host, where, clock)
        self._counts = Counters("zfstune_parameter_writes_total")
        self._recent: deque[Write] = deque(maxlen=_MOST_RECENT)
        self._module = ""
        # of each parameter that is counted: the value that the last one is compared with, and who
        # has changed it
        self._base: dict[str, int | None] = {}
        self._by: dict[str, str] = {}

    @property
    def history(self) -> History:
        """The journal's."""
        return self._writes.journals.history

    @property
    def error(self) -> str:
        """Why the journal cannot be read, so that all writes are by "other"."""
        return self._writes.journals.error

    def poll(self) -> None:
        """Counts the writes since the last call, and follows the module."""
        found = self._writes.poll()
        if self._writes.module != self._module:
            self._begin()
        self._recent += found
        for write in found:
            if write.name in self._base:
                self._counts.add(write.ours, write.name, OURS)
                self._counts.add(write.others, write.name, OTHER)
                self._by[write.name] = write.by or OTHER

    def taken(self) -> list[Write]:
        """All writes since the last call, for the recorder."""
        self.poll()
        found = list(self._recent)
        self._recent.clear()
        return found

    def _begin(self) -> None:
        self._module, values = self._writes.module, self._writes.values
        self._base = {name: values[name] for name in watched(list(values))}
        self._by = {}
        for name in self._base:
            for by in (OURS, OTHER):
                self._counts.add(0, name, by)
        history = self.history
        here = any(layer.identity == self._module for layer in history.in_force)
        for name in sorted(history.written & history.base.keys() & self._base.keys()):
            if here:
                self._base[name], self._by[name] = history.base[name].value, OURS

    def families(self) -> Iterator[Metric]:
        yield gauge("zfstune_parameter_changed", dict(self._changed()))
        yield self._counts.family()

    def _changed(self) -> Iterator[tuple[tuple[str, str], float]]:
        for name, by in self._by.items():
            # none while another module's cannot be read
            value = self._writes.values.get(name)
            if value is not None and value != self._base[name]:
                yield (name, by), value

    def close(self) -> None:
        self._writes.close()


def watched(names: list[str]) -> list[str]:
    """Which parameters of a module are counted: those of a session first."""
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
