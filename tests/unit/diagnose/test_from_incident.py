"""`zfstune diagnose --from` of an incident file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from support import incidents
from support.errors import ONE_ERROR

from zfstrace.types import Json
from zfstune import cli
from zfstune.term.units import MS

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def diagnose(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setattr("zfstune.changes.recovery.if_needed", lambda _who: None)

    def run(*words: object) -> tuple[int, str, str]:
        status = cli.main(["diagnose", *map(str, words)])
        out, err = capsys.readouterr()
        return status, out, err

    return run


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return incidents.write(tmp_path / "x.jsonl.gz")


def test_the_worst_one_is_judged(diagnose: Run, file: Path) -> None:
    status, out, err = diagnose("--from", file)
    lines = out.splitlines()
    assert status == 1
    assert lines[0].startswith("tank, 10.0 s until 00:03:30 UTC: 400 fsyncs")
    assert lines[1].startswith("Cache flushes are slow (sure): 99 % of the p99")
    assert lines[-2:] == ["trace device was not available: above the budget", "lost 3"]
    assert max(map(len, lines)) < 100
    assert err == (
        "zfstune: db1.example.net: 5 diagnoses until 2026-11-27 00:06:40 UTC; the worst of each "
        "pool\n"
    )


def test_the_nearest_to_a_moment(diagnose: Run, file: Path) -> None:
    status, out, err = diagnose("--from", file, "--at", "23:57")
    assert status == 0
    assert out.startswith("tank, 10.0 s until 23:58:30 UTC")
    assert "Nothing is wrong" in out
    assert "those nearest to 2026-11-26 23:57:00 UTC" in err


def test_json_is_that_of_the_recorder(diagnose: Run, file: Path) -> None:
    _, out, _ = diagnose("--from", file, "--json")
    wanted = incidents.diagnosis(incidents.SLOW[0], 180 * MS)
    del wanted["reason"]
    assert json.loads(out) == wanted


def test_each_pool_has_its_own(diagnose: Run, tmp_path: Path) -> None:
    given = [
        incidents.diagnosis(3, 2 * MS, "calm"),
        incidents.diagnosis(4, 90 * MS),
        incidents.diagnosis(5, 70 * MS),
    ]
    file = incidents.write(tmp_path / "x", given)
    _, out, _ = diagnose("--from", file)
    assert re.findall(r"^(\w+), 10.0 s", out, re.MULTILINE) == ["tank", "calm"]
    assert "p50 90" in out or "p50 91" in out
    status, out, _ = diagnose("--from", file, "calm")
    assert status == 0
    assert out.startswith("calm, ")


def test_a_suspended_pool_is_the_worst(diagnose: Run, tmp_path: Path) -> None:
    def stopped(one: Json) -> Json:
        measured = one["measurements"] | {"pool_suspended": 1, "pool_state": "SUSPENDED"}
        return one | {"measurements": measured | {"p99_ns": None, "operations": 0}}

    given = [stopped(incidents.diagnosis(3, MS)), incidents.diagnosis(4, 90 * MS)]
    _, out, _ = diagnose("--from", incidents.write(tmp_path / "x", given))
    assert "The pool is SUSPENDED" in out


@pytest.mark.parametrize(
    ("words", "problem", "hint"),
    [
        (["tnak"], "no pool 'tnak' in ", "choose from tank"),
        (["--at", "12:00"], "--at: 12:00 is not in ", "it is from 2026-11-26 23:56:40 UTC"),
    ],
)
def test_errors_are_of_one_line(
    diagnose: Run, file: Path, words: list[str], problem: str, hint: str
) -> None:
    status, out, err = diagnose("--from", file, *words)
    assert (status, out) == (2, "")
    assert problem in err
    assert f"hint: {hint}" in err


def test_a_file_without_a_diagnosis_names_another_way(diagnose: Run, tmp_path: Path) -> None:
    file = incidents.write(tmp_path / "x", incidents.records([0]))
    status, _, err = diagnose("--from", file)
    assert status == 2
    assert re.fullmatch(ONE_ERROR, err)
    assert f"hint: see `zfstune trace --from {file}`" in err


def test_measurements_of_the_wrong_type_are_counted(diagnose: Run, tmp_path: Path) -> None:
    good = incidents.diagnosis(4, 90 * MS)
    odd = incidents.diagnosis(5, 95 * MS)
    odd["measurements"]["p99_ns"] = "x"
    file = incidents.write(tmp_path / "x", [good, odd])
    _, out, err = diagnose("--from", file)
    assert "values of the wrong type, left out: 1" in err
    assert "00:04" not in out.splitlines()[0]
    assert out.startswith("tank, 10.0 s until 23:57:30 UTC")


def test_a_moment_needs_an_incident(diagnose: Run, file: Path, tmp_path: Path) -> None:
    assert "--at is a moment in a file" in diagnose("--at", "12:00")[2]
    plain = tmp_path / "plain"
    plain.write_text(diagnose("--from", file, "--json")[1])
    status, _, err = diagnose("--from", plain, "--at", "12:00")
    assert status == 2
    assert "is of one moment" in err
    assert diagnose("--from", plain)[0] == 1
