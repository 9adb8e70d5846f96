"""Transaction groups: one row for each as it ends.

A txg is open (it accepts transactions), then quiesces (those still running finish), waits for the
sync thread, and is synced; three are active at a time (module/zfs/txg.c).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from zfstrace.types import SCHEMA, Json

# Why a txg was closed: zfs_txg_timeout passed; too much dirty data or log data (txg_kick); a thread
# waits for it (sync(2), zpool, a full log ...); unknown, e.g. a scrub, which closes one after the
# other.
REASONS = ("timer", "dirty", "waiter", "unknown")


@dataclass(frozen=True)
class Txg:
    """A txg that has ended. time is its end, ISO 8601, UTC; times in ns.

    None means unknown: open_ns of a txg that was open before the trace began; passes, delayed_tx,
    delay_ns, zil_sync_ns without BPF. dirty_bytes is measured when the sync began, written_bytes is
    what the pool wrote until its end (all writes of the pool, including the log). zil_sync_ns is
    the part of sync_ns in zil_sync(), where a sync waits for log blocks. source is ``bpf`` or
    ``kstat``.
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
        """A ``txg`` object of the schema."""
        return {"schema": SCHEMA, "type": "txg", **asdict(self)}


@dataclass(frozen=True)
class TxgState:
    """What a pool's txgs did during a span of time: ``syncing`` takes precedence over
    ``quiescing``, and that over ``open``. txg is the number of the one that did it, sync_ns how
    long it had been syncing when the span (or its sync) ended; None means unknown."""

    state: str
    txg: int | None = None
    sync_ns: int | None = None
