"""A running tracer that counts by dataset."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Generic, TypeVar

from zfstrace.bpf.binding import text
from zfstrace.bpf.session import Session

Counts = TypeVar("Counts")


def identity(source: Any) -> tuple[str, int, tuple[int, int], bool]:
    """pool, objset, dev and rest, with which the counts of each tracer begin."""
    return text(source.pool), source.objset, (source.dev_major, source.dev_minor), source.rest


class DatasetTrace(Session, Generic[Counts]):
    """Attached from the constructor to close(). The options are Session's; slow_ns is the minimum
    duration of an operation that is reported by itself, by tracers that do so."""

    # the tracer, and the function of libzfstrace that returns the counts of a dataset
    TRACER: ClassVar[str]
    FUNCTION: ClassVar[str]

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
        self._seen: list[tuple[tuple[int, ...], Counts]] = []
        super().__init__(
            self.TRACER,
            pool=pool,
            objset=objset,
            dev=dev,
            pid=pid,
            slow_ns=slow_ns,
            max_slots=max_datasets,
            no_fentry=no_fentry,
            table_mib=table_mib,
        )

    @staticmethod
    @abstractmethod
    def _counts(source: Any) -> Counts:
        """A copy of what FUNCTION points to."""

    def datasets(self) -> list[Counts]:
        """All datasets since the session began, as of the last refresh(); the first is the rest."""
        function = getattr(self._lib, self.FUNCTION)
        for i in range(self._lib.zfstrace_datasets(self._handle)):
            source = function(self._handle, i).contents
            mark = (source.changes, source.objset, source.dev_major, source.dev_minor)
            # in a long trace most datasets are idle or gone
            if i == len(self._seen):
                self._seen.append((mark, self._counts(source)))
            elif self._seen[i][0] != mark:
                self._seen[i] = mark, self._counts(source)
        return [counts for _, counts in self._seen]
