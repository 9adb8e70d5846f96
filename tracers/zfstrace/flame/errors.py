"""Errors of files with stacks."""

from __future__ import annotations

from zfstrace.errors import TraceError, UnknownName


class FlameError(UnknownName):
    """A file that does not exist or is not what its name says, or an unknown format."""


class WriteFailed(TraceError):
    """The system refuses to write the file."""
