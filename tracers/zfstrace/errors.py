"""What can keep a trace from starting or going on."""

from __future__ import annotations


class Hinted(Exception):
    """An error for a person. The message is one line, `what: why`; hint is what to do about it, an
    imperative sentence without a full stop, "" if there is nothing to do. The hint is shown on a
    line of its own, or after a semicolon where there is one line only (`in_one_line`)."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    def in_one_line(self) -> str:
        return f"{self}; {self.hint}" if self.hint else str(self)


class TraceError(Hinted):
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
