"""The recorder: an interval each 10 s into the ring, and out of it when something happens.

The main loop of `zfstune record run` and of `zfstune exporter` calls tick() every second.
Nothing here waits: not for a pool, a disk, a client or a diagnosis.
"""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from zfstrace.clock import iso_utc
from zfstrace.errors import TraceError
from zfstrace.host import Host
from zfstrace.types import SCHEMA, Json
from zfstune.changes.paths import INCIDENTS
from zfstune.errors import CommandError, UsageError, in_one_line
from zfstune.record import dumps, memory
from zfstune.record.changes import Write
from zfstune.record.control import Reply, Server
from zfstune.record.dumps import Dumps, Part, fitting
from zfstune.record.header import header
from zfstune.record.interval import Pick, picked
from zfstune.record.observing import Observer
from zfstune.record.ring import STEP_NS, Chunk, Limits, Ring, shift, shift_old
from zfstune.record.triggers import LOST, METRICS, Rows, Trigger, Watch
from zfstune.rules.thresholds import threshold
from zfstune.term.log import say
from zfstune.term.units import SECOND, format_size, format_span

INTERVAL_NS = 10 * SECOND
HOUR_NS = 3600 * SECOND
# Without a reason, so that there is one of the time before. The first comes soon: an incident may
# be why somebody started the recorder.
_DIAGNOSE_NS, _FIRST_NS = 900 * SECOND, 10 * SECOND
# A trigger's dump waits that long for its diagnosis.
_WAIT_NS = 60 * SECOND
# A dump that found no room is tried again.
_AGAIN_NS, _TRIES = 60 * SECOND, 10
# A p99 of that many times the median of the last hour is diagnosed, if the hour is long enough.
_TIMES, _ENOUGH = 4, 30
# How many chunks are corrected in a second after the clock was set.
_RESTAMPED = 4
# The span of a dump around a moment, if none is asked for.
_AROUND_NS = 1800 * SECOND


class Clock:
    """Two clocks in ns: wall() since 1970, steady() of one that is never set and that goes on while
    the host is suspended."""

    _STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def wall(self) -> int:
        return time.time_ns()

    def steady(self) -> int:
        return time.clock_gettime_ns(self._STEADY)


def _nothing() -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Settings:
    """budget is the share of one CPU for diagnoses."""

    directory: str = INCIDENTS
    triggers: Sequence[Trigger] = ()
    budget: float = 0.01
    interval_ns: int = INTERVAL_NS
    limits: Limits = field(default_factory=Limits)


@dataclass
class _Due:
    """An automatic dump that waits for a diagnosis or for room, until a time of CLOCK_MONOTONIC in
    ns. diagnosed: the diagnosis was asked for its reason."""

    reason: str
    at: int
    diagnosed: bool
    tries: int = 0


class Recorder:
    """rows() gives, by view, the objects of `trace --json` since its last call, and may raise
    TraceError; off() says why a view is not attached, lost() how much each could not count since
    the process began; writes() gives the writes of parameters since its last call. open_host opens
    another host for diagnoses, which without it are none. All are called in the thread that calls
    tick()."""

    def __init__(
        self,
        host: Host,
        rows: Callable[[], Rows],
        settings: Settings,
        *,
        open_host: Callable[[], Host] | None = None,
        off: Callable[[], Mapping[str, str]] = _nothing,
        lost: Callable[[], Mapping[str, int]] = _nothing,
        writes: Callable[[], Sequence[Write]] = list,
        clock: Clock | None = None,
    ) -> None:
        self._host, self._rows, self._settings = host, rows, settings
        self._off, self._lost_now, self._writes = off, lost, writes
        self._clock = clock or Clock()
        self.ring = Ring(settings.limits)
        self.dumps = Dumps(settings.directory)
        self._server = Server(self.dumps.socket, self._answer)
        # a dump ends an interval early: what is true of a second is no trigger
        self._watch = Watch(settings.triggers, settings.interval_ns // 2)
        self._observer = Observer(open_host, settings.budget) if open_host else None
        self._signalled = False
        self._before: Any = None
        # of the interval and of the last tick, CLOCK_MONOTONIC
        self._start: int | None = None
        self._now = 0
        # for the interval that has not ended, with times of the clock as it was at the last tick
        self._pending: list[Json] = []
        self._pending_ahead = self._ahead()
        # in this interval: the time soon after the clock was set, and by how much
        self._steps: list[tuple[int, int]] = []
        self._states: dict[str, str] = {}
        self._lost: dict[str, int] = {}
        self._due: _Due | None = None
        self._automatic: int | None = None  # the last one, steady clock
        self._next_diagnosis = 0
        self._p99s: deque[float] = deque(maxlen=HOUR_NS // settings.interval_ns)
        self._unlocked = "not yet"
        self.counts = dict.fromkeys(
            ("intervals", "left_out", "errors", "dumps", "dumps_failed", "fired", "suppressed"),
            0,
        )

    # --- the process

    def open(self) -> None:
        """Opens the directory and the socket, and goes on with the ring of the previous process.
        Raises NotPossible. To be called in the main thread: SIGUSR1 asks for a dump."""
        self.dumps.open(self._host)
        try:
            self.dumps.unlink_socket()
            self._server.open()
        except CommandError:
            self.dumps.close()
            raise
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGUSR1, self._on_signal)
        self._restore()
        memory.preload()

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._signalled = True

    def _restore(self) -> None:
        wall = self._clock.wall()
        try:
            chunks = self.dumps.load(self._ahead())
        except Exception as error:
            # whatever the file holds, the recorder starts; a ValueError says what is wrong with it
            why = str(error) if isinstance(error, ValueError) else in_one_line(error)
            say(f"the record of the previous process is lost: {dumps.SAVED}: {why}")
            self.counts["errors"] += 1
            return
        if chunks and chunks[-1].end > wall:
            say("the record of the previous process is not continued: the clock was set back")
            return
        self.ring.restore([one for one in chunks if one.end > wall - self._settings.limits.span])
        if self.ring.records:
            began, ended = (format_span(wall - at) for at in (self.ring.begin, self.ring.end))
            say(
                f"the record of the previous process is continued: it began {began} ago and ended "
                f"{ended} ago"
            )

    def close(self) -> None:
        """Ends the interval and saves the ring for the next process. May be called again."""
        if self._start is not None:
            self._note("the recorder ended")
            # not judged: it is too late for a file or a diagnosis
            self._end_interval(max(self._now, self._start + 1))
            self._start = None
            if self._observer:
                self._observer.close()
            self._save()
        self._server.close()
        if self.dumps.opened:
            self.dumps.unlink_socket()
        self.dumps.close()
        if self._before is not None:
            signal.signal(signal.SIGUSR1, self._before)
            self._before = None

    def _save(self) -> None:
        part, begin, end = self._part(0, None)
        try:
            self.dumps.save(self._header(begin, end, "saved at the end"), part)
        except OSError as error:
            self.counts["errors"] += 1
            say(f"cannot keep the record for the next process: {in_one_line(error)}")

    # --- the loop

    def tick(self, now: int) -> None:
        """To be called every second; now is CLOCK_MONOTONIC in ns."""
        self._now = now
        self._correct()
        if self._start is None:
            self._begin(now)
        self._look()
        self._take_diagnosis(now)
        if now - (self._start or 0) >= self._settings.interval_ns:
            self._judge(*self._end_interval(now), now)
        # after what the interval may be a reason for
        if now >= self._next_diagnosis:
            self._diagnose("the clock", now)
        if self._signalled:
            self._signalled = False
            self._dump("SIGUSR1", now)
        self._dump_if_due(now)
        self.ring.restamp(self._ahead(), _RESTAMPED)
        self._server.poll(now)

    def _begin(self, now: int) -> None:
        self._start = now
        self._next_diagnosis = now + _FIRST_NS
        # the views are open by now, and what they need is loaded
        self._unlocked = memory.lock()
        if self._unlocked:
            say(f"memory is not locked: {self._unlocked}")
        wall, last = self._clock.wall(), self.dumps.automatic_ns()
        if last is not None and last <= wall:
            self._automatic = self._clock.steady() - (wall - last)
        # a process that was killed has saved nothing: what is continued may be of the one before
        gap = wall - self.ring.end if self.ring.records else 0
        told = f"; nothing was recorded in the {format_span(gap)} before that"
        self._note(f"the recorder began{told if gap >= self._settings.interval_ns else ''}")

    def _ahead(self) -> int:
        return self._clock.wall() - self._clock.steady()

    def _correct(self) -> None:
        """If the wall clock was set, the times of what waits for the end of the interval."""
        ahead = self._ahead()
        by, self._pending_ahead = ahead - self._pending_ahead, ahead
        if abs(by) >= STEP_NS:
            self._steps.append((self._clock.wall(), by))
            for record in self._pending:
                shift(record, by)

    def _note(self, text: str) -> None:
        self._add({"type": "note", "time": iso_utc(self._clock.wall()), "text": text})

    def _add(self, record: Json) -> None:
        self._pending.append({"schema": SCHEMA, **record})

    def _look(self) -> None:
        """At what changes between intervals."""
        for write in self._writes():
            if write.new != write.old:
                self._add(write.to_json())
        states = {pool: self._host.pool_state(pool) for pool in self._host.pools()}
        for pool in sorted({*states, *self._states}):
            if states.get(pool) != self._states.get(pool):
                time_ = iso_utc(self._clock.wall())
                state = states.get(pool, "not imported")
                self._add({"type": "pool_state", "time": time_, "pool": pool, "state": state})
        self._states = states

    # --- intervals

    def _end_interval(self, now: int) -> tuple[Rows, int]:
        """Adds it to the ring; returns its rows and its length."""
        duration = now - (self._start or now)
        off = dict(self._off())
        try:
            rows = self._rows()
        except TraceError as error:
            rows, off = {}, {**off, "all": error.in_one_line()}
            self.counts["errors"] += 1
        pick = picked(rows)
        for at, by in self._steps:
            shift_old(pick.records, at, by, self._clock.wall())
        self._steps = []
        self.counts["intervals"] += 1
        self.counts["left_out"] += sum(pick.left_out.values())
        lost = self._lost_since()
        self._add_interval(pick, off, lost, duration)
        self._start = now
        return {**rows, LOST: [lost]}, duration

    def _lost_since(self) -> dict[str, int]:
        """How much each view could not count since the last call, without those of 0."""
        before, self._lost = self._lost, dict(self._lost_now())
        since = {view: n - before.get(view, 0) for view, n in self._lost.items()}
        return {view: n for view, n in since.items() if n}

    def _add_interval(
        self, pick: Pick, off: Mapping[str, str], lost: Mapping[str, int], duration: int
    ) -> None:
        # read after the rows: none of them has a later time
        wall = self._clock.wall()
        first = {
            "schema": SCHEMA,
            "type": "interval",
            "time": iso_utc(wall),
            "duration_ns": duration,
            "off": off,
            "lost": lost,
        }
        if pick.left_out:
            told = ", ".join(f"{n} of {view}" for view, n in sorted(pick.left_out.items()))
            self._note(f"more rows than the recorder keeps: left out {told}")
        records = self._in_order(pick.records)
        self.ring.add([first, *records], wall - duration, wall, self._ahead())

    def _in_order(self, records: Sequence[Json]) -> list[Json]:
        """These and the pending ones, which then are none any more, in order of time."""
        found = [*records, *self._pending]
        self._pending = []
        return sorted(found, key=lambda one: str(one.get("time")))

    def _judge(self, rows: Rows, duration: int, now: int) -> None:
        fired = self._watch.ended(rows, duration)
        if fired:
            self._fire("; ".join(one.reason for one in fired), now)
        p99 = max(METRICS["fsync.p99"].values(rows, duration).values(), default=None)
        if p99 is None:
            return
        median = statistics.median(self._p99s) if len(self._p99s) >= _ENOUGH else None
        self._p99s.append(p99)
        if median is not None and p99 > max(_TIMES * median, threshold("quick")):
            self._diagnose(f"p99 over {_TIMES} times the median of the last hour", now)

    # --- diagnoses

    def _diagnose(self, why: str, now: int) -> bool:
        if not self._observer or not self._host.loaded() or not self._host.pools():
            return False
        begun = self._observer.ask(now, why)
        if begun:
            self._next_diagnosis = now + _DIAGNOSE_NS
        return begun

    def _take_diagnosis(self, now: int) -> None:
        """What a diagnosis has found that ended, for the present interval."""
        found = self._observer.poll(now) if self._observer else None
        if not found:
            return
        self._pending += found.records
        if found.error:
            self._note(f"a diagnosis was not possible: {found.error}")
        due = self._due
        if due and not due.tries:
            # one that ran already may have watched before the trigger was true
            again = not due.diagnosed and self._diagnose(due.reason, now)
            due.diagnosed, due.at = True, now + _WAIT_NS if again else now

    # --- dumps

    def _fire(self, reason: str, now: int) -> None:
        self.counts["fired"] += 1
        self._note(reason)
        last = self._automatic
        if self._due or (last is not None and self._clock.steady() - last < HOUR_NS):
            self.counts["suppressed"] += 1
            why = "one waits to be written" if self._due else "one was written within the hour"
            say(f"{reason}: no file, since {why}")
            self._diagnose(reason, now)
            return
        say(reason)
        begun = self._diagnose(reason, now)
        waits = begun or bool(self._observer and self._observer.running)
        self._due = _Due(reason, now + _WAIT_NS if waits else now, begun)

    def _dump_if_due(self, now: int) -> None:
        due = self._due
        if not due or now < due.at:
            return
        if self._dump(due.reason, now):
            self._automatic = self._clock.steady()
            self.dumps.mark_automatic(self._clock.wall())
            self._due = None
            return
        due.tries, due.at = due.tries + 1, now + _AGAIN_NS
        if due.tries >= _TRIES:
            say(f"given up: {due.reason}")
            self._due = None

    def _dump(self, reason: str, now: int) -> bool:
        """Writes all of the ring; False if there is no room for it, or another problem."""
        try:
            path, _ = self._write(reason, now, 0, None)
        except OSError as error:
            say(f"cannot write an incident file to {self.dumps.path}: {in_one_line(error)}")
            return False
        say(f"{path} is written: {reason}")
        return True

    def _write(self, reason: str, now: int, begin: int, end: int | None) -> tuple[str, Part]:
        """Raises OSError."""
        part, first, last = self._taken(now, begin, end)
        name = dumps.file_name(dumps.host_name(), self._clock.wall())
        with self._counted():
            path = self.dumps.write(name, self._header(first, last, reason), part)
        return str(path), part

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        """Counts a dump, or its failure."""
        try:
            yield
        except OSError:
            self.counts["dumps_failed"] += 1
            raise
        self.counts["dumps"] += 1

    def _taken(self, now: int, begin: int, end: int | None) -> tuple[Part, int, int]:
        """What the ring has up to this moment."""
        if self._start is not None and now - self._start >= SECOND:
            self._judge(*self._end_interval(now), now)
        if self._pending:
            # of the interval that has just ended
            wall = self._clock.wall()
            self.ring.add(self._in_order([]), wall, wall, self._ahead())
        return self._part(begin, end)

    def _part(self, begin: int, end: int | None) -> tuple[Part, int, int]:
        self.ring.restamp(self._ahead())
        part = fitting(self.ring.chunks(begin, end))
        wall = self._clock.wall()
        chunks: Sequence[Chunk] = part.chunks
        return part, chunks[0].begin if chunks else wall, chunks[-1].end if chunks else wall

    def _header(self, begin: int, end: int, reason: str) -> Json:
        return header(
            self._host,
            begin,
            end,
            reason,
            interval_ns=self._settings.interval_ns,
            layouts=self._observer.layouts if self._observer else {},
            lost=self._lost,
        )

    # --- the socket

    def _answer(self, request: Json) -> Reply:
        """Raises CommandError and OSError, which are the reply, too."""
        what = request.get("do")
        if what == "status":
            return Reply(self.status())
        if what != "dump":
            raise UsageError("the request is neither dump nor status", "use the same zfstune")
        begin, end = self._asked(request.get("last_ns"), request.get("at"))
        if not request.get("file"):
            path, part = self._write("zfstune record dump", self._now, begin, end)
            return Reply({"path": path, "records": part.records, "left_out": part.left_out})
        part, first, last = self._taken(self._now, begin, end)
        with self._counted():
            fd = self.dumps.anonymous(self._header(first, last, "zfstune record dump"), part)
        return Reply({"records": part.records, "left_out": part.left_out}, fd)

    def _asked(self, last_ns: object, at: object) -> tuple[int, int | None]:
        """The span of --last and --at, ns since 1970. Raises UsageError."""
        span = last_ns if isinstance(last_ns, int) and last_ns > 0 else None
        if not isinstance(at, str):
            return (self._clock.wall() - span if span else 0), None
        from zfstune.incident.at import find, parse

        moment = find(parse(at), (self.ring.begin, self._clock.wall()), "the record")
        half = (span or _AROUND_NS) // 2
        return moment - half, moment + half

    def status(self) -> Json:
        """What `record status` shows."""
        ring = self.ring
        return {
            "schema": SCHEMA,
            "type": "record_status",
            "pid": os.getpid(),
            "time_from": iso_utc(ring.begin) if ring.records else None,
            "time_to": iso_utc(ring.end) if ring.records else None,
            "span_ns": ring.end - ring.begin if ring.records else 0,
            "memory_bytes": ring.memory,
            "memory_limit_bytes": ring.limits.memory,
            "records": ring.records,
            "too_long": ring.dropped,
            "memory_locked": not self._unlocked,
            "off": dict(self._off()),
            "lost": dict(self._lost_now()),
            "triggers": [
                {"text": one.text, "value": self._watch.last[one.text], "unit": one.metric.unit}
                for one in self._watch.triggers
            ],
            "waiting": self._due.reason if self._due else None,
            "directory": str(self.dumps.path),
            "files": self.dumps.names(),
            "diagnoses": dict(self._observer.status(self._now)) if self._observer else None,
            **self.counts,
        }


def begun(recorder: Recorder) -> str:
    """What is recorded where, for the log."""
    limits = recorder.ring.limits
    return (
        f"recording the last {format_span(limits.span)} in {format_size(limits.memory)} of memory; "
        f"incidents go to {recorder.dumps.path}"
    )
