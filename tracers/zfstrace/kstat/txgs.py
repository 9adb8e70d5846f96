"""Transaction groups from the txgs kstat alone, which needs no privilege and no tracer."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Protocol

from zfstrace.kstat.parse import Value
from zfstrace.txg import Txg
from zfstrace.types import Losses, Probe

_SECOND = 1_000_000_000
# The sync thread waits in ticks of at least 1 ms, and then for the quiescing.
_TIMER_SLACK_NS = 50_000_000
# How long a txg that ended waits for its row of the kstat.
_ROW_NS = _SECOND
# How often the kstat is read.
_POLL_NS = _SECOND // 4

Row = dict[str, Value]


class Source(Protocol):
    """Where a system has the kstat."""

    def pools(self) -> Sequence[str]:
        """Names of the imported pools."""
        ...

    def rows(self, pool: str) -> list[Row]:
        """Of the kstat, oldest first; [] without one."""
        ...

    def timeout_s(self) -> int | None:
        """zfs_txg_timeout."""
        ...

    def now_ns(self) -> int:
        """The clock of the kstats."""
        ...


def number(row: Row, name: str) -> int | None:
    value = row.get(name)
    return value if isinstance(value, int) else None


def utc(clock_ns: int, now_ns: int) -> str:
    """A moment of a clock that shows now_ns at present, ISO 8601."""
    wall = (time.time_ns() - (now_ns - clock_ns)) / _SECOND
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def timer(since_ns: int | None, timeout_s: int | None) -> bool:
    """Whether a txg that nobody asked for was closed by zfs_txg_timeout, which runs from
    the start of the sync before (txg_sync_thread in module/zfs/txg.c)."""
    return (
        since_ns is not None
        and timeout_s is not None
        and since_ns >= timeout_s * _SECOND - _TIMER_SLACK_NS
    )


def from_rows(pool: str, row: Row, before: Row | None, timeout_s: int | None, now_ns: int) -> Txg:
    """A finished row of the kstat, and the row before it, from which the time since the
    last sync began is known. now_ns is what the kstats' clock shows."""
    birth, opened = number(row, "birth"), number(row, "otime")
    end = sum(number(row, n) or 0 for n in ("birth", "otime", "qtime", "wtime", "stime"))
    since = None
    if before is not None and birth is not None and opened is not None:
        start = sum(number(before, n) or 0 for n in ("birth", "otime", "qtime", "wtime"))
        since = birth + opened - start
    return Txg(
        time=utc(end, now_ns),
        pool=pool,
        txg=number(row, "txg") or 0,
        open_ns=opened,
        quiesce_ns=number(row, "qtime"),
        wait_ns=number(row, "wtime"),
        sync_ns=number(row, "stime"),
        passes=None,
        dirty_bytes=number(row, "ndirty"),
        written_bytes=number(row, "nwritten"),
        writes=number(row, "writes"),
        delayed_tx=None,
        delay_ns=None,
        reason="timer" if timer(since, timeout_s) else "unknown",
        zil_sync_ns=None,
        source="kstat",
    )


def by_txg(rows: Sequence[Row]) -> dict[int, Row]:
    """The rows of a pool by txg."""
    return {txg: row for row in rows if (txg := number(row, "txg")) is not None}


class Completed:
    """Txgs that a tracer saw end, each with what only the kstat knows, in each pool's order."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._waiting: list[tuple[int, Txg]] = []

    @property
    def waiting(self) -> bool:
        """Whether some still wait for their row."""
        return bool(self._waiting)

    def add(self, txg: Txg) -> None:
        self._waiting.append((time.monotonic_ns(), txg))

    def ready(self) -> list[Txg]:
        """Those with a row, or that waited long enough for one."""
        found: list[Txg] = []
        waiting: list[tuple[int, Txg]] = []
        rows: dict[str, dict[int, Row]] = {}
        held: set[str] = set()  # pools of which one waits
        for since, txg in sorted(self._waiting, key=lambda seen: seen[1].txg):
            if txg.pool not in rows:
                rows[txg.pool] = by_txg(self._source.rows(txg.pool))
            row = rows[txg.pool].get(txg.txg)
            done = row is not None and row.get("state") == "C"
            # no row at all: zfs_txg_history is 0 or less than the burst of events
            soon = not done and row is not None and time.monotonic_ns() - since < _ROW_NS
            if soon or txg.pool in held:
                held.add(txg.pool)
                waiting.append((since, txg))
            else:
                found.append(with_row(txg, row if done and row else {}))
        self._waiting = waiting
        return found


def with_row(txg: Txg, row: Row) -> Txg:
    """A txg with what only its row of the kstat knows."""
    return replace(
        txg,
        dirty_bytes=number(row, "ndirty"),
        written_bytes=number(row, "nwritten"),
        writes=number(row, "writes"),
    )


class KstatTxgs:
    """Implements zfstrace.host.TxgSession. losses().event counts rows that were gone before
    they were read."""

    def __init__(self, pool: str | None, source: Source) -> None:
        self._pool, self._source = pool, source
        self._last: dict[str, int] = {}
        self._missed = 0
        self._due = 0
        for name in self._pools():
            rows = by_txg(source.rows(name))
            self._last[name] = max((t for t in rows if rows[t].get("state") == "C"), default=0)

    def _pools(self) -> list[str]:
        return [p for p in self._source.pools() if self._pool in (None, p)]

    def poll(self, timeout_ms: int) -> list[Txg]:
        wait = min(self._due - time.monotonic_ns(), timeout_ms * 1_000_000)
        if wait > 0:
            time.sleep(wait / _SECOND)
        if time.monotonic_ns() < self._due:
            return []
        self._due = time.monotonic_ns() + _POLL_NS
        return [txg for pool in self._pools() for txg in self._new(pool)]

    def _new(self, pool: str) -> list[Txg]:
        rows = by_txg(self._source.rows(pool))
        last = self._last.get(pool)
        # a pool that was exported and imported again begins anew
        fresh = sorted(
            t for t, row in rows.items() if row.get("state") == "C" and (last is None or t > last)
        )
        if not fresh:
            return []
        if last and fresh[0] > last + 1:
            self._missed += fresh[0] - last - 1
        self._last[pool] = fresh[-1]
        timeout_s, now_ns = self._source.timeout_s(), self._source.now_ns()
        return [from_rows(pool, rows[t], rows.get(t - 1), timeout_s, now_ns) for t in fresh]

    def refresh(self) -> None:
        """Nothing to do: poll() reads."""

    def losses(self) -> Losses:
        return Losses(event=self._missed)

    def probes(self) -> tuple[Probe, ...]:
        return ()

    def close(self) -> None:
        """Nothing to undo."""


TxgRow = dict[str, int | str]


def at_least(row: TxgRow, name: str) -> int:
    """A column of a row of the txgs kstat; 0 where it has none yet."""
    value = row.get(name)
    return value if isinstance(value, int) else 0


def end_ns(row: TxgRow) -> int:
    """When its sync ended, by the kstats' clock."""
    return sum(at_least(row, name) for name in ("birth", "otime", "qtime", "wtime", "stime"))


def newest(rows: Sequence[TxgRow]) -> int:
    """The number of the youngest txg, which is open; 0 without any."""
    return max((at_least(row, "txg") for row in rows), default=0)


def newest_done(rows: Sequence[TxgRow]) -> int:
    """The number of the youngest txg that is committed; 0 without any."""
    return max((at_least(row, "txg") for row in rows if row.get("state") == "C"), default=0)


def done_since(rows: Sequence[TxgRow], after: int) -> list[TxgRow]:
    """The txgs after one that are committed, in order."""
    done = [row for row in rows if row.get("state") == "C" and at_least(row, "txg") > after]
    return sorted(done, key=lambda row: at_least(row, "txg"))
