"""The experiment: interleaved blocks under the baseline (A) and under a candidate (B)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Optional

from zfstrace.host import Host
from zfstrace.kstat import txgs as kstat_txgs
from zfstune.errors import RestoredError
from zfstune.experiment.blocks import Block, BlockMeter
from zfstune.experiment.cache import Steadiness
from zfstune.term.progress import Progress
from zfstune.term.signals import Stop
from zfstune.term.units import SECOND, format_span
from zfstune.tunables import catalogue

Values = Mapping[str, int]
Key = frozenset[tuple[str, int]]

_TICK_NS = SECOND
_COUNT_NS = SECOND // 10
# Writes are counted every _COUNT_NS or, with thousands of datasets, as often as a twentieth of a
# CPU allows
_COUNT_SHARE = 20


class Stopped(Exception):
    """The user ended the session."""


class Abort(RestoredError):
    """A guardrail ended the session; the values in force may be the reason."""


class Disturbed(RestoredError):
    """An outside event made a fair comparison impossible."""


# Called every second with the meter (None before it exists) and whether a block is being measured.
# Raises Abort or Disturbed to end the session.
Watch = Callable[[Optional[BlockMeter], bool], None]


@dataclass(frozen=True)
class BlockPlan:
    """The length of a block, what it must contain, and when values have settled.

    A block with too few fsyncs or txgs is extended by its length, up to twice. After a change, as
    many txgs born since must be committed before it begins as the catalogue says of the parameters
    that differ, settle_txgs of those that it does not know: only then a dirty limit has its whole
    effect (module/zfs/txg.c). In addition the last sync must have taken about as long as one of the
    two before it, or settle_most txgs be done. If there are not enough txgs in settle_s, the
    session ends.
    """

    seconds: float = 10.0
    min_fsyncs: int = 20
    min_txgs: int = 1
    settle_txgs: int = 3
    settle_most: int = 5
    settle_s: float = 240.0

    @property
    def longest_s(self) -> float:
        return 3 * self.seconds


@dataclass(frozen=True)
class Record:
    """A block and its place in the experiment. label is A or B; start_s counts from the start of
    the session."""

    number: int
    phase: str
    trial: int | None
    label: str
    start_s: float
    settle_s: float
    block: Block


@dataclass
class Experiment:
    """Applies values, waits until they have settled, and measures. so_far: what is known, for the
    line that shows progress. cache: also wait for the ARC, which takes minutes."""

    host: Host
    pool: str
    meter: BlockMeter
    plan: BlockPlan
    apply: Callable[[Values], object]
    watch: Watch
    stop: Stop
    progress: Progress
    start_ns: int
    records: list[Record] = field(default_factory=list)
    so_far: str = ""
    cache: Steadiness | None = None
    _in_force: dict[str, int] | None = None
    _needs: int = 0
    _waits_s: dict[Key, list[float]] = field(default_factory=dict)
    # the seconds and txgs of the blocks under values
    _seen: dict[Key, tuple[float, int]] = field(default_factory=dict)
    _count_ns: int = _COUNT_NS

    def now_s(self) -> float:
        """Seconds since the session began."""
        return (self.stop.now() - self.start_ns) / SECOND

    def pair_s(self, *both: Values) -> float:
        """The time of a pair of blocks and the waits before them; for these values if given."""
        waits_s = [self.settle_s(values) for values in both] or [self.settle_s()] * 2
        return 2 * self.block_s() + sum(waits_s)

    def block_s(self) -> float:
        """The mean length of a block so far, without the wait before it; that of the plan, if
        blocks are longer now."""
        lengths = [r.block.seconds for r in self.records] or [self.plan.seconds]
        return max(self.plan.seconds, sum(lengths) / len(lengths))

    def settle_s(self, values: Values | None = None) -> float:
        """The expected time of a wait: from waits for these values, from the rate of txgs under
        them, from all waits so far, or else from the rate of txgs. The first wait was for the load
        to settle, not for values."""
        key = frozenset((values or {}).items())
        known, (seconds, txgs) = self._waits_s.get(key), self._seen.get(key, (0.0, 0))
        if not known and not txgs:
            known = [one for waits_s in self._waits_s.values() for one in waits_s]
            seconds = sum(r.block.seconds for r in self.records)
            txgs = sum(len(r.block.txgs) for r in self.records)
        if known:
            return sum(known) / len(known)
        return (self.plan.settle_txgs + 1) * (seconds / txgs if txgs else 5.0)

    def blocks(
        self,
        phase: str,
        trial: int | None,
        order: Sequence[str],
        a: Values,
        b: Values,
        *,
        go_on: Callable[[Sequence[Record]], bool] = lambda _: True,
        wait_s: float | None = None,
    ) -> list[Record]:
        """Measures blocks in this order of "A" and "B". After each pair it ends unless
        go_on(records so far).

        With wait_s every block has the same wait before it, at least that long, also if values do
        not change: otherwise the coins that draw the order would also draw the times of later
        blocks, and a test that relies on those coins would not be exact (docs/statistics.md).
        Raises Stopped, RestoredError, guard.Refused.
        """
        done: list[Record] = []
        for label in order:
            if done and len(done) % 2 == 0 and not go_on(done):
                break
            values = a if label == "A" else b
            done.append(self.block(phase, trial, label, values, wait_s=wait_s))
        return done

    def block(
        self,
        phase: str,
        trial: int | None,
        label: str,
        values: Values,
        *,
        wait_s: float | None = None,
    ) -> Record:
        """Measures a block under values, after a wait if they change or with wait_s, and then at
        least that long. Raises Stopped, RestoredError, guard.Refused."""
        what = f"{phase} {trial}, {label}" if trial is not None else f"{phase}, {label}"
        what += f", {self.so_far}" if self.so_far else ""
        settled_s = 0.0
        if wait_s is not None or self._in_force != dict(values):
            settled_s = self._settle(what, values, wait_s or 0.0)
        self.watch(self.meter, False)
        start_s = self.now_s()
        self.meter.start(self.stop.now())
        self._measure(what)
        block = self.meter.end(self.stop.now())
        record = Record(len(self.records) + 1, phase, trial, label, start_s, settled_s, block)
        self.records.append(record)
        key = frozenset(values.items())
        seconds, txgs = self._seen.get(key, (0.0, 0))
        self._seen[key] = seconds + block.seconds, txgs + len(block.txgs)
        return record

    def _settle_txgs(self, values: Values) -> int:
        """How many txgs it takes until these values have their whole effect, at least the two whose
        syncs are compared. Without a change as many as after the last one: each block of a proof
        waits equally long."""
        known, otherwise = catalogue.load(), self.plan.settle_txgs
        if self._in_force is None:
            self._needs = otherwise
        elif self._in_force != dict(values):
            differ = dict(self._in_force.items() ^ values.items())
            needs = [known[one].settle_txgs if one in known else otherwise for one in differ]
            self._needs = max(2, *needs)
        return self._needs

    def _settle(self, what: str, values: Values, least_s: float) -> float:
        begin, txgs, first = self.stop.now(), self._settle_txgs(values), not self.records
        self.meter.start(begin)
        # A change may take a while: a limit is lowered only when that delays no writer.
        before = kstat_txgs.newest(self.host.txg_rows(self.pool))
        self._in_force = None
        self.apply(values)
        self._in_force = dict(values)
        after = max(before, kstat_txgs.newest(self.host.txg_rows(self.pool)))
        if self.cache:
            self.cache.begin()
        known_s: float | None = None
        while True:
            done = kstat_txgs.done_since(self.host.txg_rows(self.pool), after)
            waited_s = (self.stop.now() - begin) / SECOND
            to_go = txgs - len(done)
            synced = to_go <= 0 and (_stable(done) or len(done) >= self.plan.settle_most)
            steady = self.cache is None or self.cache.steady()
            if synced and steady and known_s is None:
                known_s = waited_s
            if known_s is not None and waited_s >= least_s:
                break
            if not synced and waited_s > self.plan.settle_s:
                raise Abort(
                    f"no {txgs} txgs in {format_span(int(waited_s * SECOND))}: "
                    "the pool syncs too seldom, or not at all; all parameters are restored"
                )
            cached = f", {self.cache.words()}" if self.cache else ""
            self.progress.status(f"{what}: settling, {max(0, to_go)} txgs to go{cached}")
            self._pause(measuring=False)
        if not first:
            self._waits_s.setdefault(frozenset(values.items()), []).append(known_s)
        return waited_s

    def _measure(self, what: str) -> None:
        begin = self.stop.now()
        length_s = self.plan.seconds
        while True:
            passed_s = (self.stop.now() - begin) / SECOND
            if passed_s >= length_s:
                enough = (
                    self.meter.so_far() >= self.plan.min_fsyncs
                    and len(self.meter.txgs()) >= self.plan.min_txgs
                )
                if enough or length_s >= self.plan.longest_s:
                    return
                length_s += self.plan.seconds
            self.progress.status(f"{what}: {passed_s:.0f} of {length_s:.0f} s")
            self._pause(measuring=True, most_s=length_s - passed_s)

    def _pause(self, *, measuring: bool, most_s: float = math.inf) -> None:
        until = self.stop.now() + math.ceil(min(_TICK_NS, most_s * SECOND))
        while (left := until - self.stop.now()) > 0:
            if self.stop.wait(min(self._count_ns, left)):
                raise Stopped
            # CPU time, not clock time: waiting for a CPU costs nothing
            begin = time.thread_time_ns()
            self.meter.count_written()
            self._count_ns = max(_COUNT_NS, _COUNT_SHARE * (time.thread_time_ns() - begin))
        self.meter.note_txgs()
        self.watch(self.meter, measuring)


def _stable(done: Sequence[kstat_txgs.TxgRow]) -> bool:
    """Whether the last sync took half to twice as long as one of the two before it, or both were
    short. One of two, because waiting writers make large and small txgs alternate."""
    synced = [row.sync_ns for row in done[-3:]]
    return any(
        max(one, synced[-1]) <= max(2 * min(one, synced[-1]), SECOND // 5) for one in synced[:-1]
    )


def too_few(plan: BlockPlan, records: Sequence[Record]) -> str | None:
    """Why blocks cannot be judged, in a sentence; None if they can."""
    poor = [r for r in records if r.block.fsyncs < plan.min_fsyncs]
    if not poor:
        return None
    worst = min(poor, key=lambda r: r.block.fsyncs / r.block.seconds)
    rate = worst.block.fsyncs / worst.block.seconds
    need = plan.min_fsyncs / plan.seconds
    return (
        f"{worst.block.fsyncs} fsyncs in {worst.block.seconds:.0f} s ({rate:.1f}/s) are too few "
        f"to judge: a block of {plan.seconds:g} s needs {plan.min_fsyncs} ({need:.1f}/s)"
    )
