"""On FreeBSD every synchronous operation is counted, once: by the command, by one-file D scripts,
and as ZFS counts them."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from lab.rows import Json, dataset_row, share, total_ns

ODD_POOL = "si.de-2 x"


@pytest.fixture
def counts(scenario: Callable[[str, str], Json], flavour: str) -> Json:
    return scenario("freebsd_counts", flavour)


@pytest.mark.parametrize(
    ("dataset", "kind", "expected"),
    [
        ("tank/db", "fsync", 211),
        ("tank/fdatasync", "fsync", 199),
        ("tank/threads", "fsync", 8 * 31),
        ("tank/dsync", "other", 101),
        ("tank/osync", "other", 97),
        ("tank/msync", "other", 59),
        ("tank/with space", "fsync", 2),
        ("tank/-lead", "fsync", 3),
        ("tank/v1.2:x_y", "fsync", 4),
        (f"{ODD_POOL}/da ta", "fsync", 5),
        ("tank/new", "fsync", 23),
    ],
)
def test_the_count_is_exact(counts: Json, dataset: str, kind: str, expected: int) -> None:
    row = dataset_row(counts["all"]["rows"], dataset)
    assert row["kinds"][kind] == row["count"] == row["commits"] == expected
    assert counts["by_dataset"][dataset] == expected


@pytest.mark.parametrize(("dataset", "least"), [("always", 53), ("dev", 47 + 41), ("geom", 43)])
def test_what_zfs_adds_is_counted_too(counts: Json, dataset: str, least: int) -> None:
    """The creation of a file with sync=always, the last close of a volume."""
    row = dataset_row(counts["all"]["rows"], f"tank/{dataset}")
    assert row["count"] == counts["by_dataset"][f"tank/{dataset}"]
    assert least <= row["count"] <= least + 2


def test_sync_disabled_has_no_zil(counts: Json) -> None:
    row = dataset_row(counts["all"]["rows"], "tank/off")
    assert (row["count"], row["no_zil"], row["commits"], row["zil"]) == (17, 17, 0, False)
    assert share(row, "other") == 1.0


def test_all_together_are_those_of_the_kstat(counts: Json) -> None:
    """With those of a dataset that is gone."""
    pools = [row for row in counts["all"]["rows"] if row["dataset"] is None]
    assert {row["pool"] for row in pools} == {"tank", ODD_POOL}
    assert sum(row["commits"] for row in pools) == counts["all"]["kstat_commits"]


def test_the_end_of_a_dataset_is_counted(counts: Json) -> None:
    """Its fsyncs, and the commit of its unmount."""
    row = dataset_row(counts["all"]["rows"], "tank/gone")
    assert row["kinds"]["fsync"] == counts["by_dataset"]["tank/gone"] == 29
    assert row["kinds"]["other"] <= 1


@pytest.mark.parametrize("name", ["zilcommit.d", "zilslower.d"])
def test_the_scripts_count_the_same(counts: Json, name: str) -> None:
    run = counts[name]
    assert (run["status"], run["stderr"]) == (0, "")
    assert "Never fired" not in run["stdout"]
    last = re.search(r"^(\d+) commits,.* lost: (\d+), .*errors: (\d+)$", run["stdout"], re.M)
    assert last
    assert tuple(map(int, last.groups())) == (run["kstat_commits"], 0, 0)


def test_zilslower_has_a_line_for_each(counts: Json) -> None:
    run = counts["zilslower.d"]
    lines = [line.split() for line in run["stdout"].splitlines() if line[2:3] == ":"]
    assert len(lines) == run["kstat_commits"]
    for line in lines:
        total, *parts = map(int, line[3:-1])
        assert sum(parts) == pytest.approx(total, abs=len(parts))


def test_only_what_was_asked_for_is_counted(counts: Json) -> None:
    def found(key: str) -> dict[str, int]:
        return {row["dataset"]: row["count"] for row in counts[key]["rows"] if row["dataset"]}

    assert found("by_dataset_name") == {"tank/with space": 37}
    assert found("by_pid") == {"tank/db": 37}
    assert found("by_pool") == {f"{ODD_POOL}/da ta": 7}


@pytest.mark.parametrize("key", ["all", "by_dataset_name", "by_pid", "by_pool"])
def test_nothing_is_lost(counts: Json, key: str) -> None:
    run = counts[key]
    assert run["status"] == 0
    assert "missing probes: none" in run["stderr"]
    for row in run["rows"]:
        assert (row["lost"], row["errors"], row["unfinished"]) == (0, 0, 0)
        if row["count"]:
            assert total_ns(row) // row["count"] == row["latency"]["mean"]
            assert sum(n for _, _, n in row["histogram"]) == row["count"]


def test_no_script_is_left(counts: Json) -> None:
    assert counts["left"] == ""
