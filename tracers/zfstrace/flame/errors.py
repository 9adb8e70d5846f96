"""What can be wrong with a file of stacks. Each message is one line: what, why, what to do."""

from __future__ import annotations

from zfstrace.errors import TraceError, UnknownName


class FlameError(UnknownName):
    """A file that is not there or not what its name says, or a format that is not known."""


class WriteFailed(TraceError):
    """The system does not let the file be written."""
