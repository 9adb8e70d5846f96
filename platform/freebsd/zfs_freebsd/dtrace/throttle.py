"""Throttled writers, traced by zfsthrottle-json.d."""

from __future__ import annotations

import itertools
from contextlib import suppress

from zfs_freebsd.dtrace.scripted import Parameter, Scripted, Times, _monotonic, _pool
from zfstrace import processes, throttle
from zfstrace.errors import TraceError
from zfstrace.hist import Hist
from zfstrace.throttle import ThrottleCounts, Waits
from zfstrace.types import OTHERS, Json

_LIMITS = ("zfs_dirty_data_max", "zfs_delay_min_dirty_percent", "zfs_delay_scale")
# every process has an entry, until Ended sums it
_REST = ThrottleCounts("", 0, OTHERS, True, dict.fromkeys(throttle.KINDS, Waits()), Hist(), None)


class ScriptedThrottle(Scripted):
    """Implements zfstrace.host.ThrottleSession. The kind of a wait follows from the limits as of
    the last tick()."""

    def __init__(self, pool: str | None, pid: int | None, parameter: Parameter) -> None:
        self._pid, self._parameter = pid, parameter
        self._waiters: dict[tuple[str, int], _Waiter] = {}
        self._lives = itertools.count(1)
        self._ended = throttle.Ended()
        self._seen = throttle.Seen()
        self._last_told = "dirty_delay"
        self._learn_limits()
        super().__init__("throttle", "zfsthrottle-json.d", *_pool(pool))

    def tick(self) -> None:
        """Also reads the parameters, as an administrator or a tuner may change them, and releases
        processes that have ended: another may get their id."""
        super().tick()
        self._learn_limits()
        for key in [key for key in self._waiters if not processes.exists(key[1])]:
            self._ended.add(self._waiters.pop(key).counts(*key))
            self._seen.end(*key)

    def _learn_limits(self) -> None:
        self._limits = tuple(self._parameter(name) or 0 for name in _LIMITS)

    def waits(self) -> list[ThrottleCounts]:
        """The rest first, then the processes, including those that have ended."""
        others = [waiter.counts(*key) for key, waiter in self._waiters.items()]
        return [self._ended.rest(_REST), *self._ended.last(), *others]

    def held_up(self, pool: str, start_ns: int, end_ns: int) -> int:
        """How many processes finished a wait for the pool in a span of CLOCK_MONOTONIC."""
        with suppress(TraceError):  # its own reader reports that
            self._read(0)
        return self._seen.within(pool, start_ns, end_ns)

    def _on_row(self, row: Json) -> None:
        if row["type"] != "throttle_wait" or self._pid not in (None, row["pid"]):
            return
        end = _monotonic(row["wall_ns"])
        self._seen.note(row["pool"], row["pid"], end - row["ns"], end)
        key = row["pool"], row["pid"]
        if key not in self._waiters:
            self._waiters[key] = _Waiter(row["comm"], next(self._lives))
        self._waiters[key].add(self._kind(row), row["ns"], row["dirty_bytes"])

    def _kind(self, row: Json) -> str:
        """Which limit caused the wait. dmu_tx_delay() (module/zfs/dmu_tx.c) sleeps for dirty data
        or for log data, whichever is longer; the first can be recomputed. A wait without a sleep
        and with little dirty data may be either: it counts as the previous one."""
        dirty_max, percent, scale = self._limits
        dirty, sleep = row["dirty_bytes"], row["delay_ns"]
        if row["dirty_wait"] is None:
            return "unknown"
        if not row["dirty_wait"]:
            return "txg_wait"
        if not dirty_max:
            return "dirty_delay"
        if dirty >= dirty_max:
            return "dirty_hard"
        least = dirty_max // 100 * percent
        if not sleep:
            return "dirty_delay" if dirty > least else self._last_told
        ours = scale * (dirty - least) // (dirty_max - dirty) if dirty > least else 0
        # tolerance: dirty data may have changed since
        self._last_told = "wrlog_delay" if sleep // 2 > ours else "dirty_delay"
        return self._last_told


class _Waiter:
    """Waits of one process on one pool so far; life as in ThrottleCounts."""

    def __init__(self, comm: str, life: int) -> None:
        self._comm, self._life = comm, life
        self._kinds = {kind: Waits() for kind in throttle.KINDS}
        self._latency = Times()
        self._dirty: int | None = None

    def add(self, kind: str, ns: int, dirty_bytes: int | None) -> None:
        old = self._kinds[kind]
        self._kinds[kind] = Waits(old.count + 1, old.total_ns + ns, max(old.max_ns, ns))
        self._latency.add(ns)
        self._dirty = dirty_bytes

    def counts(self, pool: str, pid: int) -> ThrottleCounts:
        return ThrottleCounts(
            pool,
            pid,
            self._comm,
            False,
            dict(self._kinds),
            self._latency.hist(),
            self._dirty,
            self._life,
        )
