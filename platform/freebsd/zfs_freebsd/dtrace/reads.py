"""Reads and writes of files, traced by zfsread-json.d."""

from __future__ import annotations

from collections.abc import Callable

from zfs_freebsd.dtrace.scripted import Buckets, SummedScript
from zfstrace.read import OPS, Op, ReadCounts, ReadState
from zfstrace.types import Json

_TYPES = ("read_times", "read_more")


class ScriptedReads(SummedScript):
    """Implements zfstrace.host.ReadSession. stats gives the kstat of the cache."""

    def __init__(
        self, pool: str | None, pid: int | None, stats: Callable[[], dict[str, int]]
    ) -> None:
        self._datasets: dict[tuple[str, int], _Dataset] = {}
        self._stats = stats
        limits = (pool or "", str(pid or 0)) if pool or pid else ()
        super().__init__(_TYPES, "read", "zfsread-json.d", *limits)

    def state(self) -> ReadState:
        self._take_sums()
        counts = [one.counts(*key) for key, one in self._datasets.items()]
        return ReadState(counts, self._stats())

    def _on_row(self, row: Json) -> None:
        if row["type"] in _TYPES:
            key = row["pool"], row["objset"]
            self._datasets.setdefault(key, _Dataset()).take(row)


class _Dataset:
    """A dataset so far, as the script printed it last."""

    def __init__(self) -> None:
        self._times = {op: Buckets() for op in OPS}
        self._sizes: dict[str, dict[int, int]] = {op: {} for op in OPS}
        self._more = (0, 0, 0)

    def take(self, row: Json) -> None:
        if row["type"] == "read_more":
            self._more = row["errors"], row["held"], row["held_ns"]
            return
        self._times[row["op"]].take(row)
        self._sizes[row["op"]][row["bucket"]] = row["bytes"]

    def counts(self, pool: str, objset: int) -> ReadCounts:
        hists = {op: self._times[op].hist() for op in OPS}
        hit, miss, write = (
            Op(hists[op].count, sum(self._sizes[op].values()), hists[op]) for op in OPS
        )
        return ReadCounts(pool, objset, (0, 0), False, hit, miss, write, *self._more)
