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

# How many times as many calls as a block needs a load must have, or one block in many would have
# too few, and the limit would be missed by that alone.
_ENOUGH = 4


@dataclass
class Reads:
    """The trace, None if there is none; guards are limits that are asked only of a load with enough
    calls, which asked() counts from the beginning of the trace. needed: also without a guard."""

    host: Host
    pool: str
    session: ReadSession | None = None
    guards: Sequence[Limit] = ()
    needed: bool = False

    def asked(self, share: float, say: Callable[[str], None]) -> list[Limit]:
        """The guards that the load has enough calls for, as counted in a time of share blocks; says
        which it has not. A trace that nothing asks for ends here, as it takes time from the load.
        Raises TraceError."""
        if not self.session or not self.guards:
            return []
        total = self.since(ReadState((), {}))
        found = []
        for limit in self.guards:
            writes = limit.metric.name.startswith("write.")
            calls = total.write.count if writes else total.hit.count + total.miss.count
            if calls >= _ENOUGH * share * limit.metric.calls:
                found.append(limit)
                say(f"limit {limit}, too: the load reads")
            else:
                what = "writes" if writes else "reads"
                say(f"limit {limit} is not asked: {calls} {what} while the load started, too few")
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
        return Reads(host, pool, session, guards, bool(needed))
    except TraceError as error:
        if needed:
            raise NotPossible(f"cannot measure {needed[0]}: {error}", error.hint) from None
        for limit in guards:
            say(f"limit {limit} is not asked: {error}")
        return Reads(host, pool)
