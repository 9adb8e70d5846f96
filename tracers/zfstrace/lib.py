"""The binding of libzfstrace.so: tracers/libzfstrace/zfstrace.h in ctypes."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from pathlib import Path
from types import TracebackType

from zfstrace import errors, stages
from zfstrace.hist import BUCKETS, Hist
from zfstrace.types import DatasetCounts, Losses, Probe, SlowEvent, Survey

ABI = 2
FILE = "libzfstrace.so"
HOW = ("missing", "fentry", "kprobe", "tracepoint", "found")

_STAGES = len(stages.NAMES)
_KINDS = len(stages.KINDS)


class _Opts(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("pid", ctypes.c_uint32),
        ("max_datasets", ctypes.c_uint32),
        ("slow_ns", ctypes.c_uint64),
        ("slow_buffer", ctypes.c_uint32),
        ("objset_dev", ctypes.c_uint32),
        ("pool", ctypes.c_char_p),
        ("objset", ctypes.c_uint64),
        ("no_fentry", ctypes.c_bool),
        ("mode", ctypes.c_uint32),
    )


class _Probe(ctypes.Structure):
    _fields_ = (
        ("tracer", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("symbol", ctypes.c_char_p),
        ("how", ctypes.c_int32),
        ("required", ctypes.c_bool),
        ("cost", ctypes.c_char_p),
        ("why", ctypes.c_char_p),
    )


class CHist(ctypes.Structure):
    """struct zfstrace_hist"""

    _fields_ = (
        ("count", ctypes.c_uint64),
        ("sum_ns", ctypes.c_uint64),
        ("max_ns", ctypes.c_uint64),
        ("bucket", ctypes.c_uint64 * BUCKETS),
    )


class _Dataset(ctypes.Structure):
    _fields_ = (
        ("pool", ctypes.c_char * 256),
        ("objset", ctypes.c_uint64),
        ("dev_major", ctypes.c_uint32),
        ("dev_minor", ctypes.c_uint32),
        ("rest", ctypes.c_bool),
        ("commits", ctypes.c_uint64),
        ("errors", ctypes.c_uint64),
        ("no_zil", ctypes.c_uint64),
        ("kinds", ctypes.c_uint64 * _KINDS),
        ("total", CHist),
        ("stages", CHist * _STAGES),
    )


class _Losses(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in (
            "start",
            "return_",
            "event",
            "log_block",
            "overflow",
            "unfinished",
            "skipped",
        )
    )


class _Slow(ctypes.Structure):
    _fields_ = (
        ("start_ns", ctypes.c_uint64),
        ("total_ns", ctypes.c_uint64),
        ("stage_ns", ctypes.c_uint64 * _STAGES),
        ("object", ctypes.c_uint64),
        ("dataset", ctypes.c_uint32),
        ("pid", ctypes.c_uint32),
        ("tid", ctypes.c_uint32),
        ("kind", ctypes.c_uint32),
        ("comm", ctypes.c_char * 16),
    )


_SLOW_FN = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Slow), ctypes.c_void_p)

_PROTOTYPES = {
    "zfstrace_abi": (ctypes.c_int, ()),
    "zfstrace_stage_name": (ctypes.c_char_p, (ctypes.c_uint,)),
    "zfstrace_kind_name": (ctypes.c_char_p, (ctypes.c_uint,)),
    "zfstrace_open": (
        ctypes.c_int,
        (ctypes.POINTER(_Opts), ctypes.POINTER(ctypes.c_void_p)),
    ),
    "zfstrace_close": (None, (ctypes.c_void_p,)),
    "zfstrace_error": (ctypes.c_char_p, (ctypes.c_void_p,)),
    "zfstrace_probe": (
        ctypes.c_bool,
        (ctypes.c_void_p, ctypes.c_uint, ctypes.POINTER(_Probe)),
    ),
    "zfstrace_survey": (ctypes.c_int, (ctypes.POINTER(ctypes.c_void_p),)),
    "zfstrace_layout": (ctypes.c_char_p, (ctypes.c_void_p,)),
    "zfstrace_hist_index": (ctypes.c_uint, (ctypes.c_uint64,)),
    "zfstrace_hist_low": (ctypes.c_uint64, (ctypes.c_uint,)),
    "zfstrace_hist_quantile": (ctypes.c_uint64, (ctypes.POINTER(CHist), ctypes.c_uint)),
    "zfstrace_refresh": (ctypes.c_int, (ctypes.c_void_p,)),
    "zfstrace_datasets": (ctypes.c_uint, (ctypes.c_void_p,)),
    "zfstrace_dataset": (ctypes.POINTER(_Dataset), (ctypes.c_void_p, ctypes.c_uint)),
    "zfstrace_losses": (None, (ctypes.c_void_p, ctypes.POINTER(_Losses))),
    "zfstrace_poll": (
        ctypes.c_int,
        (ctypes.c_void_p, ctypes.c_int, _SLOW_FN, ctypes.c_void_p),
    ),
}


def find_library() -> str:
    """The path or name of libzfstrace.so: $ZFSTUNE_LIB, else that of the checkout,
    of the installation, or of the system. Raises LibraryMissing."""
    named = os.environ.get("ZFSTUNE_LIB")
    if named:
        if Path(named).exists():
            return named
        raise errors.LibraryMissing(
            f"cannot trace, ZFSTUNE_LIB names {named}, which does not exist, unset or correct it"
        )
    for path in (
        Path(__file__).resolve().parents[1] / "libzfstrace" / FILE,
        Path(sys.prefix) / "lib/zfstune" / FILE,
    ):
        if path.exists():
            return str(path)
    # ctypes.util starts ldconfig or a compiler: last, and loaded only now.
    import ctypes.util

    found = ctypes.util.find_library("zfstrace")
    if found:
        return found
    raise errors.LibraryMissing(
        f"cannot trace, {FILE} is not built or not installed, run `make` in the checkout "
        "or set ZFSTUNE_LIB to it"
    )


def load(path: str | None = None) -> ctypes.CDLL:
    """The library with its functions typed. Raises LibraryMissing when it cannot be
    loaded or is of another version than this package."""
    path = path or find_library()
    try:
        # use_errno is not wanted: errors come as negative return values
        lib = ctypes.CDLL(path)
        for name, (result, arguments) in _PROTOTYPES.items():
            function = getattr(lib, name)
            function.restype = result
            function.argtypes = arguments
    except (OSError, AttributeError) as error:
        reason = str(error).replace("\n", " ")
        raise errors.LibraryMissing(
            f"cannot trace, {path} does not load ({reason}), build it again with `make`"
        ) from None
    abi = lib.zfstrace_abi()
    names = tuple(_text(lib.zfstrace_stage_name(i)) for i in range(_STAGES))
    kinds = tuple(_text(lib.zfstrace_kind_name(i)) for i in range(_KINDS))
    if abi != ABI or names != stages.NAMES or kinds != stages.KINDS:
        raise errors.LibraryMissing(
            f"cannot trace, {path} has ABI {abi} and this zfstune needs {ABI}, "
            "install both from one version"
        )
    return lib


def _text(value: bytes | None) -> str:
    return value.decode("utf-8", "replace") if value else ""


def _error(code: int, message: str) -> errors.TraceError:
    message = message or f"cannot trace, {os.strerror(-code)}"
    if code in (-errno.EPERM, -errno.EACCES):
        return errors.NoPrivilege(message)
    if code == -errno.ENOENT:
        return errors.NoZfs(message)
    if code in (-errno.ENOTSUP, -errno.EOPNOTSUPP, -errno.ENOSYS):
        return errors.NotSupported(message)
    return errors.TraceError(message)


def _probes(lib: ctypes.CDLL, handle: ctypes.c_void_p) -> tuple[Probe, ...]:
    found: list[Probe] = []
    probe = _Probe()
    while lib.zfstrace_probe(handle, len(found), ctypes.byref(probe)):
        found.append(
            Probe(
                _text(probe.name),
                _text(probe.symbol),
                HOW[probe.how] if 0 <= probe.how < len(HOW) else "missing",
                probe.required,
                _text(probe.cost),
                _text(probe.why),
                _text(probe.tracer),
            )
        )
    return tuple(found)


def survey() -> Survey:
    """Which probes this kernel has; nothing is attached. Raises TraceError."""
    lib = load()
    handle = ctypes.c_void_p()
    code = lib.zfstrace_survey(ctypes.byref(handle))
    try:
        probes = _probes(lib, handle) if handle else ()
        if code < 0 and not probes:
            raise _error(code, _text(lib.zfstrace_error(handle)) if handle else "")
        return Survey(probes, _text(lib.zfstrace_layout(handle)))
    finally:
        if handle:
            lib.zfstrace_close(handle)


def _hist(source: CHist) -> Hist:
    if not source.count:
        return Hist()
    # a slice is one call; indexing a ctypes array 1216 times is a thousand
    buckets = {i: n for i, n in enumerate(source.bucket[:]) if n}
    return Hist(source.count, source.sum_ns, source.max_ns, buckets)


def _counts(source: _Dataset) -> DatasetCounts:
    return DatasetCounts(
        _text(source.pool),
        source.objset,
        (source.dev_major, source.dev_minor),
        source.rest,
        source.commits,
        source.errors,
        source.no_zil,
        tuple(source.kinds[:]),
        _hist(source.total),
        tuple(_hist(stage) for stage in source.stages),
    )


class FsyncTrace:
    """A trace of the fsync path, attached from the constructor to close().

    pool, objset and dev limit it to one pool or dataset, pid to one process; slow_ns
    is the least duration of an operation that poll() reports. Raises TraceError.
    """

    def __init__(
        self,
        *,
        pool: str | None = None,
        objset: int = 0,
        dev: tuple[int, int] = (0, 0),
        pid: int = 0,
        slow_ns: int = 0,
        max_datasets: int = 0,
        no_fentry: bool = False,
    ) -> None:
        self._lib = load()
        opts = _Opts(
            size=ctypes.sizeof(_Opts),
            pid=pid,
            max_datasets=max_datasets,
            slow_ns=slow_ns,
            # as the kernel writes a device number inside itself: MKDEV()
            objset_dev=dev[0] << 20 | dev[1],
            pool=pool.encode() if pool else None,
            objset=objset,
            no_fentry=no_fentry,
        )
        self._handle: ctypes.c_void_p | None = ctypes.c_void_p()
        self._events: list[SlowEvent] = []
        # kept as long as the session: the library calls it
        self._collect = _SLOW_FN(self._on_slow)
        code = self._lib.zfstrace_open(ctypes.byref(opts), ctypes.byref(self._handle))
        if code < 0:
            message = _text(self._lib.zfstrace_error(self._handle)) if self._handle else ""
            self.close()
            raise _error(code, message)

    def __enter__(self) -> FsyncTrace:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Detaches. May be called again."""
        if self._handle:
            self._lib.zfstrace_close(self._handle)
        self._handle = None

    def _check(self, code: int) -> int:
        if code < 0 and code != -errno.EINTR:
            raise _error(code, _text(self._lib.zfstrace_error(self._handle)))
        return code

    def refresh(self) -> None:
        """Merges the kernel's counters. Raises TraceError."""
        # a signal may interrupt it, and what it interrupts must not be printed half
        while self._check(self._lib.zfstrace_refresh(self._handle)) == -errno.EINTR:
            pass

    def datasets(self) -> list[DatasetCounts]:
        """As of the last refresh()."""
        count = self._lib.zfstrace_datasets(self._handle)
        return [_counts(self._lib.zfstrace_dataset(self._handle, i).contents) for i in range(count)]

    def losses(self) -> Losses:
        """As of the last refresh()."""
        losses = _Losses()
        self._lib.zfstrace_losses(self._handle, ctypes.byref(losses))
        return Losses(
            losses.start,
            losses.return_,
            losses.event,
            losses.log_block,
            losses.overflow,
            losses.unfinished,
            losses.skipped,
        )

    def probes(self) -> tuple[Probe, ...]:
        """All probes, also the missing ones."""
        return _probes(self._lib, self._handle) if self._handle else ()

    def poll(self, timeout_ms: int) -> list[SlowEvent]:
        """Waits up to timeout_ms for slow operations. Raises TraceError."""
        code = self._lib.zfstrace_poll(self._handle, timeout_ms, self._collect, None)
        events, self._events = self._events, []
        if not events:
            self._check(code)
        return events

    def _on_slow(self, event: ctypes._Pointer[_Slow], _context: int) -> None:
        slow = event.contents
        self._events.append(
            SlowEvent(
                slow.start_ns,
                slow.total_ns,
                tuple(slow.stage_ns[:]),
                slow.object,
                slow.dataset,
                slow.pid,
                slow.tid,
                stages.KINDS[slow.kind] if slow.kind < _KINDS else "other",
                _text(slow.comm),
            )
        )
