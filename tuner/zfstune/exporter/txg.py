"""The view `txg`: transaction groups as they end."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from zfstrace.host import TxgSession
from zfstrace.txg import REASONS, Txg
from zfstune.exporter.families import Counters, Histograms, Labels, Shown, gauge
from zfstune.exporter.views import Setup
from zfstune.record.sources import Txgs
from zfstune.term.units import MS

# A sync that takes this long may become an exemplar.
_SLOW_NS = 1000 * MS


class TxgView(Txgs):
    """Implements View."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._names, self._wall = setup.names, setup.wall
        self._phases = Histograms("zfstune_txg_duration_seconds")
        self._reasons = Counters("zfstune_txgs_total")
        self._dirty: dict[Labels, float] = {}

    def _end(self) -> None:
        self._dirty = {}

    def _count(self, session: TxgSession) -> None:
        pools = {self._names.pool(pool) for pool in self._host.pools()}
        for pool in pools:
            self._know(pool)
        for txg in self._taken(session):
            self._add(txg)
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
            shown = Shown(txg.sync_ns, self._wall(), {"txg": str(txg.txg)})
            self._phases.at(pool, "sync").show(shown)

    def families(self) -> Iterator[Metric]:
        yield self._phases.family(self._wall())
        yield self._reasons.family()
        yield gauge("zfstune_txg_dirty_bytes", self._dirty)
