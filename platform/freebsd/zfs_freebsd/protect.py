"""Keeps the kernel from killing a process when swap runs out, like protect(1)."""

from __future__ import annotations

import ctypes
import ctypes.util
import os

# sys/procctl.h, sys/wait.h
_P_PID, _PROC_SPROTECT, _PPROT_SET = 0, 1, 1


def protect_from_oom(library: str | None = None) -> None:
    """Protects the caller, but not its children. Raises OSError, EPERM if it is not root. library
    replaces libc, for tests."""
    libc = ctypes.CDLL(library or ctypes.util.find_library("c") or "libc.so.7", use_errno=True)
    # id_t has 64 bits; 0 is the caller
    libc.procctl.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int, ctypes.c_void_p)
    libc.procctl.restype = ctypes.c_int
    what = ctypes.c_int(_PPROT_SET)
    if libc.procctl(_P_PID, 0, _PROC_SPROTECT, ctypes.byref(what)):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
