"""Fsyncs, traced by zilevent-json.d."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime

from zfs_freebsd.dtrace.scripted import Parameter, Scripted, Times, _monotonic, _pool
from zfs_freebsd.dtrace.throttle import ScriptedThrottle
from zfstrace import stages
from zfstrace.errors import TraceError
from zfstrace.hist import Hist, index
from zfstrace.types import DatasetCounts, FsyncOptions, Json, SlowEvent

# The D script's stage that is log_write, flush or wakeup.
_DEVICE_WAIT = "device_wait"


class _Dataset:
    """Commits of one dataset so far. number is its index among the datasets."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.kinds = dict.fromkeys(stages.KINDS, 0)
        self.total = Times()
        self.stages = {name: Times() for name in stages.NAMES}
        self.bypassed = Hist()

    def counts(self, pool: str, objset: int) -> DatasetCounts:
        commits, bypassed = self.total.hist(), self.bypassed
        kinds = self.kinds | {"other": self.kinds["other"] + bypassed.count}
        parts = {name: times.hist() for name, times in self.stages.items()}
        parts["other"] = parts["other"].merge(bypassed)  # so that the stages sum to the total
        return DatasetCounts(
            pool=pool,
            objset=objset,
            dev=(0, 0),
            rest=False,
            commits=commits.count,
            errors=0,
            no_zil=bypassed.count,
            kinds=tuple(kinds.values()),
            total=commits.merge(bypassed),
            stages=tuple(parts.values()),
        )


class ScriptedFsyncs(Scripted):
    """Implements zfstrace.host.FsyncSession. objset selects a dataset, 0 all. A trace of slow
    operations runs a throttle trace beside it, if that can start.

    An operation is a call of zil_commit(), with the write-back of an fsync before it. Calls that
    bypassed the log count as ``other``, for all processes; only their number, sum and maximum are
    known.
    """

    def __init__(self, options: FsyncOptions, objset: int, parameter: Parameter) -> None:
        self._throttle: ScriptedThrottle | None = None
        self._options, self._objset = options, objset
        self._datasets: dict[tuple[str, int], _Dataset] = {}
        self._slow: list[SlowEvent] = []
        self._device_waits = 0
        super().__init__("fsync", "zilevent-json.d", "0", *_pool(options.pool))
        if options.slow_ns:
            with suppress(TraceError):  # its field is null then; the rest of the trace works
                self._throttle = ScriptedThrottle(options.pool, None, parameter)

    def tick(self) -> None:
        super().tick()
        if self._throttle:
            try:
                self._throttle.tick()
            except TraceError:
                self._throttle.close()
                self._throttle = None

    def held_up(self, pool: str, start_ns: int, end_ns: int) -> int | None:
        return self._throttle.held_up(pool, start_ns, end_ns) if self._throttle else None

    def close(self) -> None:
        if self._throttle:
            self._throttle.close()
        super().close()

    def datasets(self) -> list[DatasetCounts]:
        return [dataset.counts(*key) for key, dataset in self._datasets.items()]

    def poll(self, timeout_ms: int) -> list[SlowEvent]:
        if not self._slow:
            self._read(timeout_ms)
        found, self._slow = self._slow, []
        return found

    def _on_row(self, row: Json) -> None:
        if self._objset and row.get("objset") != self._objset:
            return
        if row["type"] == "bypassed":
            count, total = row["count"], row["total_ns"]
            # there are too many of them for a distribution: each counts as the mean
            buckets = {index(total // count): count}
            self._dataset(row).bypassed = Hist(count, total, row["max_ns"], buckets)
        elif row["type"] == "commit" and self._options.pid in (None, row["pid"]):
            self._commit(row)

    def _dataset(self, row: Json) -> _Dataset:
        key = row["pool"], row["objset"]
        if key not in self._datasets:
            self._datasets[key] = _Dataset(len(self._datasets))
        return self._datasets[key]

    def _commit(self, row: Json) -> None:
        parts = dict(row["stages"])
        unknown = parts.pop(_DEVICE_WAIT)
        self._device_waits += unknown > 0
        # no probe covers the rest
        parts["other"] = row["total_ns"] - sum(parts.values())
        dataset = self._dataset(row)
        dataset.kinds[row["kind"]] += 1
        dataset.total.add(row["total_ns"])
        for name, ns in parts.items():
            if ns > 0:
                dataset.stages[name].add(ns)
        if 0 < self._options.slow_ns <= row["total_ns"]:
            self._slow.append(_slow(row, dataset.number, parts))

    def _log_blocks(self) -> int:
        return self._device_waits


def _slow(row: Json, dataset: int, parts: Mapping[str, int]) -> SlowEvent:
    # Python reads a Z from 3.11 on
    at = datetime.fromisoformat(row["time"].replace("Z", "+00:00"))
    wall_ns = round(at.timestamp() * 1_000_000) * 1_000
    return SlowEvent(
        start_ns=_monotonic(wall_ns),
        total_ns=row["total_ns"],
        stage_ns=tuple(parts.get(name, 0) for name in stages.NAMES),
        object=row["object"],
        dataset=dataset,
        pid=row["pid"],
        tid=row["tid"],
        kind=row["kind"],
        comm=row["comm"],
        wall_ns=wall_ns,
    )
