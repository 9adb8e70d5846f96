"""A running trace of reads and writes: the tracer "read" of libzfstrace."""

from __future__ import annotations

from zfstrace.bpf.binding import CReads
from zfstrace.bpf.by_dataset import DatasetTrace, identity
from zfstrace.bpf.fsync import hist_of
from zfstrace.read import Op, ReadCounts
from zfstrace.strict import strict_zip


class ReadTrace(DatasetTrace[ReadCounts]):
    """See DatasetTrace; it reports no single calls."""

    TRACER, FUNCTION = "read", "zfstrace_reads"

    @staticmethod
    def _counts(source: CReads) -> ReadCounts:
        hists = [hist_of(hist) for hist in source.latency]
        hit, miss, write = (
            Op(hist.count, size, hist) for hist, size in strict_zip(hists, source.bytes[:])
        )
        return ReadCounts(
            *identity(source),
            hit,
            miss,
            write,
            source.errors,
            source.held,
            source.held_ns,
        )
