"""`zfstune advise` finds the defects of pools that were made with them, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from lab.rows import Json

STATES = ("clean", "defects", "special", "raidz", "mixed")


@pytest.fixture
def advised(scenario: Callable[[str, str], Json], flavour: str) -> Json:
    return scenario("advise", flavour)


def rules(found: Json) -> dict[str, Json]:
    return {finding["rule"]: finding for finding in found["findings"]}


def told(found: Json) -> list[str]:
    """Lines on stderr, without the one that comes after two seconds."""
    return [line for line in found["stderr"].splitlines() if "reading the properties" not in line]


def test_a_pool_without_defects_has_no_findings(advised: Json) -> None:
    found = advised["clean"]
    assert found["status"] == 0, found
    assert not [f for f in found["findings"] if f["severity"] != "low"]
    unjudged = {entry["rule"] for entry in found["unjudged"]}
    assert not unjudged & {"ashift-below-sector", "sectors-mixed", "slog-volatile"}


@pytest.mark.parametrize("state", STATES)
def test_nothing_is_changed(advised: Json, state: str) -> None:
    assert advised[state]["unchanged"]
    assert told(advised[state]) == []


@pytest.mark.parametrize("state", STATES)
def test_the_text_fits_100_columns_and_changes_nothing(advised: Json, state: str) -> None:
    text = advised[state]["text"]
    assert text["status"] == advised[state]["status"]
    assert "nothing was changed" in text["stdout"]
    assert all(
        len(line) < 100 for line in text["stdout"].splitlines() if not line.startswith("  command")
    )


@pytest.mark.parametrize(
    ("rule", "where"),
    [
        ("ashift-below-sector", "tank vdb"),
        ("sync-disabled", "tank/nosync"),
        ("logbias-throughput-with-slog", "tank/throughput"),
        ("slog-not-mirrored", "tank vdd"),
        ("slog-volatile", "tank vdd"),
        ("compression-off", "tank/db"),
        ("checksum-off", "tank/none"),
        ("primarycache-none", "tank/none"),
        ("dedup-on", "tank/a b"),
        ("xattr-dir", "tank/a b"),
        ("redundant-metadata-none", "tank/a b"),
        ("volblocksize-small", "tank/vol"),
    ],
)
def test_defects_are_found(advised: Json, rule: str, where: str) -> None:
    assert advised["defects"]["status"] == 1
    assert where in rules(advised["defects"])[rule]["where"]


def test_small_and_mixed_sectors_are_found(advised: Json, flavour: str) -> None:
    found = rules(advised["defects"])["ashift-below-sector"]
    assert found["where"] == ["tank vdb"]
    assert "blocks of 512 on a disk with sectors of 4K" in found["what"]
    # only one data vdev, and the log device has the sectors that it was made for
    assert "sectors-mixed" not in rules(advised["defects"])
    # a raidz is fit for the largest sector of its disks
    assert "sectors-mixed" not in rules(advised["raidz"])
    assert "sectors-mixed" in rules(advised["mixed"])


def test_inherited_and_quoted(advised: Json) -> None:
    found = rules(advised["defects"])["sync-disabled"]
    assert found["where"] == ["tank/nosync", "tank/nosync/below"]
    assert found["commands"] == ["zfs set sync=standard tank/nosync"]
    found = rules(advised["with_blank"])["dedup-on"]
    assert found["commands"] == ["zfs set dedup=off 'tank/a b'"]
    assert {"tank/nosync", "tank/nosync/below"} == {
        name for f in advised["one"]["findings"] for name in f["where"] if "/" in name
    }


def test_special_vdevs_and_raidz_are_judged(advised: Json) -> None:
    found = rules(advised["special"])
    assert found["special-not-redundant"]["severity"] == "high"
    assert found["special-not-redundant"]["where"] == ["side vdd"]
    assert found["special-takes-all"]["where"] == ["side/all"]
    found = advised["raidz"]
    # ZFS 2.1 does not report the ashift of a vdev
    unjudged = {entry["rule"]: entry["missing"] for entry in found["unjudged"]}
    assert "volblocksize-raidz" in rules(found) or unjudged["volblocksize-raidz"] == ["block_max"]


def test_what_lowers_durability_is_last_and_no_command(advised: Json) -> None:
    found = advised["raidz"]["findings"]
    lowering = [finding for finding in found if finding["lowers_durability"]]
    assert {finding["rule"] for finding in lowering} >= {"sync-always", "copies-on-redundancy"}
    assert found[-len(lowering) :] == lowering
    assert not any(finding["commands"] for finding in lowering)
    assert "side/much" in rules(advised["raidz"])["atime-on"]["where"]


def test_configurations_of_databases_are_judged(advised: Json, flavour: str) -> None:
    found = rules(advised["postgresql"])
    assert found["full-page-writes"]["where"] == ["tank/db"]
    assert "/tank/db/pg is on tank/db" in advised["postgresql"]["notes"]
    # conf.d and postgresql.auto.conf were read
    assert "wal-init-zero" not in found and "wal-recycle" not in found
    assert found["recordsize-above-page"]["where"] == ["tank/db"]
    found = rules(advised["mysql"])
    assert "innodb-doublewrite" in found and "innodb-flush-neighbors" in found
    direct = "innodb-flush-method" if flavour.startswith("bookworm") else "innodb-direct-io"
    assert direct in found
    unjudged = {entry["rule"] for entry in advised["for"]["unjudged"]}
    assert "full-page-writes" in unjudged


def test_changed_and_dangerous_parameters_are_found(advised: Json) -> None:
    found = rules(advised["parameters"])
    assert found["parameter-dangerous"]["where"] == ["zil_nocacheflush"]
    changed = [
        name
        for f in advised["parameters"]["findings"]
        if f["rule"] == "parameter-changed"
        for name in f["where"]
    ]
    assert "zfs_txg_timeout" in changed
    assert "zfs_delay_scale" not in changed  # zfstune knows that it has set it


def test_it_works_without_privilege(advised: Json) -> None:
    assert advised["nobody"]["status"] == 0
    assert "Traceback" not in advised["nobody"]["stderr"]


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("unknown pool", "no pool 'tnak'"),
        ("unknown dataset", "no dataset 'tank/bd'"),
        ("snapshot", "is a snapshot"),
        ("configuration absent", ": No such file or directory"),
        ("configuration broken", "broken.cnf line 2: the group has no ]"),
    ],
)
def test_bad_input_is_one_line(advised: Json, case: str, words: str) -> None:
    found = advised["bad"][case]
    assert found["status"] == 2
    line, *hint = told(found)
    assert words in line
    assert all(one.startswith("hint: ") for one in hint)
    assert found["stdout"] == ""


def test_a_suspended_pool_is_reported_at_once(advised: Json) -> None:
    assert advised["suspended_state"] == "SUSPENDED"
    assert advised["suspended"]["status"] == 3
    assert "its I/O is suspended" in advised["suspended"]["stderr"]
    assert advised["suspended"]["seconds"] < 30
