"""A session's phases on blocks of a fake pool: better values are found and proved, others left
alone."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from support.fake_host import FakeSession
from support.made_up import (
    ASYNC,
    BASE,
    DIRTY,
    SMALL,
    TIMEOUT,
    Listed,
    MadeUp,
    dirty_counts,
    session,
)
from support.samples import read_state

from zfstune.errors import NotPossible
from zfstune.experiment.found import Found
from zfstune.experiment.objective import Limit
from zfstune.experiment.reads import Reads
from zfstune.experiment.runner import Abort, Record, Values


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
    def greedy(limit: str) -> Found:
        experiment = MadeUp(dirty_counts, 0.1, 4)
        experiment.change = with_metric(
            "write.throughput", 2.4e7, lambda r: r.phase == "confirm" and r.label == "B"
        )
        return session(experiment, Listed([SMALL], "tpe"), limits=[limit])[0]

    found = greedy("write.throughput>=-5%")
    assert found.verdict is not None
    assert found.verdict.kind == "better"
    assert not found.accepted
    assert found.outcome is not None
    assert [limit.ok for limit in found.outcome.limits] == [False]
    assert found.note is not None
    assert found.note.startswith("the limit write.throughput>=-5% was missed: -")
    assert found.more is not None
    advice = re.fullmatch(
        r"zfs_dirty_data_max=32M zfs_wrlog_data_max=64M is better beyond doubt, fsync.p99 -\d+%: "
        r"--limit '(write.throughput>=-\d+%)' would have accepted it",
        found.more,
    )
    assert advice, found.more
    assert greedy(advice[1]).accepted


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


def test_a_bad_candidate_costs_one_pair_beside_others() -> None:
    experiment = MadeUp(lambda v: (3.0 if v[ASYNC] == 1 else 1.0, 1.0), 0.1, 5)
    found, _ = session(experiment, [{ASYNC: 1}, {TIMEOUT: 2}, {TIMEOUT: 3}])
    assert found.trials[0].pairs == 1
    assert found.trials[0].change == pytest.approx(2.0, abs=0.8)
    assert [trial.pairs for trial in found.trials[1:]] != [1, 1], "it looks again"


def test_what_never_shows_a_gain_is_not_measured_for_ever() -> None:
    experiment = MadeUp(lambda v: (1.5 if v[ASYNC] == 1 else 1.0, 1.0), 0.02, 5)
    found, _ = session(experiment, [{ASYNC: 1}])
    assert "no proof for now: its pairs show no large gain" in experiment.said.getvalue()
    assert found.trials[0].pairs == 3
    assert found.verdict is None
    assert found.note == "no candidate looked better than the current values"
    assert found.more is not None
    assert re.fullmatch(
        r"gains below \d+% cannot be told from the noise in this time; --budget 120m would show "
        r"those of about \d+%, a steadier load smaller ones, too",
        found.more,
    )


def test_a_limit_that_rules_out_a_gain_is_named() -> None:
    def greedy(values: Values) -> tuple[float, float]:
        return (0.3, 0.8) if values[ASYNC] == 1 else (1.0, 1.0)

    experiment = MadeUp(greedy, 0.1, 4)
    found, _ = session(experiment, [{ASYNC: 1}])
    assert "no proof for now: limit write.throughput>=-5% was missed" in experiment.said.getvalue()
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
    assert found.more is not None
    assert re.fullmatch(
        r"with more time it would look again at zfs_dirty_data_max=32M zfs_wrlog_data_max=64M, "
        r"which showed fsync.p99 -\d+% in 1 pair: --budget 36m has time for the proof of such a "
        r"gain",
        found.more,
    )


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


# --- of two proved ones, the better


def later(factor: float) -> Callable[[Record], Record]:
    """The second candidate looks better in the race than in its proof, by this factor."""

    def change(record: Record) -> Record:
        if (record.phase, record.trial, record.label) != ("confirm", 2, "B"):
            return record
        metrics = dict(record.block.metrics)
        metrics["fsync.p99"] *= factor
        return replace(record, block=replace(record.block, metrics=metrics))

    return change


@pytest.mark.parametrize(("factor", "winner"), [(2.5, {ASYNC: 3}), (1.0, SMALL)])
def test_a_later_proof_replaces_only_a_smaller_gain(
    factor: float, winner: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def both(values: Values) -> tuple[float, float]:
        return (0.3 if values[DIRTY] < 64 << 20 else 0.5 if values[ASYNC] == 3 else 1.0), 1.0

    experiment = MadeUp(both, 0.02, 3)
    experiment.change = later(factor)
    said: list[str] = []
    monkeypatch.setattr(experiment.progress, "line", said.append)
    found, _ = session(experiment, [{ASYNC: 3}, SMALL], minutes=60)
    proofs = {record.trial for record in experiment.records if record.phase == "confirm"}
    assert proofs == {1, 2}
    assert found.accepted
    assert found.winner and found.winner.values == winner
    assert found.verdict
    assert found.verdict.change == pytest.approx(min(-0.5, 0.3 * factor - 1), abs=0.03)
    assert found.note in said
    assert found.note and re.match(
        r"zfs_.* is the better of two: its proof showed fsync.p99 -(49|5\d|69|7\d)%, that of zfs_",
        found.note,
    )
    # what is watched at the end is what stays in force
    soaked = [
        values
        for values, record in zip(experiment.applied, experiment.records, strict=True)
        if (record.phase, record.label) == ("soak", "B")
    ]
    assert soaked and all(values == BASE | winner for values in soaked)


# --- what it would do with more time


def test_a_budget_that_is_too_small_says_which_is_not() -> None:
    found, _ = session(MadeUp(dirty_counts, 0.1, 14), [SMALL], minutes=6)
    assert found.more
    enough = re.fullmatch(r"--budget (\d+)m has time for a candidate and its proof", found.more)
    assert enough
    again, _ = session(MadeUp(dirty_counts, 0.1, 14), [SMALL], minutes=int(enough[1]))
    assert again.accepted


def test_a_search_that_has_nothing_does_not_want_more_time() -> None:
    found, _ = session(MadeUp(dirty_counts, 0.1, 14), [])
    assert found.more
    assert found.more.startswith("other --parameters, or another load")


def test_a_proof_at_the_end_says_what_was_not_looked_at() -> None:
    """Neither the soak nor the other candidates."""
    found, _ = session(MadeUp(dirty_counts, 0.05, 1), [SMALL, {TIMEOUT: 2}], minutes=10)
    assert found.accepted and found.soak is None
    assert found.more
    assert re.fullmatch(
        r"there was no time to see whether the proved values stay good: --budget 1\dm has time for "
        r"that",
        found.more,
    )


# --- reads


def guarded(experiment: MadeUp) -> Reads:
    """A trace for a limit that is asked of a load that reads."""
    limit = Limit.parse("read.p99<=+20%")
    return Reads(experiment.host, "tank", FakeSession([read_state()]), [limit])


def reading(slower: float) -> Callable[[Record], Record]:
    """Blocks with 2000 reads, which candidates make slower."""

    def changed(record: Record) -> Record:
        p99 = 1e6 * (slower if record.trial and record.label == "B" else 1.0)
        metrics = record.block.metrics | {"read.rate": 100.0, "read.p99": p99}
        return replace(record, block=replace(record.block, metrics=metrics))

    return changed


@pytest.mark.parametrize(("slower", "accepted"), [(1.0, True), (2.0, False)])
def test_a_gain_that_costs_reads_is_not_accepted(slower: float, accepted: bool) -> None:
    experiment = MadeUp(dirty_counts, 0.05, 4)
    experiment.change = reading(slower)
    found, _ = session(experiment, [SMALL], reads=guarded(experiment))
    assert found.accepted == accepted
    assert accepted or (found.trials[0].note or "").startswith("limit read.p99<=+20% was missed")


def test_a_load_that_does_not_read_is_not_asked_how() -> None:
    experiment = MadeUp(dirty_counts, 0.05, 4)
    reads = guarded(experiment)
    found, _ = session(experiment, [SMALL], reads=reads)
    assert found.accepted
    assert experiment.meter.reads is None
