"""What a session says it would do next, or needs to find something; test_phases.py has whole
sessions."""

from __future__ import annotations

import math

import pytest

from zfstune.experiment import outlook
from zfstune.experiment.found import Found, Outcome
from zfstune.experiment.model import Candidate
from zfstune.experiment.objective import Limit, Objective
from zfstune.experiment.proof import LimitResult, Tails
from zfstune.experiment.race import Arm
from zfstune.experiment.soak import Soak
from zfstune.experiment.statistics import Verdict

TIMES = outlook.Times(600.0, 0.0, 60.0, 360.0, 140.0, lambda _arm: 60.0, late=True)
OTHER = Arm(2, Candidate({"zfs_txg_timeout": 2}, "model", {}))


@pytest.mark.parametrize(
    ("soak", "challenger", "untried", "said"),
    [
        (
            None,
            OTHER,
            2,
            "there was no time to see whether the proved values stay good: "
            "--budget 13m has time for that",
        ),
        (
            Soak(5, 0.5, 0.5),
            OTHER,
            2,
            "zfs_txg_timeout=2s may be better still: --budget 17m has time for its proof",
        ),
        (
            Soak(5, 0.5, 0.5),
            None,
            2,
            "2 other candidates were not tried: --budget 19m has time for that",
        ),
        (
            Soak(5, 0.5, 0.5),
            None,
            1,
            "1 other candidate was not tried: --budget 18m has time for that",
        ),
        (Soak(5, 0.5, 0.5), None, 0, None),
    ],
)
def test_the_first_thing_that_is_left_is_named(
    soak: Soak | None, challenger: Arm | None, untried: int, said: str | None
) -> None:
    assert outlook.further(Found(soak=soak), challenger, untried, TIMES) == said


READS, WRITES = Limit.parse("read.p99<=+20%"), Limit.parse("write.throughput>=-5%")
OPEN = LimitResult(READS, 0.208, "unknown", -0.32, 0.673)
LATER = LimitResult(WRITES, -0.02, "unknown", -0.061, 0.01)


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ([OPEN], "--limit 'read.p99<=+70%' would have accepted it"),
        (
            [LATER],
            "--limit 'write.throughput>=-10%' would have accepted it, and so may a longer --budget",
        ),
        (
            [LATER, OPEN, LimitResult(WRITES, 0.0, "kept", -0.01, 0.01)],
            "--limit 'write.throughput>=-10%' --limit 'read.p99<=+70%' would have accepted it",
        ),
        ([OPEN, LimitResult(WRITES, None, "unknown")], None),
        ([LimitResult(READS, 0.3, "unknown", 0.1, math.inf)], None),
        ([LimitResult(WRITES, -0.5, "unknown", -1.0, 0.1)], None),
        ([], None),
    ],
)
def test_limits_that_would_accept_a_proved_gain_are_named(
    limits: list[LimitResult], said: str | None
) -> None:
    verdict = Verdict("better", -0.61, -0.71, -0.41, 0.016, 6)
    outcome = Outcome(verdict, OTHER.candidate, limits, [], {}, None, 0.0)
    before = "zfs_txg_timeout=2s is better beyond doubt, fsync.p99 -61%: "
    told = outlook.accepting(Objective.parse("fsync.p99"), outcome)
    assert told == (said and before + said)


def test_what_is_not_proved_needs_no_other_limit() -> None:
    verdict = Verdict("inconclusive", -0.2, -0.4, 0.1, 0.08, 6)
    outcome = Outcome(verdict, OTHER.candidate, [OPEN], [], {}, None, 0.0)
    assert outlook.accepting(Objective.parse("fsync.p99"), outcome) is None


def test_no_limit_accepts_slower_tails() -> None:
    verdict = Verdict("better", -0.61, -0.71, -0.41, 0.016, 6)
    for after, said in ((90, True), (200, False)):
        outcome = Outcome(verdict, OTHER.candidate, [OPEN], [], {}, Tails(100, after, 500), 0.0)
        assert bool(outlook.accepting(Objective.parse("fsync.p99"), outcome)) == said
