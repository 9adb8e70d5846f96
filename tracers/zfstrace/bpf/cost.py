"""What the tracers of libzfstrace cost, by the kernel's own count."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from zfstrace.bpf.fsync import FsyncTrace
from zfstrace.bpf.read import ReadTrace
from zfstrace.bpf.session import Session
from zfstrace.cost import CostCounts, ProgramCost
from zfstrace.errors import TraceError


class CostTrace:
    """Implements zfstrace.host.CostSession: all tracers that can start, attached from the
    constructor to close(). open_one has a function for each that opens it. Raises the first one's
    error if there are none, and TraceError if the kernel does not count."""

    def __init__(self, open_one: Mapping[str, Callable[[], Session]]) -> None:
        self._sessions: dict[str, Session] = {}
        self._unavailable: dict[str, str] = {}
        first: TraceError | None = None
        try:
            for name, open_it in open_one.items():
                try:
                    self._sessions[name] = open_it()
                except TraceError as error:
                    first = first or error
                    self._unavailable[name] = error.in_one_line()
            if first and not self._sessions:
                raise first
            # one is enough: the kernel counts for all programs
            next(iter(self._sessions.values())).count_cost()
        except BaseException:
            self.close()
            raise

    def counts(self) -> CostCounts:
        operations = lost = 0
        programs = [
            ProgramCost(name, probe.name, probe.how, cost.runs, cost.run_ns)
            for name, session in self._sessions.items()
            for probe, cost in session.costs()
        ]
        fsyncs = self._sessions.get("fsync")
        if isinstance(fsyncs, FsyncTrace):
            fsyncs.refresh()
            operations = sum(dataset.total.count for dataset in fsyncs.datasets())
            lost = fsyncs.losses().lost
        calls, reads = 0, self._sessions.get("read")
        if isinstance(reads, ReadTrace):
            reads.refresh()
            calls = sum(
                op.count for one in reads.datasets() for op in (one.hit, one.miss, one.write)
            )
        return CostCounts(operations, lost, tuple(programs), dict(self._unavailable), calls)

    def close(self) -> None:
        """Detaches. May be called again."""
        for session in self._sessions.values():
            session.close()
