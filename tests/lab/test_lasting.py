"""An exporter with a recorder at load for a while (`make test-weeks`: two hours), whatever happens
meanwhile: each commit is counted, no counter goes back, its memory does not grow."""

from __future__ import annotations

import json
from collections.abc import Callable
from statistics import median

import pytest
from attaching import may_skip
from exporting import labels
from lab.growth import DATASET_KIB
from lab.rows import Json
from lab.slopes import slope

DAY_S = 86400
# Until the record of hours is there, and Python has warmed up
WARM_S = 1500
# Tables of both exporters, without a diagnosis
LIMIT = 32 << 20
# What the record may have gained, which is bounded, beside each new dataset. The first diagnosis,
# which loads what later ones need, was made before.
GAIN_KIB = 9 << 10
EVENTS = (
    *("datasets", "hostile_scrapers", "clock_ahead", "clock_back", "export", "full_directory"),
    *("reload", "killed"),
)


@pytest.fixture
def lasting(scenario: Callable[[str, str], Json], flavour: str) -> Json:
    return scenario("lasting", flavour)


def test_everything_has_happened(lasting: Json) -> None:
    assert all(lasting["done"].get(event, 0) >= 1 for event in EVENTS), lasting["done"]
    assert lasting["done"]["clock_ahead"] == lasting["done"]["clock_back"]


def test_no_counter_goes_back(lasting: Json) -> None:
    exporter = lasting["exporter"]
    assert exporter["went_back"] == []
    assert exporter["failed"] == []
    assert exporter["scrapes"] > 20


def test_every_commit_is_counted(lasting: Json, flavour: str) -> None:
    assert len(lasting["past"]) == 2
    for life in lasting["past"]:
        lost = {(labels(s)["view"], labels(s)["reason"]): n for s, n in life["lost"].items()}
        # those of an import are over before the trace is attached again
        unseen = lost.pop(("light", "return"), 0)
        missing = life["kstat_commits"] - unseen - life["commits"]
        # in the module of Debian 12 zil_close() does not call zil_commit(): docs/stages.md
        assert 0 <= missing <= (life["closed"] if flavour.startswith("bookworm") else 0), life
        assert life["commits"] > 100 and unseen < 100
        assert not any(lost.values()) or may_skip(lasting["host"]), lost


def test_nothing_has_failed(lasting: Json) -> None:
    for life in lasting["past"]:
        failed = {labels(s)["what"]: n for s, n in life["errors"].items() if n}
        # what hostile scrapers, and those of a process that is stopped, are told
        assert set(failed) <= {"refused", "timeout"}, failed
    exporter, other = lasting["exporter"], lasting["beside"]
    assert (exporter["status"], other["status"]) == (0, 0)
    for said in (exporter["stderr"], other["stderr"]):
        assert "Traceback" not in said


def test_the_recorder_goes_on(lasting: Json) -> None:
    assert "cannot write an incident file" in lasting["exporter"]["stderr"]
    assert lasting["record"]["status"] == 0, lasting["record"]
    status = json.loads(lasting["record"]["stdout"])
    assert status["errors"] == 0 and status["intervals"] > 3
    assert status["memory_bytes"] < status["memory_limit_bytes"]


def test_memory_does_not_grow(lasting: Json, flavour: str) -> None:
    # the process that ran to the end
    samples = [one for one in lasting["samples"] if one["pid"] == lasting["samples"][-1]["pid"]]
    assert len(samples) > 5
    assert median(one["maps"] for one in samples) < LIMIT
    half = len(samples) // 2
    early, late = (min(one["files"] for one in part) for part in (samples[:half], samples[half:]))
    assert late <= early
    begin, end = samples[0]["seconds"], samples[-1]["seconds"]
    warm = [one for one in samples if one["seconds"] >= begin + min(WARM_S, (end - begin) / 2)]
    grown = warm[-1]["rss_kib"] - warm[0]["rss_kib"]
    low, high = slope([one["seconds"] for one in warm], [one["rss_kib"] for one in warm])
    print(
        f"\n{flavour}: {(end - begin) / 60:.0f} min, {warm[0]['rss_kib']} to "
        f"{warm[-1]['rss_kib']} KiB; MiB per day: {low * DAY_S / 1024:+.1f} to "
        f"{high * DAY_S / 1024:+.1f}"
    )
    # no more than chance would show, or than that
    assert low <= 0 or grown < GAIN_KIB + DATASET_KIB * lasting["done"]["datasets"]


def test_nothing_stays(lasting: Json) -> None:
    assert lasting["programs_left"] == []
