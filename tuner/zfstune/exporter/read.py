"""The view `read`: reads of files, hits and misses apart, and writes."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from zfstrace.host import ReadSession
from zfstrace.read import ReadCounts, ReadRow, ReadState
from zfstrace.summary import name_of
from zfstune.exporter.families import Histograms
from zfstune.exporter.views import Setup, Slots
from zfstune.record.traced import Traced
from zfstune.trace import read
from zfstune.trace.live import Meter


class ReadView(Traced[ReadSession]):
    """Implements View."""

    name = "read"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._names, self._wall = setup.names, setup.wall
        self._reads = Histograms("zfstune_read_duration_seconds")
        self._writes = Histograms("zfstune_write_duration_seconds")
        setup.names.ending += [self._reads.end, self._writes.end]
        self._slots: Slots[ReadCounts] = Slots(
            ReadCounts("", 0, (0, 0), False),
            lambda c: (c.hit.latency.count, c.miss.latency.count, c.write.latency.count),
        )

    def _open(self, *, kstat: bool) -> ReadSession:
        return self._host.open_read_trace(self._attach.options())

    def _metered(self, session: ReadSession) -> Meter[ReadState, ReadRow]:
        return read.meter(session, self._host, self._attach.options(), self._attach.stop)

    def _begin(self, session: ReadSession) -> None:
        self._slots.restart()

    def _count(self, session: ReadSession) -> None:
        for now, before in self._slots.changed(session.state().datasets):
            if not now.busy:
                continue
            named, busy = name_of(now, self._host, None), self._slots.busy(now, before)
            key = self._names.dataset(named, busy=busy)
            for cache in ("hit", "miss"):
                op, was = getattr(now, cache), getattr(before, cache)
                self._reads.at(*key, cache).add(op.latency, was.latency)
            self._writes.at(*key).add(now.write.latency, before.write.latency)

    def families(self) -> Iterator[Metric]:
        now = self._wall()
        yield self._reads.family(now)
        yield self._writes.family(now)
