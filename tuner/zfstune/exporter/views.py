"""What the views of the exporter have beside those of the recorder: metrics, of sums that outlive
sessions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from prometheus_client.core import Metric

from zfstrace.types import Identified, same_dataset
from zfstune.exporter.bounded import Names
from zfstune.record.traced import Attach

Counts = TypeVar("Counts", bound=Identified)


class View(Protocol):
    """A part of what is exported, for the thread that holds the collector's lock."""

    @property
    def name(self) -> str: ...

    def families(self) -> Iterator[Metric]:
        """The metrics of the sums."""
        ...


@dataclass(frozen=True)
class Setup(Attach):
    """What the views need. Their tables count as memory of the service."""

    table_mib: int = 16
    names: Names = field(default_factory=Names)
    wall: Callable[[], float] = time.time


def _learned(before: Identified, now: Identified) -> bool:
    """Whether now may be before with more known of it: without BTF the object set is known from the
    first log block on, and the device from the first fsync of a mounted file."""
    return (
        not before.rest
        and not now.rest
        and before.pool in ("", now.pool)
        and before.objset in (0, now.objset)
        and before.dev in ((0, 0), now.dev)
    )


class Slots(Generic[Counts]):
    """The datasets of a session as of its last reading. nothing is a dataset that has counted
    nothing; numbers gives some of the numbers of one that never shrink: if one has, another dataset
    has its index."""

    def __init__(self, nothing: Counts, numbers: Callable[[Counts], tuple[int, ...]]) -> None:
        self._nothing, self._numbers = nothing, numbers
        self._before: list[Counts] = []

    def restart(self) -> None:
        """Another session begins."""
        self._before = []

    def changed(self, now: Sequence[Counts]) -> list[tuple[Counts, Counts]]:
        """The datasets that may have counted something since the last call, each with its state
        then."""
        old = len(self._before)
        # sessions return an idle dataset as the same object
        pairs = [
            (one, self._of(self._before[i], one) if i < old else self._nothing)
            for i, one in enumerate(now)
            if i >= old or one is not self._before[i]
        ]
        # first: an error in what follows must not let anything be counted twice
        self._before = list(now)
        return pairs

    def busy(self, now: Counts, before: Counts) -> bool:
        """Whether one of changed() has counted something."""
        return self._numbers(now) != self._numbers(before)

    def _of(self, before: Counts, now: Counts) -> Counts:
        shrunk = any(a > b for a, b in zip(self._numbers(before), self._numbers(now)))
        same = same_dataset(before, now) or _learned(before, now)
        return before if same and not shrunk else self._nothing
