"""Diagnoses beside the recording, in a thread that has a host and a clock of its own.

A diagnosis attaches all traces for ten seconds, which costs CPU: loading programs, running them,
and reading what they counted. What each took is measured, and the next waits until that is no more
than the budget's share of the time between them. Only the one after the first need not wait.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import resource
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from zfstrace import processes
from zfstrace.clock import iso_now
from zfstrace.errors import TraceError
from zfstrace.host import Host
from zfstrace.types import WRITES_BLOCKED, Json, TraceOptions
from zfstrace.zpool.list import of_each
from zfstune.errors import in_one_line
from zfstune.record.costed import Costed, costed, run_ns
from zfstune.term.signals import Stop
from zfstune.term.units import SECOND
from zfstune.trace.live import Run

DURATION_NS = 10 * SECOND
# How long a diagnosis may take beside that: loading takes seconds on a slow machine.
LONGEST_NS = 120 * SECOND
# Between two of them, however cheap they are.
_LEAST_NS = 60 * SECOND
_END_S = 5.0
_ZPOOL_S = 5.0
# Lines of a layout, and pools with one.
_MOST_LAYOUT, _MOST_LAYOUTS = 1024, 256
# In the kernel, for each trace of a diagnosis; a service's memory is limited.
_TABLE_MIB = 32


class ThreadStop(Stop):
    """A Stop without signals, for any thread but the main one: ask() ends it."""

    def __init__(self) -> None:
        super().__init__(io.StringIO())
        self._event = threading.Event()

    def ask(self) -> None:
        self.asked = True
        self._event.set()

    def wait(self, ns: int) -> bool:
        self._event.wait(ns / SECOND)
        return self.asked


@dataclass(frozen=True)
class Observed:
    """What a diagnosis found: `diagnosis` objects, and the lines of `zpool status` on the vdevs of
    each pool; error says why there are none. cpu_ns is what it took."""

    records: list[Json] = field(default_factory=list)
    layouts: dict[str, list[str]] = field(default_factory=dict)
    error: str = ""
    cpu_ns: int = 0


class _Counted:
    """A host that remembers the sessions which can tell what their programs cost."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._sessions: list[Costed] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._host, name)
        if not (name.startswith("open_") and name.endswith("_trace")):
            return found

        def opened(options: Any) -> Any:
            session = found(options)
            counting = costed(session)
            if counting:
                # one is enough for the kernel, which counts for all; each has to be closed. Only
                # CAP_SYS_ADMIN may ask it to: without that, a diagnosis is worth more than its cost
                with contextlib.suppress(TraceError):
                    counting.count_cost()
                self._sessions.append(counting)
            return session

        return opened

    def program_ns(self) -> int:
        """The time of their programs so far; of those that are open."""
        return sum(map(run_ns, self._sessions))


def observe(host: Host, stop: Stop, why: str) -> Observed:
    """One diagnosis. Never raises."""
    begun = time.thread_time_ns() + _children_ns()
    counted = _Counted(host)
    records: list[Json] = []
    layouts: dict[str, list[str]] = {}
    error = ""
    programs = 0
    try:
        layouts = _layouts(host)
        records, programs = _diagnosed(cast("Host", counted), counted, stop, why)
    except Exception as wrong:
        # the recorder outlives it, and says so
        error = in_one_line(wrong)
    spent = time.thread_time_ns() + _children_ns() - begun
    return Observed(records, layouts, error, spent + programs)


def _children_ns() -> int:
    """The CPU time of zpool(8) and others that were run."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round((used.ru_utime + used.ru_stime) * SECOND)


def _diagnosed(host: Host, counted: _Counted, stop: Stop, why: str) -> tuple[list[Json], int]:
    from zfstune.diagnose.judge import judge
    from zfstune.diagnose.observe import watching
    from zfstune.diagnose.quantities import in_need, measure
    from zfstune.preflight import require_tracing

    blocked = {pool: host.pool_state(pool) for pool in host.pools()}
    blocked = {pool: state for pool, state in blocked.items() if state in WRITES_BLOCKED}
    if blocked:
        # what would be attached now might never be detached (zfstune diagnose)
        version, now = host.version(), iso_now()
        found = [judge(in_need(pool, state, now, version)) for pool, state in blocked.items()]
        return [one.to_json() | {"reason": why} for one in found], 0
    require_tracing(host.checks())
    host.tick()
    args = argparse.Namespace(duration=DURATION_NS, json=False)
    # kprobes: to attach and detach fentry programs would let those of the recorder miss returns
    options = TraceOptions(no_fentry=True, table_mib=_TABLE_MIB)
    run = Run(args, options, host, io.StringIO(), stop)
    with watching(run, tell=lambda _text: None) as watched:
        found = [judge(measure(seen)) for seen in watched.pools]
        beside = {"lost": sum(watched.lost.values()), "missing_views": watched.missing}
        programs = counted.program_ns()
    return [one.to_json() | beside | {"reason": why} for one in found], programs


def _layouts(host: Host) -> dict[str, list[str]]:
    """Only of pools that write: zpool(8) would wait for the others."""

    def ask(pool: str) -> list[str]:
        return layout_of(processes.output(["zpool", "status", "--", pool], _ZPOOL_S))

    pools = [pool for pool in host.pools() if host.pool_state(pool) not in WRITES_BLOCKED]
    # without an answer the layout of an earlier diagnosis stays
    return {pool: lines for pool, lines in of_each(pools, ask).items() if lines}


def layout_of(status: str) -> list[str]:
    """The lines on vdevs in the output of `zpool status`."""
    _, _, config = status.partition("\nconfig:\n")
    lines, _, _ = config.partition("\nerrors:")
    return [line.expandtabs() for line in lines.splitlines() if line.strip()][:_MOST_LAYOUT]


class Observer:
    """At most one diagnosis at a time. budget is the share of one CPU, 0 to 1."""

    def __init__(self, open_host: Callable[[], Host], budget: float) -> None:
        self._open_host, self._budget = open_host, budget
        self._thread: threading.Thread | None = None
        self._stop = ThreadStop()
        self._result: Observed | None = None
        self._begun = 0
        # not before that; CLOCK_MONOTONIC in ns
        self.free_at = 0
        self.done = self.failed = self.cpu_ns = 0
        self.error = ""
        self.layouts: dict[str, list[str]] = {}

    @property
    def running(self) -> bool:
        return self._thread is not None

    def ask(self, now: int, why: str) -> bool:
        """Begins a diagnosis; False if one runs, or the last one was too recent for the budget."""
        if self._thread or now < self.free_at:
            return False
        self._stop, self._result, self._begun = ThreadStop(), None, now
        # a daemon: a diagnosis that hangs in the kernel must not keep the process from ending
        thread = threading.Thread(target=self._run, args=(why,), daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            # a limit of tasks or memory
            self.failed, self.error = self.failed + 1, str(error)
            self.free_at = now + _LEAST_NS
            return False
        self._thread = thread
        return True

    def _run(self, why: str) -> None:
        try:
            host = self._open_host()
        except Exception as error:
            self._result = Observed(error=in_one_line(error))
            return
        self._result = observe(host, self._stop, why)

    def poll(self, now: int) -> Observed | None:
        """What a diagnosis found that has ended since the last call. Never waits."""
        thread = self._thread
        if not thread:
            return None
        if thread.is_alive():
            if now - self._begun > DURATION_NS + LONGEST_NS:
                self._stop.ask()
            return None
        self._thread = None
        found = self._result or Observed(error="the diagnosis ended without a result")
        self.cpu_ns += found.cpu_ns
        # the first also loads what later ones need: what it took says nothing about these
        if self.done or found.error:
            self.free_at = now + max(_LEAST_NS, round(found.cpu_ns / self._budget))
        else:
            self.free_at = now
        # those of the newest pools: a host may make and destroy any number of them
        others = {pool: one for pool, one in self.layouts.items() if pool not in found.layouts}
        self.layouts = dict([*others.items(), *found.layouts.items()][-_MOST_LAYOUTS:])
        self.error = found.error
        self.failed += bool(found.error)
        self.done += not found.error
        return found

    def close(self) -> None:
        """Ends a diagnosis, and waits a little for it to detach."""
        self._stop.ask()
        if self._thread:
            self._thread.join(_END_S)

    def status(self, now: int) -> Mapping[str, Any]:
        """For `record status`."""
        return {
            "running": self.running,
            "done": self.done,
            "failed": self.failed,
            "error": self.error,
            "cpu_ns": self.cpu_ns,
            "next_in_ns": max(0, self.free_at - now),
        }
