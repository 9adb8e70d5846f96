"""Transaction groups from the txgs kstat, which needs no privilege and no tracer."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Protocol

from zfstrace.kstat.parse import Value, parse_history
from zfstrace.txg import Txg, TxgState
from zfstrace.types import Losses, Probe

_SECOND = 1_000_000_000
# The sync thread waits in ticks of at least 1 ms, then for the quiescing.
_TIMER_SLACK_NS = 50_000_000
# How long a txg that ended waits for its row of the kstat.
_ROW_NS = _SECOND
# How often the kstat is read.
POLL_NS = _SECOND // 4

_NEEDED = {"txg", "birth", "otime", "qtime", "wtime", "stime"}


@dataclass(frozen=True)
class TxgRow:
    """A row of the kstat (module/zfs/spa_stats.c, all versions). state is its letter: O(pen),
    Q(uiescing), W(aiting for the sync), S(yncing) or C(ommitted). birth_ns is a time of the kstats'
    clock; a span that has not ended is 0. None is a column that the kstat does not have."""

    txg: int
    state: str
    birth_ns: int
    open_ns: int
    quiesce_ns: int
    wait_ns: int
    sync_ns: int
    dirty_bytes: int | None = None
    written_bytes: int | None = None
    writes: int | None = None

    @property
    def done(self) -> bool:
        """Whether it is committed."""
        return self.state == "C"

    @property
    def closed_ns(self) -> int:
        """When it stopped accepting transactions; this and the next two by the kstats' clock."""
        return self.birth_ns + self.open_ns

    @property
    def sync_began_ns(self) -> int:
        return self.closed_ns + self.quiesce_ns + self.wait_ns

    @property
    def end_ns(self) -> int:
        return self.sync_began_ns + self.sync_ns


def parse_txgs(text: str) -> list[TxgRow]:
    """The rows of the kstat, oldest first. Skips a row without its number or a time: the kstat
    changed while it was read."""
    return [row for columns in parse_history(text) if (row := _decoded(columns))]


def _decoded(columns: Mapping[str, Value]) -> TxgRow | None:
    numbers = {name: value for name, value in columns.items() if isinstance(value, int)}
    if not numbers.keys() >= _NEEDED:
        return None
    return TxgRow(
        txg=numbers["txg"],
        state=str(columns.get("state", "")),
        birth_ns=numbers["birth"],
        open_ns=numbers["otime"],
        quiesce_ns=numbers["qtime"],
        wait_ns=numbers["wtime"],
        sync_ns=numbers["stime"],
        dirty_bytes=numbers.get("ndirty"),
        written_bytes=numbers.get("nwritten"),
        writes=numbers.get("writes"),
    )


def newest(rows: Sequence[TxgRow]) -> int:
    """The number of the youngest txg, which is open; 0 without any."""
    return max((row.txg for row in rows), default=0)


def newest_done(rows: Sequence[TxgRow]) -> int:
    """The number of the youngest txg that is committed; 0 without any."""
    return newest([row for row in rows if row.done])


def done_since(rows: Sequence[TxgRow], after: int) -> list[TxgRow]:
    """The committed txgs after the given one, in order."""
    done = (row for row in rows if row.done and row.txg > after)
    return sorted(done, key=lambda row: row.txg)


def txg_state(rows: Sequence[TxgRow], start_ns: int, end_ns: int) -> TxgState | None:
    """What the txgs of a pool did between two times of the kstats' clock (gethrtime():
    CLOCK_MONOTONIC_RAW on Linux, CLOCK_MONOTONIC on FreeBSD). None when the rows do not reach back
    that far."""
    found = None
    for row in rows:
        if row.birth_ns <= end_ns:
            found = found or TxgState("open", row.txg)
        began = row.sync_began_ns
        if row.state == "S" and began <= end_ns:
            return TxgState("syncing", row.txg, end_ns - began)
        if row.done and began <= end_ns and row.end_ns >= start_ns:
            return TxgState("syncing", row.txg, min(end_ns - began, row.sync_ns))
        closed = row.closed_ns
        quiesced = row.state in ("W", "S", "C") and closed + row.quiesce_ns >= start_ns
        if closed <= end_ns and (row.state == "Q" or quiesced):
            found = TxgState("quiescing", row.txg)
    return found


class Source(Protocol):
    """Access to the kstat on a system."""

    def pools(self) -> Sequence[str]:
        """Names of the imported pools."""
        ...

    def rows(self, pool: str) -> list[TxgRow]:
        """The rows of the kstat, oldest first; [] without one."""
        ...

    def timeout_s(self) -> int | None:
        """zfs_txg_timeout; None when unknown."""
        ...

    def now_ns(self) -> int:
        """The current time of the kstats' clock."""
        ...


def utc(clock_ns: int, now_ns: int) -> str:
    """A time of a clock whose current time is now_ns, in ISO 8601."""
    wall = (time.time_ns() - (now_ns - clock_ns)) / _SECOND
    return datetime.fromtimestamp(wall, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def timer(since_ns: int | None, timeout_s: int | None) -> bool:
    """Whether zfs_txg_timeout closed a txg for which no other reason is known. It runs from the
    start of the previous sync (txg_sync_thread in module/zfs/txg.c)."""
    return (
        since_ns is not None
        and timeout_s is not None
        and since_ns >= timeout_s * _SECOND - _TIMER_SLACK_NS
    )


def from_rows(
    pool: str, row: TxgRow, before: TxgRow | None, timeout_s: int | None, now_ns: int
) -> Txg:
    """A committed txg, from its row and the previous one, which has the start of the last sync.
    now_ns is the current time of the kstats' clock."""
    since = row.closed_ns - before.sync_began_ns if before else None
    return Txg(
        time=utc(row.end_ns, now_ns),
        pool=pool,
        txg=row.txg,
        open_ns=row.open_ns,
        quiesce_ns=row.quiesce_ns,
        wait_ns=row.wait_ns,
        sync_ns=row.sync_ns,
        passes=None,
        dirty_bytes=row.dirty_bytes,
        written_bytes=row.written_bytes,
        writes=row.writes,
        delayed_tx=None,
        delay_ns=None,
        reason="timer" if timer(since, timeout_s) else "unknown",
        zil_sync_ns=None,
        source="kstat",
    )


def by_txg(rows: Sequence[TxgRow]) -> dict[int, TxgRow]:
    """The rows of a pool by txg."""
    return {row.txg: row for row in rows}


class Completed:
    """Completes txgs that a tracer saw end by what only the kstat knows, in order for each pool."""

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
        """Those that have a row, or have waited long enough for one."""
        found: list[Txg] = []
        waiting: list[tuple[int, Txg]] = []
        rows: dict[str, dict[int, TxgRow]] = {}
        held: set[str] = set()  # pools with one that waits
        for since, txg in sorted(self._waiting, key=lambda seen: seen[1].txg):
            if txg.pool not in rows:
                rows[txg.pool] = by_txg(self._source.rows(txg.pool))
            row = rows[txg.pool].get(txg.txg)
            # without a row zfs_txg_history is 0, or less than the burst of events
            soon = row is not None and not row.done and time.monotonic_ns() - since < _ROW_NS
            if soon or txg.pool in held:
                held.add(txg.pool)
                waiting.append((since, txg))
            else:
                found.append(with_row(txg, row) if row and row.done else txg)
        self._waiting = waiting
        return found


def with_row(txg: Txg, row: TxgRow) -> Txg:
    """A txg with the columns that only the kstat has."""
    return replace(
        txg,
        dirty_bytes=row.dirty_bytes,
        written_bytes=row.written_bytes,
        writes=row.writes,
    )


class KstatTxgs:
    """Implements zfstrace.host.TxgSession. losses().event counts rows that vanished before they
    were read."""

    def __init__(self, pool: str | None, source: Source) -> None:
        self._pool, self._source = pool, source
        self._last: dict[str, TxgRow] = {}
        self._missed = 0
        self._due = 0
        for name in self._pools():
            for row in done_since(source.rows(name), 0):
                self._last[name] = row

    def _pools(self) -> list[str]:
        return [p for p in self._source.pools() if self._pool in (None, p)]

    def poll(self, timeout_ms: int) -> list[Txg]:
        wait = min(self._due - time.monotonic_ns(), timeout_ms * 1_000_000)
        if wait > 0:
            time.sleep(wait / _SECOND)
        if time.monotonic_ns() < self._due:
            return []
        self._due = time.monotonic_ns() + POLL_NS
        pools = self._pools()
        # one that was exported comes back with txgs that nobody has missed here
        self._last = {pool: row for pool, row in self._last.items() if pool in pools}
        return [txg for pool in pools for txg in self._new(pool)]

    def _new(self, pool: str) -> list[Txg]:
        rows = self._source.rows(pool)
        last = self._last.get(pool)
        # A pool without a last txg was imported meanwhile: all its rows are new. By birth, since a
        # pool that is created anew under its name begins with the first txg again.
        fresh = [row for row in done_since(rows, 0) if not last or row.birth_ns > last.birth_ns]
        if not fresh:
            return []
        if last and fresh[0].txg > last.txg + 1:
            self._missed += fresh[0].txg - last.txg - 1
        self._last[pool] = fresh[-1]
        timeout_s, now_ns = self._source.timeout_s(), self._source.now_ns()
        before = by_txg(rows)
        return [from_rows(pool, row, before.get(row.txg - 1), timeout_s, now_ns) for row in fresh]

    def refresh(self) -> None:
        """Nothing to do: poll() reads."""

    def losses(self) -> Losses:
        return Losses(event=self._missed)

    def probes(self) -> tuple[Probe, ...]:
        return ()

    def close(self) -> None:
        """Nothing to undo."""
