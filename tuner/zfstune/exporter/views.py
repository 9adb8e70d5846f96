"""What every view of the exporter is, and what the views of a trace share: a session that may be
closed and opened again, and sums that outlive it."""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from prometheus_client.core import Metric

from zfstrace.errors import TraceError
from zfstrace.host import Host, Session
from zfstrace.types import Identified, Losses, Probe, TraceOptions, same_dataset
from zfstune.exporter.bounded import Names
from zfstune.term.signals import Stop
from zfstune.term.units import SECOND
from zfstune.trace.live import JsonRow, Meter

# A view that failed is tried again after this time.
RETRY_NS = 300 * SECOND
# What the tables of a view may take in the kernel, where they count as memory of the service.
TABLE_MIB = 16
# Of so many measurements the rows wait for a recorder, which takes them each 10 s.
_MOST_LATE = 64

AnySession = TypeVar("AnySession", bound=Session)
Counts = TypeVar("Counts", bound=Identified)


class View(Protocol):
    """A part of what is exported. All its methods belong to the thread that holds the collector's
    lock."""

    @property
    def name(self) -> str: ...

    def tick(self) -> None:
        """To be called every second. Raises TraceError."""
        ...

    def read(self) -> None:
        """Adds what the kernel has counted to sums that never go back. Raises TraceError."""
        ...

    def families(self) -> Iterator[Metric]:
        """The metrics of the sums."""
        ...

    def rows(self) -> Sequence[JsonRow]:
        """What was counted since the last call, as `trace --json` has it. Raises TraceError."""
        ...

    def losses(self) -> Losses:
        """Since the process began, over all sessions."""
        ...

    def probes(self) -> tuple[Probe, ...]:
        """Those of the present session."""
        ...

    def close(self) -> None:
        """Detaches. May be called again."""
        ...


@dataclass(frozen=True)
class Setup:
    """What views need. kstat: nothing may be attached; fallback: where nothing can be attached,
    kstats suffice; recorded: a recorder takes their rows."""

    host: Host
    stop: Stop
    names: Names
    no_fentry: bool = False
    kstat: bool = False
    fallback: bool = True
    recorded: bool = True
    wall: Callable[[], float] = time.time

    def options(self, *, kstat: bool) -> TraceOptions:
        """The options of a trace of anything but fsyncs."""
        return TraceOptions(no_fentry=self.no_fentry, kstat=kstat, table_mib=TABLE_MIB)


class Tracing(ABC, Generic[AnySession]):
    """Implements View for a trace. Between close() and open() it has only its sums."""

    name: ClassVar[str]
    # whether its session lasts while the module comes and goes
    lasting: ClassVar[bool] = False
    # whether it does without BPF
    kstat_too: ClassVar[bool] = False
    retry_ns: ClassVar[int] = RETRY_NS

    def __init__(self, setup: Setup) -> None:
        self._setup, self._host, self._names = setup, setup.host, setup.names
        self.session: AnySession | None = None
        # whether the session is one of kstats, so that nothing is attached
        self.by_kstat = False
        self._meter: Meter[Any, Any] | None = None
        # of each measurement
        self._late: deque[Sequence[JsonRow]] = deque(maxlen=_MOST_LATE)
        self._past = self._lost = Losses()

    @property
    def only_kstat(self) -> bool:
        """Whether it is to attach nothing."""
        return self.kstat_too and self._setup.kstat

    @property
    def problem(self) -> str:
        """What a session that goes on lacks, in one line; "" for nothing."""
        return ""

    @property
    def waiting(self) -> bool:
        """Whether a session that goes on has nothing attached."""
        return False

    # --- what a subject adds

    @abstractmethod
    def _open(self, *, kstat: bool) -> AnySession:
        """Attaches. Raises TraceError."""

    @abstractmethod
    def _metered(self, session: AnySession) -> Meter[Any, Any]:
        """The meter of `zfstune trace`."""

    @abstractmethod
    def _count(self, session: AnySession) -> None:
        """Adds what a refreshed session has counted since the last call."""

    @abstractmethod
    def families(self) -> Iterator[Metric]: ...

    def _begin(self, session: AnySession) -> None:
        """A session has begun: its counts begin with 0."""

    def _end(self) -> None:
        """The session is gone: gauges of the present have no value now."""

    # --- its life

    def open(self) -> None:
        """Attaches, to nothing but kstats where that is not possible and suffices. Raises
        TraceError."""
        kstat = self.only_kstat
        try:
            session = self._open(kstat=kstat)
        except TraceError:
            if kstat or not (self.kstat_too and self._setup.fallback):
                raise
            kstat, session = True, self._open(kstat=True)
        try:
            self._begin(session)
            self._meter = self._metered(session)
        except BaseException:
            session.close()
            raise
        self.session, self.by_kstat = session, kstat

    def close(self) -> None:
        session, self.session = self.session, None
        if session is None:
            return
        try:
            # what it has counted since the last reading; not if it has failed
            with contextlib.suppress(TraceError):
                self._measure(session)
        finally:
            self._meter = None
            self._past = replace(self._lost, unfinished=0)
            self._end()
            with contextlib.suppress(TraceError):
                session.close()

    def tick(self) -> None:
        """Nothing to do but what Host.tick() does. Raises TraceError."""

    def tick_session(self) -> None:
        """What Host.tick() does for its session: after an error of that, to find out whose it is.
        Raises TraceError."""
        tick = getattr(self.session, "tick", None)
        if tick is not None:
            tick()

    # --- what it has counted

    def read(self) -> None:
        if self.session is not None:
            self.session.refresh()
            self._sum(self.session)

    def _sum(self, session: AnySession) -> None:
        self._count(session)
        self._lost = _most(self._lost, self._past.plus(session.losses()))

    def rows(self) -> Sequence[JsonRow]:
        if self.session is not None:
            self._measure(self.session)
        found = [row for rows in self._late for row in rows]
        self._late.clear()
        return found

    def _measure(self, session: AnySession) -> None:
        """read(), and what is new as rows."""
        if self._setup.recorded and self._meter:
            # kept first: an error in what follows must not lose them
            self._late.append(self._meter.measure(step=True)[0])
        else:
            session.refresh()
        self._sum(session)

    def losses(self) -> Losses:
        return self._lost

    def lost(self) -> Iterator[tuple[str, int]]:
        """The number of losses by reason."""
        losses = self.losses()
        yield from losses.to_json().items()
        yield "cut", losses.cut

    def probes(self) -> tuple[Probe, ...]:
        return self.session.probes() if self.session is not None else ()


def _most(one: Losses, other: Losses) -> Losses:
    """None of them goes back; unfinished is no loss, but a number of the present."""
    most = Losses(*map(max, astuple(one), astuple(other)))
    return replace(most, unfinished=other.unfinished)


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

    def _of(self, before: Counts, now: Counts) -> Counts:
        shrunk = any(a > b for a, b in zip(self._numbers(before), self._numbers(now)))
        return self._nothing if shrunk or not same_dataset(before, now) else before
