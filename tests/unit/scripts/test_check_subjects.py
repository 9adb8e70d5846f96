"""The house rule for subjects of commits."""

from __future__ import annotations

import subprocess
from pathlib import Path

import check_subjects
import pytest


@pytest.mark.parametrize(
    "subject",
    [
        "tuner: move files into zfstune/term",
        "tracers: count flushes at zio_vdev_io_assess",
        "build: speed up lint",
        "docs, tests: name the third one",
    ],
)
def test_a_command_to_the_tree_is_accepted(subject: str) -> None:
    assert check_subjects.problem(subject) == ""


@pytest.mark.parametrize(
    ("subject", "why"),
    [
        ("tuner: " + "x" * 66, "has 73 columns"),
        ("move files", "is not of the form"),
        ("Tuner: move files", "is not of the form"),
        ("tuner:move files", "is not of the form"),
        ("docs: how often", "begins with 'how'"),
        ("tests: a line of a hundred columns", "begins with 'a'"),
        ("tuner: moved files", "begins with 'moved'"),
        ("tuner: moving files", "begins with 'moving'"),
        ("tuner: move files.", "ends with a period"),
    ],
)
def test_a_statement_is_refused(subject: str, why: str) -> None:
    assert why in check_subjects.problem(subject)


def test_a_tree_without_history_has_no_subjects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_subjects, "ROOT", tmp_path)
    assert check_subjects.subjects("no-such-commit..HEAD") == []


def test_history_without_its_beginning_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_subjects, "ROOT", tmp_path)
    check_subjects.git("init", "--quiet")
    with pytest.raises(subprocess.CalledProcessError):
        check_subjects.subjects("no-such-commit..HEAD")
