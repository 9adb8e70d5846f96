"""The observation for a diagnosis: all traces at once, and kstats before and after."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from zfstrace.host import FsyncSession, Host
from zfstrace.strict import strict_zip
from zfstrace.summary import Span, name_of
from zfstrace.types import WRITES_BLOCKED, FsyncOptions, FsyncSummary, SlowEvent, TraceOptions
from zfstrace.zpool.list import of_each
from zfstune.diagnose.quantities import Observed, Single
from zfstune.term import log
from zfstune.term.units import SECOND
from zfstune.trace import fsync, live, sources
from zfstune.trace.live import Run
from zfstune.trace.sources import Reading

# The most operations to report singly: enough for the slowest hundredth, and few enough not to
# burden a busy host. In the lab, with 64 threads, 24,000 in 20 s were too many: a quarter found no
# room in the buffer.
_MANY = 8_000
# The most kept in memory: the slowest.
_KEPT = 100_000
# How long the rate of commits is measured first.
_LOOK_NS = SECOND
_PARAMETERS = ("zfs_commit_timeout_pct", "zfs_dirty_data_max", "zvol_threads")

Delta = Mapping[str, int]


@dataclass(frozen=True)
class Watched:
    """What was observed of each pool. span is that of the fsync trace; views are the readings of
    the other traces, by name."""

    pools: Sequence[Observed]
    span: Span
    views: Mapping[str, Reading] = field(default_factory=dict)

    @property
    def lost(self) -> dict[str, int]:
        """Losses by trace, without those of 0."""
        losses = {"fsync": self.span.losses.lost}
        losses |= {name: view.losses.lost for name, view in self.views.items()}
        return {name: n for name, n in losses.items() if n}

    @property
    def missing(self) -> dict[str, str]:
        """The traces that were not available, and why."""
        return {name: view.error for name, view in self.views.items() if view.error}


@contextmanager
def watching(run: Run[TraceOptions], tell: Callable[[str], None] = log.say) -> Iterator[Watched]:
    """Attaches all, watches until stop or the duration, and detaches at the end of the block.
    tell() gets what a person should know meanwhile; the host, and what stops it, are those of run,
    so this may be called in any thread. Raises TraceError if fsyncs cannot be traced."""
    host, stop = run.host, run.stop
    tell("attaching ...")
    limits = replace(_limits(run.options), slow_ns=_slow_ns(run))
    with ExitStack() as stack:
        others = {
            name: stack.enter_context(sources.opened(name, run))
            for name in sources.OPEN
            if name != "fsync"
        }
        # last: its events fill a buffer until it is polled
        session = host.open_fsync_trace(limits)
        stack.callback(session.close)
        stack.callback(live.say_waits, host, tell)
        meter = fsync.meter(session, host, limits, stop)
        singles = _Singles(session, host, limits)
        meter.restart()
        for source in others.values():
            source.restart()
        # discards the events before the start
        session.poll(0)
        before = _kstats(host)
        there = 1 + sum(not source.error for source in others.values())
        tell(live.begun(run, f"{there} of {1 + len(others)} traces", run.where))

        def tick() -> bool:
            singles.classify()
            for source in others.values():
                source.tick()
            gone = run.gone()
            if gone:
                tell(f"{gone}: the trace ends")
            return bool(gone) or run.go_on()

        live.follow(run, session, singles.add, tick)
        rows, span = meter.measure(step=False)
        views = {name: source.measure(step=False) for name, source in others.items()}
        zil, dmu_tx = (_since(now, old) for now, old in strict_zip(_kstats(host), before))
        singles.classify()
        shared = {"zil": zil, "dmu_tx": dmu_tx, "arc": views["arc"].rows or None}
        found = {row.pool: row for row in rows if row.dataset is None and row.pool}
        # zpool(8) would wait for a suspended pool
        asked = [pool for pool in found if host.pool_state(pool) not in WRITES_BLOCKED]
        logs = of_each(asked, host.log_vdevs)
        pools = [
            _observed(row, rows, span, host, singles.of(pool), views, logs.get(pool), shared)
            for pool, row in found.items()
        ]
        yield Watched(pools, span, views)


def _limits(options: TraceOptions) -> FsyncOptions:
    return FsyncOptions(options.pool, no_fentry=options.no_fentry, table_mib=options.table_mib)


def _slow_ns(run: Run[TraceOptions]) -> int:
    """The least duration of operations to report singly, in ns: 1 for all, or the p90 of a short
    trace if there would be too many. Where detaching that trace may hang there is none, and events
    that find no room are counted as lost."""
    commits = _kstats(run.host)[0].get("zil_commit_count", 0)
    run.stop.wait(_LOOK_NS)
    rate = _kstats(run.host)[0].get("zil_commit_count", 0) - commits
    if rate * run.args.duration <= _MANY * _LOOK_NS or run.host.pools_blocking_detach():
        return 1
    limits = _limits(run.options)
    session = run.host.open_fsync_trace(limits)
    try:
        meter = fsync.meter(session, run.host, limits, run.stop)
        meter.restart()
        run.stop.wait(_LOOK_NS)
        rows, _ = meter.measure(step=False)
    finally:
        session.close()
    return max([1, *(row.latency.p90 for row in rows if row.latency and not row.dataset)])


def _kstats(host: Host) -> tuple[Delta, Delta]:
    return host.kstat("zil"), host.kstat("dmu_tx")


def _since(now: Delta, before: Delta) -> Delta:
    return {name: value - before.get(name, 0) for name, value in now.items()}


class _Singles:
    """Single operations with their dataset, and whether a txg synced meanwhile. That is looked up
    every second, because the kstat has only the last hundred txgs."""

    def __init__(self, session: FsyncSession, host: Host, options: FsyncOptions) -> None:
        self._session, self._host, self._options = session, host, options
        self._new: list[SlowEvent] = []
        self._found: list[tuple[int, str | None, Single]] = []
        self._number = 0

    def add(self, event: SlowEvent) -> None:
        self._new.append(event)

    def classify(self) -> None:
        if not self._new:
            return
        self._session.refresh()
        names = [
            name_of(counts, self._host, self._options.pool) for counts in self._session.datasets()
        ]
        for event in self._new:
            known = event.dataset < len(names)
            pool, dataset = names[event.dataset] if known else (self._options.pool, None)
            end_ns = event.start_ns + event.total_ns
            txg = self._host.txg_state(pool, event.start_ns, end_ns) if pool else None
            syncing = None if txg is None else txg.state == "syncing"
            one = Single(event.total_ns, event.stage_ns, dataset, event.tid, syncing)
            # the number distinguishes equal ones
            self._number += 1
            self._found.append((self._number, pool, one))
        self._new = []
        if len(self._found) > 2 * _KEPT:
            self._found = heapq.nlargest(_KEPT, self._found, key=lambda entry: entry[2].total_ns)

    def of(self, pool: str | None) -> list[Single]:
        return [one for _, where, one in self._found if where == pool]


def _observed(
    row: FsyncSummary,
    rows: Sequence[FsyncSummary],
    span: Span,
    host: Host,
    singles: Sequence[Single],
    views: Mapping[str, Reading],
    log_vdevs: int | None,
    shared: Mapping[str, Any],
) -> Observed:
    pool = row.pool or ""
    state = host.pool_state(pool)
    now = time.monotonic_ns()
    txg = host.txg_state(pool, now, now)

    def of_pool(name: str) -> list[Any] | None:
        view = views[name]
        return None if view.error else [one for one in view.rows if one.pool == pool]

    return Observed(
        pool=pool,
        state=state,
        time=span.time,
        version=host.version(),
        duration_ns=span.duration_ns,
        unfinished=span.losses.unfinished,
        log_vdevs=log_vdevs,
        fsync=replace(row, histogram=()),
        singles=singles,
        datasets=[one for one in rows if one.pool == row.pool and one.dataset],
        txgs=of_pool("txg"),
        syncing_now_ns=(txg.sync_ns or 0) if txg and txg.state == "syncing" else 0,
        throttle=of_pool("throttle"),
        devices=of_pool("device"),
        parameters={name: host.parameter(name) for name in _PARAMETERS},
        **shared,
    )
