"""The view `fsync`: all fsyncs with all of their stages."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from prometheus_client.core import Metric

from zfstrace.hist import Hist
from zfstrace.host import FsyncSession
from zfstrace.stages import KINDS, NAMES
from zfstrace.summary import name_of
from zfstrace.types import DatasetCounts, FsyncOptions, FsyncSummary, SlowEvent, SlowFsync
from zfstune.exporter.families import Counters, Histograms, Shown, one, place
from zfstune.exporter.views import Setup, Slots, Tracing
from zfstune.record.interval import MOST_SLOW, SLOW_NS
from zfstune.term.units import SECOND
from zfstune.trace import fsync
from zfstune.trace.live import JsonRow, Meter
from zfstune.trace.slow import slow_fsync

# Slots in the kernel beyond those with series of their own: a dataset that is mounted again takes
# another one, and all of them cost memory on each CPU.
_SPARE = 16
# With many CPUs fewer of them fit, and the rest is summed.
_TABLE_MIB = 32

_UNKNOWN = None, "<unknown>"
_NOTHING = DatasetCounts(
    "", 0, (0, 0), False, 0, 0, 0, (0,) * len(KINDS), Hist(), (Hist(),) * len(NAMES)
)


class FsyncView(Tracing[FsyncSession]):
    """Implements View."""

    name = "fsync"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._total = Histograms("zfstune_fsync_duration_seconds")
        self._stages = Histograms("zfstune_fsync_stage_duration_seconds")
        self._stage_ns = Counters("zfstune_fsync_stage_seconds_total", SECOND)
        self._kinds = Counters("zfstune_fsync_operations_total")
        self._errors = Counters("zfstune_fsync_errors_total")
        self._commits = Counters("zfstune_zil_commits_total")
        self._no_zil = Counters("zfstune_fsync_without_zil_total")
        self._slots: Slots[DatasetCounts] = Slots(
            _NOTHING,
            lambda c: (c.total.count, c.total.sum_ns, c.commits, c.errors, c.no_zil, *c.kinds),
        )
        self._slow: list[SlowEvent] = []
        self._slowest: list[SlowFsync] = []
        self._options = FsyncOptions(
            slow_ns=SLOW_NS,
            no_fentry=setup.no_fentry,
            max_datasets=setup.names.max_datasets + _SPARE,
            table_mib=_TABLE_MIB,
        )

    def _open(self, *, kstat: bool) -> FsyncSession:
        return self._host.open_fsync_trace(self._options)

    def _metered(self, session: FsyncSession) -> Meter[Sequence[DatasetCounts], FsyncSummary]:
        return fsync.meter(session, self._host, self._options, self._setup.stop)

    def _begin(self, session: FsyncSession) -> None:
        self._slots.restart()
        self._slow = []

    def tick(self) -> None:
        # before their buffer overflows
        if self.session is not None:
            self._see(self.session)

    def _see(self, session: FsyncSession) -> None:
        """The slow ones since the last call. Those for the recorder are named at once: what their
        txg did is not known for long."""
        events = session.poll(0)
        self._slow = slowest(self._slow + events)
        if not (events and self._setup.recorded):
            return
        session.refresh()
        counts = session.datasets()
        found = []
        for event in heapq.nlargest(MOST_SLOW, events, key=_took):
            known = event.dataset < len(counts)
            name = name_of(counts[event.dataset], self._host, None) if known else _UNKNOWN
            found.append(slow_fsync(event, *name, self._host, session))
        self._slowest = heapq.nlargest(MOST_SLOW, self._slowest + found, key=_took)

    def _count(self, session: FsyncSession) -> None:
        self._see(session)
        counts = session.datasets()
        for now, before in self._slots.changed(counts):
            if now.total.count or now.commits or now.errors:
                self._add(self._names.dataset(name_of(now, self._host, None)), now, before)
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
            series.show(Shown(event.total_ns, self._setup.wall(), labels))

    def rows(self) -> Sequence[JsonRow]:
        found = list(super().rows())
        slow, self._slowest = self._slowest, []
        return found + sorted(slow, key=lambda one: one.time)

    def families(self) -> Iterator[Metric]:
        now = self._setup.wall()
        yield self._total.family(now)
        yield self._stage_ns.family()
        yield self._stages.family(now)
        for counters in (self._kinds, self._errors, self._commits, self._no_zil):
            yield counters.family()
        unfinished = self._lost.unfinished if self.session is not None else None
        yield one("zfstune_fsync_unfinished", unfinished)


def _took(one: SlowEvent | SlowFsync) -> int:
    return one.total_ns


def slowest(events: Sequence[SlowEvent]) -> list[SlowEvent]:
    """The slowest of each dataset and bucket of the exported histogram: a burst must not fill the
    memory between two readings."""
    found: dict[tuple[int, int], SlowEvent] = {}
    for event in events:
        key = event.dataset, place(event.total_ns)
        if key not in found or event.total_ns > found[key].total_ns:
            found[key] = event
    return list(found.values())
