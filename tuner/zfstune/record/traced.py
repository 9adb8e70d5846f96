"""A view whose session may be closed and opened again; rows and losses outlive it."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any, ClassVar, Generic, TypeVar

from zfstrace.errors import LibraryMissing, NoPrivilege, NotSupported, NoZfs, TraceError
from zfstrace.host import Host, Session
from zfstrace.types import Losses, Probe, TraceOptions
from zfstune.term.signals import Stop
from zfstune.term.units import SECOND
from zfstune.trace.live import JsonRow, Meter

# A view that failed is tried again after this time.
RETRY_NS = 300 * SECOND
# Of so many measurements the rows wait for a recorder, which takes them each 10 s.
_MOST_LATE = 64
# Why a host cannot attach, now and later
_FOR_GOOD = (LibraryMissing, NoPrivilege, NotSupported, NoZfs)

AnySession = TypeVar("AnySession", bound=Session)


@dataclass(frozen=True)
class Attach:
    """How views attach. kstat: to nothing; fallback: where nothing can be attached, kstats suffice;
    recorded: a recorder takes their rows; table_mib is what the tables of a view may take in the
    kernel, however many CPUs and datasets there are; max_datasets as in FsyncOptions."""

    host: Host
    stop: Stop
    no_fentry: bool = False
    kstat: bool = False
    fallback: bool = True
    recorded: bool = True
    table_mib: int = 32
    max_datasets: int = 0

    def options(self, *, kstat: bool = False) -> TraceOptions:
        """The options of a trace of anything but fsyncs."""
        return TraceOptions(no_fentry=self.no_fentry, kstat=kstat, table_mib=self.table_mib)

    def module(self) -> str:
        """Which zfs module is loaded: Parameters.identity()."""
        return self.host.parameters().identity()


class Traced(ABC, Generic[AnySession]):
    """A view. Between close() and open() it has only what was counted before."""

    name: ClassVar[str]
    # whether its session lasts while the module comes and goes
    lasting: ClassVar[bool] = False
    # whether it does without BPF
    kstat_too: ClassVar[bool] = False
    retry_ns: ClassVar[int] = RETRY_NS

    def __init__(self, attach: Attach) -> None:
        self._attach, self._host = attach, attach.host
        self.session: AnySession | None = None
        # whether the session is one of kstats, so that nothing is attached, and the error because
        # of which it is, if that may pass
        self.by_kstat = False
        self.instead_of = ""
        self._meter: Meter[Any, Any] | None = None
        # of each measurement
        self._late: deque[Sequence[JsonRow]] = deque(maxlen=_MOST_LATE)
        self._past = self._lost = Losses()

    @property
    def only_kstat(self) -> bool:
        """Whether it is to attach nothing."""
        return self.kstat_too and self._attach.kstat

    @property
    def problem(self) -> str:
        """What a session that goes on lacks, in one line; "" for nothing."""
        return f"only by kstats: {self.instead_of}" if self.instead_of else ""

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

    def _begin(self, session: AnySession) -> None:
        """A session has begun: its counts begin with 0."""

    def _count(self, session: AnySession) -> None:
        """Takes what a refreshed session has counted since the last call, beside the rows."""

    def _finish(self, session: AnySession) -> None:
        """Reads a session that ends. Raises TraceError."""
        self._measure(session)

    def _end(self) -> None:
        """The session is gone: what is of the present has no value now."""

    # --- its life

    def open(self) -> None:
        """Attaches, to nothing but kstats where that is not possible and suffices. Raises
        TraceError."""
        kstat, instead_of = self.only_kstat, ""
        try:
            session = self._open(kstat=kstat)
        except TraceError as error:
            if kstat or not (self.kstat_too and self._attach.fallback):
                raise
            if not isinstance(error, _FOR_GOOD):
                instead_of = error.in_one_line()
            kstat, session = True, self._open(kstat=True)
        self._use(session, kstat, instead_of)

    def attach(self) -> None:
        """Attaches in place of a session of kstats. Raises TraceError: if there is a session then,
        that goes on."""
        session = self._open(kstat=False)
        try:
            self.close()
        except BaseException:
            session.close()
            raise
        self._use(session, False, "")

    def _use(self, session: AnySession, kstat: bool, instead_of: str) -> None:
        try:
            self._begin(session)
            self._meter = self._metered(session)
        except BaseException:
            session.close()
            raise
        self.session, self.by_kstat, self.instead_of = session, kstat, instead_of

    def close(self) -> None:
        """Detaches. May be called again."""
        session, self.session = self.session, None
        if session is None:
            return
        try:
            # what it has counted since the last reading; not if it has failed
            with contextlib.suppress(TraceError):
                self._finish(session)
        finally:
            self._meter, self.instead_of = None, ""
            self._past = replace(self._lost, unfinished=0)
            self._end()
            with contextlib.suppress(TraceError):
                session.close()

    def tick(self) -> None:
        """To be called every second, beside Host.tick(), so that nothing overflows. Raises
        TraceError."""

    def tick_session(self) -> None:
        """What Host.tick() does for its session: after an error of that, to find out whose it is.
        Raises TraceError."""
        tick = getattr(self.session, "tick", None)
        if tick is not None:
            tick()

    # --- what it has counted

    def read(self) -> None:
        """Adds what the kernel has counted to sums that never go back. Raises TraceError."""
        if self.session is not None:
            self.session.refresh()
            self._sum(self.session)

    def _sum(self, session: AnySession) -> None:
        self._count(session)
        self._lost = _most(self._lost, self._past.plus(session.losses()))

    def rows(self) -> Sequence[JsonRow]:
        """What was counted since the last call, as `trace --json` has it. Raises TraceError; the
        next call then has what could be read."""
        if self.session is not None:
            self._measure(self.session)
        found = [row for rows in self._late for row in rows]
        self._late.clear()
        return found

    def _measure(self, session: AnySession) -> None:
        """read(), and what is new as rows."""
        if self._attach.recorded and self._meter:
            # kept first: an error in what follows must not lose them
            self._late.append(self._meter.measure(step=True)[0])
        else:
            session.refresh()
        self._sum(session)

    def losses(self) -> Losses:
        """Since the process began, over all sessions."""
        return self._lost

    def lost(self) -> Iterator[tuple[str, int]]:
        """The number of losses by reason."""
        losses = self.losses()
        yield from losses.to_json().items()
        yield "cut", losses.cut

    def probes(self) -> tuple[Probe, ...]:
        """Those of the present session."""
        return self.session.probes() if self.session is not None else ()


def _most(one: Losses, other: Losses) -> Losses:
    """None of them goes back; unfinished is no loss, but a number of the present."""
    most = Losses(*map(max, astuple(one), astuple(other)))
    return replace(most, unfinished=other.unfinished)
