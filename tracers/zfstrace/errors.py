"""What can keep a trace from starting or going on.

The message of each is one line: what, why, what to do.
"""

from __future__ import annotations


class TraceError(Exception):
    """The trace cannot be had or cannot go on."""


class NoPrivilege(TraceError):
    """The process may not load BPF programs."""


class NoZfs(TraceError):
    """ZFS is not loaded, or lacks a symbol without which nothing can be measured."""


class NotSupported(TraceError):
    """The kernel is too old or was built without BTF."""


class LibraryMissing(TraceError):
    """libzfstrace.so is not built, not installed, or of another version."""


class UnknownName(TraceError):
    """A pool, dataset or process that is not there."""


class ParameterError(TraceError):
    """A module parameter cannot be written, or the boot configuration with it."""
