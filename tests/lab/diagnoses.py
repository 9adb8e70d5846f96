"""What must hold of the runs of `zfstune diagnose`, on Linux and on FreeBSD."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from support.paths import ROOT

from pages.diagnosis import Json, accused, page, rate, right

# Results of the latest run with --page of each flavour
KEPT = ROOT / "build/diagnosis"


def the_injected_cause_comes_first(found: Json) -> None:
    runs = found["runs"]
    wrong = [
        (run["scenario"], run["numbers"], [c["id"] for c in run["diagnosis"]["causes"]])
        for run in runs
        if not right(run) and run["diagnosis"]
    ]
    assert rate(runs) >= 0.9, wrong


def healthy_pools_are_not_accused(found: Json) -> None:
    wrong = [(run["scenario"], accused(run)) for run in found["runs"] if accused(run)]
    assert wrong == []


def each_scenario_ends_with_a_diagnosis(found: Json) -> None:
    assert found["failed"] == {}
    for run in found["runs"]:
        assert run["diagnosis"], run["stderr"]
        assert run["status"] == (run["diagnosis"]["verdict"] in ("causes", "unknown"))


def shares_sum_to_one_at_most(found: Json) -> None:
    for run in found["runs"]:
        one = run["diagnosis"]
        for name in ("share_p99", "share_total"):
            shares = [cause[name] or 0 for cause in one["causes"]]
            assert all(0 <= share <= 1 for share in shares)
            assert sum(shares) + (one["rest"][name] or 0) <= 1.001


def nothing_is_lost_or_left(found: Json) -> None:
    """Nothing, or of the operations no more percent than the scenario expects."""
    percent = found.get("lost_percent", 0)
    diagnoses = [(run["scenario"], run["diagnosis"]) for run in found["runs"]]
    lost = [
        (name, one["lost"])
        for name, one in diagnoses
        if 100 * one["lost"] > percent * one["measurements"].get("operations", 0)
    ]
    assert (lost, found["programs_left"]) == ([], [])


ALL = (
    the_injected_cause_comes_first,
    healthy_pools_are_not_accused,
    each_scenario_ends_with_a_diagnosis,
    shares_sum_to_one_at_most,
    nothing_is_lost_or_left,
)


def write_page(
    scenario: Callable[[str, str], Json], name: str, flavours: Sequence[str], file: str | None
) -> None:
    """Prints the matrices. With a file, keeps the results, and writes it of all that are kept: a
    flavour takes hours, and may have a run of its own."""
    results = {flavour: scenario(name, flavour) for flavour in flavours}
    print(page(list(results.values())))
    if not file:
        return
    KEPT.mkdir(parents=True, exist_ok=True)
    for flavour, result in results.items():
        (KEPT / f"{name}-{flavour}.json").write_text(json.dumps(result), encoding="utf-8")
    kept = sorted(KEPT.glob(f"{name}-*.json"))
    found = [json.loads(one.read_text(encoding="utf-8")) for one in kept]
    Path(file).write_text(page(found), encoding="utf-8")
