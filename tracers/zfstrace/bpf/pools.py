"""Running traces of pools: the tracers "txg", "throttle", "device" and "arc" of libzfstrace, with
the structures of tracers/libzfstrace/zfstrace_tables.h."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from zfstrace import device, throttle
from zfstrace.bpf.binding import text
from zfstrace.bpf.session import Session
from zfstrace.device import ClassCounts, DeviceCounts
from zfstrace.hist import BUCKETS, Hist, Table
from zfstrace.strict import strict_zip
from zfstrace.throttle import ThrottleCounts, Waits

_u32, _u64 = ctypes.c_uint32, ctypes.c_uint64
_POOL = ctypes.c_char * 256
_COMM = ctypes.c_char * 16
_KINDS = len(throttle.KINDS)
_CLASSES = len(device.CLASSES)


class KernelHist(ctypes.Structure):
    """struct zfstrace_table_hist"""

    _fields_ = (("sum_ns", _u64), ("max_ns", _u64), ("bucket", _u64 * BUCKETS))


class TxgEvent(ctypes.Structure):
    """struct zfstrace_txg: times of CLOCK_MONOTONIC, 0 when not seen; reason is 1 for too much
    dirty data, 2 for a waiter, 0 for none seen."""

    txg: int
    opened: int
    quiescing: int
    quiesced: int
    syncing: int
    synced: int
    last_syncing: int
    zil_sync_ns: int
    delay_ns: int
    delayed: int
    passes: int
    reason: int
    pool: bytes

    _fields_ = (
        ("txg", _u64),
        ("opened", _u64),
        ("quiescing", _u64),
        ("quiesced", _u64),
        ("syncing", _u64),
        ("synced", _u64),
        ("last_syncing", _u64),
        ("zil_sync_ns", _u64),
        ("delay_ns", _u64),
        ("delayed", _u32),
        ("passes", _u32),
        ("reason", _u32),
        ("pad", _u32),
        ("pool", _POOL),
    )


class Waiter(ctypes.Structure):
    """struct zfstrace_waiter"""

    _fields_ = (
        ("count", _u64 * _KINDS),
        ("total_ns", _u64 * _KINDS),
        ("max_ns", _u64 * _KINDS),
        ("dirty_bytes", _u64),
        ("last_start", _u64),
        ("last_end", _u64),
        ("spa", _u64),
        ("latency", KernelHist),
        ("pid", _u32),
        ("used", _u32),
        ("life", _u32),
        ("pad", _u32),
        ("comm", _COMM),
        ("pool", _POOL),
    )


class ThrottleParams(ctypes.Structure):
    """struct zfstrace_throttle_params; 0 = unknown"""

    dirty_data_max: int
    delay_min_dirty_percent: int
    delay_scale: int

    _fields_ = (
        ("dirty_data_max", _u64),
        ("delay_min_dirty_percent", _u64),
        ("delay_scale", _u64),
    )


class IoClass(ctypes.Structure):
    """struct zfstrace_io"""

    _fields_ = (
        ("count", _u64),
        ("bytes", _u64),
        ("active_sum", _u64),
        ("active_count", _u64),
        ("active_max", _u64),
        ("queue", KernelHist),
        ("device", KernelHist),
    )


class VdevSlot(ctypes.Structure):
    """struct zfstrace_vdev"""

    _fields_ = (
        ("guid", _u64),
        ("used", _u64),
        ("pool", _POOL),
        ("classes", IoClass * _CLASSES),
    )


class ArcTable(ctypes.Structure):
    """struct zfstrace_arc"""

    _fields_ = (("waits", KernelHist),)


def _hist(source: KernelHist) -> Hist:
    if not source.sum_ns and not source.max_ns and not source.bucket[0]:
        return Hist()
    buckets = Table.of(bytes(source.bucket))
    # counted from the buckets: the kernel may add meanwhile, and both must agree
    return Hist(buckets.total(), source.sum_ns, source.max_ns, buckets)


class TxgTrace(Session):
    """Transaction groups as they end. The options are Session's."""

    def __init__(self, *, pool: str | None = None, no_fentry: bool = False) -> None:
        super().__init__("txg", pool=pool, no_fentry=no_fentry)

    def ended(self, timeout_ms: int) -> list[TxgEvent]:
        """Waits up to timeout_ms for txgs to end; may return none, also because of a signal. Raises
        TraceError."""
        size = ctypes.sizeof(TxgEvent)
        return [
            TxgEvent.from_buffer_copy(event)
            for event in self.events(timeout_ms)
            if len(event) >= size
        ]


class ThrottleTrace(Session):
    """Waits of transactions by process. The options are Session's."""

    def __init__(
        self,
        *,
        pool: str | None = None,
        pid: int = 0,
        no_fentry: bool = False,
        table_mib: int = 0,
    ) -> None:
        super().__init__("throttle", pool=pool, pid=pid, no_fentry=no_fentry, table_mib=table_mib)
        self._waiters = self.table("waiters", Waiter)
        self._ended = throttle.Ended()
        self._seen = throttle.Seen()
        self._params = self.table("params", ThrottleParams)[0]

    def tell(self, dirty_data_max: int, delay_min_dirty_percent: int, delay_scale: int) -> None:
        """Passes the module's current parameters, 0 = unknown, which distinguish hard waits and
        waits for log data. Does nothing when the trace is closed."""
        if not self._handle:
            return
        self._params.dirty_data_max = dirty_data_max
        self._params.delay_min_dirty_percent = delay_min_dirty_percent
        self._params.delay_scale = delay_scale

    def held_up(self, pool: str, start_ns: int, end_ns: int) -> int:
        """How many processes waited for the pool in a span of CLOCK_MONOTONIC. Misses waits unless
        called often: see throttle.Seen."""
        for waiter in self._waiters:
            if waiter.used:
                self._note(waiter)
        return self._seen.within(pool, start_ns, end_ns)

    def _note(self, waiter: Waiter) -> None:
        self._seen.note(text(waiter.pool), waiter.life, waiter.last_start, waiter.last_end)

    def waits(self) -> list[ThrottleCounts]:
        """The rest first, then the processes, including those that have ended."""
        rest, *others = (
            _waiter(waiter, rest=not i)
            for i, waiter in enumerate(self._waiters)
            if waiter.used or not i
        )
        return [self._ended.rest(rest), *self._ended.last(), *others]

    def release(self, gone: Callable[[str, int], bool]) -> None:
        """Keeps the waits of processes that are gone, by pool and number, and frees their entries.
        Does nothing when the trace is closed. Raises TraceError."""
        for i, waiter in enumerate(self._waiters if self._handle else ()):
            if i and waiter.used and gone(text(waiter.pool), waiter.pid):
                self._ended.add(_waiter(waiter, rest=False))
                self._note(waiter)
                self._seen.end(text(waiter.pool), waiter.life)
                self._check(self._lib.zfstrace_release(self._handle, i))


def _waiter(waiter: Waiter, *, rest: bool) -> ThrottleCounts:
    kinds = {
        name: Waits(waiter.count[k], waiter.total_ns[k], waiter.max_ns[k])
        for k, name in enumerate(throttle.KINDS)
    }
    return ThrottleCounts(
        text(waiter.pool),
        waiter.pid,
        "<others>" if rest else text(waiter.comm),
        rest,
        kinds,
        _hist(waiter.latency),
        waiter.dirty_bytes or None,
        waiter.life,
    )


class DeviceTrace(Session):
    """I/Os by leaf vdev and class. max_vdevs have their own row, the rest is summed."""

    def __init__(
        self,
        *,
        pool: str | None = None,
        max_vdevs: int = 0,
        no_fentry: bool = False,
        table_mib: int = 0,
    ) -> None:
        super().__init__(
            "device", pool=pool, max_slots=max_vdevs, no_fentry=no_fentry, table_mib=table_mib
        )
        self._vdevs = self.table("vdevs", VdevSlot)

    def devices(self) -> list[DeviceCounts]:
        """The rest first, then the vdevs."""
        found = []
        for i, vdev in enumerate(self._vdevs):
            if i and not vdev.used:
                continue
            classes = {name: _class(io) for name, io in strict_zip(device.CLASSES, vdev.classes)}
            found.append(DeviceCounts(text(vdev.pool), vdev.guid, i == 0, classes))
        return found


def _class(io: IoClass) -> ClassCounts:
    if not io.count:
        return ClassCounts()
    return ClassCounts(
        io.count,
        io.bytes,
        _hist(io.queue),
        _hist(io.device),
        io.active_sum if io.active_count else None,
        io.active_max if io.active_count else None,
    )


class ArcTrace(Session):
    """Waits for eviction. The options are Session's."""

    def __init__(self, *, no_fentry: bool = False) -> None:
        super().__init__("arc", no_fentry=no_fentry)
        self._table = self.table("arc", ArcTable)[0]

    def waits(self) -> Hist:
        """All waits since the session began, in ns."""
        return _hist(self._table.waits)
