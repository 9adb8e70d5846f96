"""A session on the simulated write path: a real `Tuning` whose blocks are simulated."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Sequence

from support.fake_host import FakeHost, FakeStop
from support.samples import txg_row
from support.simulator.scenes import Scene
from support.simulator.write_path import DEFAULTS

from zfstrace import hist
from zfstune.experiment import model, search
from zfstune.experiment.blocks import Block, BlockMeter
from zfstune.experiment.found import Found, Task
from zfstune.experiment.objective import Limit, Objective
from zfstune.experiment.phases import Tuning
from zfstune.experiment.runner import BlockPlan, Experiment, Record, Values
from zfstune.experiment.search import Searcher
from zfstune.experiment.space import Space
from zfstune.term.progress import Progress
from zfstune.term.units import SECOND
from zfstune.tunables import catalogue, guard

SEARCHED = catalogue.default_set()
FACTS = guard.Facts(4 << 30, 128 << 20, 3 << 30)
BLOCK_S, SETTLE_S = 10.0, 6.0
OBJECTIVE = Objective.parse("fsync.p99")
LIMITS = ("write.throughput>=-5%", "fsync.mean<=+10%")


class Simulated(Experiment):
    """Blocks of a scene; a change of values takes SETTLE_S to settle."""

    def __init__(self, scene: Scene, seed: int) -> None:
        stop, host = FakeStop(), FakeHost()
        super().__init__(
            host,
            "tank",
            BlockMeter(host, "tank", host.session),
            BlockPlan(seconds=BLOCK_S, min_fsyncs=OBJECTIVE.fsyncs()),
            lambda _values: None,
            lambda _meter, _measuring: None,
            stop,
            Progress(io.StringIO(), 0),
            stop.clock,
        )
        self._scene, self._path = scene, scene.path(seed)
        self._bytes, self._opened = 0, 0.0
        self._pass(SETTLE_S)
        self._in_force = dict(DEFAULTS)

    def block(
        self,
        phase: str,
        trial: int | None,
        label: str,
        values: Values,
        *,
        wait_s: float | None = None,
    ) -> Record:
        settled_s = 0.0
        if wait_s is not None or self._in_force != dict(values):
            settled_s = max(SETTLE_S, wait_s or 0.0)
            self._path.apply({**DEFAULTS, **values})
            self._in_force = dict(values)
            self._pass(settled_s)
            self._waits_s.setdefault(frozenset(values.items()), []).append(SETTLE_S)
        start_s = self.now_s()
        block = self._pass(self.plan.seconds, self.plan.min_fsyncs)
        record = Record(len(self.records) + 1, phase, trial, label, start_s, settled_s, block)
        self.records.append(record)
        return record

    def _pass(self, seconds: float, fsyncs: int = 0) -> Block:
        """Second by second, as a session counts what is written; longer for so many fsyncs."""
        assert isinstance(self.stop, FakeStop)
        path = self._path
        path.begin()
        passed = 0.0
        while passed < seconds or (len(path.fsyncs) < fsyncs and passed < self.plan.longest_s):
            step = min(1.0, seconds - passed) if passed < seconds else 1.0
            passed += step
            path.advance(step)
            self.stop.clock += round(step * SECOND)
            self.meter._written.append((self.stop.clock, self._bytes + path.written))
        self._bytes += path.written
        rows = []
        for number, (end, span, size) in enumerate(path.syncs):
            # a txg is open from the begin of the sync before it to that of its own
            begin, opened = end - span, self._opened
            self._opened = begin
            open_ns, sync_ns = round((begin - opened) * SECOND), round(span * SECOND)
            rows.append(txg_row(number, open_ns=open_ns, sync_ns=sync_ns, dirty_bytes=size))
        buckets = Counter(hist.index(round(one * SECOND)) for one in path.fsyncs)
        waits = {**path.waits, "other": max(0.0, sum(path.fsyncs) - sum(path.waits.values()))}
        metrics = path.metrics(passed)
        if self.meter.periodic:
            metrics["write.throughput"] = metrics["write.accepted"]
        return Block(
            passed,
            len(path.fsyncs),
            metrics,
            tuple((hist.low(k), hist.low(k + 1), count) for k, count in sorted(buckets.items())),
            tuple({"name": name, "total_ns": round(s * SECOND)} for name, s in waits.items()),
            tuple(rows),
        )


def tune(
    scene: Scene,
    seed: int,
    *,
    budget_s: float = 3600.0,
    sampler: str = "local",
    modelled: bool = True,
    limits: Sequence[str] = LIMITS,
) -> tuple[Found, Simulated]:
    """A whole session; modelled: whether the model's candidates go first."""
    experiment = Simulated(scene, seed)

    def made(records: Sequence[Record]) -> Searcher:
        measured = model.measured(records, False, 1)
        first = model.candidates(measured, DEFAULTS, FACTS, SEARCHED) if modelled else []
        space = Space(SEARCHED, DEFAULTS, FACTS, slog=False)
        return Searcher(space, DEFAULTS, FACTS, first=first, sampler=sampler, seed=seed)

    found = Found()
    task = Task(
        OBJECTIVE,
        [Limit.parse(text) for text in limits],
        0.05,
        seed,
        experiment.stop.now() + round(budget_s * SECOND),
        0.0,
        False,
    )
    base = {
        name: DEFAULTS[name] for name in Space(SEARCHED, DEFAULTS, FACTS, slog=False).parameters()
    }
    Tuning(
        task,
        experiment,
        base,
        made,
        lambda best: search.ablation(best, DEFAULTS, FACTS),
        experiment.progress,
        found,
    ).run()
    return found, experiment
