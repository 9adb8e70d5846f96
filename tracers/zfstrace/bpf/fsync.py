"""A running trace of fsyncs: the tracer "fsync" of libzfstrace."""

from __future__ import annotations

import ctypes

from zfstrace import stages
from zfstrace.bpf.binding import SLOW_FN, CDataset, CHist, CSlow, text
from zfstrace.bpf.session import Session
from zfstrace.hist import Hist, Table
from zfstrace.types import DatasetCounts, SlowEvent


def hist_of(source: CHist) -> Hist:
    """A histogram of the library."""
    if not source.count:
        return Hist()
    return Hist(source.count, source.sum_ns, source.max_ns, Table.of(bytes(source.bucket)))


def _counts(source: CDataset) -> DatasetCounts:
    return DatasetCounts(
        text(source.pool),
        source.objset,
        (source.dev_major, source.dev_minor),
        source.rest,
        source.commits,
        source.errors,
        source.no_zil,
        tuple(source.kinds[:]),
        hist_of(source.total),
        tuple(hist_of(stage) for stage in source.stages),
    )


class FsyncTrace(Session):
    """Attached from the constructor to close(). The options are Session's; slow_ns is the minimum
    duration of an operation that poll() reports."""

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
        self._slow: list[SlowEvent] = []
        self._seen: list[tuple[tuple[int, ...], DatasetCounts]] = []
        self._collect_slow = SLOW_FN(self._on_slow)
        super().__init__(
            "fsync",
            pool=pool,
            objset=objset,
            dev=dev,
            pid=pid,
            slow_ns=slow_ns,
            max_slots=max_datasets,
            no_fentry=no_fentry,
            table_mib=table_mib,
        )

    def datasets(self) -> list[DatasetCounts]:
        """All datasets since the session began, as of the last refresh(); the first is the rest."""
        for i in range(self._lib.zfstrace_datasets(self._handle)):
            source = self._lib.zfstrace_dataset(self._handle, i).contents
            mark = (source.changes, source.objset, source.dev_major, source.dev_minor)
            # in a long trace most datasets are idle or gone
            if i == len(self._seen):
                self._seen.append((mark, _counts(source)))
            elif self._seen[i][0] != mark:
                self._seen[i] = mark, _counts(source)
        return [counts for _, counts in self._seen]

    def poll(self, timeout_ms: int) -> list[SlowEvent]:
        """Waits up to timeout_ms for slow operations; may return none, also because of a signal.
        Raises TraceError."""
        code = self._lib.zfstrace_poll(self._handle, timeout_ms, self._collect_slow, None)
        events, self._slow = self._slow, []
        if not events:
            self._check(code)
        return events

    def _on_slow(self, event: ctypes._Pointer[CSlow], _context: int) -> None:
        slow = event.contents
        self._slow.append(
            SlowEvent(
                slow.start_ns,
                slow.total_ns,
                tuple(slow.stage_ns[:]),
                slow.object,
                slow.dataset,
                slow.pid,
                slow.tid,
                stages.KINDS[slow.kind] if slow.kind < len(stages.KINDS) else "other",
                text(slow.comm),
                slow.dirty_bytes or None,
            )
        )
