"""The trace of reads beside a session: opened where a metric needs it, or to guard reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from zfstrace.errors import TraceError
from zfstrace.host import Host, ReadSession
from zfstrace.read import ReadCounts, ReadState, since
from zfstrace.read_summary import pool_sum
from zfstrace.types import TraceOptions
from zfstune.errors import NotPossible
from zfstune.experiment.objective import Limit, Objective
from zfstune.experiment.runner import Record

# How many times as many calls as a block needs a load must have, or one block in many would have
# too few, and the limit would be missed by that alone.
_ENOUGH = 4


@dataclass
class Reads:
    """The trace, None if there is none; guards are limits on reads that are asked only of a load
    with enough of them. needed: the trace is, also without a guard."""

    host: Host
    pool: str
    session: ReadSession | None = None
    guards: Sequence[Limit] = ()
    needed: bool = False

    def asked(self, records: Sequence[Record], say: Callable[[str], None]) -> list[Limit]:
        """The guards that the load of these blocks reads enough for; says which it does not. A
        trace that nothing asks for ends here, as it takes time from the load."""
        if not self.session:
            return []
        found = []
        for limit in self.guards:
            if _enough(records, limit):
                found.append(limit)
                say(f"limit {limit}, too: the load reads")
            else:
                fewest = min(map(_calls, records))
                say(f"limit {limit} is not asked: a block had {fewest} reads, too few")
        if not found and not self.needed:
            self.close()
        return found

    def state(self) -> ReadState:
        """All that was counted so far; empty without a trace. Raises TraceError."""
        if not self.session:
            return ReadState((), {})
        self.session.refresh()
        return self.session.state()

    def since(self, earlier: ReadState) -> ReadCounts:
        """The sum of the pool since a state. Raises TraceError."""
        return pool_sum(since(self.state(), earlier), self.host, self.pool)

    def close(self) -> None:
        """Detaches."""
        if self.session:
            self.session.close()
            self.session = None


def open_reads(
    host: Host,
    pool: str,
    objective: Objective,
    limits: Sequence[Limit],
    guards: Sequence[Limit],
    say: Callable[[str], None],
) -> Reads:
    """The trace, if a metric of the session needs it, or a guard. Raises NotPossible if a metric
    has no source here; a guard without one is left out, and said."""
    metrics = [*(one for one, _weight in objective.weights), *(limit.metric for limit in limits)]
    guards = [limit for limit in guards if limit.metric not in metrics]
    if any(one.source == "arcstats" for one in metrics) and not host.kstat("arcstats"):
        raise NotPossible("cannot measure arc.miss: there is no kstat arcstats")
    needed = [one.name for one in metrics if one.source == "reads"]
    if not needed and not guards:
        return Reads(host, pool)
    try:
        session = host.open_read_trace(TraceOptions(pool=pool))
    except TraceError as error:
        if needed:
            raise NotPossible(f"cannot measure {needed[0]}: {error}", error.hint) from None
        for limit in guards:
            say(f"limit {limit} is not asked: {error}")
        return Reads(host, pool)
    return Reads(host, pool, session, guards, bool(needed))


def _calls(record: Record) -> int:
    return round(record.block.metrics.get("read.rate", 0.0) * record.block.seconds)


def _enough(records: Sequence[Record], limit: Limit) -> bool:
    """Whether each block has the reads that it needs, and together they have enough."""
    calls, needed = list(map(_calls, records)), limit.metric.calls
    return min(calls) >= needed and sum(calls) >= _ENOUGH * needed * len(calls)
