"""Names of vdevs, for traces that must go on while zpool(8) does not answer."""

from __future__ import annotations

from zfstrace.host import Host
from zfstune.term.signals import Stop
from zfstune.term.units import SECOND

# How much of each ten minutes zpool(8) may take. What makes it hang for one pool, a lock of all of
# them, makes it hang for each.
_SPAN_NS, _MOST_NS = 600 * SECOND, 5 * SECOND
# A pool is asked again, for vdevs that it has not named, after that.
_AGAIN_NS = 60 * SECOND


class VdevNames:
    """The names of vdevs by pool and guid. A pool is asked when one of its vdevs is new."""

    def __init__(self, host: Host, stop: Stop) -> None:
        self._host, self._stop = host, stop
        self._names: dict[str, dict[int, str]] = {}
        # of the pools that were asked
        self._again: dict[str, int] = {}
        self._span_end = self._spent = 0

    def of(self, pool: str, guid: int) -> str | None:
        """The name of a vdev; None while it is not known."""
        if guid not in self._names.get(pool, {}) and self._may_ask(pool):
            self._ask(pool)
        return self._names.get(pool, {}).get(guid)

    def _may_ask(self, pool: str) -> bool:
        now = self._stop.now()
        if now >= self._span_end:
            self._span_end, self._spent = now + _SPAN_NS, 0
        return self._spent < _MOST_NS and now >= self._again.get(pool, 0)

    def _ask(self, pool: str) -> None:
        begun = self._stop.now()
        found = self._host.vdev_names(pool)
        now = self._stop.now()
        self._spent += now - begun
        self._again[pool] = now + _AGAIN_NS
        # {} is no answer
        if found:
            self._names[pool] = found
        there = {*self._host.pools(), pool}
        self._names = {one: names for one, names in self._names.items() if one in there}
        self._again = {one: at for one, at in self._again.items() if one in there}
