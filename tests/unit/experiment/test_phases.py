"""A session's phases on blocks of a fake pool: better values are found and proved, others left
alone."""

from __future__ import annotations

import io
import itertools
import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
from support.fake_host import FakeHost, FakeStop
from support.samples import txg_row

from zfstune.errors import NotPossible
from zfstune.experiment import search
from zfstune.experiment.blocks import Block, BlockMeter
from zfstune.experiment.found import Found, Task
from zfstune.experiment.model import Candidate
from zfstune.experiment.objective import Limit, Objective
from zfstune.experiment.phases import Tuning
from zfstune.experiment.runner import Abort, BlockPlan, Experiment, Record, Values
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
        super().__init__(
            host,
            "tank",
            BlockMeter(host, "tank", host.session),
            BlockPlan(min_fsyncs=100),
            lambda _values: None,
            lambda _meter, _measuring: None,
            stop,
            Progress(io.StringIO(), 0),
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
) -> tuple[Found, Listed]:
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
    ).run()
    return found, listed


def dirty_counts(values: Values) -> tuple[float, float]:
    """A small dirty limit makes fsyncs three times as fast; nothing else does anything."""
    return (1 / 3 if values[DIRTY] < 64 << 20 else 1.0), 1.0


def test_what_is_better_is_found_and_proved() -> None:
    experiment = MadeUp(dirty_counts, 0.15, 1)
    found, _ = session(experiment, [{TIMEOUT: 2}, SMALL])
    assert found.accepted
    assert found.verdict is not None
    assert found.verdict.kind == "better"
    assert found.verdict.low < -0.6 < found.verdict.high < 0 or found.verdict.high < -0.55
    assert found.winner is not None
    assert found.winner.values == SMALL
    assert found.outcome is not None
    assert [limit.ok for limit in found.outcome.limits] == [True]
    assert found.outcome.changes["fsync.p99"].high < -0.4
    assert found.soak is not None
    assert found.soak.ok
    assert found.soak.blocks >= 5


@pytest.mark.parametrize("minutes", [22, 30, 60])
def test_a_soak_takes_half_of_what_is_left(minutes: float) -> None:
    experiment = MadeUp(dirty_counts, 0.15, 1)
    found, _ = session(experiment, [SMALL], minutes)
    blocks = [record for record in experiment.records if record.phase == "soak"]
    assert found.soak is not None
    left_s = 60 * minutes - blocks[0].start_s
    used_s = experiment.now_s() - blocks[0].start_s
    assert len(blocks) in range(6, 49, 6)
    assert used_s < left_s / 2 or len(blocks) == 6
    assert len(blocks) == 48 or left_s < 60 * 48


def test_the_proof_is_on_fresh_blocks() -> None:
    experiment = MadeUp(dirty_counts, 0.15, 2)
    found, _ = session(experiment, [SMALL])
    proof = [r for r in experiment.records if r.phase == "confirm"]
    assert found.verdict is not None
    assert len(proof) == 2 * found.verdict.pairs >= 12
    for first, second in zip(proof[::2], proof[1::2], strict=True):
        assert {first.label, second.label} == {"A", "B"}
    noise = [r for r in experiment.records if r.phase == "aa"]
    assert [r.number for r in noise] == [1, 2, 3, 4, 5, 6]
    assert all(values == BASE for values in experiment.applied[:6])
    assert len(found.aa) == 3


def test_what_is_not_needed_is_dropped() -> None:
    drawn = Listed([SMALL | {ASYNC: 1, TIMEOUT: 2}], "tpe")
    found, _ = session(MadeUp(dirty_counts, 0.02, 3), drawn, minutes=60)
    assert found.accepted
    assert found.winner is not None
    assert found.winner.values == SMALL
    assert sorted(name for one in found.dropped for name in one.names) == [TIMEOUT, ASYNC]


def test_a_search_leaves_time_to_find_out_what_is_needed() -> None:
    """In half an hour, with more candidates than it has time for."""
    many = [SMALL | {ASYNC: 1}, *({TIMEOUT: n, ASYNC: n} for n in range(2, 40))]
    experiment = MadeUp(dirty_counts, 0.02, 8)
    found, _ = session(experiment, Listed(many, "tpe"), minutes=30)
    assert found.accepted
    assert found.winner is not None
    assert found.winner.values == SMALL
    assert [one.names for one in found.dropped] == [(ASYNC,)]
    assert len(found.trials) >= 3


def test_nothing_is_accepted_when_nothing_matters() -> None:
    accepted = 0
    for seed in range(40):
        found, _ = session(
            MadeUp(lambda _values: (1.0, 1.0), 0.2, seed), [SMALL, {ASYNC: 1}, {TIMEOUT: 2}]
        )
        accepted += found.accepted
        assert found.verdict is None or found.verdict.kind != "worse" or not found.accepted
    assert accepted <= 4  # 5 % of 40 is 2; of 40 fair sessions more than 4 in 1 of 20 tries


def with_metric(name: str, value: float, when: Callable[[Record], bool]) -> Callable[..., Record]:
    """Blocks in which a metric has this value."""

    def changed(record: Record) -> Record:
        if not when(record):
            return record
        metrics = record.block.metrics | {name: value}
        return replace(record, block=replace(record.block, metrics=metrics))

    return changed


def nth_of_proof(nth: int) -> Callable[[Record], bool]:
    """Whether a block is that one under B in a proof, from 0."""
    blocks = itertools.count()
    return lambda r: r.phase == "confirm" and r.label == "B" and next(blocks) == nth


@pytest.mark.parametrize(("name", "value"), [("write.throughput", 1e7), ("fsync.p99", 1.5e8)])
@pytest.mark.parametrize("nth", [0, 1, 2])
def test_one_bad_block_does_not_end_the_first_proof(nth: int, name: str, value: float) -> None:
    """What held up the writers in the first, second or third pair was not the candidate."""
    experiment = MadeUp(dirty_counts, 0.1, 5)
    experiment.change = with_metric(name, value, nth_of_proof(nth))
    found, _ = session(experiment, [SMALL, {ASYNC: 1}], minutes=30)
    assert found.accepted
    assert found.winner is not None
    assert found.winner.values == SMALL
    phases = [record.phase for record in experiment.records]
    assert list(dict.fromkeys(phases))[:2] == ["aa", "confirm"]
    last = max(i for i, phase in enumerate(phases) if phase == "confirm")
    assert "trial" not in phases[:last]


def test_a_gain_that_costs_throughput_is_not_accepted() -> None:
    def greedy(values: Values) -> tuple[float, float]:
        small = values[DIRTY] < 64 << 20
        return (0.3, 0.8) if small else (1.0, 1.0)

    found, listed = session(MadeUp(greedy, 0.1, 4), [SMALL])
    assert not found.accepted
    assert listed.told[0][1] == pytest.approx(1 + math.log(0.95 / 0.8), abs=0.03)
    assert found.trials[0].note is not None
    assert found.trials[0].note.startswith("limit write.throughput>=-5% was missed: -19")
    assert found.winner is None
    assert found.note == "no candidate looked better than the current values"


def test_a_limit_missed_in_the_proof_rejects_the_winner() -> None:
    experiment = MadeUp(dirty_counts, 0.1, 4)
    experiment.change = with_metric(
        "write.throughput", 2.4e7, lambda r: r.phase == "confirm" and r.label == "B"
    )
    found, _ = session(experiment, Listed([SMALL], "tpe"))
    assert found.verdict is not None
    assert found.verdict.kind == "better"
    assert not found.accepted
    assert found.outcome is not None
    assert [limit.ok for limit in found.outcome.limits] == [False]
    assert found.note is not None
    assert found.note.startswith("the limit write.throughput>=-5% was missed: -")


def test_a_success_has_nothing_of_a_failure_before_it() -> None:
    """Neither its note nor what was dropped from its candidate."""

    def both(values: Values) -> tuple[float, float]:
        return (0.3 if values[DIRTY] < 64 << 20 else 0.5 if values[ASYNC] == 1 else 1.0), 1.0

    experiment = MadeUp(both, 0.02, 3)
    experiment.change = with_metric(
        "write.throughput",
        2.4e7,
        lambda r: r.phase == "confirm" and r.trial == 1 and r.label == "B",
    )
    found, _ = session(experiment, Listed([SMALL | {TIMEOUT: 2}, {ASYNC: 1}], "tpe"), minutes=60)
    phases = [record.phase for record in experiment.records]
    assert "ablation" in phases
    assert found.accepted and found.winner
    assert found.winner.values == {ASYNC: 1}
    assert (found.note, found.dropped) == (None, [])


def test_values_that_fail_their_soak_do_not_want_more_time() -> None:
    experiment = MadeUp(dirty_counts, 0.05, 1)
    experiment.change = with_metric(
        "fsync.p99", 1e9, lambda r: r.phase == "soak" and r.label == "B"
    )
    found, _ = session(experiment, [SMALL])
    assert not found.accepted
    assert found.note and found.note.startswith("the proved values were on average ")
    assert found.more is None


def test_noise_on_a_limit_does_not_end_a_candidate() -> None:
    """Throughput varies by 20 % whatever is in force."""
    experiment = MadeUp(dirty_counts, 0.1, 6)
    noise = random.Random(1)

    def noisy(record: Record) -> Record:
        metrics = dict(record.block.metrics)
        metrics["write.throughput"] *= math.exp(noise.gauss(0, 0.2))
        if record.trial:
            metrics["write.throughput"] = 2.7e7 if record.label == "B" else 3e7
        return replace(record, block=replace(record.block, metrics=metrics))

    experiment.change = noisy
    found, listed = session(experiment, [SMALL])
    assert found.trials[0].note == "limit write.throughput>=-5% was missed: -10.0%"
    assert -1 < listed.told[0][1] < 0
    assert found.verdict is not None


def test_a_first_proof_goes_on_while_only_a_limit_is_open() -> None:
    """A gain of two thirds is clear at the first look, a loss of throughput of 3 % beside a noise
    of 10 % is not."""
    experiment = MadeUp(lambda v: (dirty_counts(v)[0], 0.97 if v[DIRTY] < 64 << 20 else 1), 0.1, 4)
    noise = random.Random(5)

    def change(record: Record) -> Record:
        metrics = dict(record.block.metrics)
        metrics["write.throughput"] *= math.exp(noise.gauss(0, 0.07))
        return replace(record, block=replace(record.block, metrics=metrics))

    experiment.change = change
    found, _ = session(experiment, [SMALL], minutes=60)
    looks = [
        len(list(pairs)) // 2
        for trial, pairs in itertools.groupby(
            record.trial for record in experiment.records if record.phase == "confirm"
        )
    ]
    assert looks[0] > 12
    assert found.outcome is not None
    assert found.outcome.limits[0].state in ("kept", "unknown")


def test_a_bad_candidate_costs_one_pair_beside_others() -> None:
    experiment = MadeUp(lambda v: (3.0 if v[ASYNC] == 1 else 1.0, 1.0), 0.1, 5)
    found, _ = session(experiment, [{ASYNC: 1}, {TIMEOUT: 2}, {TIMEOUT: 3}])
    assert found.trials[0].pairs == 1
    assert found.trials[0].change == pytest.approx(2.0, abs=0.8)
    assert [trial.pairs for trial in found.trials[1:]] != [1, 1], "it looks again"


def test_what_never_shows_a_gain_is_not_measured_for_ever() -> None:
    experiment = MadeUp(lambda v: (1.5 if v[ASYNC] == 1 else 1.0, 1.0), 0.02, 5)
    found, _ = session(experiment, [{ASYNC: 1}])
    assert found.trials[0].pairs == 3
    assert found.verdict is None
    assert found.note == "no candidate looked better than the current values"
    assert found.more is not None
    assert found.more.startswith("gains below ")


def test_a_limit_that_rules_out_a_gain_is_named() -> None:
    def greedy(values: Values) -> tuple[float, float]:
        return (0.3, 0.8) if values[ASYNC] == 1 else (1.0, 1.0)

    found, _ = session(MadeUp(greedy, 0.1, 4), [{ASYNC: 1}])
    assert found.more is not None
    assert re.match(
        r"zfs_vdev_async_write_max_active=1 showed fsync.p99 -\d+%, but the limit "
        r"write.throughput>=-5% was missed: -\d+.\d%; with another --limit",
        found.more,
    )


def lacking(name: str, when: Callable[[Record], bool]) -> Callable[[Record], Record]:
    """Blocks without a metric."""

    def changed(record: Record) -> Record:
        if not when(record):
            return record
        metrics = {key: value for key, value in record.block.metrics.items() if key != name}
        return replace(record, block=replace(record.block, metrics=metrics))

    return changed


def test_a_limit_that_could_not_be_measured_counts_as_missed() -> None:
    experiment = MadeUp(dirty_counts, 0.1, 9)
    experiment.change = lacking("write.throughput", lambda r: r.phase == "confirm")
    found, _ = session(experiment, Listed([SMALL], "tpe"))
    assert not found.accepted
    assert found.note == "the limit write.throughput>=-5% could not be measured"


def test_a_candidate_whose_limit_could_not_be_measured_is_worse() -> None:
    experiment = MadeUp(dirty_counts, 0.1, 9)
    experiment.change = lacking("write.throughput", lambda r: r.trial == 1)
    _, listed = session(experiment, [SMALL])
    assert listed.told[0][1] == 2.0


@pytest.mark.parametrize(("source", "phase"), [("tpe", "trial"), ("model", "confirm")])
def test_a_candidate_that_cannot_be_judged_has_no_score(source: str, phase: str) -> None:
    experiment = MadeUp(dirty_counts, 0.05, 10)
    experiment.change = lacking("fsync.p99", lambda r: r.phase == phase and r.label == "B")
    _, listed = session(experiment, Listed([SMALL], source))
    assert (listed.told, listed.failed) == ([], ["fsync.p99 of a block is unknown"])


def test_the_worst_pair_is_not_left_out() -> None:
    """Under the candidate all fsyncs of a block hang: that is no reason to forget it."""
    experiment = MadeUp(dirty_counts, 0.05, 10)
    experiment.change = lacking("fsync.p99", nth_of_proof(5))
    found, _ = session(experiment, Listed([SMALL], "tpe"))
    assert found.verdict is not None
    assert (found.verdict.kind, found.verdict.pairs) == ("inconclusive", 5)
    assert not found.accepted
    assert found.note == "fsync.p99 of a block is unknown, so nothing is proved"


def test_candidates_that_the_guard_refuses_are_skipped() -> None:
    experiment = MadeUp(dirty_counts, 0.1, 11)
    experiment.refused = TIMEOUT
    found, listed = session(experiment, [{TIMEOUT: 2}, SMALL])
    assert listed.failed == ["cannot set that"]
    assert found.accepted


def test_a_candidate_stopped_by_a_guardrail_is_not_retried() -> None:
    experiment = MadeUp(dirty_counts, 0.1, 12)

    def stopped(record: Record) -> Record:
        if record.trial and record.label == "B":
            raise Abort("an fsync took too long")
        return record

    experiment.change = stopped
    listed = Listed([SMALL])
    found = Found()
    with pytest.raises(Abort):
        session(experiment, listed, found=found)
    assert listed.pruned == [], "the storage may not answer: parameters are restored first"
    for tell in found.later:
        tell()
    assert listed.pruned == ["an fsync took too long"]


def test_a_proof_that_does_not_fit_the_budget_is_not_begun() -> None:
    experiment = MadeUp(dirty_counts, 0.1, 13)

    def slow(record: Record) -> Record:
        if record.trial and record.label == "B":
            # its txgs take minutes
            experiment.take_s(120)
            experiment._waits_s[frozenset((BASE | SMALL).items())] = [120.0]
        return record

    experiment.change = slow
    found, _ = session(experiment, [SMALL], minutes=12)
    assert found.verdict is None
    assert found.note is not None
    said = " may be better, but there is no time for its proof; use a longer --budget"
    assert found.note.endswith(said)
    assert experiment.now_s() <= 12 * 60


@pytest.mark.parametrize(("minutes", "most"), [(16, 13), (24, 12)])
def test_a_proof_leaves_time_only_if_another_fits_into_it(
    minutes: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 13 pairs two fifths are too few for another, of 21 they are not."""
    experiment = MadeUp(dirty_counts, 0.05, 16)
    said: list[str] = []
    monkeypatch.setattr(experiment.progress, "line", said.append)
    session(experiment, [SMALL], minutes)
    assert any(f"fresh blocks, 6 to {most} pairs" in line for line in said), said


def test_the_time_of_a_last_proof_is_not_left_unused() -> None:
    """After three pairs in vain there is time for no other beside a proof: so what the search draws
    next goes straight to it."""
    found, _ = session(
        MadeUp(dirty_counts, 0.05, 15), Listed([{TIMEOUT: 1}, SMALL], "local"), minutes=12
    )
    assert [trial.pairs for trial in found.trials] == [3, 6]
    assert found.verdict is not None and found.verdict.kind == "better"


def test_alpha_that_is_spent_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The looks at 11 pairs take more than this alpha by an error of rounding. No number of pairs
    can prove anything at an alpha below 0, and the session would look for one for ever."""
    experiment = MadeUp(lambda v: (0.74 if v[DIRTY] < 64 << 20 else 1.0, 1.0), 0.0, 1)
    experiment.change = with_metric("fsync.p99", 1.65e8, nth_of_proof(2))
    listed = Listed([SMALL])
    monkeypatch.setattr(listed, "alpha", lambda: 0.021653125000000006)
    found, _ = session(experiment, listed, minutes=14)
    assert found.verdict is not None
    assert (found.verdict.kind, found.verdict.pairs) == ("inconclusive", 11)
    assert listed.spent > listed.alpha()


def test_a_search_that_has_nothing_says_so() -> None:
    found, _ = session(MadeUp(dirty_counts, 0.1, 14), [])
    assert found.note == "the search has no values left to try"


def test_a_budget_that_is_too_small_says_how_much_it_takes() -> None:
    found, _ = session(MadeUp(dirty_counts, 0.1, 14), [SMALL], minutes=6)
    assert found.note is not None
    assert re.search(r"its proof: they take \d+ m \d+ s here, .* are left", found.note)


def test_the_budget_is_kept() -> None:
    for minutes in (12, 20, 45):
        experiment = MadeUp(dirty_counts, 0.3, 6)
        found, _ = session(experiment, [{TIMEOUT: n} for n in range(1, 5)] + [SMALL], minutes)
        assert experiment.now_s() <= minutes * 60 * 1.02
        assert found.trials


def test_too_few_fsyncs_are_refused_with_how_many_it_takes() -> None:
    with pytest.raises(NotPossible, match=r"10 fsyncs in 20 s \(0\.5/s\).* needs 100 \(10\.0/s\)"):
        session(MadeUp(dirty_counts, 0.1, 7, fsyncs=10), [SMALL])


@pytest.mark.parametrize("second", [{ASYNC: 3}, {**SMALL, ASYNC: 3}])
def test_another_lever_goes_straight_to_its_proof_too(second: dict[str, int]) -> None:
    """And one that adds to what has failed joins the race."""
    experiment = MadeUp(lambda values: (0.4 if values[ASYNC] == 3 else 1.0, 1.0), 0.05, 2)
    found, _ = session(experiment, [SMALL, second, {TIMEOUT: 2}])
    assert found.winner is not None and found.winner.values == second
    steps = [(record.phase, record.trial) for record in experiment.records]
    raced = ("trial", 2) in steps[: steps.index(("confirm", 2))]
    assert raced == (not second.keys().isdisjoint(SMALL))


def test_candidates_beyond_the_baseline_are_not_tried() -> None:
    experiment = MadeUp(dirty_counts, 0.15, 1)
    found, listed = session(experiment, [{"zil_maxblocksize": 4096, **SMALL}, SMALL])
    assert all(values.keys() == BASE.keys() for values in experiment.applied)
    assert listed.failed == ["not a parameter of this session"]
    assert found.winner is not None
    assert found.winner.values == SMALL
