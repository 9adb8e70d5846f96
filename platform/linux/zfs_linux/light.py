"""A light trace on Linux: the tracer of commits always, that of fsyncs in short windows."""

from __future__ import annotations

import random
import time
from collections import deque
from typing import TypedDict

from zfstrace.bpf.commit import CommitTrace
from zfstrace.bpf.fsync import FsyncTrace
from zfstrace.clock import iso_now
from zfstrace.light import CommitCounts, Sample, SlowCommit, Window
from zfstrace.summary import since
from zfstrace.types import LightOptions, Losses, Probe

# In the kernel, for both, however many CPUs and datasets there are: 16 MiB with programs and rings
_COMMIT_MIB, _FSYNC_MIB = 3, 6
# What the estimates are of: at one window a minute the last hour
_WINDOWS = 60
# How long a window waits for the operations that began in it
_DRAIN_NS = 10_000_000_000


class _Limits(TypedDict):
    pool: str | None
    objset: int
    dev: tuple[int, int]
    pid: int
    max_datasets: int


class LightTrace:
    """Implements zfstrace.host.LightSession. tick() opens and closes windows, so they begin and end
    with the second."""

    def __init__(
        self, options: LightOptions, objset: int, dev: tuple[int, int], max_datasets: int
    ) -> None:
        self._options = options
        self._windows: deque[Window] = deque(maxlen=_WINDOWS)
        self._kept: list[Window] = []
        self._random = random.Random()
        self._cause: SlowCommit | None = None
        self._opened_ns = 0  # when the present window began, 0 = none
        self._may_keep_ns = 0  # not before that
        limits: _Limits = {
            "pool": options.pool,
            "objset": objset,
            "dev": dev,
            "pid": options.pid or 0,
            "max_datasets": max_datasets,
        }
        # by kprobes: to attach fentry programs beside those that count commits, and to detach them,
        # would let these miss returns (docs/stages.md, "Attaching")
        self._fsyncs = FsyncTrace(**limits, no_fentry=True, table_mib=_FSYNC_MIB)
        try:
            self._fsyncs.pause(now=True)
            self._fsyncs.refresh()
            self._before = self._fsyncs.datasets()
            self._lost = self._fsyncs.losses()
            self._commits = CommitTrace(
                **limits,
                no_fentry=options.no_fentry,
                slow_ns=options.slow_ns,
                table_mib=_COMMIT_MIB,
            )
        except BaseException:
            self._fsyncs.close()
            raise
        self._plan(time.monotonic_ns())

    def _plan(self, begin_ns: int) -> None:
        """When the window of the period that begins then will open."""
        spare = max(0, self._options.every_ns - self._options.window_ns)
        self._period_ns = begin_ns
        self._next_ns = begin_ns + self._random.randint(0, spare)

    def tick(self) -> None:
        """Opens and closes windows. Raises TraceError."""
        now = time.monotonic_ns()
        self._commits.tidy()
        slow = self._commits.slow()
        if self._opened_ns:
            self._close(now)
            return
        if slow and now >= self._may_keep_ns:
            self._cause = max(slow, key=lambda one: one.total_ns)
            self._may_keep_ns = now + self._options.every_ns
        elif now >= self._next_ns:
            self._plan(max(now, self._period_ns + self._options.every_ns))
        else:
            return
        self._fsyncs.resume()
        self._opened_ns = time.monotonic_ns()

    def _close(self, now: int) -> None:
        """Ends the present window if its time is over and its operations have ended."""
        duration = now - self._opened_ns
        if duration < self._options.window_ns:
            return
        late = duration > self._options.window_ns + _DRAIN_NS
        if self._fsyncs.pause(now=late):
            return
        self._fsyncs.refresh()
        counts, losses = self._fsyncs.datasets(), self._fsyncs.losses()
        lost = losses.since(self._lost)
        window = Window(
            iso_now(),
            duration,
            tuple(
                Sample(
                    one.pool,
                    one.objset,
                    one.dev,
                    one.rest,
                    one.total.count,
                    tuple(stage.sum_ns for stage in one.stages),
                )
                for one in since(counts, self._before)
                if one.total.count
            ),
            self._cause,
            lost.lost + lost.cut,
        )
        (self._kept if self._cause else self._windows).append(window)
        self._before, self._lost, self._cause, self._opened_ns = counts, losses, None, 0

    def commits(self) -> list[CommitCounts]:
        return self._commits.datasets()

    def windows(self) -> list[Window]:
        return list(self._windows)

    def kept(self) -> list[Window]:
        found, self._kept = self._kept, []
        return found

    def refresh(self) -> None:
        self._commits.refresh()

    def losses(self) -> Losses:
        return self._commits.losses()

    def probes(self) -> tuple[Probe, ...]:
        return self._commits.probes() + self._fsyncs.probes()

    def close(self) -> None:
        self._fsyncs.close()
        self._commits.close()
