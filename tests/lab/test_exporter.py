"""The exporter counts what ZFS and `zfstune trace` count, whatever comes and goes; its formats are
those of Prometheus; nobody who asks it badly stops it."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from exporting import Samples, labels, select, total
from lab.rows import Json, dataset_row, pool_row
from support.errors import REFUSED

# Of a scrape with the default views and 32 datasets
MOST_BYTES = 150 << 10
HISTOGRAMS = (
    "zfstune_zil_commit_duration_seconds",
    "zfstune_fsync_duration_seconds",
    "zfstune_write_duration_seconds",
)
# Of views that a budget detaches
ORDER = ("device", "read", "throttle", "fsync")


@pytest.fixture
def exporter(scenario: Callable[[str, str], Json], flavour: str) -> Json:
    return scenario("exporter", flavour)


def gained(found: Json, name: str, **wanted: str) -> int:
    """What a counter gained."""
    more = total(found["after"], name, **wanted) - total(found["before"], name, **wanted)
    assert more == int(more)
    return int(more)


def by_dataset(samples: Samples, name: str, **wanted: str) -> dict[str, float]:
    return {
        labels(series)["dataset"]: value
        for series, value in select(samples, name, **wanted).items()
    }


@pytest.mark.parametrize("name", HISTOGRAMS)
def test_each_dataset_has_its_count(exporter: Json, name: str) -> None:
    counts = exporter["counts"]
    named = by_dataset(counts["after"], f"{name}_count", pool="tank")
    # each write was one, and one fsync, and one commit
    for dataset, number in counts["wrote"].items():
        if dataset in named:
            assert gained(counts, f"{name}_count", dataset=dataset) == number, dataset
    assert gained(counts, f"{name}_count", pool="tank") == sum(counts["wrote"].values())
    assert "<unknown>" not in named


def test_commits_are_those_of_the_kstat(exporter: Json) -> None:
    counts = exporter["counts"]
    commits = gained(counts, "zfstune_zil_commit_duration_seconds_count")
    assert commits == counts["kstat"]["zil_commit_count"] == sum(counts["wrote"].values())
    assert gained(counts, "zfstune_zil_commits_total") == commits
    exported = gained(counts, "zfstune_zil_kstat_total", counter="commit")
    assert exported == counts["kstat"]["zil_commit_count"]
    for counter in ("itx", "itx_indirect", "itx_copied", "itx_needcopy"):
        exported = gained(counts, "zfstune_zil_kstat_total", counter=counter)
        assert exported == counts["kstat"][f"zil_{counter}_count"], counter


def test_counts_are_those_of_trace(exporter: Json) -> None:
    """Of one that ran beside it, in a process of its own."""
    counts = exporter["counts"]
    assert counts["status"] == 0
    whole = pool_row(counts["rows"])
    assert gained(counts, "zfstune_fsync_operations_total") == whole["count"]
    named = by_dataset(counts["after"], "zfstune_fsync_duration_seconds_count", pool="tank")
    for dataset in counts["wrote"].keys() & named.keys():
        mine = gained(counts, "zfstune_fsync_duration_seconds_count", dataset=dataset)
        row = dataset_row(counts["rows"], dataset)
        assert (mine, mine) == (row["count"], row["kinds"]["fsync"]), dataset


def test_commits_are_those_of_a_light_trace(exporter: Json) -> None:
    """Of one that ran beside it, too."""
    light, counts = exporter["light"], exporter["counts"]
    assert light["status"] == 0
    rows = [row for row in light["rows"] if row["type"] == "light_summary"]
    name = "zfstune_zil_commit_duration_seconds_count"
    assert gained(counts, name, pool="tank") == pool_row(rows)["commits"]
    own = by_dataset(counts["after"], name, pool="tank").keys() & counts["wrote"].keys()
    assert len(own) > 5
    for dataset in own:
        commits = dataset_row(rows, dataset)["commits"]
        assert gained(counts, name, dataset=dataset) == commits == counts["wrote"][dataset], dataset


def test_stages_sum_to_the_duration(exporter: Json) -> None:
    for samples in (exporter["counts"]["after"], exporter["comings"]["after"]):
        sums = select(samples, "zfstune_fsync_duration_seconds_sum")
        assert len(sums) >= 12
        for series, seconds in sums.items():
            of = labels(series)
            stages = total(samples, "zfstune_fsync_stage_seconds_total", **of)
            assert seconds > 0 and stages == pytest.approx(seconds, abs=1e-6), of


def test_histograms_are_whole(exporter: Json) -> None:
    samples = exporter["comings"]["after"]
    counts = [series for series in samples if series.partition("{")[0].endswith("_seconds_count")]
    assert len(counts) > 50
    for series in counts:
        name, of = series.partition("{")[0].removesuffix("_count"), labels(series)
        buckets = list(select(samples, f"{name}_bucket", **of).values())
        assert buckets == sorted(buckets), series
        assert buckets[-1] == samples[series], series


def test_the_rest_is_summed(exporter: Json) -> None:
    samples = exporter["comings"]["after"]
    for name in HISTOGRAMS:
        where = [labels(series) for series in select(samples, f"{name}_count")]
        # <unknown> is what commits before it is mounted, by ZFS itself (2.1)
        own = {of["dataset"] for of in where if not of["dataset"].startswith("<")}
        assert len(own) == 12
        assert {"pool": "tank", "dataset": "<others>"} in where


def test_reads_are_counted(exporter: Json) -> None:
    counts = exporter["counts"]
    assert gained(counts, "zfstune_read_duration_seconds_count", dataset="tank/d0") == 41


def test_txgs_are_counted(exporter: Json) -> None:
    found = {"before": exporter["counts"]["after"], "after": exporter["formats"]["samples"]}
    # three were asked for
    assert gained(found, "zfstune_txgs_total", pool="tank") >= 3
    synced = gained(found, "zfstune_txg_duration_seconds_count", pool="tank", phase="sync")
    assert synced == gained(found, "zfstune_txgs_total", pool="tank")


def test_writes_at_the_device_are_counted(exporter: Json) -> None:
    """Each commit wrote a block or more."""
    counts, name = exporter["counts"], "zfstune_device_io_duration_seconds_count"
    writes = {"pool": "tank", "vdev": "vdb", "class": "sync_write"}
    assert gained(counts, name, **writes) >= sum(counts["wrote"].values())


def test_a_scrape_is_small(exporter: Json) -> None:
    many = exporter["many"]
    own = {labels(series)["dataset"]: count for series, count in many["counts"].items()}
    assert own == {f"tank/d{i}": 6 for i in range(32)}
    assert many["bytes"] < MOST_BYTES


def test_openmetrics_has_exemplars(exporter: Json) -> None:
    formats = exporter["formats"]
    assert formats["openmetrics_end"] and formats["gzip"]
    assert formats["families"] == formats["openmetrics_families"] > 30
    assert '<a href="/metrics">' in formats["index"]
    slow = [
        exemplar
        for name, of, exemplar, seconds in formats["exemplars"]
        if name == "zfstune_fsync_duration_seconds_bucket"
        and of["pool"] == "slow"
        # the disk's flushes take that long
        and seconds > 0.12
    ]
    assert slow
    # the slowest of each bucket; a later one may have been in no txg that is known
    assert {exemplar["comm"] for exemplar in slow} == {"python3"}


def test_the_text_file_is_always_whole(exporter: Json) -> None:
    found = exporter["textfile"]
    assert found["broken"] == []
    assert found["versions"] >= 6 and found["reads"] > found["versions"]
    assert found["mode"] == 0o644
    # at its end no old values stay
    assert (found["status"], found["left"]) == (0, []), found["stderr"]


def test_once_prints_and_ends(exporter: Json) -> None:
    once = exporter["once"]
    assert once["status"] == 0, once["stderr"]
    assert set(once["up"].values()) == {1} and len(once["up"]) == 2
    assert 0 < once["commits"] <= once["kstat"]


def test_kstats_need_no_privilege(exporter: Json) -> None:
    nobody = exporter["nobody"]
    assert nobody["status"] == 0, nobody["stderr"]
    assert {labels(series)["view"] for series in nobody["up"]} == {"txg", "arc"}
    assert set(nobody["up"].values()) == {1}
    assert {labels(series)["how"] for series in nobody["programs"]} == {"kstat"}
    assert 0 < nobody["commits"] <= nobody["kstat"]


@pytest.mark.parametrize(
    ("case", "status", "words"),
    [
        ("port in use", 3, "9810: the port is in use"),
        ("no privilege", 3, "--source kstat"),
        ("unknown view", 2, "did you mean fsync?"),
        ("no budget", 2, "--budget"),
        ("no port", 2, "ADDRESS:PORT"),
        ("another file", 2, ".prom"),
        ("too many", 2, "64 at most"),
        ("no trigger", 2, "200ms"),
        ("dumps on ZFS", 3, "it is on ZFS (tank/d0)"),
        ("two ways out", 2, "--textfile"),
    ],
)
def test_bad_input_is_one_line(exporter: Json, case: str, status: int, words: str) -> None:
    found = exporter["bad"][case]
    assert (found["status"], found["stdout"]) == (status, ""), found
    assert re.fullmatch(REFUSED, found["stderr"])
    assert words in found["stderr"]


def test_who_writes_a_parameter_is_known(exporter: Json) -> None:
    steps = exporter["parameters"]

    def writes(step: str, name: str) -> dict[str, float]:
        found = select(steps[step]["writes_total"], "zfstune_parameter_writes_total", name=name)
        return {labels(series)["by"]: value for series, value in found.items()}

    def changed(step: str) -> dict[tuple[str, str], float]:
        found = steps[step]["changed"]
        return {(labels(s)["name"], labels(s)["by"]): value for s, value in found.items()}

    by_hand, mine = "zfs_txg_timeout", "zfs_dirty_data_sync_percent"
    # both are there before the first write: increase() does not miss it
    assert writes("before", by_hand) == writes("before", mine) == {"zfstune": 0, "other": 0}
    assert writes("by hand", by_hand) == {"zfstune": 0, "other": 1}
    assert changed("by hand") == {(by_hand, "other"): 7}
    assert writes("by zfstune", mine) == {"zfstune": 1, "other": 0}
    assert changed("by zfstune") == {(by_hand, "other"): 7, (mine, "zfstune"): 25}
    assert exporter["set"]["status"] == exporter["revert"]["status"] == 0
    assert writes("reverted", mine) == {"zfstune": 2, "other": 0}
    assert (mine, "zfstune") not in changed("reverted")


def test_it_writes_no_parameter(exporter: Json) -> None:
    assert exporter["changed"] == {}


def test_a_budget_detaches_views_in_order(exporter: Json) -> None:
    found = exporter["budget"]
    off = {labels(series)["view"] for series in found["off"]}
    assert {labels(series)["why"] for series in found["off"]} == {"budget"}
    assert {"device", "read", "fsync"} <= off <= set(ORDER)
    # the one that goes never
    assert found["up"]['zfstune_trace_up{view="light"}'] == 1
    said = re.findall(r"view (\w+) is off: tracing costs [^\n]+--budget is", found["stderr"])
    assert set(said) == off
    assert said == [view for view in ORDER if view in said] or len(said) > len(set(said))
    assert found["share"] == pytest.approx(1e-5)
    assert {labels(series)["view"] for series in found["cost_without"]}.isdisjoint(off)
    assert (found["status"], found["went_back"]) == (0, [])


def test_hostile_scrapers_stop_nobody(exporter: Json) -> None:
    found = exporter["hostile"]
    assert found["honest"] == [True] * 2
    assert found["huge"].startswith(("HTTP/1.1 431", "ConnectionResetError"))
    assert found["garbage"].startswith("HTTP/1.1 400")
    assert found["method"].startswith("HTTP/1.1 405")
    assert found["path"].startswith("HTTP/1.1 404")
    assert gained(found, "zfstune_exporter_errors_total", what="refused") > 0
    commits = gained(found, "zfstune_zil_commit_duration_seconds_count")
    assert commits == found["kstat_commits"] == 101


def test_no_counter_goes_back(exporter: Json) -> None:
    found = exporter["exporter"]
    assert found["went_back"] == []
    assert found["failed"] == []
    assert found["scrapes"] > 30
    assert "Traceback" not in found["stderr"]


def test_nothing_is_lost_while_things_come_and_go(exporter: Json, flavour: str) -> None:
    found = exporter["comings"]
    assert gained(found, "zfstune_fsync_operations_total", kind="fsync") == found["wrote"]
    # those of an import are over before the trace is attached again
    unseen = gained(found, "zfstune_trace_lost_total", view="light", reason="return")
    commits = gained(found, "zfstune_zil_commit_duration_seconds_count")
    missing = found["kstat_commits"] - unseen - commits
    # in the module of Debian 12 zil_close() does not call zil_commit(): docs/stages.md, "Limits"
    assert 0 <= missing <= (found["closed"] if flavour.startswith("bookworm") else 0)
    assert commits >= found["wrote"]
    for reason in ("start", "event", "log_block", "window"):
        assert gained(found, "zfstune_trace_lost_total", reason=reason) == 0, reason


def test_it_waits_for_zfs(exporter: Json) -> None:
    found = exporter["comings"]
    for key, why in {"waiting": "no_pool", "without": "no_zfs"}.items():
        off = {labels(series)["view"]: labels(series)["why"] for series in found[key]}
        assert set(off.values()) == {why} and len(off) == 7, key


def test_kill_leaves_nothing(exporter: Json) -> None:
    assert exporter["many"]["programs_left"] == exporter["programs_left"] == []
