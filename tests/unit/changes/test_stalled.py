"""Sessions whose output nobody reads, and tuners that do not answer: real processes, and a module
whose parameters are files."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.fake_module import ModuleHost, lock_is_free, untouched
from support.paths import ROOT
from support.stalled import full_pipe, stopped_terminal
from support.waiting import wait_for

# A session as that of zfstune tune: it says a lot, and ends by a signal or by a guardrail, which
# is a file here. Each round is a byte in another file.
TUNER = """
import contextlib, functools, os, sys, time
sys.path[:0] = {paths!r}
from pathlib import Path
from support.fake_module import NAMES, ModuleHost
from zfstune.changes import supervisor
from zfstune.experiment.runner import Abort
from zfstune.term.progress import Progress
from zfstune.changes.session import ChangeSession
from zfstune.term.signals import Stop
root = Path({root!r})
host = ModuleHost(root, create=False)
progress = Progress(sys.stderr, time.monotonic_ns() + 10**12)
{before}
with contextlib.suppress(Abort), Stop(sys.stderr) as stop, ChangeSession(
    host, "tune", NAMES, progress.line, where=host.where, still_s=0
) as session:
    session.apply({{"zfs_txg_timeout": 9, "zfs_delay_min_dirty_percent": 70}})
    print(session.supervisor.pid, flush=True)
    while session.alive() and not stop.wait(10**7):
        progress.line("trial " + 200 * "x")
        progress.status("settling")
        with open(root / "rounds", "ab") as rounds:
            rounds.write(b".")
        if (root / "guardrail").exists():
            raise Abort("pool tank is not ONLINE")
"""


@pytest.fixture
def host(tmp_path: Path) -> ModuleHost:
    return ModuleHost(tmp_path)


STALLED = {"pipe": full_pipe, "terminal": stopped_terminal}


class Tuner:
    """A tuner that lives until the test ends it; rounds counts its loop."""

    def __init__(self, root: Path, stderr: int, before: str = "") -> None:
        paths = [str(ROOT / path) for path in ("tests", "tracers", "tuner", "platform/linux")]
        code = textwrap.dedent(TUNER).format(paths=paths, root=str(root), before=before)
        self._root = root
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=os.environ | {"TERM": "xterm"},
            text=True,
        )
        assert self.process.stdout
        self.supervisor = int(self.process.stdout.readline())

    def rounds(self) -> int:
        with contextlib.suppress(FileNotFoundError):
            return (self._root / "rounds").stat().st_size
        return 0

    def goes_on(self) -> None:
        """Waits for some rounds."""
        seen = self.rounds()
        wait_for(lambda: self.rounds() > seen + 3, 60)

    def close(self) -> None:
        for pid in (self.process.pid, self.supervisor):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.communicate(timeout=60)


@contextlib.contextmanager
def tuner(root: Path, stderr: int = subprocess.DEVNULL, before: str = "") -> Iterator[Tuner]:
    one = Tuner(root, stderr, before)
    try:
        yield one
    finally:
        one.close()


@pytest.mark.parametrize("way", ["guardrail", "SIGTERM", "SIGKILL"])
@pytest.mark.parametrize("kind", STALLED)
def test_a_session_without_a_reader_ends_restored(
    host: ModuleHost, tmp_path: Path, kind: str, way: str
) -> None:
    with STALLED[kind]() as stderr, tuner(tmp_path, stderr) as one:
        assert host.now()["zfs_txg_timeout"] == 9
        if way != "SIGKILL":
            one.goes_on()
        if way == "guardrail":
            (tmp_path / "guardrail").touch()
        else:
            one.process.send_signal(signal.Signals[way])
        wait_for(lambda: untouched(host), 60)
        wait_for(lambda: lock_is_free(host), 60)
        assert one.process.wait(60) == (-signal.SIGKILL if way == "SIGKILL" else 0)


# --- the heartbeat


def impatient(ticks: int) -> str:
    """A supervisor that waits only this many tenths of a second, and a disk that takes none: the
    disk of a busy machine may take longer than that."""
    supervisor = f"supervisor.start = functools.partial(supervisor.start, silent=({ticks}, 0.1))"
    return f"{supervisor}\nos.fsync = lambda fd: None"


def test_a_stopped_tuner_is_killed_and_undone(host: ModuleHost, tmp_path: Path) -> None:
    said = tmp_path / "said"
    with said.open("wb") as stderr, tuner(tmp_path, stderr.fileno(), impatient(20)) as one:
        one.goes_on()
        one.process.send_signal(signal.SIGSTOP)
        assert one.process.wait(60) == -signal.SIGKILL
        wait_for(lambda: untouched(host), 60)
        wait_for(lambda: lock_is_free(host), 60)
        wait_for(lambda: "did not answer for 2 s" in said.read_text(), 60)


def test_heartbeats_keep_a_session_alive(host: ModuleHost, tmp_path: Path) -> None:
    with tuner(tmp_path, before=impatient(40)) as one:
        time.sleep(8)
        one.goes_on()
        assert host.now()["zfs_txg_timeout"] == 9
        one.process.send_signal(signal.SIGTERM)
        assert one.process.wait(60) == 0
    assert untouched(host)


def test_a_pause_of_both_processes_ends_nothing(host: ModuleHost, tmp_path: Path) -> None:
    with tuner(tmp_path, before=impatient(20)) as one:
        one.goes_on()
        one.process.send_signal(signal.SIGSTOP)
        os.kill(one.supervisor, signal.SIGSTOP)
        time.sleep(4)
        one.process.send_signal(signal.SIGCONT)
        os.kill(one.supervisor, signal.SIGCONT)
        one.goes_on()
        assert host.now()["zfs_txg_timeout"] == 9
        one.process.send_signal(signal.SIGTERM)
        assert one.process.wait(60) == 0
    assert untouched(host)


def test_a_stopped_supervisor_ends_the_session(host: ModuleHost, tmp_path: Path) -> None:
    with tuner(tmp_path, before=impatient(20)) as one:
        one.goes_on()
        os.kill(one.supervisor, signal.SIGSTOP)
        assert one.process.wait(60) == 0
        assert untouched(host)
        # it had the lock, too
        wait_for(lambda: lock_is_free(host), 60)


def test_nothing_in_force_needs_no_answer(host: ModuleHost, tmp_path: Path) -> None:
    calm = impatient(10) + textwrap.dedent("""
    enter = ChangeSession.__enter__
    def entered(self):
        enter(self)
        self.apply({"zfs_txg_timeout": 9})
        self.apply({"zfs_txg_timeout": 5})
        time.sleep(3)
        return self
    ChangeSession.__enter__ = entered
    """)
    with tuner(tmp_path, before=calm) as one:
        one.goes_on()
        assert host.now()["zfs_txg_timeout"] == 9


FREEZERS = {
    "/sys/fs/cgroup": ("cgroup.freeze", "1", "0"),
    "/sys/fs/cgroup/unified": ("cgroup.freeze", "1", "0"),
    "/sys/fs/cgroup/freezer": ("freezer.state", "FROZEN", "THAWED"),
}


@pytest.mark.parametrize("root", FREEZERS)
def test_a_frozen_cgroup_is_killed_and_undone(host: ModuleHost, tmp_path: Path, root: str) -> None:
    name, frozen, thawed = FREEZERS[root]
    group = Path(root, f"zfstune-test-{os.getpid()}")
    try:
        if not Path(root, "cgroup.procs").exists():
            pytest.skip(f"no hierarchy of cgroups in {root}")
        group.mkdir()
    except PermissionError:
        pytest.skip("not root")
    try:
        join = f"Path({str(group / 'cgroup.procs')!r}).write_text('0')"
        with tuner(tmp_path, before=f"{impatient(20)}\n{join}") as one:
            one.goes_on()
            (group / name).write_text(frozen)
            try:
                wait_for(lambda: untouched(host), 60)
                wait_for(lambda: lock_is_free(host), 60)
            finally:
                (group / name).write_text(thawed)
            assert one.process.wait(60) == -signal.SIGKILL
    finally:
        wait_for(lambda: not (group / "cgroup.procs").read_text(), 60)
        group.rmdir()
