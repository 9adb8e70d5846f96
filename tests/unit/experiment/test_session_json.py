"""What a session leaves has all that was measured, and says it in the user's terms."""

from __future__ import annotations

import json

import pytest
from support.samples import txg_row

from zfstune.experiment.blocks import Block
from zfstune.experiment.found import Dropped, Found, MetricChange, Outcome, Trial
from zfstune.experiment.model import Candidate
from zfstune.experiment.objective import Limit, Objective
from zfstune.experiment.proof import LimitResult
from zfstune.experiment.runner import Record
from zfstune.experiment.session_json import Circumstances, session
from zfstune.experiment.soak import Soak
from zfstune.experiment.statistics import Verdict
from zfstune.term.units import SECOND


def about(objective: str = "fsync.p99") -> Circumstances:
    return Circumstances(
        started="2026-11-21T10:00:00.000Z",
        ended="2026-11-21T10:10:00.000Z",
        seconds=600.0,
        host={"hostname": "box"},
        pool="tank",
        command=["zfstune", "tune"],
        objective=Objective.parse(objective),
        budget_s=600.0,
        block_s=20.0,
        seed=1,
        baseline={"zfs_txg_timeout": 5},
        undo_shell=["echo 5 > zfs_txg_timeout"],
    )


def record(number: int, label: str, phase: str = "confirm", txg: int = 0) -> Record:
    stage = {"name": "flush", "total_ns": 100, "count": 10, "p50": 8 * number, "p99": 9, "max": 20}
    rows = [
        txg_row(txg + i, birth_ns=i * SECOND, open_ns=SECOND, sync_ns=7, dirty_bytes=9)
        for i in range(2)
    ]
    block = Block(20.0, 10, {"fsync.p99": 1e6}, ((0, 10, 4), (10, 20, 6)), (stage,), tuple(rows), 1)
    return Record(number, phase, None, label, 100.0 * number, 5.0, block)


WINNER = Candidate({"zfs_txg_timeout": 2}, "model", {"zfs_txg_timeout": "shorter"})


def found(*proof: Record) -> Found:
    better = Verdict("better", -0.5, -0.6, -0.2, 0.01, 6)
    return Found(
        Outcome(better, WINNER, (), proof, {}, None, 0.0),
        aa=[0.1, -0.1],
        effect=0.2,
        trials=[Trial(1, Candidate({"zfs_txg_timeout": 2}, "model", {}), -0.7, -0.5, 2)],
        soak=Soak(10, 0.5, 0.6),
    )


def test_the_session_survives_json() -> None:
    records = [record(1, "A", "aa"), record(2, "A", txg=5), record(3, "B", txg=6)]
    made = session(about(), "finished", None, found(*records[1:]), records, True, [])
    assert json.loads(json.dumps(made)) == made
    assert made["winner"] == {"zfs_txg_timeout": 2}
    assert made["noise"] == {"pairs": 2, "effect": 0.2, "ratios": [0.1, -0.1]}
    assert made["lost"] == 3
    assert [b["phase"] for b in made["blocks"]] == ["aa", "confirm", "confirm"]


def test_before_and_after_are_taken_from_the_proof() -> None:
    records = [record(1, "A", "aa"), record(2, "A"), record(3, "B"), record(4, "B")]
    made = session(about(), "finished", None, found(*records[1:]), records, True, [])
    assert made["histograms"]["before"] == [[0, 10, 4], [10, 20, 6]]
    assert made["histograms"]["after"] == [[0, 10, 8], [10, 20, 12]]
    (after,) = made["stages"]["after"]
    assert after == {
        "name": "flush",
        "total_ns": 200,
        "count": 20,
        "p50": 28,
        "p99": 9,
        "max": 20,
    }


def test_blocks_of_an_earlier_proof_count_as_trials() -> None:
    records = [record(number, label) for number, label in enumerate("ABBA", 1)]
    made = session(about(), "finished", None, found(*records[2:]), records, True, [])
    assert [one["phase"] for one in made["blocks"]] == ["trial", "trial", "confirm", "confirm"]
    assert made["soak"] == {"blocks": 10, "mean": 0.5, "worst": 0.6, "ok": True}


def test_a_txg_is_written_once_with_its_block() -> None:
    made = session(about(), "finished", None, found(), [record(2, "A", txg=5)], True, [])
    assert [(t["txg"], t["label"]) for t in made["txgs"]] == [(5, "A"), (6, "A")]
    assert [t["t_s"] for t in made["txgs"]] == [219.0, 220.0]
    twice = [record(2, "A", txg=5), record(3, "B", txg=6)]
    made = session(about(), "finished", None, found(), twice, True, [])
    assert [t["txg"] for t in made["txgs"]] == [5, 6, 7]


def test_a_change_of_throughput_is_not_shown_as_a_cost() -> None:
    """Its cost is half: it is twice as much."""
    half = found()
    half.dropped = [Dropped(("zfs_txg_timeout",), -0.2, "no loss")]
    made = session(about("write.throughput"), "finished", None, half, [], True, [])
    assert made["dropped"][0]["change"] == pytest.approx(0.25)
    verdict = made["verdict"]
    assert verdict["change"] == pytest.approx(1.0)
    assert verdict["low"] == pytest.approx(0.25)
    assert verdict["high"] == pytest.approx(1.5)
    assert made["trials"][0]["change"] == pytest.approx(1.0)


def test_limits_and_trials_survive_json() -> None:
    limit = Limit.parse("fsync.mean<=+10%")
    limits = [
        LimitResult(limit, 0.2, "missed", 0.15, 0.3),
        LimitResult(limit, 0.05, "kept", 0.0, 0.09),
        LimitResult(limit, None, "unknown"),
    ]
    changes = {"fsync.mean": MetricChange(-0.5, -0.6, -0.4)}
    better = Verdict("better", -0.5, -0.6, -0.2, 0.01, 6)
    one = Found(
        Outcome(better, WINNER, limits, (), changes, None, 0.0),
        dropped=[Dropped(("zfs_txg_timeout", "zil_slog_bulk"), 0.01, "no loss")],
        trials=[Trial(3, Candidate({"zfs_txg_timeout": 2}, "tpe", {}), None, None, 0, "refused")],
    )
    made = session(about(), "finished", None, one, [], False, [])
    text = "fsync.mean<=+10%"
    assert json.dumps([made["limits"], made["dropped"]]) == json.dumps(
        [
            [
                {"text": text, "change": 0.2, "low": 0.15, "high": 0.3, "state": "missed"}
                | {"ok": False},
                {"text": text, "change": 0.05, "low": 0.0, "high": 0.09, "state": "kept"}
                | {"ok": True},
                {"text": text, "change": None, "low": -1.0, "high": None, "state": "unknown"}
                | {"ok": False},
            ],
            [{"names": ["zfs_txg_timeout", "zil_slog_bulk"], "change": 0.01, "why": "no loss"}],
        ]
    )
    assert json.dumps([made["changes"], made["trials"]]) == json.dumps(
        [
            {"fsync.mean": {"change": -0.5, "low": -0.6, "high": -0.4}},
            [
                {
                    "number": 3,
                    "source": "tpe",
                    "values": {"zfs_txg_timeout": 2},
                    "reasons": {},
                    "change": None,
                    "pairs": 0,
                    "note": "refused",
                }
            ],
        ]
    )


def test_a_session_without_a_verdict_has_null_results() -> None:
    made = session(about(), "stopped", "stopped by a signal", Found(), [], False, [])
    assert (made["verdict"], made["winner"], made["in_force"]) == (None, None, False)
    assert made["note"] == "stopped by a signal"
    assert made["histograms"] == {"before": [], "after": []}
