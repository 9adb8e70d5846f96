"""The view `kstat`: what is known without any trace, from kstats and module parameters."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from zfstune.changes.state_dir import Places, places
from zfstune.exporter.bounded import label
from zfstune.exporter.families import Counters, Rising, gauge, one
from zfstune.exporter.metrics import KSTAT
from zfstune.exporter.parameters import Written, sessions
from zfstune.exporter.views import Setup
from zfstune.term.log import say
from zfstune.term.units import SECOND

# The kstat has fewer; a later one may not have any number of them.
_MOST_COUNTERS = 32
# Values are compared where nothing tells of writes: a file each.
_POLL_TICKS = 5


class KstatView:
    """Implements View, without a session. It is always on."""

    name = KSTAT

    def __init__(self, setup: Setup, where: Places | None = None) -> None:
        self._host, self._names = setup.host, setup.names
        clock = setup.stop
        self.written = Written(setup.host, where or places(), lambda: clock.now() / SECOND)
        self._zil_counts = Counters("zfstune_zil_kstat_total")
        self._zil = Rising(self._zil_counts, setup.module)
        self._delays = Counters("zfstune_arc_memory_throttle_total")
        self._delayed = Rising(self._delays, setup.module)
        self._counters: set[str] = set()
        self._gauges: dict[str, float | None] = {}
        self._states: dict[tuple[str, ...], float] = {}
        self._sessions: dict[tuple[str, ...], float] = {}
        self._ticks = 0
        self._said = ""

    def tick(self) -> None:
        if self._ticks % _POLL_TICKS == 0:
            self.written.poll()
        self._ticks += 1
        if self.written.error != self._said:
            self._said = self.written.error
            if self._said:
                say(f"zfstune's writes of parameters count as other programs': {self._said}")

    def read(self) -> None:
        self.written.poll()
        for name, number in self._host.kstat("zil").items():
            self._count(name, number)
        arc = self._host.kstat("arcstats")
        self._gauges = {
            "zfstune_dirty_limit_bytes": self._host.parameter("zfs_dirty_data_max"),
            "zfstune_arc_size_bytes": arc.get("size"),
            "zfstune_arc_target_bytes": arc.get("c"),
        }
        if "memory_throttle_count" in arc:
            self._delayed.set(arc["memory_throttle_count"])
        pools = self._host.pools()
        self._states = {
            (self._names.pool(pool), label(self._host.pool_state(pool) or "unknown")): 1.0
            for pool in pools
        }
        self._sessions = {}
        for pool, active in sessions(self.written.history, pools).items():
            where = (self._names.pool(pool),)
            self._sessions[where] = max(float(active), self._sessions.get(where, 0.0))

    def _count(self, name: str, number: int) -> None:
        """All of its numbers are counters, of events and of bytes (module/zfs/zil.c, zil_kstat)."""
        if not name.startswith("zil_"):
            return
        shown = label(name[len("zil_") :])
        shown = shown[: -len("_count")] if shown.endswith("_count") else shown
        if shown in self._counters or len(self._counters) < _MOST_COUNTERS:
            self._counters.add(shown)
            self._zil.set(number, shown)

    def families(self) -> Iterator[Metric]:
        for name, value in self._gauges.items():
            yield one(name, value)
        yield self._zil_counts.family()
        yield self._delays.family()
        yield gauge("zfstune_pool_state", self._states)
        yield gauge("zfstune_session_active", self._sessions)
        yield from self.written.families()

    def close(self) -> None:
        self.written.close()
