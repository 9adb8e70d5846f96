"""The load runs as long as the session, and all of it ends with it."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest
from support.waiting import alive, wait_for

from zfstune.errors import UsageError
from zfstune.tune import workload
from zfstune.tune.workload import Workload, WorkloadFailed, account


def failure(load: Workload) -> str:
    """Why it has failed, "" if it has not."""
    try:
        load.check()
    except WorkloadFailed as error:
        return str(error)
    return ""


def test_a_talkative_command_fills_no_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its last line is still known."""
    monkeypatch.setattr(workload, "MOST_OUTPUT", 1 << 16)
    on = tmp_path / "on"
    talk = f"head -c 200000 /dev/zero; while [ ! -e {on} ]; do sleep 0.01; done"
    load = Workload(f"{talk}; echo the end; exit 3", None, shell=True)

    def size() -> int:
        return os.fstat(load._output.fileno()).st_blocks * 512

    def ended() -> bool:
        try:
            load.check()
        except WorkloadFailed as error:
            assert str(error) == "the workload ended with status 3: the end"
            return True
        return False

    try:
        wait_for(lambda: size() >= 200000)
        load.check()
        assert size() < 1 << 16
        on.touch()
        wait_for(ended)
        assert size() < 1 << 16
    finally:
        load.close()


def test_processes_started_by_the_load_end_with_it(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    load = Workload(f"sleep 100 & echo $! > {pid_file}; wait", None, shell=True)
    wait_for(lambda: pid_file.exists() and pid_file.read_text().strip())
    pid = int(pid_file.read_text())
    assert alive(pid)
    load.check()
    load.close()
    wait_for(lambda: not alive(pid))


def test_a_load_that_ignores_sigterm_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zfstune.tune.workload.TERM_S", 0.2)
    load = Workload("trap '' TERM; while :; do sleep 0.05; done", None, shell=True)
    time.sleep(0.2)
    load.close()


def test_a_load_that_ends_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zfstune.tune.workload.QUICK_S", 0.0)
    load = Workload("true", None)

    def restarted() -> bool:
        load.check()
        return load.runs >= 3

    wait_for(restarted)
    load.close()


def test_a_load_that_cannot_be_started_again_has_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Which ends the session in order; a program that cannot be run at first is a usage error."""
    monkeypatch.setattr("zfstune.tune.workload.QUICK_S", 0.0)
    program = tmp_path / "load"
    shutil.copy(shutil.which("true") or "/bin/true", program)
    load = Workload(str(program), None)
    program.unlink()
    wait_for(lambda: failure(load))
    assert f"cannot run {program}: No such file" in failure(load)
    load.close()


@pytest.mark.parametrize(
    ("command", "shell", "said"),
    [
        ("true", False, "ended at once"),
        ("false", False, "status 1"),
        ("echo no space left >&2; exit 7", True, "status 7: no space left"),
        ("kill -9 $$", True, "signal 9"),
    ],
)
def test_a_failure_of_the_load_is_reported(command: str, shell: bool, said: str) -> None:
    load = Workload(command, None, shell=shell)
    wait_for(lambda: failure(load))
    assert said in failure(load)
    load.close()


def test_without_a_shell_nothing_is_expanded(tmp_path: Path) -> None:
    load = Workload(f"touch '{tmp_path}/a b' '{tmp_path}/$HOME'", None)
    wait_for(lambda: (tmp_path / "$HOME").exists())
    load.close()
    assert (tmp_path / "a b").exists()


@pytest.mark.parametrize("command", ["", "   ", "/no/such/program", "/etc/passwd"])
def test_a_load_that_cannot_run_is_refused(command: str) -> None:
    with pytest.raises(UsageError, match="--workload"):
        Workload(command, None)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")
def test_the_load_runs_as_the_user(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    for directory in (tmp_path.parent, tmp_path.parent.parent):
        directory.chmod(0o755)
    load = Workload(
        "id -u > out && id -g >> out && echo $HOME >> out; sleep 9", "nobody", shell=True
    )
    load.close()
    probe = Workload(f"sh -c 'id -un > {tmp_path}/who; sleep 9'", "nobody")
    wait_for(lambda: (tmp_path / "who").exists() and (tmp_path / "who").read_text())
    assert (tmp_path / "who").read_text() == "nobody\n"
    probe.close()


def environment(user: str | None, file: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    for name, value in (("PGPASSWORD", "geheim"), ("SSH_AUTH_SOCK", "/x"), ("LC_TIME", "C")):
        monkeypatch.setenv(name, value)
    file.touch()
    file.chmod(0o666)
    load = Workload(f"sh -c 'env -0 > {file}; sleep 9'", user)
    wait_for(lambda: file.read_text().endswith("\0"))
    load.close()
    return dict(one.split("=", 1) for one in file.read_text().split("\0") if one)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")
def test_a_user_does_not_get_the_environment_of_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for directory in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        directory.chmod(0o755)
    found = environment("nobody", tmp_path / "env", monkeypatch)
    known = {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TERM", "TZ"}
    shells_own = {"PWD", "SHLVL", "_", "OLDPWD"}
    assert not {n for n in found if not n.startswith("LC_")} - known - shells_own
    who = account("nobody")
    assert (found["USER"], found["HOME"], found["SHELL"]) == ("nobody", who.pw_dir, who.pw_shell)
    assert found["LC_TIME"] == "C"
    # without --as it is the caller's own
    assert environment(None, tmp_path / "own", monkeypatch)["PGPASSWORD"] == "geheim"


def test_an_unknown_user_is_refused() -> None:
    with pytest.raises(UsageError, match="no user 'nosuchuser'"):
        account("nosuchuser")
