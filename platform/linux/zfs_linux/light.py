"""A light trace on Linux: the tracer of commits always, that of fsyncs in short windows, and both
only while a pool is imported."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TypedDict

from zfstrace.bpf.binding import CCost
from zfstrace.bpf.commit import CommitTrace
from zfstrace.bpf.fsync import FsyncTrace
from zfstrace.clock import iso_now
from zfstrace.errors import TraceError, UnknownName
from zfstrace.host import Host
from zfstrace.light import CommitCounts, CommitSums, Sample, SlowCommit, Window
from zfstrace.summary import since
from zfstrace.types import LightOptions, Losses, Probe

# In the kernel, for both, however many CPUs and datasets there are: 16 MiB with programs and rings
_COMMIT_MIB, _FSYNC_MIB = 3, 6
# What the estimates are of: at one window a minute the last hour
_WINDOWS = 60
# How long a window waits for the operations that began in it
_DRAIN_NS = 10_000_000_000
# After an attempt to attach that failed: one takes a second, and what it lacks seldom comes back
_AGAIN_NS = 60_000_000_000


class Limits(TypedDict):
    """What the tracers are limited to, as keywords of theirs; it may change with the module."""

    pool: str | None
    objset: int
    dev: tuple[int, int]
    pid: int
    max_datasets: int


class LightTrace:
    """Implements zfstrace.host.LightSession. tick() attaches and detaches: fentry programs keep the
    module loaded, and without a pool there is nothing to trace. Counts, windows and losses outlive
    that. limits raises UnknownName while its dataset is not in use. Raises TraceError if it cannot
    attach at first; later it tries again."""

    def __init__(self, options: LightOptions, limits: Callable[[], Limits], host: Host) -> None:
        self._options, self._limits, self._host = options, limits, host
        self._windows: deque[Window] = deque(maxlen=_WINDOWS)
        # of those nobody may ask for
        self._kept: deque[Window] = deque(maxlen=_WINDOWS)
        self._sum, self._past = CommitSums(), Losses()
        self._why, self._again_ns, self._closed = "", 0, False
        # the module, and what it had counted, when commits were last looked at without probes
        self._left, self._seen = "", 0
        # also without a pool, so that what cannot be attached is known at once
        self._attach()

    def _attach(self) -> None:
        """Raises TraceError."""
        limits, self._module = self._limits(), self._loaded()
        self._open: _Attached | None = _Attached(self._options, limits, self._windows, self._kept)
        self._probes = self._open.probes()
        self._why = ""

    def _try(self) -> None:
        """Attaches, unless that has failed a moment ago."""
        now, module = time.monotonic_ns(), self._loaded()
        if now < self._again_ns and module == self._left:
            return
        try:
            self._attach()
        except UnknownName:
            # its dataset may be mounted later, and until then it has no commits
            self._why = ""
            self._look()
        except TraceError as error:
            # a pool that is exported, a module that is unloaded meanwhile is no failure
            if self._host.pools() and self._loaded() == module:
                self._why, self._again_ns = error.in_one_line(), now + _AGAIN_NS

    def _loaded(self) -> str:
        return self._host.parameters().identity()

    def _committed(self) -> int:
        """How many commits the module has counted since it was loaded."""
        return self._host.kstat("zil").get("zil_commit_count", 0)

    @property
    def waiting(self) -> bool:
        return self._open is None

    @property
    def why(self) -> str:
        return self._why or (self._open.why if self._open else "")

    def tick(self) -> None:
        """Raises TraceError."""
        if self._closed:
            return
        imported = bool(self._host.pools())
        if self._open and not (imported and self._loaded() == self._module):
            self._detach()
        if not imported:
            self._why, self._again_ns = "", 0
        if not self._open:
            if imported:
                self._try()
            self._past = self._past.plus(Losses(missed=self._look()))
        if self._open:
            self._open.tick()

    def _look(self) -> int:
        """How many commits the module has counted since the last look."""
        loaded, committed = self._loaded(), self._committed()
        seen = self._seen if loaded == self._left else 0
        self._left, self._seen = loaded, committed
        return max(0, committed - seen)

    def _detach(self) -> None:
        """Raises TraceError."""
        assert self._open
        self._open.commits.refresh()
        self._sum.end(self._open.commits.datasets())
        self._past = self._past.plus(replace(self._open.commits.losses(), unfinished=0))
        self._left = self._loaded()
        self._seen = self._committed() if self._left == self._module else 0
        self._let_go()

    def commits(self) -> list[CommitCounts]:
        return self._sum.of(self._open.commits.datasets() if self._open else ())

    def windows(self) -> list[Window]:
        return list(self._windows)

    def kept(self) -> list[Window]:
        found = list(self._kept)
        self._kept.clear()
        return found

    def refresh(self) -> None:
        if self._open:
            self._open.commits.refresh()

    def losses(self) -> Losses:
        return self._past.plus(self._open.commits.losses()) if self._open else self._past

    def probes(self) -> tuple[Probe, ...]:
        return self._probes

    def count_cost(self) -> None:
        """As Session.count_cost(); without a pool there is nothing to count. Raises TraceError."""
        if self._open:
            self._open.commits.count_cost()

    def end_cost(self) -> None:
        """As Session.end_cost()."""
        if self._open:
            self._open.commits.end_cost()

    def costs(self) -> list[tuple[Probe, CCost]]:
        """Of all programs, those of windows included. Raises TraceError."""
        return self._open.costs() if self._open else []

    def _let_go(self) -> None:
        if self._open:
            self._open.close()
        self._open = None

    def close(self) -> None:
        self._closed = True
        self._let_go()


def _total(commit: SlowCommit) -> int:
    return commit.total_ns


class _Attached:
    """The tracers of one module. tick() opens and closes windows, so they begin and end with the
    second; windows and kept get them. why is what kept the last one from being opened, if
    anything."""

    def __init__(
        self, options: LightOptions, limits: Limits, windows: deque[Window], kept: deque[Window]
    ) -> None:
        self._options, self._windows, self._kept = options, windows, kept
        self._random = random.Random()
        self.why = ""
        # the slowest commit that the present window is kept for, if any
        self._cause: SlowCommit | None = None
        self._opened_ns, self._at_random = 0, False  # when the present window began, 0 = none
        self._may_keep_ns = 0  # not before that
        # by kprobes: to attach fentry programs beside those that count commits, and to detach them,
        # would let these miss returns (docs/stages.md, "Attaching")
        self._fsyncs = FsyncTrace(**limits, no_fentry=True, table_mib=_FSYNC_MIB)
        try:
            self._fsyncs.pause(now=True)
            self._fsyncs.refresh()
            self._before = self._fsyncs.datasets()
            self._lost = self._fsyncs.losses()
            self.commits = CommitTrace(
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
        self.commits.tidy()
        self._fsyncs.tidy()  # of datasets that go between windows, too
        self._see(self.commits.slow(), now)
        if self._opened_ns:
            self._close(now)
            return
        self._at_random = not self._cause
        if self._at_random:
            if now < self._next_ns:
                return
            self._plan(max(now, self._period_ns + self._options.every_ns))
        try:
            self._fsyncs.resume()
        except TraceError as error:
            # commits are counted all the same; the next window may have better luck
            self.why, self._cause = error.in_one_line(), None
            return
        self.why = ""
        self._opened_ns = time.monotonic_ns()

    def _see(self, slow: list[SlowCommit], now: int) -> None:
        """Keeps the present window for a slow commit, or the one that it opens, at most one in each
        period."""
        if not slow or (not self._cause and now < self._may_keep_ns):
            return
        if not self._cause:
            self._may_keep_ns = now + self._options.every_ns
        # the first may not be the slowest
        self._cause = max([self._cause, *slow] if self._cause else slow, key=_total)

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
            lost=lost.lost + lost.cut,
        )
        if self._at_random:  # whatever was in it
            self._windows.append(window)
        if self._cause:
            self._kept.append(replace(window, cause=self._cause))
        self._before, self._lost, self._cause, self._opened_ns = counts, losses, None, 0

    def probes(self) -> tuple[Probe, ...]:
        return self.commits.probes() + self._fsyncs.probes()

    def costs(self) -> list[tuple[Probe, CCost]]:
        return self.commits.costs() + self._fsyncs.costs()

    def close(self) -> None:
        self._fsyncs.close()
        self.commits.close()
