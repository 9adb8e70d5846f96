"""Transaction groups: one row for each as it ends.

A txg is open (it takes transactions), then quiesces (those still running finish), waits
for the sync thread, and is synced; three are alive at a time (module/zfs/txg.c).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from zfstrace.types import SCHEMA, Json

# Why a txg was closed: zfs_txg_timeout passed; too much dirty data or log data
# (txg_kick); somebody waits for it (sync(2), zpool, a full log ...); not known, e.g.
# while a scrub runs, which closes one after the other.
REASONS = ("timer", "dirty", "waiter", "unknown")


@dataclass(frozen=True)
class Txg:
    """A txg that has ended. time is its end, ISO 8601, UTC; times in ns.

    None is what is not known: open_ns of a txg that was open before the trace began,
    passes, delayed_tx, delay_ns, zil_sync_ns without BPF. dirty_bytes are those when the sync
    began, written_bytes what the pool wrote until its end (all of the pool's writes, also
    the log's). zil_sync_ns is the part of sync_ns in zil_sync(), where a sync waits for log
    blocks. source is ``bpf`` or ``kstat``.
    """

    time: str
    pool: str
    txg: int
    open_ns: int | None
    quiesce_ns: int | None
    wait_ns: int | None
    sync_ns: int | None
    passes: int | None
    dirty_bytes: int | None
    written_bytes: int | None
    writes: int | None
    delayed_tx: int | None
    delay_ns: int | None
    reason: str
    zil_sync_ns: int | None
    source: str

    def to_json(self) -> Json:
        """As a ``txg`` object of the schema."""
        return {"schema": SCHEMA, "type": "txg", **asdict(self)}


@dataclass(frozen=True)
class TxgState:
    """What a pool's txgs did during a span of time: ``syncing`` before ``quiescing`` before
    ``open``. txg is the number of the one that did it, sync_ns how long it had been
    syncing when the span (or its sync) ended; None is what is not known."""

    state: str
    txg: int | None = None
    sync_ns: int | None = None
