"""The tests of `zfstune bench`, with the stages of their syncs as libzfstrace traces them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Optional

from zfstrace import stages
from zfstrace.errors import TraceError
from zfstrace.host import Host
from zfstrace.types import SCHEMA, FsyncOptions, FsyncSummary, Json
from zfstune.bench.load import Load, Rate, Test, Watcher
from zfstune.term.signals import Stop
from zfstune.term.units import SECOND
from zfstune.trace import fsync as trace_fsync

# Long enough to create the file and the log, and for a log block or two.
_WARM_UP_S = 0.3
_TICK_NS = SECOND

# Gets the running test, None in the warm-up, and the part of its time that has passed.
Progress = Callable[[Optional[Test], float], None]


@dataclass(frozen=True)
class MeasuredTest:
    """fsync sums up the pool or dataset during the test, without a histogram; None if the test was
    not traced, and then untraced says why. lost counts operations that the trace missed."""

    rate: Rate
    fsync: FsyncSummary | None
    untraced: str | None
    lost: int

    @property
    def limit_per_s(self) -> float | None:
        """The rate if only the device took time: the log writes and flushes of each sync, as
        traced. None without a trace or without log writes."""
        if not self.fsync or not self.fsync.count:
            return None
        device_ns = sum(
            stage.total_ns
            for stage in self.fsync.stages
            if stages.BY_NAME[stage.name].owner == stages.DEVICE
        )
        return self.rate.test.jobs * self.fsync.count * SECOND / device_ns if device_ns else None

    @property
    def p50_ns(self) -> int | None:
        """Of one sync, as the tool or else the trace reports it; None if neither does."""
        return self.rate.p50_ns or (self._latency and self._latency[0])

    @property
    def p99_ns(self) -> int | None:
        """Of one sync, as the tool or else the trace reports it; None if neither does."""
        return self.rate.p99_ns or (self._latency and self._latency[1])

    @property
    def _latency(self) -> tuple[int, int] | None:
        latency = self.fsync.latency if self.fsync else None
        return (latency.p50, latency.p99) if latency else None

    def shares(self) -> dict[str, float]:
        """Stage -> share of the time of all syncs, of 1, the largest first; only stages that took
        time."""
        if not self.fsync:
            return {}
        times = {stage.name: stage.total_ns for stage in self.fsync.stages if stage.total_ns}
        total = sum(times.values())
        return {name: ns / total for name, ns in sorted(times.items(), key=lambda one: -one[1])}

    def to_json(self) -> Json:
        """As a ``bench`` object of the schema."""
        test = self.rate.test
        return {
            "schema": SCHEMA,
            "type": "bench",
            "test": test.name,
            "label": test.label,
            "sync": test.sync,
            "writes": test.writes,
            "jobs": test.jobs,
            "tool": self.rate.tool,
            "per_s": round(self.rate.per_s, 3),
            "count": self.rate.count,
            "p50_ns": self.p50_ns,
            "p99_ns": self.p99_ns,
            "times_of": "tool" if self.rate.p50_ns else "trace" if self._latency else None,
            "limit_per_s": None if self.limit_per_s is None else round(self.limit_per_s, 3),
            "shares": {name: round(share, 4) for name, share in self.shares().items()},
            "fsync": self.fsync.to_json() if self.fsync else None,
            "untraced": self.untraced,
            "lost": self.lost,
        }


def measure(
    host: Host,
    load: Load,
    tests: Sequence[Test],
    path: Path,
    pool: str | None,
    seconds: float,
    stop: Stop,
    progress: Progress = lambda _test, _done: None,
    *,
    dataset: str | None = None,
    untraced: str | None = None,
) -> Iterator[MeasuredTest]:
    """Runs the tests in a directory, one after the other, until stop. Meanwhile it traces the
    fsyncs of the pool, or of the dataset, unless there is no pool, untraced says why not, or
    tracing fails. Raises BenchFailed."""
    with ExitStack() as stack:
        tracing: _Tracing | None = None
        if not pool and not untraced:
            untraced = "not on ZFS"
        if pool and not untraced:
            try:
                tracing = _Tracing(host, FsyncOptions(pool, dataset), stop)
                stack.callback(tracing.close)
            except TraceError as error:
                untraced = error.in_one_line()
        progress(None, 0.0)
        if tests and _warm_up(load, tests, path, stop):
            for test in tests:
                if stop.wait(0):  # a program may end before its own look at the signal
                    return
                watch = _Around(host, tracing, test, seconds, stop, progress)
                rate = load.run(test, path, seconds, stop, watch)
                if rate is None:
                    return
                fsync = watch.fsync
                if fsync and rate.count and test.sync != "none":
                    # without the start of the program
                    fsync = replace(fsync, duration_ns=int(rate.count / rate.per_s * SECOND))
                yield MeasuredTest(rate, fsync, untraced, fsync.losses.lost if fsync else 0)
                # the first sync of the next test would write the unsynced data, too
                if test.sync == "none" and not _warm_up(load, tests, path, stop):
                    return


def _warm_up(load: Load, tests: Sequence[Test], path: Path, stop: Stop) -> bool:
    """Creates the files of all writers, and the log of the dataset, which waits for a txg. False
    when interrupted."""
    most = max(tests, key=lambda test: (test.jobs, test.sync != "none"))
    if most.sync == "none":
        most = replace(most, sync="fdatasync", writes=1)
    return load.run(most, path, _WARM_UP_S, stop) is not None


class _Tracing:
    """A trace that is cut into one part for each test."""

    def __init__(self, host: Host, options: FsyncOptions, stop: Stop) -> None:
        self._session = host.open_fsync_trace(options)
        self._meter = trace_fsync.meter(self._session, host, options, stop)
        self._options = options

    def restart(self) -> None:
        """Discards what was counted so far, losses included."""
        self._meter.measure(step=True)

    def take(self) -> FsyncSummary | None:
        """What was counted of the pool or dataset since then; None if it is gone."""
        rows, _ = self._meter.measure(step=True)
        key = self._options.pool, self._options.dataset
        row = next((row for row in rows if (row.pool, row.dataset) == key), None)
        return replace(row, histogram=()) if row else None

    def close(self) -> None:
        self._session.close()


class _Around(Watcher):
    """Counts the syncs of one test, and reports its progress."""

    def __init__(
        self,
        host: Host,
        tracing: _Tracing | None,
        test: Test,
        seconds: float,
        stop: Stop,
        progress: Progress,
    ) -> None:
        self.fsync: FsyncSummary | None = None
        self._host, self._tracing, self._stop = host, tracing, stop
        self._test, self._seconds, self._progress = test, seconds, progress
        self._began = self._ticked = stop.now()

    def begun(self) -> None:
        self._host.tick()
        self._progress(self._test, 0.0)
        if self._tracing:
            self._tracing.restart()
        self._began = self._ticked = self._stop.now()

    def tick(self) -> None:
        now = self._stop.now()
        self._progress(self._test, min(1.0, (now - self._began) / (self._seconds * SECOND)))
        if now - self._ticked >= _TICK_NS:
            self._ticked = now
            self._host.tick()

    def ended(self) -> None:
        if self._tracing:
            self.fsync = self._tracing.take()
