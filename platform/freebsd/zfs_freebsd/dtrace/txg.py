"""Transaction groups, traced by txgstate-json.d."""

from __future__ import annotations

from zfs_freebsd.dtrace.scripted import Scripted, _pool
from zfstrace.kstat.txgs import Completed, Source, timer
from zfstrace.txg import REASONS, Txg
from zfstrace.types import Json


class ScriptedTxgs(Scripted):
    """Implements zfstrace.host.TxgSession; source adds what only the kstat knows."""

    def __init__(self, pool: str | None, source: Source) -> None:
        self._completed = Completed(source)
        self._source = source
        super().__init__("txg", "txgstate-json.d", *_pool(pool))

    def poll(self, timeout_ms: int) -> list[Txg]:
        self._read(min(timeout_ms, 100) if self._completed.waiting else timeout_ms)
        return self._completed.ready()

    def _on_row(self, row: Json) -> None:
        # skips a txg that was already syncing when the trace began
        if row["type"] != "txg" or row["sync_ns"] is None:
            return
        reason = row["reason"]
        if reason == "unknown" and timer(row["since_sync_ns"], self._source.timeout_s()):
            reason = "timer"
        self._completed.add(
            Txg(
                time=row["time"][:-4] + "Z",  # ms, as everywhere
                pool=row["pool"],
                txg=row["txg"],
                open_ns=row["open_ns"],
                quiesce_ns=row["quiesce_ns"],
                wait_ns=row["wait_ns"],
                sync_ns=row["sync_ns"],
                passes=row["passes"] or None,
                dirty_bytes=None,
                written_bytes=None,
                writes=None,
                delayed_tx=None,
                delay_ns=None,
                reason=reason if reason in REASONS else "unknown",
                zil_sync_ns=None,
                source="dtrace",
            )
        )
