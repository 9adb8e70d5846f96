"""A session on the size of the ARC, on a made-up cache: sides alternate, waits are equal, and
nothing is proved without a gain."""

from __future__ import annotations

import io
import math
import random
import re
from collections.abc import Sequence
from typing import Any

import pytest
from support.fake_host import FakeHost, FakeStop
from support.samples import txg_row

from zfstune.errors import NotPossible
from zfstune.experiment import arc
from zfstune.experiment.arc import ArcTuning
from zfstune.experiment.blocks import Block, BlockMeter
from zfstune.experiment.found import Found, Task
from zfstune.experiment.objective import Limit, Objective
from zfstune.experiment.reads import Reads
from zfstune.experiment.runner import BlockPlan, Experiment, Record, Values
from zfstune.term.progress import Progress
from zfstune.term.units import SECOND
from zfstune.tunables.guard import Refused

MIB = 1 << 20
ARC_MAX = "zfs_arc_max"
BASE = {ARC_MAX: 100 * MIB}
# Reads of which so many miss a cache of 100 MiB, and would not one of 200 MiB
MISSES, GHOSTS = 60, 30


class Said(Progress):
    """Keeps the lines."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.lines: list[str] = []

    def line(self, text: str) -> None:
        self.lines.append(text)


class MadeUp(Experiment):
    """A mean read of 1 ms, under a larger cache that times the factor; noise of 2 %."""

    def __init__(self, factor: float = 0.6, metrics: Sequence[str] = ("read.mean",)) -> None:
        stop, host = FakeStop(), FakeHost()
        super().__init__(
            host,
            "tank",
            BlockMeter(host, "tank", host.session),
            BlockPlan(300, 0),
            lambda _values: None,
            lambda _meter, _measuring: None,
            stop,
            Said(io.StringIO(), 0),
            stop.clock,
        )
        self._factor, self._metrics, self._random = factor, metrics, random.Random(1)
        self.waits_s: list[float | None] = []
        self.lengths_s: list[float] = []
        self.refused = False
        # a wait takes so much longer; this block has nothing to judge
        self.slow_s, self.silent = 0, 0
        sizes = dict.fromkeys(("c", "c_max", "size"), 100 * MIB)
        self.arcstats = host.kstats
        self.stats = host.kstats["arcstats"] = {
            **sizes,
            "mru_ghost_size": 100 * MIB,
            "memory_available_bytes": 1 << 30,
        }

    def block(
        self,
        phase: str,
        trial: int | None,
        label: str,
        values: Values,
        *,
        wait_s: float | None = None,
    ) -> Record:
        if self.refused and values != BASE:
            raise Refused("cannot set that")
        self.waits_s.append(wait_s)
        self.lengths_s.append(self.plan.seconds)
        assert isinstance(self.stop, FakeStop)
        waited_s = wait_s + self.slow_s if wait_s else 0
        self.stop.clock += round((self.plan.seconds + waited_s) * SECOND)
        # a new one, so that a state from before stays what it was
        self.stats = self.arcstats["arcstats"] = {
            **self.stats,
            "demand_data_hits": self.stats.get("demand_data_hits", 0) + 40,
            "demand_data_misses": self.stats.get("demand_data_misses", 0) + MISSES,
            "mfu_ghost_hits": self.stats.get("mfu_ghost_hits", 0) + GHOSTS,
        }
        mean = 1e6 * (self._factor if values != BASE else 1) * math.exp(self._random.gauss(0, 0.02))
        heard = self._metrics if len(self.records) + 1 != self.silent else ()
        metrics = dict.fromkeys(heard, mean)
        block = Block(self.plan.seconds, 0, metrics, txgs=tuple(map(txg_row, range(60))))
        record = Record(len(self.records) + 1, phase, trial, label, self.now_s(), 60.0, block)
        self.records.append(record)
        return record


def said(one: MadeUp) -> list[str]:
    assert isinstance(one.progress, Said)
    return one.progress.lines


def ran(
    one: MadeUp,
    *,
    minutes: int = 150,
    most: int = 1 << 40,
    limits: Sequence[str] = (),
    guards: Sequence[str] = (),
) -> Found:
    deadline_ns = one.stop.now() + minutes * 60 * SECOND
    task = Task(
        Objective.parse("read.mean"),
        tuple(map(Limit.parse, limits)),
        0.05,
        1,
        deadline_ns,
        0.0,
        True,
    )
    found = Found()
    reads = Reads(one.host, "tank")
    known = tuple(map(Limit.parse, guards))
    ArcTuning(task, one, BASE, most, known, reads, one.progress, found).run()
    return found


def test_a_larger_cache_is_proved() -> None:
    one = MadeUp()
    found = ran(one)
    assert found.accepted and found.winner
    assert found.winner.values == {ARC_MAX: 200 * MIB}
    assert found.verdict and found.verdict.change == pytest.approx(-0.4, abs=0.05)
    assert found.forecast and found.forecast["misses_change"] == -0.5
    assert "save 50 % of the misses" in found.winner.reasons[ARC_MAX]


def test_the_first_side_is_measured_in_parts_and_the_others_whole() -> None:
    one = MadeUp()
    ran(one)
    assert one.lengths_s[:4] == [150.0] * 4
    assert set(one.lengths_s[4:]) == {300.0}
    # before every block of a proof, whichever size comes
    assert set(one.waits_s[4:]) == {300.0}


def test_sides_that_had_not_settled_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    one = MadeUp()
    block = one.block

    def restless(*args: Any, **kwargs: Any) -> Record:
        assert one.cache
        one.cache.given_up = 3
        return block(*args, **kwargs)

    monkeypatch.setattr(one, "block", restless)
    assert ran(one).unsettled == 3
    assert "3 times the ARC had not settled when it was measured" in said(one)


def test_no_gain_is_not_proved() -> None:
    found = ran(MadeUp(factor=1.0))
    assert not found.accepted
    assert found.verdict


def test_an_undecided_proof_says_what_twice_the_pairs_take() -> None:
    """The gain is clear, but not that the limit is kept."""
    one = MadeUp(metrics=("read.mean", "read.p99"))
    block = one.block

    def noisy(*args: Any, **kwargs: Any) -> Record:
        record = block(*args, **kwargs)
        if record.label == "B":
            # twice as long in one pair, half in the next
            record.block.metrics["read.p99"] = 2e6 if (record.number - 1) // 2 % 2 else 5e5
        else:
            record.block.metrics["read.p99"] = 1e6
        return record

    one.block = noisy  # type: ignore[method-assign]
    found = ran(one, guards=("read.p99<=+20%",))
    assert found.outcome and [result.state for result in found.outcome.limits] == ["unknown"]
    pairs = found.outcome.records[-1].number // 2 - 2
    assert found.more and found.more.endswith(f"has time for {2 * pairs} pairs of the proof")


def test_a_loss_ends_with_the_values_as_they_were() -> None:
    found = ran(MadeUp(factor=1.5))
    assert found.verdict and found.verdict.kind == "worse" and not found.accepted
    assert found.more is None


def test_few_ghost_hits_are_no_reason_to_try() -> None:
    one = MadeUp()
    one.stats["mru_ghost_size"] = 100 * MIB * MISSES  # each of them holds little
    found = ran(one, most=101 * MIB)
    assert found.verdict is None
    assert found.note == "a larger ARC would save too little to be proved"
    assert len(one.records) == 4


@pytest.mark.parametrize(
    ("stats", "said"),
    [
        ({"c": 50 * MIB, "size": 50 * MIB}, "below its limit of 100 MiB"),
        ({"size": 50 * MIB}, "less than its limit"),
        ({"mru_ghost_size": 0}, "the ghost lists remember too little"),
        # 98 MiB would be less than its limit
        (
            {"c": 96 * MIB, "size": 96 * MIB, "mru_ghost_size": 2 * MIB},
            "too little to tell what an ARC larger than 100M would save",
        ),
        ({"memory_available_bytes": -1}, "an ARC larger than 100M is not possible here"),
    ],
)
def test_where_a_larger_cache_is_no_use_nothing_is_tried(stats: dict[str, int], said: str) -> None:
    one = MadeUp()
    one.stats |= stats
    found = ran(one)
    assert found.note and said in found.note
    assert found.outcome is None and len(one.records) == 4


def test_a_short_session_says_what_it_needs() -> None:
    found = ran(MadeUp(), minutes=60)
    assert found.note and found.note.startswith("no time for a proof: it takes 2 h 0 m here")
    enough = re.fullmatch(r"--budget (\d+)m has time for 6 pairs of the proof", found.more or "")
    assert enough
    assert ran(MadeUp(), minutes=int(enough[1])).accepted


def test_a_session_that_runs_out_of_time_says_so() -> None:
    """The ARC took longer to settle than expected."""
    one = MadeUp()
    one.slow_s = 600
    found = ran(one)
    assert found.outcome is None
    assert found.note and re.fullmatch(r"no time for more than \d pairs, .* --budget", found.note)
    assert found.more and found.more.endswith("has time for 6 pairs of the proof")


def test_a_block_without_the_objective_ends_the_proof() -> None:
    """Such a block may be the worst of all."""
    one = MadeUp()
    one.silent = 8
    found = ran(one)
    assert found.outcome is None
    assert found.note == "read.mean of a block is unknown, so nothing is proved"


def test_a_refused_size_is_a_note() -> None:
    one = MadeUp()
    one.refused = True
    found = ran(one)
    assert found.note == "cannot set that" and found.outcome is None


def test_guards_are_asked_where_the_load_has_what_they_need() -> None:
    one = MadeUp(metrics=("read.mean", "read.p99"))
    found = ran(one, guards=("read.p99<=+20%", "fsync.mean<=+20%"))
    assert found.outcome
    assert [str(result.limit) for result in found.outcome.limits] == ["read.p99<=+20%"]
    assert "limit fsync.mean<=+20% is not asked: the load has too little for it" in said(one)


def test_a_limit_of_the_command_line_must_be_measured() -> None:
    with pytest.raises(NotPossible, match=r"fsync\.mean cannot be measured"):
        ran(MadeUp(), limits=("fsync.mean<=+20%",))


def test_an_objective_without_reads_is_refused() -> None:
    with pytest.raises(NotPossible, match=r"read\.mean"):
        ran(MadeUp(metrics=("fsync.mean",)))


def test_so_many_sides_are_enough() -> None:
    """A budget of that many is not refused, and then a proof fits."""
    found = ran(MadeUp(), minutes=10 * arc.SIDES)
    assert found.accepted
