"""The view `fsync`: all fsyncs with all of their stages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.core import Metric

from zfstrace.hist import Hist
from zfstrace.host import FsyncSession
from zfstrace.stages import KINDS, NAMES
from zfstrace.summary import name_of
from zfstrace.types import DatasetCounts, SlowEvent
from zfstune.exporter.families import Counters, Histograms, Shown, one, place
from zfstune.exporter.views import Setup, Slots
from zfstune.record.sources import Fsync
from zfstune.term.units import SECOND
from zfstune.trace.slow import slow_fsync

_NOTHING = DatasetCounts(
    "", 0, (0, 0), False, 0, 0, 0, (0,) * len(KINDS), Hist(), (Hist(),) * len(NAMES)
)


class FsyncView(Fsync):
    """Implements View."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._names, self._wall = setup.names, setup.wall
        self._total = Histograms("zfstune_fsync_duration_seconds")
        self._stages = Histograms("zfstune_fsync_stage_duration_seconds")
        self._stage_ns = Counters("zfstune_fsync_stage_seconds_total", SECOND)
        self._kinds = Counters("zfstune_fsync_operations_total")
        self._errors = Counters("zfstune_fsync_errors_total")
        self._commits = Counters("zfstune_zil_commits_total")
        self._no_zil = Counters("zfstune_fsync_without_zil_total")
        counters = (self._stage_ns, self._kinds, self._errors, self._commits, self._no_zil)
        setup.names.ending += [self._total.end, *(one.end for one in counters)]
        self._slots: Slots[DatasetCounts] = Slots(
            _NOTHING,
            lambda c: (c.total.count, c.total.sum_ns, c.commits, c.errors, c.no_zil, *c.kinds),
        )
        self._slow: list[SlowEvent] = []

    def _begin(self, session: FsyncSession) -> None:
        self._slots.restart()
        self._slow = []

    def _see(self, session: FsyncSession, events: Sequence[SlowEvent]) -> None:
        self._slow = slowest([*self._slow, *events])
        super()._see(session, events)

    def _count(self, session: FsyncSession) -> None:
        super()._count(session)
        counts = session.datasets()
        for now, before in self._slots.changed(counts):
            if now.total.count or now.commits or now.errors:
                key, busy = name_of(now, self._host, None), self._slots.busy(now, before)
                self._add(self._names.dataset(key, busy=busy), now, before)
        slow, self._slow = self._slow, []
        for event in slow:
            if event.dataset < len(counts):
                self._show(event, counts[event.dataset], session)

    def _add(self, key: tuple[str, str], now: DatasetCounts, before: DatasetCounts) -> None:
        self._total.at(*key).add(now.total, before.total)
        for i, stage in enumerate(NAMES):
            was = before.stages[i]
            self._stage_ns.add(now.stages[i].sum_ns - was.sum_ns, *key, stage)
            if now.stages[i].count:
                self._stages.at(key[0], stage).add(now.stages[i], was)
        for i, kind in enumerate(KINDS):
            if now.kinds[i]:
                self._kinds.add(now.kinds[i] - before.kinds[i], *key, kind)
        self._errors.add(now.errors - before.errors, *key)
        self._commits.add(now.commits - before.commits, *key)
        self._no_zil.add(now.no_zil - before.no_zil, *key)

    def _show(self, event: SlowEvent, counts: DatasetCounts, session: FsyncSession) -> None:
        key = name_of(counts, self._host, None)
        found = slow_fsync(event, *key, self._host, session)
        series = self._total.get(*self._names.dataset(key))
        if series:
            labels = {"comm": event.comm, "txg": str(found.txg or "")}
            series.show(Shown(event.total_ns, self._wall(), labels))

    def families(self) -> Iterator[Metric]:
        now = self._wall()
        yield self._total.family(now)
        yield self._stage_ns.family()
        yield self._stages.family(now)
        for counters in (self._kinds, self._errors, self._commits, self._no_zil):
            yield counters.family()
        unfinished = self._lost.unfinished if self.session is not None else None
        yield one("zfstune_fsync_unfinished", unfinished)


def slowest(events: Sequence[SlowEvent]) -> list[SlowEvent]:
    """The slowest of each dataset and bucket of the exported histogram: a burst must not fill the
    memory between two readings."""
    found: dict[tuple[int, int], SlowEvent] = {}
    for event in events:
        key = event.dataset, place(event.total_ns)
        if key not in found or event.total_ns > found[key].total_ns:
            found[key] = event
    return list(found.values())
