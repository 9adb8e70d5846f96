"""A running trace of reads and writes: the tracer "read" of libzfstrace."""

from __future__ import annotations

from zfstrace.bpf.binding import CReads, text
from zfstrace.bpf.fsync import hist_of
from zfstrace.bpf.session import Session
from zfstrace.read import Op, ReadCounts
from zfstrace.strict import strict_zip


def _counts(source: CReads) -> ReadCounts:
    hists = [hist_of(hist) for hist in source.latency]
    hit, miss, write = (
        Op(hist.count, size, hist) for hist, size in strict_zip(hists, source.bytes[:])
    )
    return ReadCounts(
        text(source.pool),
        source.objset,
        (source.dev_major, source.dev_minor),
        source.rest,
        hit,
        miss,
        write,
        source.errors,
        source.held,
        source.held_ns,
    )


class ReadTrace(Session):
    """Attached from the constructor to close(). The options are Session's."""

    def __init__(
        self,
        *,
        pool: str | None = None,
        objset: int = 0,
        dev: tuple[int, int] = (0, 0),
        pid: int = 0,
        max_datasets: int = 0,
        no_fentry: bool = False,
    ) -> None:
        self._seen: list[tuple[tuple[int, ...], ReadCounts]] = []
        super().__init__(
            "read",
            pool=pool,
            objset=objset,
            dev=dev,
            pid=pid,
            max_slots=max_datasets,
            no_fentry=no_fentry,
        )

    def datasets(self) -> list[ReadCounts]:
        """All datasets since the session began, as of the last refresh(); the first is the rest."""
        for i in range(self._lib.zfstrace_datasets(self._handle)):
            source = self._lib.zfstrace_reads(self._handle, i).contents
            mark = (source.changes, source.objset, source.dev_major, source.dev_minor)
            if i == len(self._seen):
                self._seen.append((mark, _counts(source)))
            elif self._seen[i][0] != mark:
                self._seen[i] = mark, _counts(source)
        return [counts for _, counts in self._seen]
