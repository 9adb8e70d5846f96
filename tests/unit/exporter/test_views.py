"""What each view exports, against what `zfstune trace` says of the same counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.exported import OPENMETRICS, Exported, Scrape, buckets, exemplars, gone_back
from support.fake_host import FakeHost, FakeSession
from support.samples import (
    PROBES,
    arc,
    counts,
    from_values,
    ios,
    read_state,
    reads,
    slow_event,
    txg,
    vdev,
    waits,
)

from zfstrace import throttle as throttled
from zfstrace.errors import TraceError
from zfstrace.light import CommitCounts, Sample, SlowCommit, Window
from zfstrace.light_summary import rows as light_rows
from zfstrace.stages import KINDS, NAMES
from zfstrace.summary import Span, summarize
from zfstrace.types import Losses
from zfstune.exporter import throttle
from zfstune.term.units import MS, SECOND

SPAN = Span("2026-11-27T03:05:00.000Z", 10 * SECOND, Losses(), PROBES)
DB = {"pool": "tank", "dataset": "tank/db"}


def commit(objset: int, *ns: int, pool: str = "tank", rest: bool = False) -> CommitCounts:
    hist = from_values(ns)
    return CommitCounts(
        pool, objset, (0, 0), rest, hist, from_values([n // 2 for n in ns]), from_values(ns[:1])
    )


def window(cause: SlowCommit | None = None, lost: int = 0, **ns: int) -> Window:
    stages = tuple(ns.get(name, 0) for name in NAMES)
    sample = Sample("tank", 68, (0, 0), False, 30, stages)
    return Window("2026-11-26T11:59:58.000Z", 2 * SECOND, (sample,), cause, lost)


def exported(view: str, *states: Any, **given: Any) -> Exported:
    host = FakeHost()
    host.sessions = {view: FakeSession([*states], **given)}
    return Exported(host, view)


# --- light


def test_commits_are_those_of_trace_fsync_light() -> None:
    now = [
        commit(54),
        commit(68, 5 * MS, 90 * MS),
        commit(70, 3 * MS),
        commit(1, 7 * MS, pool="", rest=True),
    ]
    it = exported("light", (now, [], []))
    scrape = it.scrape()
    name = "zfstune_zil_commit_duration_seconds"
    rows = {
        (row.dataset, row.pool or "<unknown>"): row
        for row in light_rows(now, [], it.host, SPAN)
        if row.dataset
    }
    assert scrape.of(f"{name}_count") == {key: row.commits for key, row in rows.items()}
    for (dataset, pool), row in rows.items():
        assert row.latency
        total = scrape.get(f"{name}_sum", pool=pool, dataset=dataset)
        assert total == pytest.approx(row.latency.mean * row.commits / SECOND)
    writes = "zfstune_zil_log_write_duration_seconds"
    assert scrape.of(f"{writes}_count") == {("tank",): 3, ("<unknown>",): 1}
    assert scrape.of("zfstune_zil_flush_duration_seconds_count") == {
        ("tank",): 2,
        ("<unknown>",): 1,
    }
    assert scrape.get("zfstune_light_attached") == 1
    assert scrape.get("zfstune_zil_commits_unfinished") == 0


def test_shares_of_stages_come_from_windows() -> None:
    windows = [window(flush=70, log_write=30), window(flush=90, log_write=10, lost=3)]
    it = exported("light", ([commit(68, MS)], windows, []))
    scrape = it.scrape()
    ratio = "zfstune_fsync_stage_share_ratio"
    (row,) = (r for r in light_rows([], windows, it.host, SPAN) if r.pool == "tank")
    flush = row.shares[NAMES.index("flush")]
    for bound, value in (("estimate", flush.share), ("low", flush.low), ("high", flush.high)):
        assert scrape.get(ratio, pool="tank", stage="flush", bound=bound) == value
    assert scrape.get("zfstune_light_windows") == 2
    assert scrape.get("zfstune_trace_lost_total", view="light", reason="window") == 3


def test_one_window_has_no_interval() -> None:
    scrape = exported("light", ([], [window(flush=70)], [])).scrape()
    assert {labels[0] for labels in scrape.of("zfstune_fsync_stage_share_ratio")} == {"estimate"}


@pytest.mark.parametrize(
    ("now", "found"),
    [
        # the only one with a commit in that bucket
        ([commit(68, 5 * MS, 1500 * MS), commit(70, 5 * MS)], "tank/db"),
        # two have one there, of one it is the longest
        ([commit(68, 1501 * MS), commit(70, 1500 * MS)], "tank/home"),
        # nobody knows whose it was
        ([commit(68, 1500 * MS), commit(70, 1500 * MS)], None),
    ],
)
def test_a_slow_commit_is_an_exemplar_where_it_is_known_whose(
    now: list[CommitCounts], found: str | None
) -> None:
    kept = [window(SlowCommit(1500 * MS, 12, "post\udcffgres"), flush=93)]
    it = exported("light", (now, [], kept))
    it.tick()
    shown = exemplars(it.text(OPENMETRICS))
    assert [sample.labels["dataset"] for sample in shown] == ([found] if found else [])
    for sample in shown:
        assert sample.exemplar.labels == {"comm": "post?gres"}
        assert sample.exemplar.value == 1.5 and sample.labels["le"] == "2.0"


def test_names_are_looked_up_once_for_each_window(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    real = FakeHost.dataset_name

    def name(host: FakeHost, pool: str, objset: int, dev: tuple[int, int]) -> str | None:
        asked.append(objset)
        return real(host, pool, objset, dev)

    monkeypatch.setattr(FakeHost, "dataset_name", name)
    windows = [window(flush=n) for n in range(1, 5)]
    it = exported("light", *(([], windows[:n], []) for n in range(1, 5)))
    for _ in windows:
        it.scrape()
    assert asked == [68] * 4


def test_a_light_trace_that_waits_for_a_pool_is_off() -> None:
    it = exported("light", ([commit(68, MS)], [window(flush=70)], []))
    session = it.host.sessions["light"]
    assert isinstance(session, FakeSession)
    session.waiting = True
    it.host.imported = []
    scrape = it.scrape()
    assert scrape.get("zfstune_light_attached") == 0
    assert scrape.get("zfstune_trace_up", view="light") == 0
    assert scrape.get("zfstune_trace_off_info", view="light", why="no_pool") == 1
    assert scrape.get("zfstune_zil_commits_unfinished") is None
    assert scrape.of("zfstune_fsync_stage_share_ratio") == {}
    assert scrape.get("zfstune_light_windows") is None
    session.waiting = False
    assert it.scrape(2).get("zfstune_trace_up", view="light") == 1


# --- fsync


def test_fsyncs_are_those_of_trace_fsync() -> None:
    flush, write = [30 * MS] * 5 + [80 * MS], [10 * MS] * 6
    now = [
        counts(objset=68, stages={"flush": flush, "log_write": write}, errors=2),
        counts(objset=70, total=[1000, 2000], no_zil=2),
        # mounted a second time
        counts(objset=0, dev=(0, 50), stages={"issue": [MS]}),
        counts(objset=0, dev=(0, 50), stages={"issue": [3 * MS]}),
        counts(pool="", objset=0, rest=True, stages={"other": [MS]}),
    ]
    it = exported("fsync", now, losses=Losses(start=2, unfinished=4))
    scrape = it.scrape()
    rows = [row for row in summarize(now, it.host, SPAN) if row.dataset]
    assert len(rows) == 4
    for row in rows:
        key = {"pool": row.pool or "<unknown>", "dataset": row.dataset or ""}
        name = "zfstune_fsync_duration_seconds"
        assert scrape.get(f"{name}_count", **key) == row.count
        assert buckets(scrape, name, **key)[-1] == row.count
        stage_s = {
            stage.name: scrape.get("zfstune_fsync_stage_seconds_total", stage=stage.name, **key)
            for stage in row.stages
        }
        assert stage_s == {stage.name: stage.total_ns / SECOND for stage in row.stages}
        if any(stage_s.values()):
            total = scrape.get(f"{name}_sum", **key)
            assert sum(value or 0 for value in stage_s.values()) == pytest.approx(total)
        assert scrape.get("zfstune_fsync_errors_total", **key) == row.errors
        assert scrape.get("zfstune_zil_commits_total", **key) == row.commits
        assert scrape.get("zfstune_fsync_without_zil_total", **key) == row.no_zil
        for kind, number in row.kinds.items():
            found = scrape.get("zfstune_fsync_operations_total", kind=kind, **key)
            assert (found or 0) == number
    (tank,) = (
        row for row in summarize(now, it.host, SPAN) if row.pool == "tank" and not row.dataset
    )
    for stage in tank.stages:
        name = "zfstune_fsync_stage_duration_seconds_count"
        assert (scrape.get(name, pool="tank", stage=stage.name) or 0) == stage.count
    assert scrape.get("zfstune_fsync_unfinished") == 4
    assert scrape.get("zfstune_trace_lost_total", view="fsync", reason="start") == 2


def test_only_what_is_new_is_added() -> None:
    first = counts(objset=68, stages={"flush": [MS]})
    second = counts(objset=68, stages={"flush": [MS, 5 * MS]})
    it = exported("fsync", [first], [first], [second])
    name = "zfstune_fsync_duration_seconds"
    assert [it.scrape().get(f"{name}_count", **DB) for _ in range(4)] == [1, 1, 2, 2]


def test_a_slot_of_another_dataset_begins_anew() -> None:
    before = counts(objset=68, stages={"flush": [MS] * 9})
    # fewer operations; more operations, but another object set
    fewer, other = (
        counts(objset=68, stages={"flush": [MS] * 4}),
        counts(objset=70, stages={"flush": [MS] * 90}),
    )
    it = exported("fsync", [before], [fewer], [other])
    name = "zfstune_fsync_duration_seconds_count"
    it.scrape()
    assert it.scrape().get(name, **DB) == 13
    last = it.scrape()
    assert last.get(name, **DB) == 13
    assert last.get(name, pool="tank", dataset="tank/home") == 90


def test_slow_fsyncs_are_exemplars() -> None:
    now = [counts(objset=54), counts(objset=68, stages={"flush": [110 * MS, 400 * MS, 450 * MS]})]
    events = [slow_event(1, "fast", flush=400), slow_event(1, "slow", flush=450)]
    events += [slow_event(9, "nobody", flush=300), slow_event(1, "ev\x1bil", flush=110)]
    it = exported("fsync", now, events=events)
    it.tick()
    shown = {s.labels["le"]: s.exemplar for s in exemplars(it.text(OPENMETRICS))}
    assert {le: one.labels for le, one in shown.items()} == {
        "0.5": {"comm": "slow", "txg": "77"},
        "0.2": {"comm": "ev?il", "txg": "77"},
    }
    assert float(shown["0.5"].timestamp) == it.wall


# --- txg, throttle, arc, device, read


def test_txgs_are_counted_by_phase_and_reason() -> None:
    host = FakeHost()
    session = FakeSession(events=[txg(9), txg(10, sync_ns=1900 * MS, reason="dirty")])
    host.sessions = {"txg": session}
    it = Exported(host, "txg")
    scrape = it.scrape()
    assert scrape.of("zfstune_txgs_total") == {
        **{("idle", reason): 0 for reason in ("timer", "dirty", "waiter", "unknown")},
        **{("tank", reason): 0 for reason in ("waiter", "unknown")},
        ("tank", "timer"): 1,
        ("tank", "dirty"): 1,
    }
    name = "zfstune_txg_duration_seconds"
    assert scrape.of(f"{name}_count") == {
        (phase, "tank"): 2 for phase in ("open", "quiesce", "wait", "sync")
    }
    assert scrape.get(f"{name}_sum", pool="tank", phase="sync") == 2.35
    (sample,) = exemplars(it.text(OPENMETRICS))
    assert sample.exemplar.labels == {"txg": "10"} and sample.labels["le"] == "2.0"


def test_a_phase_that_is_not_known_is_not_counted() -> None:
    scrape = exported("txg", events=[txg(9, open_ns=None)]).scrape()
    name = "zfstune_txg_duration_seconds_count"
    assert scrape.get(name, pool="tank", phase="open") is None
    assert scrape.get(name, pool="tank", phase="sync") == 1


def test_waits_are_counted_by_limit() -> None:
    now = [
        waits(rest=True, pool="", pid=0, txg_wait=[MS]),
        waits(dirty_hard=[50 * MS] * 3, dirty_delay=[MS]),
        waits(pid=12, dirty_hard=[MS]),
    ]
    scrape = exported("throttle", now).scrape()
    total, times = "zfstune_throttle_waits_total", "zfstune_throttle_wait_seconds_total"
    assert scrape.get(total, pool="tank", limit="dirty_hard") == 4
    assert scrape.get(times, pool="tank", limit="dirty_hard") == 0.151
    assert scrape.get(total, pool="<others>", limit="txg_wait") == 1
    # all are there before their first
    assert scrape.get(total, pool="idle", limit="wrlog_delay") == 0


def test_the_waits_of_who_has_ended_are_the_same_as_those_of_trace_throttle() -> None:
    rest = waits(rest=True, pool="", pid=0)
    one, two = (replace(waits(pid=pid, dirty_hard=[MS] * pid), life=pid) for pid in (3, 5))
    # the first one has waited once more, ended, and is summed in the rest
    later = waits(rest=True, pool="", pid=0, dirty_hard=[MS] * 4)
    before, now = [rest, one, two], [later, two]
    ours = {c.life: kinds["dirty_hard"].count for c, kinds in throttle.since(now, before)}
    theirs = {
        c.life: c.kinds["dirty_hard"].count
        for c in throttled.since(now, before)
        if c.kinds["dirty_hard"].count
    }
    assert ours == theirs == {0: 1}


def test_the_cache_counts_on_when_the_module_is_loaded_again() -> None:
    it = exported("arc", arc(1), arc(2, waits=[MS]), arc(2, waits=[MS, 3 * MS]), arc(1))
    scrapes = [it.scrape(), it.scrape()]
    it.host.loaded_as = "boot:another"
    scrapes.append(it.scrape())
    assert [s.get("zfstune_arc_hits_total") for s in scrapes] == [1980, 1980, 2970]
    assert scrapes[2].get("zfstune_arc_misses_total") == 30
    assert scrapes[2].get("zfstune_arc_eviction_waits_total") == 2
    assert scrapes[2].get("zfstune_arc_eviction_wait_seconds_total") == 0.004


def test_without_bpf_there_are_no_waits_rather_than_none() -> None:
    host = FakeHost()
    host.sessions = {"arc kstat": FakeSession([arc(1, None)], probes=())}
    scrape = Exported(host, "arc", kstat=True).scrape()
    assert scrape.get("zfstune_arc_hits_total") == 990
    assert scrape.of("zfstune_arc_eviction_waits_total") == {}
    assert scrape.get("zfstune_trace_probes", view="arc", how="kstat") == 1


def test_devices_are_counted_by_vdev_and_class() -> None:
    disk = vdev(1, flush=ios([30 * MS] * 4), sync_write=ios([10 * MS], queue=[2 * MS]))
    scrape = exported("device", [vdev(0, pool=""), disk]).scrape()
    where = {"pool": "tank", "vdev": "sda"}
    name = "zfstune_device_io_duration_seconds"
    assert scrape.get(f"{name}_count", **where, **{"class": "flush"}) == 4
    assert scrape.get(f"{name}_sum", **where, **{"class": "sync_write"}) == 0.01
    queue = "zfstune_device_queue_duration_seconds"
    assert scrape.get(f"{queue}_sum", **where, **{"class": "sync_write"}) == 0.002
    assert scrape.get(f"{queue}_count", **where, **{"class": "flush"}) is None


def test_zpool_that_hangs_does_not_hold_up_readings() -> None:
    """For one of the 32 vdevs of 4 pools it takes its ten seconds."""
    disks = [(i, f"p{i % 4}") for i in range(1, 33)]
    states = [[vdev(i, pool, flush=ios([MS] * n)) for i, pool in disks] for n in (1, 2, 3)]
    it = exported("device", *states)
    it.host.imported = [f"p{i}" for i in range(4)]
    asked, answer = list[str](), dict[int, str]()

    def names(pool: str) -> dict[int, str]:
        asked.append(pool)
        it.stop.clock += 0 if answer else 10 * SECOND
        return answer

    it.host.vdev_names = names  # type: ignore[method-assign]
    name = "zfstune_device_io_duration_seconds_count"
    first, second = it.scrape(), it.scrape()
    assert len(asked) == 1
    # no series of a number, which would stay
    assert first.of(name) == {("flush", f"p{i}", "<unknown>"): 8 for i in range(4)}
    assert second.of(name) == {("flush", f"p{i}", "<unknown>"): 16 for i in range(4)}
    answer.update((i, f"sd{i}") for i, _ in disks)
    it.stop.clock += 600 * SECOND
    third = it.scrape()
    assert third.get(name, pool="p1", vdev="sd1", **{"class": "flush"}) == 1
    assert third.get(name, pool="p1", vdev="<unknown>", **{"class": "flush"}) == 16
    assert not gone_back(second, third)


def test_reads_are_counted_by_cache() -> None:
    state = read_state(reads(hit=[1000] * 9, miss=[5 * MS], write=[MS, MS]))
    scrape = exported("read", state).scrape()
    name = "zfstune_read_duration_seconds_count"
    assert scrape.get(name, cache="hit", **DB) == 9
    assert scrape.get(name, cache="miss", **DB) == 1
    assert scrape.get("zfstune_write_duration_seconds_sum", **DB) == 0.002


# --- rows for the recorder


def test_rows_are_those_of_trace() -> None:
    one, two = (counts(objset=68, stages={"flush": [MS] * n}) for n in (1, 3))
    it = exported("fsync", [one], [two])
    it.tick()
    found = []
    for _ in range(3):
        rows = it.collector.rows()["fsync"]
        assert {row["type"] for row in rows} == {"fsync_summary"}
        found.append(sum(row["count"] for row in rows if row["dataset"] == "tank/db"))
    assert found == [1, 2, 0]


def test_a_slow_fsync_is_a_row_too() -> None:
    now = [counts(objset=68, stages={"flush": [200 * MS]})]
    it = exported("fsync", now, events=[slow_event(0, "slow", flush=200)])
    it.tick()
    it.collector.read(0)
    rows = [row for row in it.collector.rows()["fsync"] if row["type"] == "slow_fsync"]
    assert [(row["comm"], row["dataset"]) for row in rows] == [("slow", "tank/db")]


def test_what_a_closed_session_counted_is_not_lost_for_the_recorder() -> None:
    it = exported("fsync", [counts(objset=68, stages={"flush": [MS]})])
    it.tick()
    it.collector.rows()
    session = it.host.sessions["fsync"]
    assert isinstance(session, FakeSession)
    session.states = [[counts(objset=68, stages={"flush": [MS] * 4})]]
    it.host.imported = []
    it.tick()
    assert session.closed
    rows = it.collector.rows()["fsync"]
    assert sum(row["count"] for row in rows if row["dataset"] == "tank/db") == 3
    # it does not know of any more
    assert it.collector.rows() == {}


def test_an_error_of_the_next_session_does_not_lose_the_last_rows() -> None:
    host = FakeHost()
    first = FakeSession([[counts(objset=68, stages={"flush": [MS]})]])
    host.sessions = {"fsync": [first, FakeSession([TraceError("cannot read")])]}
    it = Exported(host, "fsync")
    it.tick()
    it.collector.rows()
    first.states = [[counts(objset=68, stages={"flush": [MS] * 4})]]
    host.loaded_as = "boot:2"
    it.tick()
    assert it.collector.rows() == {}
    rows = it.collector.rows()["fsync"]
    assert sum(row["count"] for row in rows if row["dataset"] == "tank/db") == 3


def test_the_kstat_of_another_module_makes_no_row() -> None:
    host = FakeHost()
    host.sessions = {"arc": [FakeSession([arc(5), arc(5), arc(1)]), FakeSession([arc(1)])]}
    it = Exported(host, "arc")
    it.tick()
    it.collector.rows()
    host.loaded_as = "boot:2"
    it.tick()
    assert [row["demand_hits"] for row in it.collector.rows()["arc"]] == [0]


def test_all_kinds_have_a_label() -> None:
    now = counts(objset=68, total=[MS])
    all_kinds = replace(now, kinds=tuple(range(1, len(KINDS) + 1)))
    scrape = exported("fsync", [all_kinds]).scrape()
    found = by_pool_kind(scrape)
    assert found == {kind: i + 1 for i, kind in enumerate(KINDS)}


def by_pool_kind(scrape: Scrape) -> dict[str, float]:
    return {key[1]: value for key, value in scrape.of("zfstune_fsync_operations_total").items()}
