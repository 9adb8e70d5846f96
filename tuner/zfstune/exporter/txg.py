"""The view `txg`: transaction groups as they end."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from prometheus_client.core import Metric

from zfstrace.host import TxgSession
from zfstrace.txg import REASONS, Txg
from zfstune.exporter.families import Counters, Histograms, Labels, Shown, gauge
from zfstune.exporter.views import Setup, Tracing
from zfstune.term.units import MS
from zfstune.trace.live import Meter

# A sync that takes this long may become an exemplar.
_SLOW_NS = 1000 * MS
# So many wait for a recorder.
_MOST_ENDED = 1024


class TxgView(Tracing[TxgSession]):
    """Implements View; also by kstats."""

    name = "txg"
    kstat_too = True

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._phases = Histograms("zfstune_txg_duration_seconds")
        self._reasons = Counters("zfstune_txgs_total")
        self._ended: deque[Txg] = deque(maxlen=_MOST_ENDED)
        self._dirty: dict[Labels, float] = {}

    def _end(self) -> None:
        self._dirty = {}

    def _open(self, *, kstat: bool) -> TxgSession:
        return self._host.open_txg_trace(self._setup.options(kstat=kstat))

    def _metered(self, session: TxgSession) -> Meter[list[Txg], Txg]:
        def read() -> list[Txg]:
            self._count(session)
            found = list(self._ended)
            self._ended.clear()
            return found

        # each txg is read once: all that read() returns is new
        return Meter(session, self._setup.stop, [], read, lambda now, _earlier, _span: now)

    def tick(self) -> None:
        # before their buffer overflows
        if self.session is not None:
            self._count(self.session)

    def _count(self, session: TxgSession) -> None:
        pools = {self._names.pool(pool) for pool in self._host.pools()}
        for pool in pools:
            self._know(pool)
        for txg in session.poll(0):
            self._add(txg)
            if self._setup.recorded:
                self._ended.append(txg)
        self._dirty = {of: dirty for of, dirty in self._dirty.items() if of[0] in pools}

    def _know(self, pool: str) -> None:
        for reason in REASONS:
            self._reasons.add(0, pool, reason)

    def _add(self, txg: Txg) -> None:
        pool = self._names.pool(txg.pool)
        self._know(pool)
        self._reasons.add(1, pool, txg.reason)
        if txg.dirty_bytes is not None:
            self._dirty[(pool,)] = txg.dirty_bytes
        times = {
            "open": txg.open_ns,
            "quiesce": txg.quiesce_ns,
            "wait": txg.wait_ns,
            "sync": txg.sync_ns,
        }
        for phase, ns in times.items():
            if ns is not None:
                self._phases.at(pool, phase).observe(ns)
        if txg.sync_ns is not None and txg.sync_ns >= _SLOW_NS:
            shown = Shown(txg.sync_ns, self._setup.wall(), {"txg": str(txg.txg)})
            self._phases.at(pool, "sync").show(shown)

    def families(self) -> Iterator[Metric]:
        yield self._phases.family(self._setup.wall())
        yield self._reasons.family()
        yield gauge("zfstune_txg_dirty_bytes", self._dirty)
