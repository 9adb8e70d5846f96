"""Simulates the write path of OpenZFS: writers under the throttle, txgs, the log, a vdev queue.

A test instrument: it compares searches and statistics in seconds, where the lab takes hours. It
models the formulas of the kernel (each function names its source, 2.3.9), one disk, one bulk writer
and some log writers; it does not model reads, the ARC, slogs or CPU contention."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from support.simulator.device import MIB, Device, Disk

DEFAULTS: dict[str, int] = {
    "zfs_dirty_data_max": 411 * MIB,
    "zfs_wrlog_data_max": 822 * MIB,
    "zfs_dirty_data_sync_percent": 20,
    "zfs_vdev_async_write_min_active": 2,
    "zfs_vdev_async_write_max_active": 10,
    "zfs_vdev_async_write_active_min_dirty_percent": 30,
    "zfs_vdev_async_write_active_max_dirty_percent": 60,
    "zfs_delay_min_dirty_percent": 60,
    "zfs_delay_scale": 500_000,
    "zfs_txg_timeout": 5,
    "zfs_commit_timeout_pct": 10,
    "zil_slog_bulk": 64 * MIB,
    "zfs_vdev_max_active": 1000,
}

_BLOCK = 128 << 10
# zfs_vdev_aggregation_limit
_AGGREGATE = MIB
_SYNC_WRITES = 10
_DELAY_MAX = 0.1
# zfs_vdev_def_queue_depth, zfs_vdev_queue_depth_pct
_SLOTS, _SLOTS_PERCENT = 32, 1000


@dataclass(frozen=True)
class Workload:
    """bulk_bytes: of one write() of the bulk writer, 0 for none; bulk_bytes_per_s: as fast as
    it would write by itself. log_writers: each writes log_bytes, fsyncs, and pauses for think_s."""

    bulk_bytes: int = MIB
    bulk_bytes_per_s: float = 200 * MIB
    log_writers: int = 1
    log_bytes: int = 8192
    think_s: float = 0.0


@dataclass(frozen=True)
class Costs:
    """Of the machine. The defaults are those of the recorded guest, whose processors are
    emulated on a busy host (docs/search.md).

    fsync_s, write_s: of an fsync, of a small write(), beside the disk's time. spread: sigma of
    the logarithm of all of these. issue_bytes_per_s: at which blocks are checksummed; request_s:
    to take up what a disk has done. cache_bytes: the dirty data above which the ARC turns
    writers away. A sync ends in sync_writes writes of sync_bytes one after the other, pass_s of
    work before each, then a flush, the labels, a flush.
    """

    fsync_s: float = 0.004
    issue_bytes_per_s: float = 150 * MIB
    request_s: float = 0.0032
    cache_bytes: float = 256e6
    spread: float = 0.6
    write_s: float = 0.001
    sync_writes: int = 6
    sync_bytes: int = 32 << 10
    pass_s: float = 0.008


@dataclass
class _Lwb:
    """A log block: who waits for it, since when."""

    members: list[tuple[float, int]] = field(default_factory=list)
    issued: float = 0.0
    written: float = 0.0
    durable: bool = False


class WritePath:
    """A pool under load with its own clock, which run() advances."""

    def __init__(
        self,
        workload: Workload | None = None,
        device: Device | None = None,
        costs: Costs | None = None,
        parameters: Mapping[str, int] | None = None,
        seed: int = 0,
    ) -> None:
        self._load, self._costs = workload or Workload(), costs or Costs()
        self._chance = random.Random(seed)
        self._disk = Disk(device or Device(), self._chance)
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[..., None], object]] = []
        self._number = 0
        self.syncs: list[tuple[float, float, int]] = []
        # the end of the last sync before begin()
        self._synced_at: float | None = None
        self._p: dict[str, int] = {}
        self.apply({**DEFAULTS, **(parameters or {})})
        # dirty data and txgs
        self.dirty = self._wrlog = 0
        self._open = self._open_log = 0
        self._stalled: list[tuple[Callable[..., None], object]] = []
        self._syncing: int | None = None
        self._sync_log = self._sync_bytes = 0
        self._sync_start = 0.0
        self._left = self._flying = 0
        self._last_wakeup = 0.0
        self._blocked: deque[tuple[Callable[..., None], object]] = deque()
        # vdev queue
        self._queued = self._active = self._log_active = 0
        self._slots = _SLOTS
        self._issuing = False
        self._cpu = 0.0
        self._chunk = max(_BLOCK, int(self._costs.issue_bytes_per_s / 400) // _BLOCK * _BLOCK)
        self._log_queue: deque[tuple[int, Callable[..., None], object]] = deque()
        # log
        self._lwbs: deque[_Lwb] = deque()
        self._lwb: _Lwb | None = None
        # when each log writer's last write() began
        self._called = [0.0] * self._load.log_writers
        self._last_latency = 0.01
        self.begin()
        for writer in range(self._load.log_writers):
            self._at(self._chance.random() * 0.01, self._log_write, writer)
        if self._load.bulk_bytes:
            self._at(0.0, self._bulk_write, None)
        self._timer()

    def apply(self, parameters: Mapping[str, int]) -> None:
        """As a write to the module's parameters: it acts from now on."""
        self._p.update(parameters)
        p = self._p
        self._max = p["zfs_dirty_data_max"]
        self._delay_from = self._max * p["zfs_delay_min_dirty_percent"] // 100
        self._log_max = p["zfs_wrlog_data_max"]
        self._log_from = self._log_max * p["zfs_delay_min_dirty_percent"] // 100
        self._kick = self._max * p["zfs_dirty_data_sync_percent"] // 100
        self._log_kick = self._log_max * (p["zfs_dirty_data_sync_percent"] + 10) // 200
        self._low = self._max * p["zfs_vdev_async_write_active_min_dirty_percent"] // 100
        self._high = self._max * p["zfs_vdev_async_write_active_max_dirty_percent"] // 100
        self._scale = p["zfs_delay_scale"] * 1e-9
        self._least = p["zfs_vdev_async_write_min_active"]
        self._most = p["zfs_vdev_async_write_max_active"]

    def run(self, seconds: float) -> dict[str, float]:
        """Lets time (more than 0) pass; its metrics: as of a block of a session (so
        write.throughput is what was synced, from txg to txg), and write.accepted (bytes/s that
        write() took), txg.dirty (bytes), txg.bandwidth (bytes/s while syncing), commit.max (ns, of
        a write() and its fsync)."""
        self.begin()
        self.advance(seconds)
        return self.metrics(seconds)

    def advance(self, seconds: float) -> None:
        """Lets time pass within what begin() began and metrics() ends."""
        end, events = self.now + seconds, self._events
        while events and events[0][0] <= end:
            self.now, _, what, argument = heapq.heappop(events)
            what(argument)
        self.now = end

    def block(
        self, parameters: Mapping[str, int], seconds: float = 20.0, settle: float = 10.0
    ) -> dict[str, float]:
        """Applies, lets it settle, and measures."""
        self.apply({**DEFAULTS, **parameters})
        self.run(settle)
        return self.run(seconds)

    def _at(self, when: float, what: Callable[..., None], argument: object) -> None:
        self._number += 1
        heapq.heappush(self._events, (when, self._number, what, argument))

    # Writers and the throttle

    def _assign(self, then: Callable[..., None], argument: object) -> None:
        """dmu_tx_assign(): waits over the limit, else for the delay (dmu_tx.c, dmu_tx_wait());
        where the ARC holds too much dirty data, until a txg is synced (arc.c,
        arc_tempreserve_space())."""
        if self.dirty > self._costs.cache_bytes and self._syncing is not None:
            self._stalls += 1
            self._stalled.append((then, argument))
            return
        if self.dirty >= self._max:
            self._over += 1
            self._blocked.append((then, argument))
            return
        span = self.delay()
        if not span:
            then(argument)
            return
        wakeup = max(self.now, self._last_wakeup) + span
        self._last_wakeup = wakeup
        self._delays += 1
        self._at(wakeup, then, argument)

    def delay(self) -> float:
        """Seconds (dmu_tx.c, dmu_tx_delay())."""
        span = 0.0
        if self.dirty > self._delay_from:
            span = self._scale * (self.dirty - self._delay_from) / (self._max - self.dirty)
        if self._wrlog >= self._log_max:
            return _DELAY_MAX
        if self._wrlog > self._log_from:
            log = self._wrlog - self._log_from
            span = max(span, self._scale * log / (self._log_max - self._wrlog))
        return min(span, _DELAY_MAX)

    def _bulk_write(self, _: object) -> None:
        self._assign(self._bulk_dirty, None)

    def _bulk_dirty(self, _: object) -> None:
        size = self._load.bulk_bytes
        self.written += size
        self._dirtied(size)
        self._at(self.now + size / self._load.bulk_bytes_per_s, self._bulk_write, None)

    def _log_write(self, writer: int) -> None:
        self._called[writer] = self.now
        self._assign(self._log_dirty, writer)

    def _log_dirty(self, writer: int) -> None:
        size = self._load.log_bytes
        self.written += size
        self._wrlog += size
        self._open_log += size
        self._dirtied(size)
        self._at(self.now + self._jitter(self._costs.write_s), self._fsync, writer)

    def _dirtied(self, size: int) -> None:
        """dsl_pool_dirty_space(), dsl_pool_wrlog_count() (dsl_pool.c)."""
        self.dirty += size
        self._open += size
        if self._syncing is None and self._kicked():
            self._sync()

    def _kicked(self) -> bool:
        return self._open > self._kick or self._open_log > self._log_kick

    def _undirtied(self, size: int) -> None:
        self.dirty -= size
        while self._blocked and self.dirty < self._max:
            # they wake together and dirty what they have; the last ones may find it full again
            then, argument = self._blocked.popleft()
            self._assign(then, argument)

    # Transaction groups (txg.c)

    def _timer(self, _: object = None) -> None:
        """txg_sync_thread(): zfs_txg_timeout since the last sync began."""
        due = self._sync_start + self._p["zfs_txg_timeout"]
        if self._syncing is None and self.now >= due - 1e-9 and self._open:
            self._sync()
        due = max(due, self.now + 0.05)
        self._at(min(due, self.now + 1.0), self._timer, None)

    def _sync(self) -> None:
        """The open txg is quiesced when the sync thread is free, not before (txg_kick())."""
        self._syncing, self._sync_log = self._open, self._open_log
        self._sync_bytes = self._syncing
        self._open = self._open_log = 0
        self._sync_start = self.now
        self._left, self._flying, self._slots = self._syncing, 0, _SLOTS
        self._issue_blocks()

    def _issue_blocks(self, _: object = None) -> None:
        """A block is checksummed, gets a slot of the allocation throttle and goes to the vdev
        queue (zio.c, zio_dva_throttle(); metaslab.c, metaslab_class_throttle_reserve())."""
        self._issuing = False
        size = min(self._chunk, self._left, self._slots * _BLOCK - self._flying)
        if size > 0:
            self._left -= size
            self._flying += size
            self._queued += size
            self._pump()
            self._issue_next(size)

    def _issue_next(self, size: int) -> None:
        if not self._issuing and self._left:
            self._issuing = True
            self._work(size / self._costs.issue_bytes_per_s)
            self._at(self._cpu, self._issue_blocks, None)

    def _work(self, span: float) -> None:
        """Of the processors, which do one thing after the other."""
        self._cpu = max(self._cpu, self.now) + self._jitter(span)

    def _written(self, size: int) -> None:
        self._work(self._costs.request_s)
        self._active -= 1
        self._flying -= size
        # metaslab_group_increment_qdepth()
        most = self._most * _SLOTS_PERCENT // 100
        self._slots = max(self._slots, min(most, self._slots + size // _BLOCK))
        self._undirtied(size)
        self._pump()
        self._issue_next(min(size, self._chunk))
        if not self._left and not self._flying:
            self._at(self.now + self._jitter(self._costs.pass_s), self._metadata, 0)

    def _metadata(self, done: int) -> None:
        """What follows the data: passes over ever less, then the labels (spa_sync())."""
        if done < self._costs.sync_writes:
            when = self._disk.write(self.now, self._costs.sync_bytes)
            self._at(when + self._jitter(self._costs.pass_s), self._metadata, done + 1)
            return
        flushed = self._disk.flush(self.now)
        labels = self._disk.write(flushed, 4096)
        self._at(self._disk.flush(labels), self._synced, None)

    def _synced(self, _: object) -> None:
        self.syncs.append((self.now, self.now - self._sync_start, self._sync_bytes))
        self._wrlog -= self._sync_log
        self._syncing = None
        if self._kicked() or (self._stalled and self._open):
            self._sync()
        stalled, self._stalled = self._stalled, []
        for then, argument in stalled:
            self._assign(then, argument)

    # The vdev queue (vdev_queue.c)

    def depth(self) -> int:
        """vdev_queue_max_async_writes()."""
        if self.dirty < self._low:
            return self._least
        if self.dirty > self._high:
            return self._most
        slope = (self.dirty - self._low) * (self._most - self._least)
        return int(slope / (self._high - self._low)) + self._least

    def _pump(self) -> None:
        """vdev_queue_io_to_issue(), vdev_queue_aggregate()."""
        while self._log_queue and self._log_active < _SYNC_WRITES:
            size, then, argument = self._log_queue.popleft()
            self._log_active += 1
            self._at(self._disk.write(self.now, size), then, argument)
        while self._queued > 0 and self._active < self.depth():
            size = min(_AGGREGATE, self._queued)
            self._queued -= size
            self._active += 1
            self._at(self._disk.write(self.now, size), self._written, size)

    # The log (zil.c)

    def _fsync(self, writer: int) -> None:
        """zil_commit(): into the open log block; alone it is issued at once."""
        if self._lwb is None:
            self._lwb = _Lwb()
            wait = 0.0
            if self._load.log_writers > 1:
                wait = self._last_latency * max(1, self._p["zfs_commit_timeout_pct"]) / 100
            self._at(self.now + wait, self._issue_lwb, self._lwb)
        self._lwb.members.append((self.now, writer))

    def _issue_lwb(self, lwb: _Lwb) -> None:
        self._lwb = None
        lwb.issued = self.now
        self._lwbs.append(lwb)
        size = -(-(len(lwb.members) * self._load.log_bytes + 192) // 4096) * 4096
        self._log_queue.append((size, self._log_written, lwb))
        self._pump()

    def _log_written(self, lwb: _Lwb) -> None:
        self._log_active -= 1
        lwb.written = self.now
        self._at(self._disk.flush(self.now), self._log_flushed, lwb)
        self._pump()

    def _log_flushed(self, lwb: _Lwb) -> None:
        """Log blocks are done in order: each waits for those before it."""
        lwb.durable = True
        self.waits["log_write"] += (lwb.written - lwb.issued) * len(lwb.members)
        self.waits["flush"] += (self.now - lwb.written) * len(lwb.members)
        while self._lwbs and self._lwbs[0].durable:
            first = self._lwbs.popleft()
            self._last_latency = (self._last_latency * 7 + self.now - first.issued) / 8
            for since, writer in first.members:
                done = self.now + self._jitter(self._costs.fsync_s)
                self.fsyncs.append(done - since)
                self.commits.append(done - self._called[writer])
                self._at(done + self._load.think_s, self._log_write, writer)

    def _jitter(self, median: float) -> float:
        return median * self._chance.lognormvariate(0.0, self._costs.spread)

    def begin(self) -> None:
        """Begins what metrics() counts: fsyncs, and commits, which include the write() before it (s
        each), syncs (end, span, bytes), written (bytes that write() took), waits (s of all fsyncs
        by stage)."""
        self.fsyncs: list[float] = []
        self.commits: list[float] = []
        if self.syncs:
            self._synced_at = self.syncs[-1][0]
        self.syncs = []
        self.waits = {"log_write": 0.0, "flush": 0.0}
        self.written = self._delays = self._over = self._stalls = 0

    def metrics(self, seconds: float) -> dict[str, float]:
        """Of the seconds since begin(); see run()."""
        out = {
            "fsync.rate": len(self.fsyncs) / seconds,
            "write.accepted": self.written / seconds,
            "write.throughput": self.written / seconds,
            "throttle.delays": (self._delays + self._over + self._stalls) / seconds,
        }
        if self.syncs:
            ends, spans, sizes = zip(*self.syncs, strict=True)
            out["txg.sync"] = sorted(spans)[len(spans) // 2] * 1e9
            out["txg.dirty"] = sorted(sizes)[len(sizes) // 2]
            out["txg.bandwidth"] = sum(sizes) / sum(spans)
            if self._synced_at is not None:
                out["write.throughput"] = sum(sizes) / (ends[-1] - self._synced_at)
        if self.fsyncs:
            fsyncs = sorted(self.fsyncs)
            for name, share in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999)):
                out[f"fsync.{name}"] = fsyncs[round(share * (len(fsyncs) - 1))] * 1e9
            out["fsync.mean"] = sum(fsyncs) / len(fsyncs) * 1e9
            out["commit.max"] = max(self.commits) * 1e9
        return out
