"""The view `throttle`: waits of writers, by pool and limit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from prometheus_client.core import Metric

from zfstrace.host import ThrottleSession
from zfstrace.throttle import KINDS, ThrottleCounts, Waits
from zfstrace.types import OTHERS
from zfstune.exporter.families import Counters
from zfstune.exporter.views import Setup
from zfstune.record.sources import Throttle
from zfstune.term.units import SECOND


class ThrottleView(Throttle):
    """Implements View."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._names = setup.names
        self._waits = Counters("zfstune_throttle_waits_total")
        self._times = Counters("zfstune_throttle_wait_seconds_total", SECOND)
        self._before: Sequence[ThrottleCounts] = ()

    def _begin(self, session: ThrottleSession) -> None:
        self._before = ()

    def _count(self, session: ThrottleSession) -> None:
        now, before = session.waits(), self._before
        self._before = now
        for pool in self._host.pools():
            self._add(self._names.pool(pool), {})
        for one, kinds in since(now, before):
            # the rest is of processes, and of any pool
            self._add(OTHERS if one.rest else self._names.pool(one.pool), kinds)

    def _add(self, pool: str, kinds: Mapping[str, Waits]) -> None:
        for kind in KINDS:
            waits = kinds.get(kind, _NONE)
            self._waits.add(waits.count, pool, kind)
            self._times.add(waits.total_ns, pool, kind)

    def families(self) -> Iterator[Metric]:
        yield self._times.family()
        yield self._waits.family()


_NONE = Waits()


def since(
    now: Sequence[ThrottleCounts], before: Sequence[ThrottleCounts]
) -> Iterator[tuple[ThrottleCounts, dict[str, Waits]]]:
    """What each process waited between two states of a session, as zfstrace.throttle.since() has
    it, but without distributions: thousands of processes may have ended."""
    was = {one.life or -i: one for i, one in enumerate(before)}
    pairs = [(one, was.pop(one.life or -i, None)) for i, one in enumerate(now)]
    for i, (one, then) in enumerate(pairs):
        # who has gone is now part of the rest, with all earlier waits
        less = [*([then] if then else []), *(was.values() if i == 0 else ())]
        if one is not then and any(one.latency.count != other.latency.count for other in less):
            yield one, {kind: _less(waits, kind, less) for kind, waits in one.kinds.items()}
        elif not less and one.latency.count:
            yield one, dict(one.kinds)


def _less(waits: Waits, kind: str, less: Sequence[ThrottleCounts]) -> Waits:
    return Waits(
        waits.count - sum(one.kinds[kind].count for one in less),
        waits.total_ns - sum(one.kinds[kind].total_ns for one in less),
    )
