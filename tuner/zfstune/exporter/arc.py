"""The view `arc`: demand reads of the cache, and waits for room in it."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from zfstrace.hist import Hist
from zfstrace.host import ArcSession
from zfstune.exporter.families import Counters, Rising, added
from zfstune.exporter.views import Setup
from zfstune.record.sources import Arc
from zfstune.term.units import SECOND


class ArcView(Arc):
    """Implements View."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._hits = Counters("zfstune_arc_hits_total")
        self._misses = Counters("zfstune_arc_misses_total")
        counters = {"hits": self._hits, "misses": self._misses}
        self._reads = {what: Rising(of, setup.module) for what, of in counters.items()}
        self._waits = Counters("zfstune_arc_eviction_waits_total")
        self._times = Counters("zfstune_arc_eviction_wait_seconds_total", SECOND)
        self._before = Hist()

    def _begin(self, session: ArcSession) -> None:
        self._before = Hist()
        super()._begin(session)

    def _count(self, session: ArcSession) -> None:
        state = session.state()
        for what, rising in self._reads.items():
            names = [f"demand_data_{what}", f"demand_metadata_{what}"]
            # the kstat goes with the module
            if all(name in state.stats for name in names):
                rising.set(sum(state.stats[name] for name in names))
        if state.waits is None:
            return
        before, self._before = self._before, state.waits
        counts, sum_ns = added(state.waits, before)
        self._waits.add(sum(count for _, count in counts))
        self._times.add(sum_ns)

    def families(self) -> Iterator[Metric]:
        for counters in (self._times, self._waits, self._hits, self._misses):
            yield counters.family()
