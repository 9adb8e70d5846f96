"""Metrics of reads: where they come from, and what is said where there is no source."""

from __future__ import annotations

import pytest
from support.fake_host import FakeHost, FakeSession
from support.samples import ARC, counts, read_state, reads

from zfstrace.errors import NotSupported
from zfstrace.read import Demand
from zfstrace.types import Losses
from zfstune.errors import NotPossible
from zfstune.experiment import blocks
from zfstune.experiment.blocks import Block, BlockMeter
from zfstune.experiment.objective import METRICS, Limit, Objective
from zfstune.experiment.reads import Reads, open_reads
from zfstune.experiment.runner import Record
from zfstune.term.units import MS, SECOND, US

NAMES = ("read.p99", "read.mean", "arc.miss", "write.p99")


def blocks_of(*states: object, arcstats: tuple[int, int] = (0, 0)) -> dict[str, float]:
    """The metrics of a block of ten seconds between two states of a trace of reads."""
    host = FakeHost(FakeSession([[counts()]]))
    session = FakeSession(list(states))
    meter = BlockMeter(host, "tank", host.session, reads=session)
    host.kstats["arcstats"] = {name: value * arcstats[0] for name, value in ARC.items()}
    meter.start(0)
    host.kstats["arcstats"] = {name: value * arcstats[1] for name, value in ARC.items()}
    return meter.end(10 * SECOND).metrics


def test_a_block_has_the_reads_of_its_pool_in_its_time() -> None:
    before = read_state(reads(hit=[SECOND] * 50))
    after = read_state(
        reads(hit=[SECOND] * 50 + [2 * US] * 180, miss=[5 * MS] * 20, write=[MS] * 100),
        reads("idle", 1, hit=[SECOND] * 100),
    )
    found = blocks_of(before, after, arcstats=(1, 2))
    assert found["read.rate"] == 20
    assert found["read.mean"] == (180 * 2 * US + 20 * 5 * MS) / 200
    assert 4.9 * MS < found["read.p99"] < 5.2 * MS
    assert 0.9 * MS < found["write.p99"] < 1.1 * MS
    assert found["arc.miss"] == 10.5 / 1001


def test_reads_that_were_lost_are_counted() -> None:
    """Beside the fsyncs that were."""
    host = FakeHost(FakeSession([[counts()]]))
    session = FakeSession([read_state()], losses=Losses(start=5))
    meter = BlockMeter(host, "tank", host.session, reads=session)
    meter.start(0)
    for one, losses in ((session, Losses(start=7, missed=1)), (host.session, Losses(event=10))):
        one._losses = losses
    assert meter.end(10 * SECOND).lost == 13


@pytest.mark.parametrize("name", NAMES)
def test_too_few_calls_are_no_number(name: str) -> None:
    few = METRICS[name].calls - 1
    state = read_state(reads(hit=[US] * few, write=[US] * few))
    found = blocks_of(read_state(), state)
    assert name not in found
    with pytest.raises(ValueError, match="a block has fewer than"):
        Objective.parse(name).value(found)


def test_without_a_trace_only_the_cache_is_known() -> None:
    host = FakeHost(FakeSession([[counts()]]))
    host.kstats["arcstats"] = dict(ARC)
    meter = BlockMeter(host, "tank", host.session)
    meter.start(0)
    assert not set(NAMES) & set(meter.end(SECOND).metrics)


def test_no_miss_at_all_can_be_compared() -> None:
    assert blocks.cache_metrics(Demand(999, 0)) == {"arc.miss": 0.5 / 1000}
    assert blocks.cache_metrics(Demand(5, 0)) == {}


def opened(
    objective: str, *limits: str, host: FakeHost, guard: str = ""
) -> tuple[Reads, list[str]]:
    said: list[str] = []
    bounds = [Limit.parse(text) for text in limits]
    guards = [Limit.parse(guard)] if guard else []
    made = open_reads(host, "tank", Objective.parse(objective), bounds, guards, said.append)
    return made, said


def test_reads_are_traced_only_if_they_are_asked_for() -> None:
    host = FakeHost()
    session = host.sessions["read"] = FakeSession()
    assert opened("fsync.p99", "write.throughput>=-5%", host=host)[0].session is None
    for limit in ("read.p99<=+10%", "write.p99<=+10%"):
        made, said = opened("fsync.p99", limit, host=host)
        assert (made.session, said) == (session, [])
    made.close()
    assert made.session is None
    assert session.closed


def test_a_metric_without_a_source_is_refused() -> None:
    host = FakeHost()
    host.sessions["read"] = NotSupported("cannot time reads: no", "do this")
    with pytest.raises(NotPossible) as caught:
        opened("read.mean", host=host)
    assert str(caught.value) == "cannot measure read.mean: cannot time reads: no"
    assert caught.value.hint == "do this"
    with pytest.raises(NotPossible, match="there is no kstat arcstats"):
        opened("arc.miss", host=host)
    host.kstats["arcstats"] = dict(ARC)
    assert opened("arc.miss", host=host)[0].session is None


GUARD = "read.p99<=+20%"


def block_with(reads_seen: int, label: str = "A", seconds: float = 10.0) -> Record:
    """One of any phase."""
    metrics = {"read.rate": reads_seen / seconds}
    return Record(1, "aa", None, label, 0.0, 0.0, Block(seconds, 100, metrics))


@pytest.mark.parametrize(
    ("reads_seen", "asked"),
    [((400,) * 4, True), ((399,) * 4, False), ((100, 700, 400), True), ((99, 900, 900), False)],
)
def test_a_guard_is_asked_of_a_load_that_reads(reads_seen: tuple[int, ...], asked: bool) -> None:
    """Each block needs 100 reads, and four times as many are wanted on average."""
    made, said = opened("fsync.p99", host=FakeHost(), guard=GUARD)
    found = made.asked(list(map(block_with, reads_seen)), said.append)
    assert [str(limit) for limit in found] == [GUARD] * asked
    fewest = min(reads_seen)
    assert said == [
        f"limit {GUARD}, too: the load reads"
        if asked
        else f"limit {GUARD} is not asked: a block had {fewest} reads, too few"
    ]


@pytest.mark.parametrize(("limits", "open_"), [((), False), (("write.p99<=+10%",), True)])
def test_a_trace_ends_if_nothing_asks_for_it(limits: tuple[str, ...], open_: bool) -> None:
    host = FakeHost()
    session = host.sessions["read"] = FakeSession([read_state()])
    made, said = opened("fsync.p99", *limits, host=host, guard=GUARD)
    assert made.asked([block_with(0)], said.append) == []
    assert (made.session is session, session.closed) == (open_, not open_)


def test_a_guard_without_a_source_is_left_out() -> None:
    host = FakeHost()
    host.sessions["read"] = NotSupported("cannot time reads: no", "do this")
    made, said = opened("fsync.p99", host=host, guard=GUARD)
    assert said == [f"limit {GUARD} is not asked: cannot time reads: no"]
    assert made.asked([block_with(0)], said.append) == []
    made.close()


def test_a_guard_is_not_asked_twice() -> None:
    host = FakeHost()
    host.sessions["read"] = FakeSession([read_state()])
    assert not opened("read.p99", host=host, guard=GUARD)[0].guards
    assert not opened("fsync.p99", "read.p99<=+5%", host=host, guard=GUARD)[0].guards
