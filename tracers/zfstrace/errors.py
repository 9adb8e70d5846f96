"""What can prevent a trace from starting or continuing."""

from __future__ import annotations


class Hinted(Exception):
    """An error for a person. The message is one line, `WHAT: WHY`; hint is what to do about it, an
    imperative clause without a full stop, "" if there is nothing to do. It is shown on its own
    line, or after a semicolon where there is only one (`in_one_line`)."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    def in_one_line(self) -> str:
        return f"{self}; {self.hint}" if self.hint else str(self)


class TraceError(Hinted):
    """A trace cannot start or continue."""


class NoPrivilege(TraceError):
    """The process may not load BPF programs."""


class NoZfs(TraceError):
    """ZFS is not loaded, or lacks a symbol without which nothing can be measured."""


class NotSupported(TraceError):
    """The kernel is too old or was built without BTF."""


class LibraryMissing(TraceError):
    """libzfstrace.so is not built, not installed, or has another version."""


class UnknownName(TraceError):
    """A pool, dataset or process that does not exist."""


class ParameterError(TraceError):
    """A module parameter or the boot configuration cannot be written."""
