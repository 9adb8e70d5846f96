"""What zfstune says on a FreeBSD host that lacks something: a result or one clear line, no hang;
and what `zfstune advise` finds there."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from lab.rows import Json
from support.errors import REFUSED


@pytest.fixture
def robust(scenario: Callable[[str, str], Json], flavour: str) -> Json:
    return scenario("freebsd_robust", flavour)


@pytest.mark.parametrize(
    ("where", "command", "status", "words"),
    [
        ("nobody", "set", 3, "no permission\nhint: run as root\n"),
        ("nobody", "status", 3, "cannot use /var/run/zfstune: no permission\nhint: run as root\n"),
        ("nobody", "trace", 3, "dtrace needs root"),
        ("jail", "set", 3, "no permission\nhint: run as root outside jails\n"),
        ("jail", "trace", 3, "run `kldload dtraceall`, outside jails"),
        ("no_dtrace", "trace", 3, "dtrace has no modules loaded"),
        ("no_zfs", "get", 3, "run `kldload zfs`"),
        ("no_zfs", "set", 3, "run `kldload zfs`"),
        ("no_zfs", "trace", 3, "run `kldload zfs`"),
        ("no_zfs", "kstat", 3, "run `kldload zfs`"),
        ("no_zfs", "advise", 3, "run `kldload zfs`"),
    ],
)
def test_what_is_refused_is_one_line(
    robust: Json, where: str, command: str, status: int, words: str
) -> None:
    found = robust[where][command]
    assert found["status"] == status, found
    assert found["stdout"] == ""
    assert re.fullmatch(REFUSED, found["stderr"]), found
    assert words in found["stderr"]


@pytest.mark.parametrize("where", ["nobody", "jail", "no_dtrace"])
def test_parameters_and_kstats_can_be_read(robust: Json, where: str) -> None:
    found = robust[where]
    assert (found["get"]["status"], found["get"]["stdout"]) == (0, "zfs_txg_timeout=5\n")
    assert found["kstat"]["status"] == 0, found["kstat"]
    assert "missing probes: none" in found["kstat"]["stdout"]
    # what the refusal of a trace offers
    assert "\n  zfstune check tank --show zil.commits,txg.sync.p99\n" in found["trace"]["stderr"]
    assert found["check"]["status"] == 0, found["check"]
    assert "'zil.commits'=" in found["check"]["stdout"]


@pytest.mark.parametrize(
    ("where", "check", "value"),
    [
        ("nobody", "privileges", "not root"),
        ("nobody", "dtrace", "needs root"),
        ("jail", "privileges", "root in a jail"),
        ("jail", "dtrace", "has no modules loaded"),
        ("no_dtrace", "dtrace", "has no modules loaded"),
        ("no_zfs", "ZFS", "not loaded"),
    ],
)
def test_doctor_says_what_is_missing(robust: Json, where: str, check: str, value: str) -> None:
    found = robust[where]["doctor"]
    assert found["status"] == 3, found
    checks = {one["name"]: one for one in json.loads(found["stdout"])["checks"]}
    assert checks[check]["value"] == value
    assert checks[check]["status"] != "ok"
    assert checks[check]["fix"]


def test_nothing_was_set(robust: Json) -> None:
    assert robust["value"] == 5


def test_without_dtrace_parameters_can_be_set(robust: Json) -> None:
    assert robust["not_loaded"]
    assert robust["no_dtrace"]["set"]["status"] == 0, robust["no_dtrace"]["set"]
    assert robust["reset"]["stdout"] == "zfs_txg_timeout: 9s -> 5s\n"


def test_a_module_loaded_again_is_found(robust: Json) -> None:
    assert robust["no_zfs"]["status"]["status"] == 0, robust["no_zfs"]["status"]
    assert robust["zfs_again"]["stdout"] == "zfs_txg_timeout=5\n"


def test_a_suspended_pool_stops_no_command(robust: Json) -> None:
    found = robust["suspended"]
    assert found.pop("state") == "SUSPENDED"
    statuses = {name: one["status"] for name, one in found.items()}
    assert statuses == {
        "advise one": 3,
        "advise all": 1,
        "txgs": 0,
        "fsyncs": 0,
        "set": 0,
        "status": 0,
        "revert": 0,
        "doctor": 1,
    }, found
    assert re.search(r"^ *pool frail +.*SUSPENDED", found["doctor"]["stdout"], re.MULTILINE)
    assert "cannot look at pool frail: its I/O is suspended" in found["advise one"]["stderr"]
    assert rules(found["advise all"])["pool-suspended"]["where"] == ["frail"]
    assert "no txg ended on frail" in found["txgs"]["stdout"]
    assert "no fsync seen" in found["fsyncs"]["stdout"]
    assert "detaching may last" not in found["fsyncs"]["stderr"]
    assert found["revert"]["stdout"] == "zfs_txg_timeout: 9s -> 5s\n"


# --- advise


def rules(found: Json) -> dict[str, Json]:
    return {finding["rule"]: finding for finding in json.loads(found["stdout"])["findings"]}


def test_a_pool_without_defects_has_no_findings(robust: Json) -> None:
    assert robust["clean"]["status"] == 0, robust["clean"]
    assert [f for f in rules(robust["clean"]).values() if f["severity"] != "low"] == []


@pytest.mark.parametrize(
    ("rule", "where"),
    [
        ("ashift-below-sector", "bad vtbd1"),
        ("sync-disabled", "bad/nosync"),
        ("sync-disabled", "bad/nosync/below"),
        ("logbias-throughput-with-slog", "bad/throughput"),
        ("slog-not-mirrored", "bad vtbd2"),
        ("compression-off", "bad/db"),
        ("checksum-off", "bad/none"),
        ("primarycache-none", "bad/none"),
        ("dedup-on", "bad/a b"),
        ("redundant-metadata-none", "bad/a b"),
        ("volblocksize-small", "bad/vol"),
    ],
)
def test_defects_are_found_and_nothing_is_changed(robust: Json, rule: str, where: str) -> None:
    assert robust["bad"]["status"] == 1, robust["bad"]
    assert where in rules(robust["bad"])[rule]["where"]
    assert robust["unchanged"]


def test_what_cannot_be_known_is_said(robust: Json) -> None:
    """Nothing reports write caches there."""
    unjudged = {one["rule"] for one in json.loads(robust["bad"]["stdout"])["unjudged"]}
    assert "slog-volatile" in unjudged


def test_the_text_fits_100_columns(robust: Json) -> None:
    text = robust["bad_text"]
    assert text["status"] == 1
    assert "nothing was changed" in text["stdout"]
    lines = text["stdout"].splitlines()
    assert all(len(line) < 100 for line in lines if not line.startswith("  command"))


def test_a_database_is_judged_by_its_dataset(robust: Json) -> None:
    found = rules(robust["postgresql"])
    assert found["full-page-writes"]["where"] == ["bad/db"]
    assert found["recordsize-above-page"]["where"] == ["bad/db"]


def test_an_unknown_pool_is_one_line(robust: Json) -> None:
    found = robust["unknown"]
    assert found["status"] == 2
    assert "no pool 'bda'" in found["stderr"]


def test_changed_and_dangerous_parameters_are_found(robust: Json) -> None:
    found = rules(robust["parameters"])
    assert found["parameter-dangerous"]["where"] == ["zil_nocacheflush"]
    changed = found["parameter-changed"]["where"]
    assert "zfs_txg_timeout" in changed
    assert "zfs_delay_scale" not in changed  # zfstune knows that it has set it
