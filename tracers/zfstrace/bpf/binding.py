"""The binding of libzfstrace.so: tracers/libzfstrace/zfstrace.h in ctypes."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import sys
from pathlib import Path

from zfstrace import errors, stages
from zfstrace.bpf import embedded, loading
from zfstrace.hist import BUCKETS
from zfstrace.types import Probe, ProbeSurvey, merged

ABI = 6
FILE = "libzfstrace.so"
HOW = ("missing", "fentry", "kprobe", "tracepoint", "found", "sampling")

_STAGES = len(stages.NAMES)
_KINDS = len(stages.KINDS)


class _Opts(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("pid", ctypes.c_uint32),
        ("max_entries", ctypes.c_uint32),
        ("slow_ns", ctypes.c_uint64),
        ("slow_buffer", ctypes.c_uint32),
        ("mode", ctypes.c_uint32),
        ("pool", ctypes.c_char_p),
        ("objset", ctypes.c_uint64),
        ("dev_major", ctypes.c_uint32),
        ("dev_minor", ctypes.c_uint32),
        ("no_fentry", ctypes.c_bool),
        ("table_mib", ctypes.c_uint32),
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
        ("merges", ctypes.c_char_p * 3),
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


class CCommits(ctypes.Structure):
    """struct zfstrace_commits"""

    _fields_ = (
        ("pool", ctypes.c_char * 256),
        ("objset", ctypes.c_uint64),
        ("dev_major", ctypes.c_uint32),
        ("dev_minor", ctypes.c_uint32),
        ("rest", ctypes.c_bool),
        ("changes", ctypes.c_uint64),
        ("total", CHist),
        ("log_write", CHist),
        ("flush", CHist),
    )


class CReads(ctypes.Structure):
    """struct zfstrace_reads"""

    _fields_ = (
        ("pool", ctypes.c_char * 256),
        ("objset", ctypes.c_uint64),
        ("dev_major", ctypes.c_uint32),
        ("dev_minor", ctypes.c_uint32),
        ("rest", ctypes.c_bool),
        ("changes", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64 * 3),
        ("errors", ctypes.c_uint64),
        ("held", ctypes.c_uint64),
        ("held_ns", ctypes.c_uint64),
        ("latency", CHist * 3),
    )


class _Losses(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in (
            "start",
            "missed",
            "event",
            "log_block",
            "overflow",
            "unfinished",
            "cut",
            "skipped",
        )
    )


class CCost(ctypes.Structure):
    """struct zfstrace_cost"""

    runs: int
    run_ns: int

    _fields_ = (("runs", ctypes.c_uint64), ("run_ns", ctypes.c_uint64))


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

PROTOTYPES = {
    "zfstrace_abi": (ctypes.c_int, ()),
    "zfstrace_stage_name": (ctypes.c_char_p, (ctypes.c_uint,)),
    "zfstrace_kind_name": (ctypes.c_char_p, (ctypes.c_uint,)),
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
    "zfstrace_hist_copy": (None, (ctypes.POINTER(CHist), ctypes.c_void_p)),
    "zfstrace_hist_index": (ctypes.c_uint, (ctypes.c_uint64,)),
    "zfstrace_hist_low": (ctypes.c_uint64, (ctypes.c_uint,)),
    "zfstrace_hist_quantile": (ctypes.c_uint64, (ctypes.POINTER(CHist), ctypes.c_uint)),
    "zfstrace_refresh": (ctypes.c_int, (ctypes.c_void_p,)),
    "zfstrace_tidy": (ctypes.c_int, (ctypes.c_void_p,)),
    "zfstrace_release": (ctypes.c_int, (ctypes.c_void_p, ctypes.c_uint)),
    "zfstrace_datasets": (ctypes.c_uint, (ctypes.c_void_p,)),
    "zfstrace_dataset": (ctypes.POINTER(CDataset), (ctypes.c_void_p, ctypes.c_uint)),
    "zfstrace_reads": (ctypes.POINTER(CReads), (ctypes.c_void_p, ctypes.c_uint)),
    "zfstrace_commits": (ctypes.POINTER(CCommits), (ctypes.c_void_p, ctypes.c_uint)),
    "zfstrace_pause": (ctypes.c_int, (ctypes.c_void_p, ctypes.c_bool)),
    "zfstrace_resume": (ctypes.c_int, (ctypes.c_void_p,)),
    "zfstrace_losses": (None, (ctypes.c_void_p, ctypes.POINTER(_Losses))),
    "zfstrace_count_cost": (ctypes.c_int, (ctypes.c_void_p,)),
    "zfstrace_end_cost": (None, (ctypes.c_void_p,)),
    "zfstrace_cost": (
        ctypes.c_int,
        (ctypes.c_void_p, ctypes.c_uint, ctypes.POINTER(CCost)),
    ),
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
    """The path or name of libzfstrace.so: $ZFSTUNE_LIB, else in the one file of `make dist`, the
    wheel, the checkout, the installation or the system. Raises LibraryMissing."""
    named = os.environ.get("ZFSTUNE_LIB")
    if named:
        if Path(named).exists():
            return named
        raise errors.LibraryMissing(
            f"cannot trace: ZFSTUNE_LIB is {named}, which does not exist",
            "unset or correct it",
        )
    inside = embedded.loaded()
    if inside:
        return inside.path
    for path in (
        Path(__file__).with_name(FILE),
        Path(__file__).resolve().parents[2] / "libzfstrace" / FILE,
        Path(sys.prefix) / "lib" / f"{FILE}.{ABI}",
    ):
        if path.exists():
            return str(path)
    # ctypes.util starts ldconfig or a compiler: last, and imported only here.
    import ctypes.util

    found = ctypes.util.find_library("zfstrace")
    if found:
        return found
    raise errors.LibraryMissing(
        f"cannot trace: {FILE} is not built or not installed",
        "run `make` in the checkout, or set ZFSTUNE_LIB to the library",
    )


def load(path: str | None = None) -> ctypes.CDLL:
    """The library with its functions typed. Raises LibraryMissing when it cannot be loaded or its
    version is not that of this package."""
    path = path or find_library()
    wrong = loading.wrong(path)
    if wrong:
        raise errors.LibraryMissing(f"cannot trace: {path} does not load: {wrong[0]}", wrong[1])
    try:
        # no use_errno: errors are negative return values
        lib = ctypes.CDLL(path)
        for name, (result, arguments) in PROTOTYPES.items():
            function = getattr(lib, name)
            function.restype = result
            function.argtypes = arguments
    except (OSError, AttributeError) as error:
        reason, hint = loading.why(str(error))
        raise errors.LibraryMissing(f"cannot trace: {path} does not load: {reason}", hint) from None
    abi = lib.zfstrace_abi()
    names = tuple(text(lib.zfstrace_stage_name(i)) for i in range(_STAGES))
    kinds = tuple(text(lib.zfstrace_kind_name(i)) for i in range(_KINDS))
    if abi != ABI or names != stages.NAMES or kinds != stages.KINDS:
        raise errors.LibraryMissing(
            f"cannot trace: {path} has ABI {abi}, and this zfstune needs {ABI}",
            "install the library and zfstune from the same version",
        )
    return lib


def text(value: bytes | None) -> str:
    return value.decode("utf-8", "replace") if value else ""


def _error(code: int, error: str) -> errors.TraceError:
    """From what zfstrace_error() returned."""
    message, _, hint = error.partition("\n")
    message = message or f"cannot trace: {os.strerror(-code)}"
    if code in (-errno.EPERM, -errno.EACCES):
        return errors.NoPrivilege(message, hint)
    if code == -errno.ENOENT:
        return errors.NoZfs(message, hint)
    if code in (-errno.ENOTSUP, -errno.EOPNOTSUPP, -errno.ENOSYS):
        return errors.NotSupported(message, hint)
    return errors.TraceError(message, hint)


def _probes(lib: ctypes.CDLL, handle: ctypes.c_void_p) -> tuple[Probe, ...]:
    found: list[Probe] = []
    one = _Probe()
    while lib.zfstrace_probe(handle, len(found), ctypes.byref(one)):
        merges = tuple(filter(None, one.merges))
        known = one.tracer, one.name, one.symbol, one.how, one.required, one.cost, one.why, merges
        found.append(_probe(*known))
    return tuple(found)


# a trace asks for them with each step, and they hardly ever change
@functools.lru_cache(maxsize=256)
def _probe(
    tracer: bytes | None,
    name: bytes | None,
    symbol: bytes | None,
    how: int,
    required: bool,
    cost: bytes | None,
    why: bytes | None,
    merges: tuple[bytes, ...],
) -> Probe:
    into = tuple(map(text, merges))
    return Probe(
        text(name),
        text(symbol),
        HOW[how] if 0 <= how < len(HOW) else "missing",
        required,
        text(cost) or merged(into),
        text(why),
        text(tracer),
        into,
    )


def survey() -> ProbeSurvey:
    """Which probes this kernel has; nothing is attached. Raises TraceError."""
    lib = load()
    handle = ctypes.c_void_p()
    code = lib.zfstrace_survey(ctypes.byref(handle))
    try:
        probes = _probes(lib, handle) if handle else ()
        if code < 0 and not probes:
            raise _error(code, text(lib.zfstrace_error(handle)) if handle else "")
        return ProbeSurvey(probes, text(lib.zfstrace_layout(handle)))
    finally:
        if handle:
            lib.zfstrace_close(handle)
