"""The binding of libzfstrace.so: tracers/libzfstrace/zfstrace.h in ctypes."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from zfstrace import errors, stages
from zfstrace.hist import BUCKETS
from zfstrace.types import Losses, Probe, Survey

Entry = TypeVar("Entry", bound=ctypes.Structure)

ABI = 3
FILE = "libzfstrace.so"
HOW = ("missing", "fentry", "kprobe", "tracepoint", "found", "sampling")

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


class CDataset(ctypes.Structure):
    _fields_ = (
        ("pool", ctypes.c_char * 256),
        ("objset", ctypes.c_uint64),
        ("dev_major", ctypes.c_uint32),
        ("dev_minor", ctypes.c_uint32),
        ("rest", ctypes.c_bool),
        ("changes", ctypes.c_uint64),
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


class CSlow(ctypes.Structure):
    _fields_ = (
        ("start_ns", ctypes.c_uint64),
        ("total_ns", ctypes.c_uint64),
        ("stage_ns", ctypes.c_uint64 * _STAGES),
        ("dirty_bytes", ctypes.c_uint64),
        ("object", ctypes.c_uint64),
        ("dataset", ctypes.c_uint32),
        ("pid", ctypes.c_uint32),
        ("tid", ctypes.c_uint32),
        ("kind", ctypes.c_uint32),
        ("comm", ctypes.c_char * 16),
    )


_EVENT_FN = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
SLOW_FN = ctypes.CFUNCTYPE(None, ctypes.POINTER(CSlow), ctypes.c_void_p)

_PROTOTYPES = {
    "zfstrace_abi": (ctypes.c_int, ()),
    "zfstrace_stage_name": (ctypes.c_char_p, (ctypes.c_uint,)),
    "zfstrace_kind_name": (ctypes.c_char_p, (ctypes.c_uint,)),
    "zfstrace_open": (
        ctypes.c_int,
        (ctypes.POINTER(_Opts), ctypes.POINTER(ctypes.c_void_p)),
    ),
    "zfstrace_start": (
        ctypes.c_int,
        (ctypes.c_char_p, ctypes.POINTER(_Opts), ctypes.POINTER(ctypes.c_void_p)),
    ),
    "zfstrace_table": (
        ctypes.c_void_p,
        (
            ctypes.c_void_p,
            ctypes.c_char_p,
            ctypes.POINTER(ctypes.c_uint),
            ctypes.POINTER(ctypes.c_size_t),
        ),
    ),
    "zfstrace_events": (
        ctypes.c_int,
        (ctypes.c_void_p, ctypes.c_int, _EVENT_FN, ctypes.c_void_p),
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
    "zfstrace_tidy": (ctypes.c_int, (ctypes.c_void_p,)),
    "zfstrace_release": (ctypes.c_int, (ctypes.c_void_p, ctypes.c_uint)),
    "zfstrace_datasets": (ctypes.c_uint, (ctypes.c_void_p,)),
    "zfstrace_dataset": (ctypes.POINTER(CDataset), (ctypes.c_void_p, ctypes.c_uint)),
    "zfstrace_losses": (None, (ctypes.c_void_p, ctypes.POINTER(_Losses))),
    "zfstrace_poll": (
        ctypes.c_int,
        (ctypes.c_void_p, ctypes.c_int, SLOW_FN, ctypes.c_void_p),
    ),
    "zfstrace_stacks": (
        ctypes.c_int,
        (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p),
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
    names = tuple(text(lib.zfstrace_stage_name(i)) for i in range(_STAGES))
    kinds = tuple(text(lib.zfstrace_kind_name(i)) for i in range(_KINDS))
    if abi != ABI or names != stages.NAMES or kinds != stages.KINDS:
        raise errors.LibraryMissing(
            f"cannot trace, {path} has ABI {abi} and this zfstune needs {ABI}, "
            "install both from one version"
        )
    return lib


def text(value: bytes | None) -> str:
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
                text(probe.name),
                text(probe.symbol),
                HOW[probe.how] if 0 <= probe.how < len(HOW) else "missing",
                probe.required,
                text(probe.cost),
                text(probe.why),
                text(probe.tracer),
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
            raise _error(code, text(lib.zfstrace_error(handle)) if handle else "")
        return Survey(probes, text(lib.zfstrace_layout(handle)))
    finally:
        if handle:
            lib.zfstrace_close(handle)


def nonzero(array: ctypes.Array[Any]) -> dict[int, int]:
    """The entries of an array of counts that are not 0, by index. A distribution covers
    few of its buckets: to look at those between the zeros only is three times as fast."""
    raw = bytes(array)
    width = len(raw) // len(array)
    first = (len(raw) - len(raw.lstrip(b"\0"))) // width
    end = -(-len(raw.rstrip(b"\0")) // width)
    return {i: n for i, n in enumerate(array[first:end], first) if n}


class Session:
    """A tracer of libzfstrace, attached from the constructor to close().

    name is the tracer's; pool, objset and dev limit it to one pool or dataset, pid to one
    process; max_slots is for how many datasets (processes, vdevs ...) it has room of their
    own; the rest are zfstrace_opts. Raises TraceError.
    """

    def __init__(
        self,
        name: str,
        *,
        pool: str | None = None,
        objset: int = 0,
        dev: tuple[int, int] = (0, 0),
        pid: int = 0,
        slow_ns: int = 0,
        max_slots: int = 0,
        no_fentry: bool = False,
        mode: int = 0,
    ) -> None:
        self._lib = load()
        opts = _Opts(
            size=ctypes.sizeof(_Opts),
            pid=pid,
            max_datasets=max_slots,
            slow_ns=slow_ns,
            # as the kernel writes a device number inside itself: MKDEV()
            objset_dev=dev[0] << 20 | dev[1],
            pool=pool.encode() if pool else None,
            objset=objset,
            no_fentry=no_fentry,
            mode=mode,
        )
        self._handle: ctypes.c_void_p | None = ctypes.c_void_p()
        self._events: list[bytes] = []
        # kept as long as the session: the library calls it
        self._collect = _EVENT_FN(self._on_event)
        code = self._lib.zfstrace_start(
            name.encode(), ctypes.byref(opts), ctypes.byref(self._handle)
        )
        if code < 0:
            message = text(self._lib.zfstrace_error(self._handle)) if self._handle else ""
            self.close()
            raise _error(code, message)

    def __enter__(self) -> Self:
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
            raise _error(code, text(self._lib.zfstrace_error(self._handle)))
        return code

    def refresh(self) -> None:
        """Merges the kernel's counters. Raises TraceError."""
        # a signal may interrupt it, and what it interrupts must not be printed half
        while self._check(self._lib.zfstrace_refresh(self._handle)) == -errno.EINTR:
            pass

    def tidy(self) -> None:
        """Lets a trace run for weeks: to be called every few seconds, costs next to nothing.
        Does nothing when the trace is closed. Raises TraceError."""
        if self._handle:
            self._check(self._lib.zfstrace_tidy(self._handle))

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

    def events(self, timeout_ms: int) -> list[bytes]:
        """Waits up to timeout_ms for events. Raises TraceError."""
        code = self._lib.zfstrace_events(self._handle, timeout_ms, self._collect, None)
        events, self._events = self._events, []
        if not events:
            self._check(code)
        return events

    def _on_event(self, event: int, size: int, _context: int) -> None:
        self._events.append(ctypes.string_at(event, size))

    def table(self, name: str, entry: type[Entry]) -> ctypes.Array[Entry]:
        """A table that the kernel writes to, as it is at any moment; until close().

        Raises LibraryMissing when its entries are not what entry says.
        """
        entries, size = ctypes.c_uint(), ctypes.c_size_t()
        at = self._lib.zfstrace_table(
            self._handle, name.encode(), ctypes.byref(entries), ctypes.byref(size)
        )
        if not at or size.value != ctypes.sizeof(entry):
            raise errors.LibraryMissing(
                f"cannot trace, table {name} is of another version, rebuild libzfstrace.so"
            )
        return (entry * entries.value).from_address(at)
