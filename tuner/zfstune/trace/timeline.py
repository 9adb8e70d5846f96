"""A trace as a timeline: the Trace Event Format of Chrome, for Perfetto, the Firefox Profiler and
speedscope. A row for each thread with its operations and their stages; rows for each pool's txgs.

The kernel sums the time in each stage of an operation: a stage is drawn once, in the order in which
stages happen, even if the operation was in it several times.
"""

from __future__ import annotations

import json
import os
import time
from calendar import timegm
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from zfstrace import files
from zfstrace.clock import iso_utc
from zfstrace.errors import TraceError
from zfstrace.host import TxgSession
from zfstrace.printable import printable
from zfstrace.stages import NAMES
from zfstrace.strict import strict_zip
from zfstrace.txg import Txg
from zfstrace.types import FsyncOptions, Json, Losses, SlowEvent, SlowFsync, TraceOptions
from zfstune import __version__
from zfstune.errors import NotPossible, UsageError
from zfstune.term.log import say
from zfstune.term.units import format_count
from zfstune.trace.live import Run

# The latest ones are kept: some 50 MB of memory, and a file of some 60 MB.
MOST = 50_000
# No process has this id: pid_max is at most 4,194,304 on Linux, 99,999 on FreeBSD.
_POOLS = 1 << 30
_PARTS = ("open", "quiesce", "wait", "sync")
_NOTE = (
    "a stage is drawn once per operation, with all of its time, in the order in which stages "
    "happen; ends of txgs are known to the millisecond"
)


def check(path: str) -> None:
    """Raises UsageError if a timeline cannot be written there."""
    target = Path(path)
    if not path.endswith(".json") or target.name == ".json":
        raise UsageError(f"--timeline {path}: not the name of a timeline", "end it in .json")
    if target.exists() and not (target.is_file() or target.is_symlink()):
        raise UsageError(f"cannot write {path}: not a regular file", "choose another name")
    if not target.parent.is_dir():
        raise UsageError(f"cannot write {path}: no directory {target.parent}", "create it")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise UsageError(
            f"cannot write {path}: no permission for {target.parent}", "choose another directory"
        )


@contextmanager
def recorded(run: Run[FsyncOptions]) -> Iterator[Recorder]:
    """A recorder of a trace of slow operations, with the txgs of its pools if these can be traced;
    closed with the block."""
    say("attaching to txgs ...")
    pool = run.options.pool or (run.options.dataset or "").split("/", 1)[0] or None
    try:
        session = run.host.open_txg_trace(TraceOptions(pool, no_fentry=run.options.no_fentry))
    except TraceError as error:
        say(f"the timeline has no rows for txgs: {error.in_one_line()}")
        yield Recorder(run, pool, None)
        return
    try:
        yield Recorder(run, pool, session)
    finally:
        session.close()


class Recorder:
    """A timeline in the making; tick() is called every second."""

    def __init__(
        self, run: Run[FsyncOptions], pool: str | None, session: TxgSession | None
    ) -> None:
        self.timeline = Timeline()
        self._run, self._pool, self._session = run, pool, session

    def tick(self) -> None:
        """Reads the txgs that have ended, before their buffer overflows. Raises TraceError."""
        if self._session:
            ended = self._session.poll(0)
            self.timeline.add_txgs(txg for txg in ended if self._pool in (None, txg.pool))

    def finish(self, losses: Losses, duration_ns: int) -> None:
        """Writes the file, and says what is in it. Raises NotPossible and TraceError."""
        lost = losses.lost
        if self._session:
            self._session.refresh()
            self.tick()
            lost += self._session.losses().lost
        timeline, path = self.timeline, self._run.args.timeline
        facts = {"over_ns": self._run.args.over, "duration_ns": duration_ns, "lost": lost}
        timeline.write(path, facts)
        has = f"{format_count(timeline.operations)} operations, {format_count(timeline.txgs)} txgs"
        out = f", the first {format_count(timeline.left_out)} left out" if timeline.left_out else ""
        say(f"{has}{out}, lost {format_count(lost)}, written to {path}")


class _Operation(NamedTuple):
    start_ns: int  # since 1970
    event: SlowEvent
    name: str
    txg: int | None
    txg_state: str | None


class Timeline:
    """Collects operations and txgs; keeps the latest `most` of each."""

    def __init__(self, most: int = MOST) -> None:
        self.operations = self.txgs = 0
        self._slow: deque[_Operation] = deque(maxlen=most)
        self._txgs: deque[Txg] = deque(maxlen=most)
        # one offset for all: an operation must not begin before the thread's last one has ended
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    @property
    def left_out(self) -> int:
        """The operations and txgs for which there was no room: the earliest."""
        return self.operations + self.txgs - len(self._slow) - len(self._txgs)

    def add(self, event: SlowEvent, slow: SlowFsync) -> None:
        """An operation, as the kernel reported it and with its names."""
        wall_ns = event.wall_ns
        self.operations += 1
        start_ns = event.start_ns + self._offset_ns if wall_ns is None else wall_ns
        name = f"{slow.kind} {slow.dataset or slow.pool or 'unknown dataset'}"
        self._slow.append(_Operation(start_ns, event, name, slow.txg, slow.txg_state))

    def add_txgs(self, txgs: Iterable[Txg]) -> None:
        """Txgs that have ended."""
        for txg in txgs:
            self.txgs += 1
            self._txgs.append(txg)

    def write(self, path: str, facts: Json) -> None:
        """Writes the file, whole or not at all; facts are shown with it. Raises NotPossible."""
        try:
            files.write(Path(path), (piece.encode() for piece in self._pieces(facts)))
        except OSError as error:
            why = error.strerror or str(error)
            raise NotPossible(
                f"cannot write {path}: {why}", "free space or choose another path"
            ) from None

    def _pieces(self, facts: Json) -> Iterator[str]:
        """The text of the file. Times are whole us, since readers add them as floating point: a
        stage must not end after its operation."""
        txgs = list(self._txg_slices())
        begin_ns = min(
            [one.start_ns for one in self._slow] + [start for _, _, start, _ in txgs], default=0
        )
        yield '{"traceEvents":[\n'
        comma = ""
        slices = (_txg_slice(*one, begin_ns) for one in txgs)
        for event in chain(self._names(), self._operation_slices(begin_ns), slices):
            yield comma + json.dumps(event, separators=(",", ":"))
            comma = ",\n"
        other = {
            "zfstune": __version__,
            "begin": iso_utc(begin_ns) if begin_ns else None,
            "left_out": self.left_out,
            "note": _NOTE,
            **facts,
        }
        yield f'\n],"displayTimeUnit":"ms","otherData":{json.dumps(other)}}}\n'

    def _names(self) -> Iterator[Json]:
        """The names of processes and threads, those of pools first."""
        if self._txgs:
            yield _name("process_name", _POOLS, 0, "pools")
            yield {
                "ph": "M",
                "name": "process_sort_index",
                "pid": _POOLS,
                "tid": 0,
                "args": {"sort_index": -1},
            }
            for (pool, part), row in self._rows().items():
                yield _name("thread_name", _POOLS, row, f"{pool} txg {part}")
        # a program may change its name: the last one counts
        events = [one.event for one in self._slow]
        processes = {event.pid: event.comm for event in events}
        threads = {(event.pid, event.tid): event.comm for event in events}
        for pid, comm in processes.items():
            yield _name("process_name", pid, 0, comm)
        for (pid, tid), comm in threads.items():
            yield _name("thread_name", pid, tid, comm)

    def _rows(self) -> dict[tuple[str, str], int]:
        pools = dict.fromkeys(txg.pool for txg in self._txgs)
        return {
            (pool, part): number
            for number, (pool, part) in enumerate(
                ((pool, part) for pool in sorted(pools) for part in _PARTS), 1
            )
        }

    def _operation_slices(self, begin_ns: int) -> Iterator[Json]:
        for one in sorted(self._slow, key=lambda one: one.start_ns):
            event, at_ns = one.event, one.start_ns - begin_ns
            who = {"pid": event.pid, "tid": event.tid}
            stages = dict(strict_zip(NAMES, event.stage_ns))
            yield {
                "ph": "X",
                "cat": "operation",
                "name": printable(one.name),
                **who,
                **_span(at_ns, at_ns + event.total_ns),
                "args": {
                    "object": event.object,
                    "txg": one.txg,
                    "txg state": one.txg_state,
                    "ns": {name: ns for name, ns in stages.items() if ns},
                },
            }
            for name, ns in stages.items():
                span = _span(at_ns, at_ns + ns)
                at_ns += ns
                if span["dur"]:
                    yield {"ph": "X", "cat": "stage", "name": name, **who, **span}

    def _txg_slices(self) -> Iterator[tuple[Txg, int, int, int]]:
        """Txg, row, start and end in ns since 1970, as far as they are known."""
        rows = self._rows()
        ended: dict[int, int] = {}
        for txg in self._txgs:
            end_ns = _ns_of(txg.time)
            spans = []
            for part in reversed(_PARTS):
                ns: int | None = getattr(txg, f"{part}_ns")
                if ns is None:
                    break
                spans.append((rows[txg.pool, part], end_ns - ns, end_ns))
                end_ns -= ns
            for row, start_ns, until_ns in reversed(spans):
                # their ends are rounded, and slices of a row must not overlap
                start = max(start_ns, ended.get(row, start_ns))
                ended[row] = max(start, until_ns)
                yield txg, row, start, ended[row]


def _name(what: str, pid: int, tid: int, name: str) -> Json:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": printable(name)}}


def _txg_slice(txg: Txg, row: int, start_ns: int, end_ns: int, begin_ns: int) -> Json:
    return {
        "ph": "X",
        "cat": "txg",
        "name": f"txg {txg.txg}",
        "pid": _POOLS,
        "tid": row,
        **_span(start_ns - begin_ns, end_ns - begin_ns),
        "args": {"closed by": printable(txg.reason), "dirty bytes": txg.dirty_bytes},
    }


def _span(start_ns: int, end_ns: int) -> Json:
    start = start_ns // 1000
    return {"ts": start, "dur": end_ns // 1000 - start}


def _ns_of(time_utc: str) -> int:
    """The inverse of iso_utc()."""
    seconds = timegm(time.strptime(time_utc[:19], "%Y-%m-%dT%H:%M:%S"))
    return seconds * 1_000_000_000 + int(time_utc[20:23]) * 1_000_000
