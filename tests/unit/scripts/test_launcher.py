"""The launchers find a Python that is new enough, and old ones can read them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import install
import pytest
from support.paths import ROOT

from zfstune import __version__

# Runs a launcher as an old Python would; execv of the real one follows.
OLD = """
import sys
sys.version_info = ({version})
path = sys.argv[1]
sys.argv = sys.argv[1:]
with open(path) as file:
    exec(compile(file.read(), path, "exec"), {{"__name__": "__main__", "__file__": path}})
"""


@pytest.fixture(params=["checkout", "installed"])
def launcher(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """One that looks below tmp_path instead of /opt and the system's directories."""
    # as install.py and the checkout would have them, beside the packages of the checkout
    path = tmp_path / "lib/../bin/zfstune"
    (tmp_path / "bin").mkdir()
    (tmp_path / "lib/zfstune").mkdir(parents=True)
    if request.param == "checkout":
        text = (ROOT / "bin/zfstune").read_text()
        for folder in ("tracers", "tuner", "platform"):
            (tmp_path / folder).symlink_to(ROOT / folder)
    else:
        text = install.LAUNCHER
        (tmp_path / "lib/zfstune/python").mkdir()
        for package in install.PACKAGES:
            (tmp_path / "lib/zfstune/python" / Path(package).name).symlink_to(ROOT / package)
    for folder in ("/usr/local/bin", "/usr/bin", "/bin"):
        assert f'"{folder}"' in text
        text = text.replace(f'"{folder}"', f'"{tmp_path}{folder}"')
    text = text.replace('"/opt/*/bin"', f'"{tmp_path}/opt/*/bin"')
    path.write_text(text)
    return tmp_path / "bin/zfstune"


def started(
    launcher: Path, version: str, *words: str, path: str = "/nowhere"
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", OLD.format(version=version), str(launcher), *words]
    env = {**os.environ, "PATH": path}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=env)


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def python(path: Path, mark: str = "") -> Path:
    """A real one, which leaves a mark when it runs a program."""
    mark = f'case " $* " in *" -c "*) ;; *) echo {mark} >&2 ;; esac' if mark else ""
    return program(path, f'{mark}\nexec {sys.executable} "$@"')


@pytest.mark.parametrize("version", ["2, 7", "3, 4", "3, 6", "3, 8"])
def test_an_old_python_runs_a_newer_one(launcher: Path, version: str, tmp_path: Path) -> None:
    python(tmp_path / "path/python3.9")
    done = started(launcher, version, "--version", path=f"{tmp_path}/path")
    assert (done.stdout, done.stderr) == (f"zfstune {__version__}\n", "")


def test_a_new_python_looks_for_no_other(launcher: Path, tmp_path: Path) -> None:
    python(tmp_path / "path/python3.14", "another")
    done = started(launcher, "3, 9", "--version", path=f"{tmp_path}/path")
    assert (done.stdout, done.stderr) == (f"zfstune {__version__}\n", "")


@pytest.mark.parametrize("place", ["usr/local/bin", "usr/bin", "opt/python/bin"])
def test_it_is_found_where_the_path_of_sudo_does_not_lead(
    launcher: Path, place: str, tmp_path: Path
) -> None:
    python(tmp_path / place / "python3.12", "here")
    done = started(launcher, "3, 6", "--version")
    assert (done.stdout, done.stderr) == (f"zfstune {__version__}\n", "here\n")


def test_the_newest_is_taken_and_arguments_are_kept(launcher: Path, tmp_path: Path) -> None:
    for minor in (9, 11, 13):
        python(tmp_path / f"path/python3.{minor}", f"3.{minor}")
    done = started(launcher, "3, 6", "trace", "a b", "*", path=f"{tmp_path}/path")
    mark, error = done.stderr.splitlines()[:2]
    assert mark == "3.13"
    assert "a b" in error
    assert done.returncode == 2


def test_what_is_no_newer_python_is_passed_over(launcher: Path, tmp_path: Path) -> None:
    """A wrapper of an older one, one that fails, a broken link, a directory."""
    folder = tmp_path / "path"
    program(folder / "python3.14", "exit 1")
    program(folder / "python3.13", "exit 127")
    (folder / "python3.12").symlink_to("nowhere")
    (folder / "python3.11").mkdir()
    python(folder / "python3.9", "taken")
    done = started(launcher, "3, 6", "--version", path=f".::{folder}")
    assert (done.stdout, done.stderr) == (f"zfstune {__version__}\n", "taken\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is careful")
@pytest.mark.parametrize("way", ["owner", "mode"])
def test_root_runs_no_python_of_somebody_else(launcher: Path, way: str, tmp_path: Path) -> None:
    theirs = python(tmp_path / "path/python3.14", "theirs")
    if way == "owner":
        os.chown(theirs, 65534, 65534)
    else:
        theirs.chmod(0o777)
    done = started(launcher, "3, 6", "--version", path=f"{tmp_path}/path")
    assert done.returncode == 1
    assert "theirs" not in done.stderr


def test_without_any_the_error_says_what_to_do(launcher: Path) -> None:
    done = started(launcher, "3, 6", "--version")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "zfstune: error: Python 3.9 or newer is needed: this is 3.6, and there is no newer one\n"
        "hint: install one beside it, such as python3.11; zfstune then finds it\n"
    )


def test_old_pythons_can_read_it(launcher: Path) -> None:
    """Or they would show a SyntaxError instead of looking for another one."""
    text = launcher.read_text()
    for more, status in (("", 0), ('f"{ROOT}"\n', 1)):
        launcher.write_text(text + more)
        command = [str(Path(sys.executable).with_name("vermin")), "-q", "-t=2.7-", "-t=3.4-"]
        done = subprocess.run([*command, str(launcher)], capture_output=True, text=True, timeout=60)
        assert done.returncode == status, done.stdout
