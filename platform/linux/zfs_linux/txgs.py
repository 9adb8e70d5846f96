"""Transaction groups on Linux: from the tracer and the txgs kstat together, or from the
kstat alone."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

from zfs_linux import kstat
from zfstrace.pool_trace import TxgEvent, TxgTrace
from zfstrace.txg import Txg
from zfstrace.types import Losses, Probe

_SECOND = 1_000_000_000
# The sync thread waits in ticks of at least 1 ms, and then for the quiescing.
_TIMER_SLACK_NS = 50_000_000
# How long a txg that ended waits for its row of the kstat, and how often a kstat that is
# the only source is read.
_ROW_NS = _SECOND
_POLL_NS = _SECOND // 4
_REASONS = {1: "dirty", 2: "waiter"}

Row = dict[str, kstat.Value]


def _number(row: Row, name: str) -> int | None:
    value = row.get(name)
    return value if isinstance(value, int) else None


def _utc(clock_ns: int, now_ns: int) -> str:
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


def from_event(event: TxgEvent, row: Row | None, timeout_s: int | None) -> Txg:
    """A txg as the tracer saw it, with what only the kstat knows."""

    def span(start: int, end: int) -> int | None:
        return end - start if start and end else None

    row = row or {}
    reason = _REASONS.get(event.reason)
    if reason is None:
        reason = "timer" if timer(span(event.last_syncing, event.quiescing), timeout_s) else ""
    return Txg(
        time=_utc(event.synced, time.monotonic_ns()),
        pool=event.pool.decode("utf-8", "replace"),
        txg=event.txg,
        open_ns=span(event.opened, event.quiescing),
        quiesce_ns=span(event.quiescing, event.quiesced),
        wait_ns=span(event.quiesced, event.syncing),
        sync_ns=span(event.syncing, event.synced),
        passes=event.passes or None,
        dirty_bytes=_number(row, "ndirty"),
        written_bytes=_number(row, "nwritten"),
        writes=_number(row, "writes"),
        # of one that was open before the trace began not all was seen
        delayed_tx=event.delayed if event.opened else None,
        delay_ns=event.delay_ns if event.opened else None,
        reason=reason or "unknown",
        zil_sync_ns=event.zil_sync_ns,
        source="bpf",
    )


def from_rows(pool: str, row: Row, before: Row | None, timeout_s: int | None) -> Txg:
    """A finished row of the kstat, and the row before it, from which the time since the
    last sync began is known."""
    birth, opened = _number(row, "birth"), _number(row, "otime")
    end = sum(_number(row, n) or 0 for n in ("birth", "otime", "qtime", "wtime", "stime"))
    since = None
    if before is not None and birth is not None and opened is not None:
        start = sum(_number(before, n) or 0 for n in ("birth", "otime", "qtime", "wtime"))
        since = birth + opened - start
    return Txg(
        time=_utc(end, time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)),
        pool=pool,
        txg=_number(row, "txg") or 0,
        open_ns=opened,
        quiesce_ns=_number(row, "qtime"),
        wait_ns=_number(row, "wtime"),
        sync_ns=_number(row, "stime"),
        passes=None,
        dirty_bytes=_number(row, "ndirty"),
        written_bytes=_number(row, "nwritten"),
        writes=_number(row, "writes"),
        delayed_tx=None,
        delay_ns=None,
        reason="timer" if timer(since, timeout_s) else "unknown",
        zil_sync_ns=None,
        source="kstat",
    )


def _rows(root: Path, pool: str) -> dict[int, Row]:
    """The rows of a pool's txgs kstat by txg; {} without one."""
    found = {}
    for row in kstat.parse_history(kstat.read(root / pool / "txgs")):
        txg = _number(row, "txg")
        if txg is not None:
            found[txg] = row
    return found


class TracedTxgs:
    """Implements zfstrace.host.TxgSession with the tracer. kstats is the directory of the
    kstats, timeout the file of zfs_txg_timeout."""

    def __init__(self, trace: TxgTrace, kstats: Path, timeout: Path) -> None:
        self._trace, self._kstats, self._timeout = trace, kstats, timeout
        self._waiting: list[TxgEvent] = []

    def poll(self, timeout_ms: int) -> list[Txg]:
        self._waiting += self._trace.ended(min(timeout_ms, 100) if self._waiting else timeout_ms)
        ready: list[Txg] = []
        rows: dict[str, dict[int, Row]] = {}
        timeout_s = kstat.read_number(self._timeout)
        while self._waiting:
            event = self._waiting[0]
            pool = event.pool.decode("utf-8", "replace")
            if pool not in rows:
                rows[pool] = _rows(self._kstats, pool)
            row = rows[pool].get(event.txg)
            done = row is not None and row.get("state") == "C"
            # no row at all: zfs_txg_history is 0 or less than the burst of events
            if not done and row is not None and time.monotonic_ns() - event.synced < _ROW_NS:
                break
            ready.append(from_event(event, row if done else None, timeout_s))
            del self._waiting[0]
        return ready

    def refresh(self) -> None:
        self._trace.refresh()

    def losses(self) -> Losses:
        return self._trace.losses()

    def probes(self) -> tuple[Probe, ...]:
        return self._trace.probes()

    def close(self) -> None:
        self._trace.close()


class KstatTxgs:
    """Implements zfstrace.host.TxgSession by reading the kstat, which needs no privilege.
    losses().event counts rows that were gone before they were read."""

    def __init__(self, pool: str | None, kstats: Path, timeout: Path) -> None:
        self._pool, self._kstats, self._timeout = pool, kstats, timeout
        self._last: dict[str, int] = {}
        self._missed = 0
        self._due = 0
        for name in self._pools():
            ended = [t for t, row in _rows(kstats, name).items() if row.get("state") == "C"]
            self._last[name] = max(ended, default=0)

    def _pools(self) -> list[str]:
        return [p for p in kstat.pools(self._kstats) if self._pool in (None, p)]

    def poll(self, timeout_ms: int) -> list[Txg]:
        wait = min(self._due - time.monotonic_ns(), timeout_ms * 1_000_000)
        if wait > 0:
            time.sleep(wait / _SECOND)
        if time.monotonic_ns() < self._due:
            return []
        self._due = time.monotonic_ns() + _POLL_NS
        return [txg for pool in self._pools() for txg in self._new(pool)]

    def _new(self, pool: str) -> list[Txg]:
        rows = _rows(self._kstats, pool)
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
        timeout_s = kstat.read_number(self._timeout)
        return [from_rows(pool, rows[t], rows.get(t - 1), timeout_s) for t in fresh]

    def refresh(self) -> None:
        """Nothing to do: poll() reads."""

    def losses(self) -> Losses:
        return Losses(event=self._missed)

    def probes(self) -> tuple[Probe, ...]:
        return ()

    def close(self) -> None:
        """Nothing to undo."""
