"""Traces made of what a D script prints, one JSON object per line (docs/dtrace-json.md)."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime

from zfs_freebsd.dtrace import probes, scripts
from zfs_freebsd.dtrace.process import Dtrace
from zfstrace import device, stages, throttle
from zfstrace.arc import ArcState
from zfstrace.device import ClassCounts, DeviceCounts
from zfstrace.errors import TraceError
from zfstrace.hist import Hist, index
from zfstrace.kstat.txgs import Completed, Source, timer
from zfstrace.throttle import ThrottleCounts, Waits
from zfstrace.txg import REASONS, Txg
from zfstrace.types import DatasetCounts, FsyncOptions, Json, Losses, Probe, SlowEvent

# A script says how it is twice a second. What it prints then, sums included, may be 0.2 s old.
_STATE_S = 10.0
_PRINT_S = 0.25
# The stage of a D script that is log_write, flush or wakeup.
_DEVICE_WAIT = "device_wait"
_LIMITS = ("zfs_dirty_data_max", "zfs_delay_min_dirty_percent", "zfs_delay_scale")

Parameter = Callable[[str], int | None]


class Times:
    """A histogram that grows; values in ns."""

    def __init__(self) -> None:
        self._count = self._sum = self._max = 0
        self._buckets: dict[int, int] = {}

    def add(self, ns: int) -> None:
        bucket = index(ns)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1
        self._count += 1
        self._sum += ns
        self._max = max(self._max, ns)

    def hist(self) -> Hist:
        """As of now."""
        return Hist(self._count, self._sum, self._max, dict(self._buckets))


class Buckets:
    """A histogram as a script prints it: by bucket the count, the sum and the greatest in ns, each
    time all of it."""

    def __init__(self) -> None:
        self._rows: dict[int, tuple[int, int, int]] = {}

    def take(self, row: Json) -> None:
        self._rows[row["bucket"]] = row["count"], row["total_ns"], row["max_ns"]

    def hist(self) -> Hist:
        """As of the last print."""
        rows = self._rows.values()
        return Hist(
            sum(count for count, _, _ in rows),
            sum(total for _, total, _ in rows),
            max((most for _, _, most in rows), default=0),
            {bucket: count for bucket, (count, _, _) in self._rows.items()},
        )


class Scripted(ABC):
    """What the traces have in common. Runs from the constructor to close(); raises TraceError."""

    def __init__(self, tracer: str, script: str, *args: str) -> None:
        self._probes = probes.survey((tracer,))
        self._state: Json = {}
        self._state_s = 0.0  # when it came
        self._unread = 0
        self.closed = False
        self._dtrace = Dtrace(scripts.script(script), *args)

    def take(self) -> None:
        """Reads what has come, so that it does not pile up; call it every second. Raises
        TraceError."""
        self._read(0)

    def refresh(self) -> None:
        """Waits until the script has printed what there is now. Raises TraceError."""
        begun = time.monotonic()
        while self._state_s < begun + _PRINT_S:
            self._read(20)
            if time.monotonic() > begun + _STATE_S:
                raise TraceError(f"{self._dtrace.name} has said nothing for {_STATE_S:g} s")

    def losses(self) -> Losses:
        """start is what dtrace dropped and what faults of the script cut short, return_ commits
        whose end was not seen."""
        return Losses(
            start=self._dtrace.drops + self._unread + self._state.get("errors", 0),
            return_=self._state.get("lost", 0),
            log_block=self._log_blocks(),
        )

    def probes(self) -> tuple[Probe, ...]:
        return self._probes

    def close(self) -> None:
        """May be called again."""
        self.closed = True
        with suppress(TraceError):
            self._dtrace.finish()

    def _read(self, timeout_ms: int) -> None:
        for line in self._dtrace.lines(timeout_ms):
            try:
                row = json.loads(line)
                if row["type"] == "trace_state":
                    self._state, self._state_s = row, time.monotonic()
                else:
                    self._on_row(row)
            except (ValueError, KeyError, TypeError):
                self._unread += 1  # cut short by a drop

    @abstractmethod
    def _on_row(self, row: Json) -> None:
        """A line of the script; KeyError, TypeError and ValueError mean that it is broken."""

    def _log_blocks(self) -> int:
        """Waits whose log block was not known."""
        return 0


class _Dataset:
    """Commits of one dataset so far. number is its place among the datasets."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.kinds = dict.fromkeys(stages.KINDS, 0)
        self.total = Times()
        self.stages = {name: Times() for name in stages.NAMES}
        self.bypassed = Hist()

    def counts(self, pool: str, objset: int) -> DatasetCounts:
        commits, bypassed = self.total.hist(), self.bypassed
        kinds = self.kinds | {"other": self.kinds["other"] + bypassed.count}
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
            stages=tuple(times.hist() for times in self.stages.values()),
        )


class ScriptedFsyncs(Scripted):
    """Implements zfstrace.host.FsyncSession. objset is that of the dataset wanted, 0 for all. A
    trace of slow operations has a throttle trace beside it, unless that does not run.

    An operation is a call of zil_commit(): what comes before it (write-back) is not in it. Calls
    that went past the log are of the kind ``other``, and of all processes; only their number,
    sum and maximum are known.
    """

    def __init__(self, options: FsyncOptions, objset: int, parameter: Parameter) -> None:
        self.throttle: ScriptedThrottle | None = None
        self._options, self._objset = options, objset
        self._datasets: dict[tuple[str, int], _Dataset] = {}
        self._slow: list[SlowEvent] = []
        self._device_waits = 0
        super().__init__("fsync", "zilslower-json.d", "0", *_pool(options.pool))
        if options.slow_ns:
            with suppress(TraceError):  # its field is null then, the rest of the trace goes on
                self.throttle = ScriptedThrottle(options.pool, None, parameter)

    def take(self) -> None:
        super().take()
        if self.throttle:
            try:
                self.throttle.take()
            except TraceError:
                self.throttle.close()
                self.throttle = None

    def close(self) -> None:
        if self.throttle:
            self.throttle.close()
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
            # no distribution: they are as fast as they are many, each counts as the mean
            buckets = {index(total // count): count}
            self._dataset(row).bypassed = Hist(count, total, row["max_ns"], buckets)
        elif row["type"] == "slow_fsync" and self._options.pid in (None, row["pid"]):
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
        # what the stages leave is in no probe's reach
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
    wall_ns = round(datetime.fromisoformat(row["time"]).timestamp() * 1_000_000) * 1_000
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
    )


class ScriptedThrottle(Scripted):
    """Implements zfstrace.host.ThrottleSession. The kind of a wait is told by the limits as of
    the last take()."""

    def __init__(self, pool: str | None, pid: int | None, parameter: Parameter) -> None:
        self._pid, self._parameter = pid, parameter
        self._waiters: dict[tuple[str, int], _Waiter] = {}
        self._seen = throttle.Seen()
        self._last_told = "dirty_delay"
        self._learn_limits()
        super().__init__("throttle", "zfsthrottle-json.d", *_pool(pool))

    def take(self) -> None:
        """Reads the parameters as well: an administrator or a tuner may change them."""
        super().take()
        self._learn_limits()

    def _learn_limits(self) -> None:
        self._limits = tuple(self._parameter(name) or 0 for name in _LIMITS)

    def waits(self) -> list[ThrottleCounts]:
        return [waiter.counts(*key) for key, waiter in self._waiters.items()]

    def held_up(self, pool: str, start_ns: int, end_ns: int) -> int:
        """How many processes waited for the pool in a span of CLOCK_MONOTONIC and have done so."""
        with suppress(TraceError):  # its own reader is told
            self._read(0)
        return self._seen.within(pool, start_ns, end_ns)

    def _on_row(self, row: Json) -> None:
        if row["type"] != "throttle_wait" or self._pid not in (None, row["pid"]):
            return
        end = _monotonic(row["wall_ns"])
        self._seen.note(row["pool"], row["pid"], end - row["ns"], end)
        waiter = self._waiters.setdefault((row["pool"], row["pid"]), _Waiter(row["comm"]))
        waiter.add(self._kind(row), row["ns"], row["dirty_bytes"])

    def _kind(self, row: Json) -> str:
        """Which limit it was. dmu_tx_delay() (module/zfs/dmu_tx.c) sleeps for dirty data or for
        log data, whichever is longer; the first can be computed again. A wait without a sleep and
        with little dirty data may be either: it goes with the one before."""
        dirty_max, percent, scale = self._limits
        dirty, sleep = row["dirty_bytes"], row["delay_ns"]
        if row["dirty_wait"] is None:
            return "unknown"
        if not row["dirty_wait"]:
            return "txg_wait"
        if not dirty_max:
            return "dirty_delay"
        if dirty >= dirty_max:
            return "dirty_hard"
        least = dirty_max // 100 * percent
        if not sleep:
            return "dirty_delay" if dirty > least else self._last_told
        ours = scale * (dirty - least) // (dirty_max - dirty) if dirty > least else 0
        # dirty data moved a little in between
        self._last_told = "wrlog_delay" if sleep // 2 > ours else "dirty_delay"
        return self._last_told


class _Waiter:
    """Waits of one process on one pool so far."""

    def __init__(self, comm: str) -> None:
        self._comm = comm
        self._kinds = {kind: Waits() for kind in throttle.KINDS}
        self._latency = Times()
        self._dirty: int | None = None

    def add(self, kind: str, ns: int, dirty_bytes: int | None) -> None:
        old = self._kinds[kind]
        self._kinds[kind] = Waits(old.count + 1, old.total_ns + ns, max(old.max_ns, ns))
        self._latency.add(ns)
        self._dirty = dirty_bytes

    def counts(self, pool: str, pid: int) -> ThrottleCounts:
        return ThrottleCounts(
            pool, pid, self._comm, False, dict(self._kinds), self._latency.hist(), self._dirty
        )


class ScriptedDevices(Scripted):
    """Implements zfstrace.host.DeviceSession. I/Os at the device are not counted."""

    def __init__(self, pool: str | None) -> None:
        self._vdevs: dict[tuple[str, int], dict[str, _Class]] = {}
        super().__init__("device", "zfsdevice-json.d", *_pool(pool))

    def devices(self) -> list[DeviceCounts]:
        return [
            DeviceCounts(
                pool, guid, False, {name: io.counts() for name, io in sorted(classes.items())}
            )
            for (pool, guid), classes in self._vdevs.items()
        ]

    def _on_row(self, row: Json) -> None:
        if row["type"] != "device_times":
            return
        number = row["class"]
        name = device.CLASSES[number] if 0 <= number < len(device.CLASSES) else "unknown"
        classes = self._vdevs.setdefault((row["pool"], row["guid"]), {})
        classes.setdefault(name, _Class()).take(row)


class _Class:
    """I/Os of one class on one vdev so far."""

    def __init__(self) -> None:
        self._parts = {"queue": Buckets(), "device": Buckets()}
        self._sizes: dict[int, int] = {}

    def take(self, row: Json) -> None:
        self._parts[row["part"]].take(row)
        if row["part"] == "device":
            self._sizes[row["bucket"]] = row["bytes"]

    def counts(self) -> ClassCounts:
        hists = {part: buckets.hist() for part, buckets in self._parts.items()}
        return ClassCounts(
            count=hists["device"].count,
            size=sum(self._sizes.values()),
            queue=hists["queue"],
            device=hists["device"],
        )


class ScriptedTxgs(Scripted):
    """Implements zfstrace.host.TxgSession; what only the kstat knows comes from source."""

    def __init__(self, pool: str | None, source: Source) -> None:
        self._completed = Completed(source)
        self._source = source
        super().__init__("txg", "txgstate-json.d", *_pool(pool))

    def poll(self, timeout_ms: int) -> list[Txg]:
        self._read(min(timeout_ms, 100) if self._completed.waiting else timeout_ms)
        return self._completed.ready()

    def _on_row(self, row: Json) -> None:
        # one of which the sync was not seen from its beginning is left out
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


class ScriptedArc(Scripted):
    """Implements zfstrace.host.ArcSession: the arcstats, and the waits for eviction."""

    def __init__(self, stats: Callable[[], dict[str, int]]) -> None:
        self._stats = stats
        self._waits = Times()
        super().__init__("arc", "arcstate-json.d")

    def state(self) -> ArcState:
        blind = any(probe.required and probe.missing for probe in self._probes)
        return ArcState(self._stats(), None if blind else self._waits.hist())

    def _on_row(self, row: Json) -> None:
        if row["type"] == "arc_wait":
            self._waits.add(row["ns"])


def _pool(name: str | None) -> tuple[str, ...]:
    """As the last argument of a script."""
    return () if name is None else (name,)


def _monotonic(wall_ns: int) -> int:
    """A moment of the wall clock on CLOCK_MONOTONIC: dtrace's timestamp is neither."""
    return wall_ns - time.time_ns() + time.monotonic_ns()
