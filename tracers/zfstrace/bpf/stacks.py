"""A running recording of stacks: the tracer "stacks" of libzfstrace."""

from __future__ import annotations

import ctypes

from zfstrace import recording
from zfstrace.bpf.binding import text
from zfstrace.bpf.session import Session
from zfstrace.recording import StackLosses, StackOptions, StackSum

_u32, _u64 = ctypes.c_uint32, ctypes.c_uint64

# ZFSTRACE_STACKS_* of zfstrace_tables.h
KINDS = {"off-cpu": 0x01, "on-cpu": 0x02, "wakeup": 0x04}
TARGETS = {"fsync": 0x10, "txg-sync": 0x20, "pid": 0x40, "zfs": 0x80}
# the same names in C
_LOSSES = tuple(StackLosses.__dataclass_fields__)


class CStack(ctypes.Structure):
    """struct zfstrace_stack"""

    _fields_ = (
        ("pool", ctypes.c_char * 256),
        ("dev_major", _u32),
        ("dev_minor", _u32),
        ("stage", _u32),
        ("preempted", ctypes.c_bool),
        ("woken", ctypes.c_bool),
        ("in_user", ctypes.c_bool),
        ("comm", ctypes.c_char * 16),
        ("waker_comm", ctypes.c_char * 16),
        ("ns", _u64),
        ("count", _u64),
        ("frame_count", _u32),
        ("waker_count", _u32),
        ("frames", ctypes.POINTER(_u64)),
        ("waker", ctypes.POINTER(_u64)),
    )


class CStackLosses(ctypes.Structure):
    """struct zfstrace_stack_losses"""

    _fields_ = tuple((name, _u64) for name in _LOSSES)


_STACK_FN = ctypes.CFUNCTYPE(None, ctypes.POINTER(CStack), ctypes.c_void_p)


class StackTrace(Session):
    """Records from the constructor to read() or close(). Raises TraceError."""

    def __init__(self, options: StackOptions) -> None:
        super().__init__(
            "stacks",
            pool=options.pool,
            pid=options.pid or 0,
            mode=KINDS[options.kind] | TARGETS[options.target],
        )

    def read(self) -> tuple[list[StackSum], StackLosses]:
        """Ends the recording and returns its sums. Raises TraceError."""
        sums: list[StackSum] = []
        losses = CStackLosses()
        collect = _STACK_FN(lambda one, _: sums.append(_sum(one.contents)))
        self._check(self._lib.zfstrace_stacks(self._handle, collect, None, ctypes.byref(losses)))
        return sums, StackLosses(*(getattr(losses, name) for name in _LOSSES))


def _sum(c: CStack) -> StackSum:
    return StackSum(
        pool=text(c.pool),
        dev=(c.dev_major, c.dev_minor),
        stage=recording.STAGES[c.stage] if c.stage < len(recording.STAGES) else "other",
        comm=text(c.comm),
        frames=tuple(c.frames[: c.frame_count]),
        ns=c.ns,
        count=c.count,
        preempted=c.preempted,
        in_user=c.in_user,
        woken=c.woken,
        waker_comm=text(c.waker_comm),
        waker=tuple(c.waker[: c.waker_count]),
    )
