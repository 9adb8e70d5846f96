"""A session by a Python that has nothing but its standard library."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from support.fake_module import DEFAULTS, ModuleHost

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ":".join(str(ROOT / part) for part in ("tracers", "tuner", "platform/linux"))
DEPTH = "zfs_vdev_async_write_max_active"


# runs the program in argv[2] without the module of Python in argv[1]
WITHOUT = """
import runpy, sys
sys.modules[sys.argv[1]] = None
del sys.argv[:2]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def session(
    root: Path, *words: str, stop_at: int = 0, without: str = ""
) -> subprocess.CompletedProcess[str]:
    """One on the module in root. -S: no packages, -I: nor any by the environment."""
    program = (str(ROOT / "tests/support/session_alone.py"), SOURCES, str(root), str(stop_at))
    less = ["-c", WITHOUT, without] if without else []
    command = [sys.executable, "-I", "-S", *less, *program, "--budget", "40m", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("package", ["numpy", "scipy", "matplotlib", "optuna", "sqlalchemy"])
def test_such_a_python_has_no_packages(package: str) -> None:
    code = f"import {package}"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, check=False
    )
    assert b"ModuleNotFoundError" in done.stderr


def test_a_session_is_stopped_continued_and_proves_a_gain(tmp_path: Path) -> None:
    out = tmp_path / "out"
    stopped = session(tmp_path, "--out", str(out), stop_at=3)
    assert stopped.returncode == 1, stopped.stderr
    assert "the search draws by local, for this Python has no optuna" in stopped.stderr
    assert ModuleHost(tmp_path, create=False).now() == DEFAULTS
    with sqlite3.connect(out / "study.db") as database:
        states = [state for (state,) in database.execute("SELECT state FROM entry")]
    assert states == ["COMPLETE", "COMPLETE", "RUNNING"]

    done = session(tmp_path, "--resume", str(out))
    assert done.returncode == 0, done.stderr
    data = json.loads((out / "session.json").read_text())
    assert data["in_force"]
    depth = ModuleHost(tmp_path, create=False).now()[DEPTH]
    assert depth < DEFAULTS[DEPTH]
    page = (out / "report.html").read_text()
    assert page.count("<svg") >= 3


def test_without_sqlite_the_study_is_in_memory(tmp_path: Path) -> None:
    """It is a package of its own on FreeBSD."""
    out = tmp_path / "out"
    done = session(tmp_path, "--out", str(out), without="_sqlite3")
    assert done.returncode == 0, done.stderr
    assert "the study is in memory, for this Python has no sqlite3" in done.stderr
    data = json.loads((out / "session.json").read_text())
    assert data["in_force"]
    assert ModuleHost(tmp_path, create=False).now()[DEPTH] < DEFAULTS[DEPTH]
    assert not (out / "study.db").exists()
