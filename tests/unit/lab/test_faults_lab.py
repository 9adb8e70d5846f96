"""The scenario faults without a guest: its schedule, its own reader of journals, and its summary of
the rounds."""

from __future__ import annotations

import importlib.util
import random
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lab.fault_rounds import CASES, nearly_all_within
from support.paths import ROOT

from zfstune.changes.journal import Journal
from zfstune.changes.records import Original
from zfstune.changes.state_dir import Places

GUEST = ROOT / "tests/lab/guest"


@pytest.fixture(scope="module")
def faults() -> Any:
    """The program of the guest, imported under another name."""
    sys.path.insert(0, str(GUEST))
    try:
        spec = importlib.util.spec_from_file_location("guest_faults", GUEST / "faults.py")
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(GUEST))
    return module


def test_each_kind_is_judged(faults: Any) -> None:
    assert list(faults.CASES) == list(CASES)


@pytest.mark.parametrize(("rounds", "least"), [(20, 1), (40, 1), (200, 5)])
def test_every_schedule_has_each_kind(faults: Any, rounds: int, least: int) -> None:
    plan = faults.schedule(rounds, random.Random(7))
    kinds = Counter(plan)
    assert len(plan) == max(rounds, sum(case.least for case in faults.CASES.values()))
    assert set(kinds) == set(faults.CASES)
    assert min(kinds.values()) >= least
    # the kinds of which nearly all must be in time
    assert min(kinds["administrator"], kinds["supervisor killed"]) >= 3


def test_the_summary_counts_kinds_and_failures(faults: Any) -> None:
    found = [
        {"case": "tuner killed", "ok": True, "took": 4.0, "facts": {}},
        {"case": "SIGTERM", "ok": False, "took": 2.0, "facts": {"back_s": 1.5}},
        {"case": "tuner killed", "ok": True, "took": 3.0, "facts": {"back_s": 0.5}},
    ]
    assert faults.summary(found) == (
        "3 rounds of 2 kinds, 3.0 s each, 1 failed: tuner killed 2, SIGTERM 1 (1 FAILED); "
        "back after 1.0 s, 1.5 s at most"
    )


def test_nearly_all_allows_few_late_ones() -> None:
    assert nearly_all_within(1, [0.1, 0.2, 9.0])
    assert nearly_all_within(1, [0.1] * 18 + [2.0, 3.0])
    assert not nearly_all_within(1, [0.1, 2.0, 3.0])
    assert not nearly_all_within(1, [0.1, 2.0])
    assert not nearly_all_within(1, [0.1, 0.2, 99.0])


@pytest.fixture
def journal(faults: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    where = Places(tmp_path / "state", tmp_path / "run")
    monkeypatch.setattr(faults.faults_state, "WHERE", where)
    written = Journal(where, write=True)
    originals = {"zfs_txg_timeout": Original(5), "zfs_delay_scale": Original(500000)}
    written.begin("session", "here", "test", originals)
    written.intend("zfs_txg_timeout", 5, 9)
    written.wrote("zfs_txg_timeout", 9)
    written.intend("zfs_txg_timeout", 9, 11)
    written.close()
    return where


def test_the_journal_is_read_without_the_code_under_test(faults: Any, journal: Places) -> None:
    found = faults.faults_state.explained()
    assert found.ours == {"zfs_txg_timeout": (5, {9, 11}), "zfs_delay_scale": (500000, {500000})}
    assert not found.damaged


def test_the_journal_is_read_as_far_as_it_is_intact(faults: Any, journal: Places) -> None:
    """The longest beginning of both copies counts."""
    lines = (journal.state / "journal").read_bytes().splitlines(keepends=True)
    broken = lines[4].replace(b"9", b"8", 1)
    (journal.state / "journal").write_bytes(b"".join([*lines[:4], broken, *lines[5:]]))
    (journal.run / "journal").write_bytes(b"".join(lines[:3]))
    found = faults.faults_state.explained()
    assert found.ours == {"zfs_txg_timeout": (5, {5}), "zfs_delay_scale": (500000, {500000})}
    assert found.damaged
    for path in (journal.state, journal.run):
        (path / "journal").write_bytes(b"\0" + b"".join(lines))
    found = faults.faults_state.explained()
    assert (found.ours, found.damaged) == ({}, True)


@pytest.mark.parametrize("how", ["mode", "no directory"])
def test_a_failed_round_leaves_the_state_directory_usable(
    faults: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    where = Places(tmp_path / "state", tmp_path / "run")
    monkeypatch.setattr(faults.faults_state, "WHERE", where)
    where.state.mkdir(0o700)
    rng = SimpleNamespace(choice=lambda _ways: how)
    with (
        pytest.raises(RuntimeError, match="hangs"),
        faults.faults_state.unopenable(
            SimpleNamespace(rng=rng, facts={}, disk=SimpleNamespace(unopenable=(how,)))
        ),
    ):
        raise RuntimeError("it hangs")
    assert list(tmp_path.iterdir()) == [where.state]
    assert where.state.stat().st_mode & 0o7777 == 0o700


def test_a_value_of_the_session_is_never_the_original(faults: Any) -> None:
    """Every other one of the range can come, and an original beyond it leaves the whole range."""
    session = sys.modules["faults_session"]
    name = "zfs_vdev_async_write_min_active"
    assert session.RANGES[name] == (1, 3)
    rng = random.Random(3)
    for original, rest in ((1, {2, 3}), (2, {1, 3}), (3, {1, 2}), (0, {1, 2, 3}), (4, {1, 2, 3})):
        assert {session.other(rng, name, original) for _ in range(100)} == rest
