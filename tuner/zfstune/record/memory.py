"""Keeps the process in memory: a page of it that has to be read may be on the pool that hangs."""

from __future__ import annotations

import ctypes
import os
import resource
import threading
from pathlib import Path

# sys/mman.h of Linux and FreeBSD; the last is of Linux 4.4
_CURRENT, _FUTURE, _ON_FAULT = 1, 2, 4
# linux/capability.h
_CAP_IPC_LOCK = 14
_STACK = 1 << 20


def lock() -> str:
    """Locks all pages, those that will come, too. Returns why that is not possible, "" if it is.

    What is mapped later, such as the stack of a thread, is locked as it is touched: all at once it
    could be hundreds of MiB.
    """
    if not _allowed():
        return (
            "RLIMIT_MEMLOCK is too low (systemd: LimitMEMLOCK=infinity), and the process has no "
            "CAP_IPC_LOCK"
        )
    threading.stack_size(_STACK)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mlockall(_CURRENT):
        return os.strerror(ctypes.get_errno())
    if libc.mlockall(_FUTURE | _ON_FAULT) and libc.mlockall(_FUTURE):
        return f"only what is mapped already: {os.strerror(ctypes.get_errno())}"
    return ""


def _allowed() -> bool:
    """Whether memory can be locked without a limit. With one the process would end at the
    allocation that exceeds it."""
    unlimited = resource.RLIM_INFINITY
    try:
        if resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] != unlimited:
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (unlimited, unlimited))
    except (OSError, ValueError):
        return _has_capability()
    return True


def _has_capability() -> bool:
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    for line in status.splitlines():
        name, _, value = line.partition(":")
        if name == "CapEff":
            return bool(int(value, 16) >> _CAP_IPC_LOCK & 1)
    return False


def preload() -> None:
    """Loads all modules and rules that the recorder will need, before memory is locked. Those that
    attach are loaded by the first diagnosis, and locked then."""
    import array  # noqa: F401 - socket.send_fds()

    from zfstune.diagnose import causes, judge, observe, quantities  # noqa: F401
    from zfstune.incident import at  # noqa: F401
    from zfstune.rules import thresholds
    from zfstune.tunables import catalogue, survey  # noqa: F401

    causes.load()
    thresholds.thresholds()
    catalogue.load()
