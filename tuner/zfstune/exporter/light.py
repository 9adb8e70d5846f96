"""The view `light`: commits exactly and always, the stages of fsyncs estimated from windows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.core import Metric

from zfstrace import light_summary
from zfstrace.hist import index
from zfstrace.host import LightSession
from zfstrace.light import CommitCounts, Window, shares
from zfstrace.stages import NAMES
from zfstrace.summary import name_of
from zfstune.exporter.families import Histograms, Labels, Shown, gauge, one
from zfstune.exporter.views import Setup, Slots
from zfstune.record.sources import Light

# The time of fsyncs by stage in a window (ns, in the order of stages.NAMES), by pool.
Times = dict[str, tuple[int, ...]]
_NO_TIME = (0,) * len(NAMES)


class LightView(Light):
    """Implements View."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._names, self._wall = setup.names, setup.wall
        self._commits = Histograms("zfstune_zil_commit_duration_seconds")
        self._writes = Histograms("zfstune_zil_log_write_duration_seconds")
        self._flushes = Histograms("zfstune_zil_flush_duration_seconds")
        setup.names.ending.append(self._commits.end)
        self._slots: Slots[CommitCounts] = Slots(
            CommitCounts("", 0, (0, 0), False), lambda c: (c.total.count, c.log_write.count)
        )
        self._windows: list[tuple[Window, Times]] = []
        self._shares: dict[Labels, float] = {}
        self._missing = 0

    def _begin(self, session: LightSession) -> None:
        self._slots.restart()

    def _end(self) -> None:
        self._shares, self._windows = {}, []

    def _count(self, session: LightSession) -> None:
        counts = session.commits()
        for now, before in self._slots.changed(counts):
            if not (now.total.count or now.log_write.count):
                continue
            key, busy = name_of(now, self._host, None), self._slots.busy(now, before)
            pool, dataset = self._names.dataset(key, busy=busy)
            self._commits.at(pool, dataset).add(now.total, before.total)
            self._writes.at(pool).add(now.log_write, before.log_write)
            self._flushes.at(pool).add(now.flush, before.flush)
        self._see(session.windows())
        for window in self._taken(session):
            self._show(window, counts)

    def _see(self, windows: Sequence[Window]) -> None:
        """Names are looked up once for each window: a host may have thousands of datasets."""
        known = {id(window): times for window, times in self._windows}
        new = {id(window): window for window in windows if id(window) not in known}
        if not new:
            return
        self._missing += sum(window.lost for window in new.values())
        known.update((key, self._times(window)) for key, window in new.items())
        self._windows = [(window, known[id(window)]) for window in windows]
        self._shares = self._estimated()

    def _times(self, window: Window) -> Times:
        found: Times = {}
        sums = light_summary.by_name(window.samples, self._host, None, None)
        for (pool, dataset), (_count, stage_ns) in sums.items():
            if dataset is None:
                name = self._names.pool(pool)
                found[name] = tuple(map(sum, zip(found.get(name, _NO_TIME), stage_ns)))
        return found

    def _estimated(self) -> dict[Labels, float]:
        found: dict[Labels, float] = {}
        for pool in dict.fromkeys(name for _, times in self._windows for name in times):
            for stage in shares([times.get(pool, _NO_TIME) for _, times in self._windows]):
                values = {"estimate": stage.share, "low": stage.low, "high": stage.high}
                for bound, value in values.items():
                    if value is not None:
                        found[pool, stage.name, bound] = value
        return found

    def _show(self, window: Window, counts: Sequence[CommitCounts]) -> None:
        """Makes a slow commit an exemplar, if only one dataset can have had it: the only one whose
        longest took exactly that, or the only one with a commit in that bucket."""
        cause = window.cause
        if cause is None:
            return
        bucket = index(cause.total_ns)
        could = [c for c in counts if c.total.buckets.get(bucket, 0)]
        could = [c for c in could if c.total.max_ns == cause.total_ns] or could
        if len(could) != 1:
            return
        series = self._commits.get(*self._names.dataset(name_of(could[0], self._host, None)))
        if series:
            series.show(Shown(cause.total_ns, self._wall(), {"comm": cause.comm}))

    def families(self) -> Iterator[Metric]:
        now = self._wall()
        for histograms in (self._commits, self._writes, self._flushes):
            yield histograms.family(now)
        there = self.session is not None and not self.waiting
        yield one("zfstune_zil_commits_unfinished", self._lost.unfinished if there else None)
        # without a pool the last windows say nothing about the present
        yield gauge("zfstune_fsync_stage_share_ratio", self._shares if there else {})
        yield one("zfstune_light_windows", len(self._windows) if there else None)
        yield one("zfstune_light_attached", float(there))

    def lost(self) -> Iterator[tuple[str, int]]:
        yield from super().lost()
        yield "window", self._missing
