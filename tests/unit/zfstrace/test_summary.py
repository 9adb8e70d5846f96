"""From slots to summaries, and the schema in which they are written."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from support.fake_host import FakeHost
from support.samples import PROBES, counts

from zfstrace.stages import KINDS, NAMES
from zfstrace.summary import Key, Span, since, summarize
from zfstrace.types import (
    OTHERS,
    SCHEMA,
    DatasetCounts,
    FsyncSummary,
    Json,
    Latency,
    Losses,
    Probe,
    SlowFsync,
    StageSummary,
)

SPAN = Span("2026-11-21T09:49:12.000Z", 10**10, Losses(1, 2, 3, 4, 5, 6, 7), PROBES)

NUMBER = {
    "duration_ns",
    "count",
    "lost",
    "unfinished",
    "errors",
    "commits",
    "no_zil",
}


def summary_from_json(line: Json) -> FsyncSummary:
    """The reverse of FsyncSummary.to_json(): everything but a probe's symbol can be read back."""
    assert (line["schema"], line["type"]) == (SCHEMA, "fsync_summary")
    losses = line["losses"]
    probes = [
        Probe(name, "", line["probes"]["how"].get(name, "found"), False, "", "")
        for name in line["probes"]["attached"]
    ] + [
        Probe(lack["name"], "", "missing", False, lack["cost"], lack["why"])
        for lack in line["probes"]["missing"]
    ]
    return FsyncSummary(
        pool=line["pool"],
        dataset=line["dataset"],
        time=line["time"],
        duration_ns=line["duration_ns"],
        count=line["count"],
        errors=line["errors"],
        commits=line["commits"],
        no_zil=line["no_zil"],
        kinds=line["kinds"],
        latency=Latency(**line["latency"]) if line["count"] else None,
        stages=tuple(StageSummary(**stage) for stage in line["stages"]),
        histogram=tuple((row[0], row[1], row[2]) for row in line["histogram"]),
        losses=Losses(
            losses["start"],
            losses["return"],
            losses["event"],
            losses["log_block"],
            losses["overflow"],
            line["unfinished"],
            losses["skipped"],
        ),
        probes=tuple(probes),
        note=line["note"],
    )


def rows_of(*slots: DatasetCounts, **limits: str) -> dict[Key, FsyncSummary]:
    found = summarize(slots, FakeHost(), SPAN, **limits)
    return {(row.pool, row.dataset): row for row in found}


def check_schema(line: dict[str, object]) -> None:
    assert line["schema"] == 1
    assert line["type"] == "fsync_summary"
    assert all(type(line[name]) is int for name in NUMBER)
    latency = line["latency"]
    assert isinstance(latency, dict)
    assert list(latency) == ["mean", "p50", "p90", "p99", "p999", "max"]
    assert all(type(v) is int for v in latency.values()) == bool(line["count"])
    stages = line["stages"]
    assert isinstance(stages, list)
    assert [stage["name"] for stage in stages] == list(NAMES)
    for stage in stages:
        assert list(stage) == ["name", "total_ns", "count", "p50", "p99", "max"]
    probes = line["probes"]
    assert isinstance(probes, dict)
    assert all(isinstance(name, str) for name in probes["attached"])
    assert all(set(lack) == {"name", "cost", "why"} for lack in probes["missing"])
    assert isinstance(line["kinds"], dict)
    assert list(line["kinds"]) == list(KINDS)


def test_pool_row_sums_its_datasets() -> None:
    rows = rows_of(
        counts(objset=54, stages={"flush": [100, 200]}),
        counts(objset=68, stages={"flush": [1000], "issue": [10]}),
    )
    pool = rows["tank", None]
    assert pool.count == 3
    assert pool.commits == 3
    assert pool.stages[NAMES.index("flush")].total_ns == 1300
    assert list(rows) == [
        ("idle", None),
        ("tank", None),
        ("tank", "tank/db"),
        ("tank", "tank"),
    ]
    assert rows["idle", None].count == 0


def test_slots_of_one_name_are_merged() -> None:
    one = counts(objset=68, stages={"flush": [100]})
    again = counts(pool="tank", objset=68, stages={"flush": [300, 500]})
    assert rows_of(one, again)["tank", "tank/db"].count == 3


def test_a_dataset_with_sync_disabled_is_named_by_device() -> None:
    rows = rows_of(counts("", 0, dev=(0, 50), total=[5, 6], no_zil=2))
    row = rows["tank", "tank/nosync"]
    assert not row.zil
    assert row.to_json()["zil"] is False
    assert rows["tank", None].count == 2


def test_the_nameless_are_shown() -> None:
    rows = rows_of(
        counts(objset=999, stages={"flush": [1]}),
        counts("", 0, dev=(0, 99), total=[1]),
        counts("", 0, total=[1]),
        counts("", 0, rest=True, total=[1]),
    )
    assert rows["tank", "<objset 0x3e7>"].note
    assert rows[None, "<device 0:99>"].note
    assert (None, "<unknown>") in rows
    assert rows[None, OTHERS].note
    assert rows[None, None].count == 3


def test_pool_and_dataset_limit_the_rows() -> None:
    slots = (
        counts(objset=68, stages={"flush": [1]}),
        counts("other", 7, stages={"flush": [1]}),
        counts("", 0, rest=True, total=[1]),
    )
    assert {pool for pool, _ in rows_of(*slots, pool="tank")} == {"tank"}
    assert rows_of(*slots, pool="tank")["tank", None].count == 2
    only = rows_of(*slots, pool="tank", dataset="tank/db")
    assert list(only) == [("tank", "tank/db"), ("tank", OTHERS)]
    empty = rows_of(pool="tank", dataset="tank/db")
    assert empty["tank", "tank/db"].count == 0


def test_an_interval_is_the_difference_of_two_states() -> None:
    before = counts(stages={"flush": [100, 200]})
    after = counts(stages={"flush": [100, 200, 10]})
    new = counts(objset=68, stages={"flush": [7]})
    delta = since([after, new], [before])
    assert (delta[0].total.count, delta[0].commits, delta[0].kinds[0]) == (1, 1, 1)
    assert delta[0].total.sum_ns == 10
    assert delta[1] == new


@given(st.lists(st.integers(0, 2**43), max_size=30), st.integers(0, 30))
def test_schema_holds_and_comes_back(values: list[int], no_zil: int) -> None:
    slot = counts(
        stages={"flush": values, "other": values}, no_zil=min(no_zil, len(values)), errors=1
    )
    for row in summarize([slot], FakeHost(), SPAN):
        text = json.dumps(row.to_json())
        check_schema(json.loads(text))
        back = summary_from_json(json.loads(text))
        assert back.to_json() == json.loads(text)


def test_losses_are_in_every_row() -> None:
    line = rows_of(counts(total=[1]))["tank", None].to_json()
    assert line["lost"] == 6
    want = {"start": 1, "return": 2, "event": 3, "log_block": 4, "overflow": 5, "skipped": 7}
    assert line["losses"] == want
    assert line["unfinished"] == 6


def test_a_slow_fsync_has_its_schema() -> None:
    stages = dict.fromkeys(NAMES, 0) | {"flush": 5}
    slow = SlowFsync("t", 1, 2, "c", "tank", "tank/db", 9, 5, stages, None, "fsync")
    assert slow.to_json() == {
        "schema": 1,
        "type": "slow_fsync",
        "time": "t",
        "pid": 1,
        "tid": 2,
        "comm": "c",
        "pool": "tank",
        "dataset": "tank/db",
        "object": 9,
        "total_ns": 5,
        "stages": stages,
        "txg_state": None,
        "kind": "fsync",
        "txg": None,
        "txg_sync_ns": None,
        "throttle": None,
    }
