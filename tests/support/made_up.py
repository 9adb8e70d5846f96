"""Sessions on blocks of a fake pool, whose cost and throughput are factors by values."""

from __future__ import annotations

import io
import math
import random
from collections.abc import Callable, Mapping, Sequence

from support.fake_host import FakeHost, FakeStop
from support.samples import txg_row

from zfstune.experiment import search
from zfstune.experiment.blocks import Block, BlockMeter
from zfstune.experiment.found import Found, Task
from zfstune.experiment.model import Candidate
from zfstune.experiment.objective import Limit, Objective
from zfstune.experiment.phases import Tuning
from zfstune.experiment.reads import Reads
from zfstune.experiment.runner import BlockPlan, Experiment, Record, Values
from zfstune.experiment.search import Exhausted
from zfstune.term.progress import Progress
from zfstune.term.units import SECOND
from zfstune.tunables import guard

DIRTY, WRLOG = "zfs_dirty_data_max", "zfs_wrlog_data_max"
ASYNC = "zfs_vdev_async_write_max_active"
TIMEOUT = "zfs_txg_timeout"
BASE = {DIRTY: 400 << 20, WRLOG: 800 << 20, ASYNC: 10, TIMEOUT: 5}
SMALL = {DIRTY: 32 << 20, WRLOG: 64 << 20}
FACTS = guard.Facts(memory_bytes=4 << 30, arc_c_min=128 << 20, arc_c_max=2 << 30)


class MadeUp(Experiment):
    """Blocks of 20 s with 10 s between different values; cost and throughput are factors by
    values, times noise."""

    def __init__(
        self,
        factors: Callable[[Values], tuple[float, float]],
        noise: float,
        seed: int,
        fsyncs: int = 1000,
    ) -> None:
        stop, host = FakeStop(), FakeHost()
        self.said = io.StringIO()
        super().__init__(
            host,
            "tank",
            BlockMeter(host, "tank", host.session),
            BlockPlan(min_fsyncs=100),
            lambda _values: None,
            lambda _meter, _measuring: None,
            stop,
            Progress(self.said, 0),
            stop.clock,
        )
        self._factors, self._noise, self._fsyncs = factors, noise, fsyncs
        self._random = random.Random(seed)
        self.applied: list[dict[str, int]] = []
        self.change: Callable[[Record], Record] = lambda record: record
        self.refused = ""

    def block(
        self,
        phase: str,
        trial: int | None,
        label: str,
        values: Values,
        *,
        wait_s: float | None = None,
    ) -> Record:
        changed = wait_s is not None or not self.applied or self.applied[-1] != dict(values)
        self.applied.append(dict(values))
        if self.refused and values[self.refused] != BASE[self.refused]:
            raise guard.Refused("cannot set that")
        self.take_s(30 if changed else 20)
        cost, throughput = self._factors(values)
        metrics = {
            name: 1e8 * cost * math.exp(self._random.gauss(0, self._noise))
            for name in ("fsync.p50", "fsync.p99", "fsync.p999", "fsync.mean")
        }
        metrics["write.throughput"] = 3e7 * throughput * math.exp(self._random.gauss(0, 0.01))
        block = Block(20.0, self._fsyncs, metrics, txgs=tuple(map(txg_row, range(8))))
        record = Record(len(self.records) + 1, phase, trial, label, self.now_s(), 10.0, block)
        record = self.change(record)
        self.records.append(record)
        return record

    def take_s(self, seconds: int) -> None:
        assert isinstance(self.stop, FakeStop)
        self.stop.clock += seconds * SECOND


class Listed:
    """A search that offers these candidates, in order: the model's, or those of a sampler."""

    def __init__(self, candidates: Sequence[Mapping[str, int]], source: str = "model") -> None:
        self._source = source
        self._left = [Candidate(dict(c), source, {}, i) for i, c in enumerate(candidates)]
        self.told: list[tuple[Candidate, float]] = []
        self.failed: list[str] = []
        self.pruned: list[str] = []
        self.spent = 0.0

    def waiting(self) -> int:
        return len(self._left) if self._source == "model" else 0

    def alpha(self) -> float:
        return 0.04 - self.spent

    def spend(self, alpha: float) -> None:
        self.spent += alpha

    def ask(self) -> Candidate:
        if not self._left:
            raise Exhausted
        return self._left.pop(0)

    def tell(self, candidate: Candidate, score: float) -> None:
        self.told.append((candidate, score))

    def fail(self, candidate: Candidate, why: str) -> None:
        self.failed.append(why)

    def prune(self, candidate: Candidate, why: str) -> None:
        self.pruned.append(why)


def session(
    experiment: MadeUp,
    candidates: Sequence[Mapping[str, int]] | Listed,
    minutes: float = 30,
    limits: Sequence[str] = ("write.throughput>=-5%",),
    found: Found | None = None,
    reads: Reads | None = None,
) -> tuple[Found, Listed]:
    """Runs one with these candidates."""
    listed = candidates if isinstance(candidates, Listed) else Listed(candidates)
    found = found or Found()
    task = Task(
        Objective.parse("fsync.p99"),
        [Limit.parse(text) for text in limits],
        0.05,
        1,
        experiment.stop.now() + round(minutes * 60 * SECOND),
        0.0,
        False,
    )
    Tuning(
        task,
        experiment,
        BASE,
        lambda _records: listed,
        lambda best: search.ablation(best, BASE, FACTS),
        experiment.progress,
        found,
        reads,
    ).run()
    return found, listed


def dirty_counts(values: Values) -> tuple[float, float]:
    """A small dirty limit makes fsyncs three times as fast; nothing else does anything."""
    return (1 / 3 if values[DIRTY] < 64 << 20 else 1.0), 1.0
