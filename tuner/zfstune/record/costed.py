"""Sessions whose programs the kernel can time. The way into a program, such as the trap of a
kprobe, is not in that time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from zfstrace.types import Probe


class Cost(Protocol):
    """What the kernel has counted of one program."""

    run_ns: int


class Costed(Protocol):
    """A session with programs. Not all have some: D scripts and kstats do without."""

    def count_cost(self) -> None:
        """Lets the kernel count the runs of all BPF programs of the host. Raises TraceError."""
        ...

    def end_cost(self) -> None:
        """Ends that. May be called again, and without count_cost()."""
        ...

    def costs(self) -> Iterable[tuple[Probe, Cost]]:
        """What it has counted. Raises TraceError."""
        ...


def costed(session: object) -> Costed | None:
    """The session, if its programs can be timed."""
    there = all(hasattr(session, name) for name in ("count_cost", "end_cost", "costs"))
    return session if there else None  # type: ignore[return-value]


def run_ns(session: Costed) -> int:
    """The time of all its programs so far. Raises TraceError."""
    return sum(cost.run_ns for _probe, cost in session.costs())
