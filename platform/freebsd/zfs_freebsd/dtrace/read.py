"""Reads and writes of files, traced by zfsread-json.d."""

from __future__ import annotations

from collections.abc import Callable

from zfs_freebsd.dtrace.scripted import Buckets, Sums, _pool
from zfstrace.read import OPS, Op, ReadCounts, ReadState
from zfstrace.types import Json, TraceOptions


class ScriptedReads(Sums):
    """Implements zfstrace.host.ReadSession. objset selects a dataset, 0 all; arc reads the kstat
    arcstats."""

    _SUMS = ('"read_times"', '"read_rest"')

    def __init__(
        self, options: TraceOptions, objset: int, arc: Callable[[], dict[str, int]]
    ) -> None:
        self._objset, self._arc = objset, arc
        self._datasets: dict[tuple[str, int], _Dataset] = {}
        super().__init__("read", "zfsread-json.d", str(options.pid or 0), *_pool(options.pool))

    def state(self) -> ReadState:
        self._take_sums()
        counts = [dataset.counts(*key) for key, dataset in self._datasets.items()]
        return ReadState(counts, self._arc())

    def _on_row(self, row: Json) -> None:
        if row["type"].startswith("read_") and self._objset in (0, row["objset"]):
            self._datasets.setdefault((row["pool"], row["objset"]), _Dataset()).take(row)


class _Dataset:
    """Calls for one dataset so far."""

    def __init__(self) -> None:
        # by the number of the op
        self._times = {op: Buckets() for op in range(len(OPS))}
        self._sizes: dict[int, dict[int, int]] = {op: {} for op in self._times}
        self._rest = 0, 0, 0

    def take(self, row: Json) -> None:
        """A row of the script. Raises KeyError if it is broken."""
        if row["type"] == "read_rest":
            self._rest = row["errors"], row["held"], row["held_ns"]
            return
        self._times[row["op"]].take(row)
        self._sizes[row["op"]][row["bucket"]] = row["bytes"]

    def counts(self, pool: str, objset: int) -> ReadCounts:
        hists = {op: times.hist() for op, times in self._times.items()}
        ops = [Op(h.count, sum(self._sizes[op].values()), h) for op, h in hists.items()]
        hit, miss, write = ops
        errors, held, held_ns = self._rest
        return ReadCounts(pool, objset, (0, 0), False, hit, miss, write, errors, held, held_ns)
