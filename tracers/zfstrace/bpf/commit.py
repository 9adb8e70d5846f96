"""A running trace of commits and log blocks: the tracer "commit" of libzfstrace."""

from __future__ import annotations

import ctypes

from zfstrace.bpf.binding import CCommits, text
from zfstrace.bpf.by_dataset import DatasetTrace, identity
from zfstrace.bpf.fsync import hist_of
from zfstrace.light import CommitCounts, SlowCommit


class _SlowCommit(ctypes.Structure):
    """struct slow_commit of tracers/bpf/commit.h"""

    _fields_ = (
        ("start_ns", ctypes.c_uint64),
        ("total_ns", ctypes.c_uint64),
        ("slot", ctypes.c_uint32),
        ("life", ctypes.c_uint32),
        ("pid", ctypes.c_uint32),
        ("tid", ctypes.c_uint32),
        ("comm", ctypes.c_char * 16),
    )


class CommitTrace(DatasetTrace[CommitCounts]):
    """slow() reports the commits that took slow_ns or more."""

    TRACER, FUNCTION = "commit", "zfstrace_commits"

    @staticmethod
    def _counts(source: CCommits) -> CommitCounts:
        return CommitCounts(
            *identity(source),
            hist_of(source.total),
            hist_of(source.log_write),
            hist_of(source.flush),
        )

    def slow(self) -> list[SlowCommit]:
        """The slow commits since the last call. Raises TraceError."""
        events = map(_SlowCommit.from_buffer_copy, self.events(0))
        return [SlowCommit(one.total_ns, one.pid, text(one.comm)) for one in events]
