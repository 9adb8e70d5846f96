"""The views of the recorder. Those of the exporter are the same, with metrics."""

from __future__ import annotations

import argparse
import heapq
import io
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from zfstrace import light_summary
from zfstrace.arc import ArcRow, ArcState
from zfstrace.device import DeviceCounts, DeviceRow
from zfstrace.errors import NotSupported, TraceError
from zfstrace.host import (
    ArcSession,
    DeviceSession,
    FsyncSession,
    Host,
    LightSession,
    ThrottleSession,
    TxgSession,
)
from zfstrace.light import CommitCounts, LightRow, Window
from zfstrace.summary import name_of, since, summarize
from zfstrace.throttle import ThrottleCounts, ThrottleRow
from zfstrace.txg import Txg
from zfstrace.types import (
    DatasetCounts,
    FsyncOptions,
    FsyncSummary,
    Json,
    LightOptions,
    SlowEvent,
    SlowFsync,
    TraceOptions,
)
from zfstune.errors import NotPossible
from zfstune.preflight import instead_of, require_tracing
from zfstune.record.args import DEFAULT_VIEWS
from zfstune.record.interval import MOST_SLOW, SLOW_NS
from zfstune.record.traced import Attach, Traced
from zfstune.term.log import say
from zfstune.term.signals import Stop
from zfstune.term.units import SECOND
from zfstune.trace import arc, device, fsync, light, throttle
from zfstune.trace import sources as live_sources
from zfstune.trace.light import EVERY, WINDOW
from zfstune.trace.live import JsonRow, Meter, Run
from zfstune.trace.slow import slow_fsync
from zfstune.trace.sources import Opened, Source

# In the kernel, for all stages; with many CPUs fewer datasets fit, and the rest is summed.
_FSYNC_MIB = 32
# So many txgs wait for a recorder.
_MOST_ENDED = 1024


class Light(Traced[LightSession]):
    """Commits, and stages from windows. Its session outlives the module, and waits without a
    pool."""

    name = "light"
    lasting = True
    # an attempt costs a second or two of CPU time
    retry_ns = 60 * SECOND

    def __init__(self, attach: Attach) -> None:
        super().__init__(attach)
        self._kept: deque[Window] = deque(maxlen=MOST_SLOW)

    @property
    def problem(self) -> str:
        """What keeps the session from attaching, or from opening windows; "" if nothing does."""
        return self.session.why if self.session is not None else ""

    @property
    def waiting(self) -> bool:
        """Whether nothing is attached: no pool is imported, or that has failed."""
        return self.session is not None and self.session.waiting

    def _open(self, *, kstat: bool) -> LightSession:
        options = LightOptions(None, None, None, SLOW_NS, EVERY, WINDOW, self._attach.no_fentry)
        return self._host.open_light_trace(options)

    def _metered(self, session: LightSession) -> Meter[Sequence[CommitCounts], LightRow]:
        host = self._host
        return Meter(
            session,
            self._attach.stop,
            (),
            session.commits,
            lambda now, earlier, span: light_summary.rows(
                light_summary.since(now, earlier), session.windows(), host, span
            ),
        )

    def _count(self, session: LightSession) -> None:
        self._taken(session)

    def _taken(self, session: LightSession) -> Sequence[Window]:
        """The windows since the last call that follow a slow commit."""
        found = session.kept()
        if self._attach.recorded:
            self._kept += found
        return found

    def rows(self) -> Sequence[JsonRow]:
        found = list(super().rows())
        kept = [row for one in self._kept for row in light_summary.kept(one, self._host)]
        self._kept.clear()
        return found + kept


class Fsync(Traced[FsyncSession]):
    """All stages of all fsyncs, and the slowest singly."""

    name = "fsync"

    def __init__(self, attach: Attach) -> None:
        super().__init__(attach)
        self._slowest: list[SlowFsync] = []
        self._options = FsyncOptions(
            slow_ns=SLOW_NS,
            no_fentry=attach.no_fentry,
            max_datasets=attach.max_datasets,
            table_mib=_FSYNC_MIB,
        )

    def _open(self, *, kstat: bool) -> FsyncSession:
        return self._host.open_fsync_trace(self._options)

    def _metered(self, session: FsyncSession) -> Meter[Sequence[DatasetCounts], FsyncSummary]:
        return fsync.meter(session, self._host, self._options, self._attach.stop)

    def tick(self) -> None:
        if self.session is not None:
            self._see(self.session, self.session.poll(0))

    def _count(self, session: FsyncSession) -> None:
        self._see(session, session.poll(0))

    def _see(self, session: FsyncSession, events: Sequence[SlowEvent]) -> None:
        """Names slow ones at once: what their txg did is not known for long."""
        if not (events and self._attach.recorded):
            return
        session.refresh()
        counts = session.datasets()
        found = []
        for event in heapq.nlargest(MOST_SLOW, events, key=_took):
            known = event.dataset < len(counts)
            name = name_of(counts[event.dataset], self._host, None) if known else _UNKNOWN
            found.append(slow_fsync(event, *name, self._host, session))
        self._slowest = heapq.nlargest(MOST_SLOW, self._slowest + found, key=_took)

    def rows(self) -> Sequence[JsonRow]:
        found = list(super().rows())
        slow, self._slowest = self._slowest, []
        return found + sorted(slow, key=lambda one: one.time)


_UNKNOWN = None, "<unknown>"


def _took(one: SlowEvent | SlowFsync) -> int:
    return one.total_ns


class Txgs(Traced[TxgSession]):
    """Transaction groups as they end."""

    name = "txg"
    kstat_too = True

    def __init__(self, attach: Attach) -> None:
        super().__init__(attach)
        self._ended: deque[Txg] = deque(maxlen=_MOST_ENDED)

    def _open(self, *, kstat: bool) -> TxgSession:
        return self._host.open_txg_trace(self._attach.options(kstat=kstat))

    def _metered(self, session: TxgSession) -> Meter[list[Txg], Txg]:
        def read() -> list[Txg]:
            self._count(session)
            found = list(self._ended)
            self._ended.clear()
            return found

        # each txg is read once: all that read() returns is new
        return Meter(session, self._attach.stop, [], read, lambda now, _earlier, _span: now)

    def tick(self) -> None:
        if self.session is not None:
            self._count(self.session)

    def _count(self, session: TxgSession) -> None:
        self._taken(session)

    def _taken(self, session: TxgSession) -> Sequence[Txg]:
        """Those that have ended since the last call."""
        found = session.poll(0)
        if self._attach.recorded:
            self._ended += found
        return found


class Throttle(Traced[ThrottleSession]):
    """Waits of writers."""

    name = "throttle"

    def _open(self, *, kstat: bool) -> ThrottleSession:
        return self._host.open_throttle_trace(self._attach.options())

    def _metered(self, session: ThrottleSession) -> Meter[Sequence[ThrottleCounts], ThrottleRow]:
        return throttle.meter(session, self._host, self._attach.options(), self._attach.stop)


class Arc(Traced[ArcSession]):
    """The cache; by kstats without the waits for room in it."""

    name = "arc"
    kstat_too = True

    def _open(self, *, kstat: bool) -> ArcSession:
        return self._host.open_arc_trace(self._attach.options(kstat=kstat))

    def _metered(self, session: ArcSession) -> Meter[ArcState, ArcRow]:
        return arc.meter(session, self._attach.stop)

    def _begin(self, session: ArcSession) -> None:
        self._module = self._host.parameters().identity()

    def _finish(self, session: ArcSession) -> None:
        if self._host.parameters().identity() != self._module:
            # the kstat is that of another module, or gone: the last row would be nonsense
            self._meter = None
        super()._finish(session)


class Device(Traced[DeviceSession]):
    """I/Os, by vdev and class."""

    name = "device"

    def _open(self, *, kstat: bool) -> DeviceSession:
        return self._host.open_device_trace(self._attach.options())

    def _metered(self, session: DeviceSession) -> Meter[Sequence[DeviceCounts], DeviceRow]:
        return device.meter(session, self._host, self._attach.options(), self._attach.stop)


_CLASSES: tuple[type[Traced[Any]], ...] = (Light, Fsync, Txgs, Throttle, Arc, Device)


def view_named(name: str, attach: Attach) -> Traced[Any]:
    """A view, which is not open yet."""
    return {view.name: view for view in _CLASSES}[name](attach)


# What the tables of a view may take in the kernel, however many CPUs and datasets there are.
_TABLE_MIB = 32
# The views whose sessions do what is due in Host.tick().
_FOLLOWED = ("light", "fsync", "throttle")
_AGAIN_NS, _LIGHT_AGAIN_NS = 300 * SECOND, 60 * SECOND


def open_light(host: Host, options: TraceOptions, stop: Stop) -> Opened:
    """Commits, and stages from windows."""
    session = host.open_light_trace(
        LightOptions(None, None, None, SLOW_NS, light.EVERY, light.WINDOW, options.no_fentry)
    )
    return Opened(
        session,
        Meter[Any, Any](
            session,
            stop,
            (),
            session.commits,
            lambda now, earlier, span: [
                *light_summary.rows(
                    light_summary.since(now, earlier), session.windows(), host, span
                ),
                *(row for window in session.kept() for row in light_summary.kept(window, host)),
            ],
        ),
    )


def open_fsync(host: Host, options: TraceOptions, stop: Stop) -> Opened:
    """All stages of all fsyncs, and the slowest singly."""
    limits = FsyncOptions(slow_ns=SLOW_NS, no_fentry=options.no_fentry, table_mib=options.table_mib)
    session = host.open_fsync_trace(limits)
    slowest = _Slowest(session, host)
    meter = Meter[Any, Any](
        session,
        stop,
        (),
        session.datasets,
        lambda now, earlier, span: [
            *summarize(since(now, earlier), host, span),
            *slowest.taken(),
        ],
    )
    return Opened(session, meter, slowest.poll)


class _Slowest:
    """The slowest operations since the last call of taken()."""

    def __init__(self, session: FsyncSession, host: Host) -> None:
        self._session, self._host = session, host
        self._found: list[tuple[int, int, SlowFsync]] = []
        self._number = 0

    def poll(self) -> None:
        """To be called every second, so that no event finds the buffer full."""
        events = heapq.nlargest(MOST_SLOW, self._session.poll(0), key=lambda event: event.total_ns)
        if not events:
            return
        self._session.refresh()
        names = [name_of(one, self._host, None) for one in self._session.datasets()]
        for event in events:
            self._add(event, names)
        self._found = heapq.nlargest(MOST_SLOW, self._found)

    def _add(self, event: SlowEvent, names: Sequence[tuple[str | None, str | None]]) -> None:
        known = event.dataset < len(names)
        pool, dataset = names[event.dataset] if known else (None, "<unknown>")
        slow = slow_fsync(event, pool, dataset, self._host, self._session)
        # the number distinguishes equal ones
        self._number += 1
        self._found.append((event.total_ns, self._number, slow))

    def taken(self) -> list[SlowFsync]:
        found, self._found = self._found, []
        return [slow for _, _, slow in found]


_OPEN: dict[str, live_sources.Open] = {
    **live_sources.OPEN,
    "light": open_light,
    "fsync": open_fsync,
}


def require(host: Host, views: Sequence[str]) -> None:
    """Raises NotPossible if a view can never be had here: without privilege, say. A module that is
    not loaded may come."""
    if set(views) <= set(live_sources.KSTAT):
        return
    checks = [one for one in host.checks() if one.kind != "zfs"]
    try:
        require_tracing(checks)
    except NotPossible as error:
        error.more = instead_of("", host, checks, None) if host.loaded() else ()
        raise


def _traced(error: TraceError | OSError) -> TraceError:
    return error if isinstance(error, TraceError) else TraceError(error.strerror or str(error))


class Views:
    """The open views of a host. names None: DEFAULT_VIEWS, or fsync in place of light where there
    are no light traces. off says why a view is not attached, by its name."""

    def __init__(
        self, host: Host, names: Sequence[str] | None, stop: Stop, *, no_fentry: bool = False
    ) -> None:
        self._host, self._stop = host, stop
        self.names = tuple(names or DEFAULT_VIEWS)
        self._may_change = names is None
        self._options = TraceOptions(no_fentry=no_fentry, table_mib=_TABLE_MIB)
        self._open: dict[str, Source] = {}
        self._module = ""
        self._again: dict[str, int] = {}
        self._rows: dict[str, list[Json]] = {}
        self._lost: dict[str, int] = {}
        self._waits = ""
        self.off: dict[str, str] = {}

    def tick(self, now: int) -> None:
        """To be called every second; now is CLOCK_MONOTONIC in ns. What fails is closed, and named
        in off."""
        self._follow_module(now)
        try:
            self._host.tick()
        except (TraceError, OSError) as error:
            # which of them cannot go on is not known: if it was another, it says so again
            for name in [one for one in _FOLLOWED if one in self._open][:1]:
                self._fail(name, _traced(error), now)
        for name, source in list(self._open.items()):
            try:
                source.tick()
            except TraceError as error:
                self._fail(name, error, now)

    def _follow_module(self, now: int) -> None:
        """Opens what can be, and closes what keeps the module in the kernel."""
        loaded, identity = self._host.loaded(), self._host.parameters().identity()
        module = identity if loaded and self._host.pools() else ""
        if module != self._module:
            # a light trace follows by itself
            for name in [one for one in self._open if one != "light"]:
                # the last seconds of a pool; kstats of another module would make nonsense
                if identity == self._module:
                    self._measure(name)
                self._close(name)
            self._again.clear()
        self._module = module
        waits = "" if module else "no pool is imported" if loaded else "ZFS is not loaded"
        if waits != self._waits:
            self._waits = waits
            say(f"{waits}: waiting for it" if waits else "a pool is imported: recording")
        for name in self.names:
            if name in self._open or now < self._again.get(name, 0):
                continue
            if waits and not (name == "light" and loaded):
                self.off[name] = waits
            else:
                self._try(name, now)

    def _try(self, name: str, now: int) -> None:
        source = Source(name)
        args = argparse.Namespace(duration=None, json=False)
        run = Run(args, self._options, self._host, io.StringIO(), self._stop)
        try:
            source.open(_OPEN[name], run, live_sources.lack_of(self._host))
        except NotSupported as error:
            if name == "light" and self._may_change:
                self.names = tuple("fsync" if one == "light" else one for one in self.names)
                self.off.pop(name, None)
                say(f"view light is not possible here: {error}; recording fsync instead")
                return
            self._fail(name, error, now)
        except TraceError as error:
            self._fail(name, error, now)
        else:
            self._open[name] = source
            self.off.pop(name, None)
            try:
                source.restart()
            except TraceError as error:
                self._fail(name, error, now)

    def _fail(self, name: str, error: TraceError, now: int) -> None:
        self._close(name)
        why = error.in_one_line()
        if self.off.get(name) != why:
            say(f"view {name} is off: {why}")
        self.off[name] = why
        self._again[name] = now + (_LIGHT_AGAIN_NS if name == "light" else _AGAIN_NS)

    def _close(self, name: str) -> None:
        source = self._open.pop(name, None)
        if source:
            source.close()

    def rows(self) -> Mapping[str, Sequence[Json]]:
        """What each view has counted since the last call, by its name."""
        for name in list(self._open):
            error = self._measure(name)
            if error:
                self._fail(name, TraceError(error), self._stop.now())
        found, self._rows = self._rows, {}
        return found

    def _measure(self, name: str) -> str:
        """Adds to the rows what an open view has counted; returns why that is not possible, "" if
        it is."""
        reading = self._open[name].measure(step=True)
        if not reading.error:
            self._lost[name] = self._lost.get(name, 0) + reading.losses.lost
            self._rows.setdefault(name, []).extend(row.to_json() for row in reading.rows)
        return reading.error

    def lost(self) -> Mapping[str, int]:
        """How much each view could not count, since the recorder began."""
        return self._lost

    def close(self) -> None:
        """Detaches all."""
        for name in list(self._open):
            self._close(name)
