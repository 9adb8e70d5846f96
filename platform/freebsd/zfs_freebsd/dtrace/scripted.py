"""Traces from the output of a D script, one JSON object per line (docs/dtrace-json.md)."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Optional

from zfs_freebsd.dtrace import probes, process, scripts
from zfs_freebsd.dtrace.process import Dtrace
from zfstrace.errors import TraceError
from zfstrace.hist import Hist, index
from zfstrace.types import Json, Losses, Probe

# A script prints its state twice a second, more rarely on a busy emulated machine. That and the
# sums with it may be 0.2 s old.
STATE_S = 120.0
_PRINT_S = 0.25

Parameter = Callable[[str], Optional[int]]


class Times:
    """A histogram that grows; values in ns."""

    def __init__(self) -> None:
        self._count = self._sum = self._max = 0
        self._buckets: dict[int, int] = {}

    def add(self, ns: int) -> None:
        """Counts one more value in ns."""
        bucket = index(ns)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1
        self._count += 1
        self._sum += ns
        self._max = max(self._max, ns)

    def hist(self) -> Hist:
        """The distribution of all values so far."""
        return Hist(self._count, self._sum, self._max, dict(self._buckets))


class Buckets:
    """A histogram as a script prints it: count, sum and maximum of each bucket, cumulative, in
    ns."""

    def __init__(self) -> None:
        self._rows: dict[int, tuple[int, int, int]] = {}

    def take(self, row: Json) -> None:
        """A row with bucket, count, total_ns and max_ns. Raises KeyError if one is missing."""
        self._rows[row["bucket"]] = row["count"], row["total_ns"], row["max_ns"]

    def hist(self) -> Hist:
        """As of the last print."""
        rows = self._rows.values()
        return Hist(
            sum(count for count, _, _ in rows),
            sum(total for _, total, _ in rows),
            max((most for _, _, most in rows), default=0),
            {bucket: count for bucket, (count, _, _) in self._rows.items()},
        )


class Scripted(ABC):
    """The common part of the traces. Runs from the constructor to close(); raises TraceError."""

    def __init__(self, tracer: str, script: str, *args: str) -> None:
        self._probes = probes.survey((tracer,))
        self._state: Json = {}
        self._state_s = 0.0  # when it arrived
        self._unread = 0
        self._closed = False
        self._dtrace = Dtrace(scripts.script(script), *args)

    def tick(self) -> None:
        """Reads the script's output, so that it does not pile up; call it every second. Does
        nothing once the trace is closed. Raises TraceError."""
        if not self._closed:
            self._read(0)

    def refresh(self) -> None:
        """Waits until the script has printed its current state. Raises TraceError."""
        begun = time.monotonic()
        patience = begun + process.PATIENCE_S
        while self._state_s < begun + _PRINT_S:
            self._read(20)
            now = time.monotonic()
            if now > begun + STATE_S:
                raise TraceError(f"{self._dtrace.name} printed nothing for {STATE_S:g} s")
            if now > patience:
                process.say(f"waiting for the counts of {self._dtrace.name}; {process.BUSY}")
                patience = begun + STATE_S

    def losses(self) -> Losses:
        """start counts events that dtrace dropped and clauses cut short by a fault, missed commits
        whose end was not seen."""
        return Losses(
            start=self._dtrace.drops + self._unread + self._state.get("errors", 0),
            missed=self._state.get("lost", 0),
            log_block=self._log_blocks(),
        )

    def probes(self) -> tuple[Probe, ...]:
        """The places that the script watches, including missing ones."""
        return self._probes

    def close(self) -> None:
        """Ends the script. May be called again."""
        self._closed = True
        with suppress(TraceError):
            self._dtrace.finish()

    def _read(self, timeout_ms: int) -> None:
        for line in self._dtrace.lines(timeout_ms):
            self._on_line(line)

    def _on_line(self, line: str) -> None:
        try:
            # the name of a program may have control characters
            row = json.loads(line, strict=False)
            if row["type"] == "trace_state":
                self._state, self._state_s = row, time.monotonic()
            else:
                self._on_row(row)
        except (ValueError, KeyError, TypeError):
            self._unread += 1  # cut short by a drop

    @abstractmethod
    def _on_row(self, row: Json) -> None:
        """Takes a line of the script; KeyError, TypeError and ValueError mean that it is broken."""

    def _log_blocks(self) -> int:
        """How many waits had no known log block."""
        return 0


class Sums(Scripted):
    """A script that prints sums, twice a second all of them, before its state."""

    # what the lines of sums contain, such as '"device_times"'
    _SUMS: tuple[str, ...] = ()

    def __init__(self, tracer: str, script: str, *args: str) -> None:
        self._printing: list[str] = []
        self._printed: list[str] = []
        super().__init__(tracer, script, *args)

    def _on_line(self, line: str) -> None:
        """Keeps the sums that the script printed last, for _take_sums(). Each print has them all,
        up to thousands: read at once, they keep an emulated CPU busy, and dtrace waits for the
        reader until the kernel ends it."""
        if any(kind in line for kind in self._SUMS):
            self._printing.append(line)
            return
        super()._on_line(line)
        if self._printing:  # this line, the state, follows the sums
            self._printed, self._printing = self._printing, []

    def _take_sums(self) -> None:
        """Gives the sums printed last to _on_row()."""
        for line in self._printed:
            super()._on_line(line)
        self._printed = []


def _pool(name: str | None) -> tuple[str, ...]:
    """The last argument of a script."""
    return () if name is None else (name,)


def _monotonic(wall_ns: int) -> int:
    """A time of the wall clock on CLOCK_MONOTONIC; dtrace's timestamp is neither."""
    return wall_ns - time.time_ns() + time.monotonic_ns()
