"""The house rule for subjects of commits."""

from __future__ import annotations

import shutil
import subprocess
import sys
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


@pytest.mark.parametrize(("subject", "status"), [("docs: say why", 0), ("docs: how often", 1)])
def test_the_status_says_whether_a_subject_is_refused(
    tmp_path: Path, subject: str, status: int
) -> None:
    """The program itself, in a history of one commit after the first."""
    (tmp_path / "scripts").mkdir()
    program = shutil.copy(check_subjects.__file__, tmp_path / "scripts")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    for one in ("first", subject):
        subprocess.run([*git, "commit", "--quiet", "--allow-empty", "-m", one], check=True)
    done = subprocess.run([sys.executable, program, "HEAD~1..HEAD"], capture_output=True, text=True)
    assert done.returncode == status
    assert (subject in done.stderr) == bool(status)
