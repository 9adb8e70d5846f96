"""A running trace of commits and log blocks: the tracer "commit" of libzfstrace."""

from __future__ import annotations

import ctypes

from zfstrace.bpf.binding import CCommits, text
from zfstrace.bpf.fsync import hist_of
from zfstrace.bpf.session import Session
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


def _counts(source: CCommits) -> CommitCounts:
    return CommitCounts(
        text(source.pool),
        source.objset,
        (source.dev_major, source.dev_minor),
        source.rest,
        hist_of(source.total),
        hist_of(source.log_write),
        hist_of(source.flush),
    )


class CommitTrace(Session):
    """Attached from the constructor to close(). The options are Session's; slow_ns is the minimum
    duration of a commit that slow() reports."""

    def __init__(
        self,
        *,
        pool: str | None = None,
        objset: int = 0,
        dev: tuple[int, int] = (0, 0),
        pid: int = 0,
        slow_ns: int = 0,
        max_datasets: int = 0,
        no_fentry: bool = False,
        table_mib: int = 0,
    ) -> None:
        self._seen: list[tuple[tuple[int, ...], CommitCounts]] = []
        super().__init__(
            "commit",
            pool=pool,
            objset=objset,
            dev=dev,
            pid=pid,
            slow_ns=slow_ns,
            max_slots=max_datasets,
            no_fentry=no_fentry,
            table_mib=table_mib,
        )

    def datasets(self) -> list[CommitCounts]:
        """All datasets since the session began, as of the last refresh(); the first is the rest."""
        for i in range(self._lib.zfstrace_datasets(self._handle)):
            source = self._lib.zfstrace_commits(self._handle, i).contents
            mark = (source.changes, source.objset, source.dev_major, source.dev_minor)
            if i == len(self._seen):
                self._seen.append((mark, _counts(source)))
            elif self._seen[i][0] != mark:
                self._seen[i] = mark, _counts(source)
        return [counts for _, counts in self._seen]

    def slow(self) -> list[SlowCommit]:
        """The slow commits since the last call. Raises TraceError."""
        events = map(_SlowCommit.from_buffer_copy, self.events(0))
        return [SlowCommit(one.total_ns, one.pid, text(one.comm)) for one in events]
