"""Transaction groups on Linux: from the tracer and the txgs kstat together; where the kstat is
for zfstrace.kstat_txgs."""

from __future__ import annotations

import time
from pathlib import Path

from zfs_linux import kstat
from zfstrace.bpf.pools import TxgEvent, TxgTrace
from zfstrace.kstat.parse import parse_history
from zfstrace.kstat.txgs import Completed, Row, Source, timer, utc
from zfstrace.txg import Txg
from zfstrace.types import Losses, Probe

_REASONS = {1: "dirty", 2: "waiter"}


class ProcTxgs:
    """Implements zfstrace.kstat_txgs.Source. kstats is the directory of the kstats, timeout the
    file of zfs_txg_timeout."""

    def __init__(self, kstats: Path, timeout: Path) -> None:
        self._kstats, self._timeout = kstats, timeout

    def pools(self) -> list[str]:
        return kstat.pools(self._kstats)

    def rows(self, pool: str) -> list[Row]:
        return parse_history(kstat.read(self._kstats / pool / "txgs"))

    def timeout_s(self) -> int | None:
        return kstat.read_number(self._timeout)

    def now_ns(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)


def from_event(event: TxgEvent, timeout_s: int | None) -> Txg:
    """A txg as the tracer saw it, without what only the kstat knows."""

    def span(start: int, end: int) -> int | None:
        return end - start if start and end else None

    reason = _REASONS.get(event.reason)
    if reason is None:
        reason = "timer" if timer(span(event.last_syncing, event.quiescing), timeout_s) else ""
    return Txg(
        time=utc(event.synced, time.monotonic_ns()),
        pool=event.pool.decode("utf-8", "replace"),
        txg=event.txg,
        open_ns=span(event.opened, event.quiescing),
        quiesce_ns=span(event.quiescing, event.quiesced),
        wait_ns=span(event.quiesced, event.syncing),
        sync_ns=span(event.syncing, event.synced),
        passes=event.passes or None,
        dirty_bytes=None,
        written_bytes=None,
        writes=None,
        # of one that was open before the trace began not all was seen
        delayed_tx=event.delayed if event.opened else None,
        delay_ns=event.delay_ns if event.opened else None,
        reason=reason or "unknown",
        zil_sync_ns=event.zil_sync_ns,
        source="bpf",
    )


class TracedTxgs:
    """Implements zfstrace.host.TxgSession with the tracer."""

    def __init__(self, trace: TxgTrace, source: Source) -> None:
        self._trace, self._source = trace, source
        self._completed = Completed(source)

    def poll(self, timeout_ms: int) -> list[Txg]:
        ended = self._trace.ended(min(timeout_ms, 100) if self._completed.waiting else timeout_ms)
        if ended:
            timeout_s = self._source.timeout_s()
            for event in ended:
                self._completed.add(from_event(event, timeout_s))
        return self._completed.ready()

    def refresh(self) -> None:
        self._trace.refresh()

    def losses(self) -> Losses:
        return self._trace.losses()

    def probes(self) -> tuple[Probe, ...]:
        return self._trace.probes()

    def close(self) -> None:
        self._trace.close()
