"""Sessions whose processes die: real processes, and a module whose parameters are files."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from support.fake_module import DEFAULTS, MIB, NAMES, ModuleHost, lock_is_free, untouched
from support.faults import Faults
from support.paths import ROOT
from support.waiting import wait_for

from zfstrace.params import Change
from zfstune.changes import recovery, revert
from zfstune.changes.apply import Applier, ApplyError
from zfstune.changes.journal import Journal
from zfstune.changes.lock import Busy
from zfstune.changes.records import Original
from zfstune.changes.session import ChangeSession, SupervisorGone, set_values
from zfstune.errors import NotPossible
from zfstune.term.signals import SIGNALS

CANDIDATE = {
    "zfs_dirty_data_max": 256 * MIB,
    "zfs_txg_timeout": 9,
    "zfs_vdev_async_write_max_active": 3,
    "zfs_vdev_async_write_min_active": 1,
}

# a tuner that does nothing but apply; it prints a line once it has begun
TUNER = """
import sys
sys.path[:0] = {paths!r}
from pathlib import Path
from support.fake_module import NAMES, ModuleHost
from zfstune.changes.session import ChangeSession
host = ModuleHost(Path({root!r}), create=False)
with ChangeSession(host, "tune", NAMES, where=host.where, still_s=0) as session:
    print(session.supervisor.pid, flush=True)
    for i in range(10**6):
        session.apply({{"zfs_txg_timeout": 6 + i % 5, "zfs_dirty_data_max": (1 + i % 4) << 28,
                       "zfs_delay_min_dirty_percent": 70 + i % 9, "zfs_arc_max": (3 + i % 4) << 30
                       }})
"""

# before it: the supervisor is ready only after the death of the tuner
LATE = """
import os, time
from zfstune.changes import supervisor
settle = supervisor._settle
def late(keep, protect):
    settle(keep, protect)
    parent = os.getppid()
    open({root!r} + "/forked", "w").close()
    while os.getppid() == parent:
        time.sleep(0.01)
supervisor._settle = late
"""

# before it: what the supervisor opens and imports while it restores goes into a file
WATCHED = """
import sys
from pathlib import Path
from zfstune.changes import recovery as recover
restore = recover.restore_left
def watched(host, where, say):
    seen = []
    def see(event, found):
        if event == "import" or event == "open" and not isinstance(found[0], int):
            seen.append(f"{{event}} {{found[0]}}")
    sys.addaudithook(see)
    report = restore(host, where, say)
    (Path({root!r}) / "seen").write_text("\\n".join(seen))
    return report
recover.restore_left = watched
"""


@pytest.fixture
def host(tmp_path: Path) -> ModuleHost:
    return ModuleHost(tmp_path)


def session(host: ModuleHost, said: list[str] | None = None) -> ChangeSession:
    say = said.append if said is not None else lambda _text: None
    return ChangeSession(host, "zfstune tune tank", NAMES, say, host.where, still_s=0)


def test_a_session_leaves_only_its_last_journal(host: ModuleHost) -> None:
    with session(host) as one:
        one.apply(CANDIDATE)
        assert host.now() == DEFAULTS | CANDIDATE
        assert (host.where.run / "session").exists()
    assert untouched(host)
    assert one.report and len(one.report.restored) == 4
    assert sorted(path.name for path in host.where.state.iterdir()) == ["journal.last"]
    assert sorted(path.name for path in host.where.run.iterdir()) == ["journal.last", "lock"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_values_are_restored_however_a_session_ends(
    host: ModuleHost, error: type[BaseException]
) -> None:
    with pytest.raises(error), session(host) as one:
        one.apply(CANDIDATE)
        raise error
    assert untouched(host)


def test_accepted_values_stay(host: ModuleHost) -> None:
    with session(host) as one:
        one.apply(CANDIDATE)
        one.finish(applied=True)
    assert host.now() == DEFAULTS | CANDIDATE
    assert recovery.restore_left(host, host.where, print) is None
    assert host.now() == DEFAULTS | CANDIDATE
    # the next one is on top of it
    with session(host) as two:
        two.apply({"zfs_txg_timeout": 12, "zfs_dirty_data_max": 512 * MIB})
    assert host.now() == DEFAULTS | CANDIDATE


def test_a_signal_is_deferred_until_after_the_restore(host: ModuleHost) -> None:
    write = host.params.write
    seen = []

    def slow(name: str, value: int, identity: str | None = None) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        write(name, value, identity)

    one = session(host)
    try:
        with one:
            one.apply(CANDIDATE)
            host.params.write = slow  # type: ignore[method-assign]
    except SystemExit as end:
        seen.append(end.code)
    assert seen == [128 + signal.SIGTERM]
    assert untouched(host)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_dead_supervisor_is_noticed(host: ModuleHost) -> None:
    with pytest.raises(SupervisorGone), session(host) as one:
        one.apply(CANDIDATE)
        assert one.alive()
        os.kill(one.supervisor.pid, signal.SIGKILL)
        wait_for(lambda: not one.alive())
        one.apply({"zfs_txg_timeout": 8})
    assert untouched(host)


def test_a_second_session_is_refused_and_names_the_first(
    host: ModuleHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zfstune.changes.lock.WAIT_S", 0.0)
    with session(host) as one:
        one.apply(CANDIDATE)
        with pytest.raises(Busy, match=f"process {os.getpid()} .`zfstune tune tank`"):
            session(host).__enter__()
        assert host.now() == DEFAULTS | CANDIDATE
    assert untouched(host)


def test_an_override_is_reported_and_kept(host: ModuleHost) -> None:
    said: list[str] = []
    with session(host, said) as one:
        one.apply(CANDIDATE)
        time.sleep(0.21)
        host.params.put("zfs_txg_timeout", 30)
        host.params.watch_.changes.append(Change("zfs_txg_timeout", 4711, "bash"))
        found = one.overrides()
        assert [(o.name, o.value, o.pid, o.comm) for o in found] == [
            ("zfs_txg_timeout", 30, 4711, "bash")
        ]
        assert said == ["zfs_txg_timeout was set to 30 by process 4711 (bash) and is left as it is"]
    assert host.now() == DEFAULTS | {"zfs_txg_timeout": 30}
    assert one.report and [o.pid for o in one.report.kept] == [4711]
    last = Journal(host.where, write=False).last
    assert last and last.layers[-1].overrides[0].comm == "bash"


def test_no_privilege_and_no_module_are_one_line(
    host: ModuleHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host.params, "writable", lambda _name: False)
    with pytest.raises(NotPossible, match="no permission"):
        session(host).__enter__()
    (host.params.root / ".identity").unlink()
    with pytest.raises(NotPossible, match="ZFS is not loaded"):
        set_values(host, {"zfs_txg_timeout": 7}, "x", print, where=host.where)


def test_a_disk_that_becomes_read_only_stops_no_restore(host: ModuleHost, faults: Faults) -> None:
    with session(host) as one:
        one.apply(CANDIDATE)
        faults.put(host.where.state, errno.EROFS)
    assert untouched(host)
    assert one.report and one.report.complete and len(one.report.restored) == 4
    assert not one.alive()
    assert lock_is_free(host)
    assert not (host.where.run / "session").exists()
    # as the copy in the run directory says
    assert recovery.restore_left(host, host.where, print) is None
    faults.put(host.where.state, None)
    with session(host) as one:
        one.apply(CANDIDATE)
    assert untouched(host)


def children() -> set[str]:
    """Ended ones included that nobody has waited for."""
    return set(Path("/proc/thread-self/children").read_text().split())


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), KeyboardInterrupt()])
@pytest.mark.parametrize("what", ["watch", "supervisor", "signals"])
def test_a_session_that_cannot_begin_leaves_nothing(
    host: ModuleHost, monkeypatch: pytest.MonkeyPatch, error: BaseException, what: str
) -> None:
    def fail(*_: object) -> None:
        raise error

    before = [signal.getsignal(number) for number in SIGNALS]
    others = children()
    one = session(host)
    with monkeypatch.context() as patch:
        if what == "watch":
            patch.setattr(host.params, "watch", fail)
        elif what == "supervisor":
            patch.setattr("zfstune.changes.supervisor._settle", lambda *_: os._exit(0))
        else:
            patch.setattr(one, "_take_signals", fail, raising=False)
        with pytest.raises((NotPossible, type(error))):
            one.__enter__()
    assert lock_is_free(host)
    assert sorted(path.name for path in host.where.state.iterdir()) == ["journal.last"]
    assert sorted(path.name for path in host.where.run.iterdir()) == ["journal.last", "lock"]
    assert [signal.getsignal(number) for number in SIGNALS] == before
    assert children() <= others
    with session(host) as one:
        one.apply(CANDIDATE)
    assert untouched(host)


def test_a_reload_while_a_session_begins_is_noticed(
    host: ModuleHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The values and limits of one module must not be restored in another."""
    originals = Applier.originals

    def reload(applier: Applier, names: Iterable[str]) -> dict[str, Original]:
        found = originals(applier, names)
        (host.params.root / ".identity").write_text("boot:2")
        return found

    monkeypatch.setattr(Applier, "originals", reload)
    with pytest.raises(ApplyError, match="reloaded"), session(host) as one:
        one.apply(CANDIDATE)
    assert host.now() == DEFAULTS


def test_what_another_program_sets_while_a_session_begins_is_theirs(
    host: ModuleHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_values(host, {"zfs_txg_timeout": 7}, "zfstune params set", print, where=host.where)
    reconcile = Applier._reconcile

    def late(applier: Applier) -> None:
        reconcile(applier)
        host.params.put("zfs_txg_timeout", 33)

    with monkeypatch.context() as patch:
        patch.setattr(Applier, "_reconcile", late)
        session(host).__enter__().finish(applied=False)
    revert.revert(host, host.where)
    assert host.now() == DEFAULTS | {"zfs_txg_timeout": 33}


# --- real deaths


def started(root: Path, before: str = "") -> subprocess.Popen[str]:
    """A tuner that applies without a pause, once it has begun."""
    paths = [str(ROOT / path) for path in ("tests", "tracers", "tuner", "platform/linux")]
    head, rest = TUNER.split("from pathlib", 1)
    code = f"{head}{before}from pathlib{rest}".format(paths=paths, root=str(root))
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def tuner(host: ModuleHost, root: Path, before: str = "") -> tuple[subprocess.Popen[str], int]:
    """A tuner that has begun, and the pid of its supervisor."""
    process = started(root, before)
    assert process.stdout
    return process, int(process.stdout.readline())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_the_supervisor_restores_for_a_killed_tuner(
    host: ModuleHost, tmp_path: Path, number: signal.Signals
) -> None:
    seed = random.Random(number)
    for _ in range(4):
        process, _pid = tuner(host, tmp_path)
        time.sleep(seed.uniform(0.0, 0.2))
        process.send_signal(number)
        # stderr closes when the supervisor has ended, too
        _out, err = process.communicate(timeout=60)
        assert untouched(host), err
        assert lock_is_free(host)
        assert not (host.where.run / "session").exists()
        if number == signal.SIGKILL:
            assert f"process {process.pid} died unexpectedly" in err


def test_a_tuner_killed_before_its_supervisor_is_ready_leaves_nothing(
    host: ModuleHost, tmp_path: Path
) -> None:
    process = started(tmp_path, LATE)
    wait_for((tmp_path / "forked").exists)
    process.kill()
    _out, err = process.communicate(timeout=60)
    assert f"process {process.pid} died unexpectedly" in err
    assert "could not be restored" not in err
    assert sorted(path.name for path in host.where.state.iterdir()) == ["journal.last"]
    assert sorted(path.name for path in host.where.run.iterdir()) == ["journal.last", "lock"]


def test_the_supervisor_restores_without_its_own_files(host: ModuleHost, tmp_path: Path) -> None:
    """The disk of Python and of this program may be on the pool that hangs."""
    process, _pid = tuner(host, tmp_path, WATCHED)
    wait_for(lambda: not untouched(host))
    process.kill()
    process.communicate(timeout=60)
    assert untouched(host)
    seen = (tmp_path / "seen").read_text().splitlines()
    # the state directory is opened by a child process (bounded.py)
    ours = [f"open {path}" for path in (tmp_path, "/proc", "/sys", "/dev")]
    assert any("zfs_txg_timeout" in one for one in seen)
    assert [one for one in seen if not one.startswith((*ours, "open .", "open journal"))] == []


def test_the_next_command_restores_after_both_are_killed(host: ModuleHost, tmp_path: Path) -> None:
    seed = random.Random(9)
    changed = 0
    for _ in range(6):
        process, pid = tuner(host, tmp_path)
        time.sleep(seed.uniform(0.0, 0.2))
        os.kill(pid, signal.SIGKILL)
        process.kill()
        process.communicate(timeout=60)
        changed += not untouched(host)
        assert (host.where.run / "session").exists()
        said: list[str] = []
        recovery.restore_now(host, host.where, "next", said.append, 0)
        assert untouched(host), said
        assert "was killed; restoring" in said[0]
        assert not (host.where.run / "session").exists()
    assert changed


def test_the_supervisor_survives_the_terminal(host: ModuleHost, tmp_path: Path) -> None:
    process, pid = tuner(host, tmp_path)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        os.kill(pid, number)
    assert os.getsid(pid) == pid
    assert os.getpgid(pid) != os.getpgid(process.pid)
    process.kill()
    process.communicate(timeout=60)
    assert untouched(host)
