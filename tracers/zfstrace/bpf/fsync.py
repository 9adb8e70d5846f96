"""A running trace of fsyncs: the tracer "fsync" of libzfstrace."""

from __future__ import annotations

from zfstrace import stages
from zfstrace.bpf.binding import SLOW_FN, CDataset, CHist, CSlow, text
from zfstrace.bpf.by_dataset import DatasetTrace, identity
from zfstrace.hist import Hist, Table
from zfstrace.types import DatasetCounts, SlowEvent


def hist_of(source: CHist) -> Hist:
    """A histogram of the library."""
    if not source.count:
        return Hist()
    return Hist(source.count, source.sum_ns, source.max_ns, Table.of(bytes(source.bucket)))


class FsyncTrace(DatasetTrace[DatasetCounts]):
    """poll() reports the operations that took slow_ns or more."""

    TRACER, FUNCTION = "fsync", "zfstrace_dataset"

    @staticmethod
    def _counts(source: CDataset) -> DatasetCounts:
        return DatasetCounts(
            *identity(source),
            source.commits,
            source.errors,
            source.no_zil,
            tuple(source.kinds[:]),
            hist_of(source.total),
            tuple(hist_of(stage) for stage in source.stages),
        )

    def poll(self, timeout_ms: int) -> list[SlowEvent]:
        """Waits up to timeout_ms for slow operations; may return none, also because of a signal.
        Raises TraceError."""
        events: list[SlowEvent] = []
        collect = SLOW_FN(lambda one, _: events.append(_slow(one.contents)))
        code = self._lib.zfstrace_poll(self._handle, timeout_ms, collect, None)
        if not events:
            self._check(code)
        return events


def _slow(event: CSlow) -> SlowEvent:
    return SlowEvent(
        event.start_ns,
        event.total_ns,
        tuple(event.stage_ns[:]),
        event.object,
        event.dataset,
        event.pid,
        event.tid,
        stages.KINDS[event.kind] if event.kind < len(stages.KINDS) else "other",
        text(event.comm),
        event.dirty_bytes or None,
    )
