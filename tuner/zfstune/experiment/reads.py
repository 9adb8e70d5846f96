"""The trace of reads beside a session, where there is one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from zfstrace.errors import TraceError
from zfstrace.host import Host, ReadSession
from zfstrace.types import TraceOptions
from zfstune.errors import NotPossible
from zfstune.experiment.objective import Limit, Metric, Objective


def asked(objective: Objective, limits: Sequence[Limit]) -> list[Metric]:
    """The metrics of a session."""
    return [*(one for one, _weight in objective.weights), *(limit.metric for limit in limits)]


def open_reads(
    host: Host,
    pool: str,
    objective: Objective,
    limits: Sequence[Limit],
    say: Callable[[str], None],
) -> ReadSession | None:
    """The trace, if a metric of the session needs it. Raises NotPossible if one has no source
    here."""
    metrics = asked(objective, limits)
    if any(one.source == "arcstats" for one in metrics) and not host.kstat("arcstats"):
        raise NotPossible("cannot measure arc.miss: there is no kstat arcstats")
    needed = [one.name for one in metrics if one.source == "reads"]
    if not needed:
        return None
    try:
        session = host.open_read_trace(TraceOptions(pool=pool))
    except TraceError as error:
        raise NotPossible(f"cannot measure {needed[0]}: {error}", error.hint) from None
    say(f"{', '.join(dict.fromkeys(needed))}: reads and writes are traced, too")
    return session
