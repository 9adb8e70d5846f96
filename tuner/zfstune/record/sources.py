"""The views of the recorder. Those of the exporter are the same, with metrics."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from typing import Any

from zfstrace import light_summary
from zfstrace.arc import ArcRow, ArcState
from zfstrace.device import DeviceCounts, DeviceRow
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
from zfstrace.summary import name_of
from zfstrace.throttle import ThrottleCounts, ThrottleRow
from zfstrace.txg import Txg
from zfstrace.types import (
    DatasetCounts,
    FsyncOptions,
    FsyncSummary,
    LightOptions,
    SlowEvent,
    SlowFsync,
)
from zfstune.errors import NotPossible
from zfstune.preflight import instead_of, require_tracing
from zfstune.record.interval import MOST_SLOW, SLOW_NS
from zfstune.record.traced import Attach, Traced
from zfstune.term.units import SECOND
from zfstune.trace import arc, device, fsync, throttle
from zfstune.trace.light import EVERY, WINDOW
from zfstune.trace.live import JsonRow, Meter
from zfstune.trace.slow import slow_fsync
from zfstune.trace.vdevs import VdevNames

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
        self._module = self._attach.module()

    def _finish(self, session: ArcSession) -> None:
        if self._attach.module() != self._module:
            # the kstat is that of another module, or gone: the last row would be nonsense
            self._meter = None
        super()._finish(session)


class Device(Traced[DeviceSession]):
    """I/Os, by vdev and class."""

    name = "device"

    def __init__(self, attach: Attach) -> None:
        super().__init__(attach)
        self._vdevs = VdevNames(attach.host, attach.stop)

    def _open(self, *, kstat: bool) -> DeviceSession:
        return self._host.open_device_trace(self._attach.options())

    def _metered(self, session: DeviceSession) -> Meter[Sequence[DeviceCounts], DeviceRow]:
        return device.meter(session, self._vdevs, self._attach.options(), self._attach.stop)


_CLASSES: tuple[type[Traced[Any]], ...] = (Light, Fsync, Txgs, Throttle, Arc, Device)


def view_named(name: str, attach: Attach) -> Traced[Any]:
    """A view, which is not open yet."""
    return {view.name: view for view in _CLASSES}[name](attach)


def require(host: Host, views: Sequence[str]) -> None:
    """Raises NotPossible if a view can never be had here: without privilege, say. A module that is
    not loaded may come."""
    if not {view.name for view in _CLASSES if not view.kstat_too} & set(views):
        return
    checks = [one for one in host.checks() if one.kind != "zfs"]
    try:
        require_tracing(checks)
    except NotPossible as error:
        error.more = instead_of("", host, checks, None) if host.loaded() else ()
        raise
