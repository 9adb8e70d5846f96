"""Writes of parameters, by whom, and the lock of memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.fake_module import ModuleHost

from zfstrace.params import Change
from zfstune.changes.journal import Journal
from zfstune.changes.records import RESTORED, Original
from zfstune.record.changes import Write, Writes

DIRTY = "zfs_dirty_data_max"
GIB = 1 << 30


class Watched:
    """A module whose writes are seen; who is what the event of one says."""

    def __init__(self, host: ModuleHost) -> None:
        self.host, self.params = host, host.params
        self.writes = Writes(host, host.where)
        assert self.writes.poll() == []

    def put(self, value: int, **who: object) -> None:
        self.params.put(DIRTY, value)
        self.tell(**who)

    def tell(self, **who: object) -> None:
        """The event of a write."""
        self.params.watch_.changes.append(Change(DIRTY, **who))  # type: ignore[arg-type]

    def seen(self) -> Write:
        (one,) = self.writes.poll()
        return one

    def by(self, value: int, **who: object) -> str | None:
        """Who is said to have written this value."""
        self.put(value, **who)
        return self.seen().by


@pytest.fixture
def watched(host: ModuleHost, monkeypatch: pytest.MonkeyPatch) -> Watched:
    monkeypatch.setattr("zfstune.changes.bounded.call", lambda _limit, what, *given: what(*given))
    return Watched(host)


def test_a_change_of_a_value_is_reported_once(watched: Watched) -> None:
    before = watched.params.read(DIRTY)
    watched.put(5 * GIB, pid=4711, comm="bash")
    watched.tell(pid=4711, comm="bash")
    one = watched.seen()
    assert (one.name, one.old, one.new) == (DIRTY, before, 5 * GIB)
    assert (one.ours, one.others, one.by) == (0, 2, "other")
    assert one.to_json().items() >= {"name": DIRTY, "old": before, "by": "other"}.items()
    assert watched.writes.poll() == []
    watched.writes.close()
    watched.writes.close()


def test_a_program_is_not_zfstune_because_it_is_called_so(watched: Watched) -> None:
    assert watched.by(5 * GIB, pid=1, comm="zfstune") == "other"


def test_a_journal_that_cannot_be_read_tells_nothing(watched: Watched) -> None:
    watched.host.where.run.mkdir(parents=True, mode=0o700)
    (watched.host.where.run / "journal").symlink_to("/etc/passwd")
    assert watched.by(5 * GIB) is None
    assert watched.writes.journals.error


def test_the_journal_of_a_command_tells(
    watched: Watched, capsys: pytest.CaptureFixture[str]
) -> None:
    from zfstune import cli

    value = (watched.params.read(DIRTY) or 0) // 2
    assert cli.main(["params", "set", f"{DIRTY}={value}"]) == 0, capsys.readouterr().err
    # it is lowered in two writes
    watched.tell(pid=4711, comm="python3")
    watched.tell(pid=4711, comm="python3")
    one = watched.seen()
    assert (one.ours, one.others, one.by) == (2, 0, "zfstune")
    assert watched.by(value + 1) == "other"
    # zfstune's value, but another program's write
    assert watched.by(value) == "other"


def test_the_end_of_a_session_is_known_by_the_journal_that_it_put_aside(watched: Watched) -> None:
    old = watched.params.read(DIRTY) or 0
    journal = Journal(watched.host.where, write=True, here="boot:1")
    layer = journal.begin("session", "boot:1", "zfstune tune tank", {DIRTY: Original(old)})
    journal.intend(DIRTY, old, GIB)
    assert watched.by(GIB) == "zfstune"
    journal.intend(DIRTY, GIB, old)
    watched.put(old)
    journal.wrote(DIRTY, old)
    journal.end(layer, RESTORED)
    journal.put_aside()
    assert watched.seen().by == "zfstune"


def test_a_watch_that_cannot_begin_is_tried_again(
    host: ModuleHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_names: list[str]) -> object:
        raise RuntimeError("can't start new thread")

    writes = Writes(host, host.where)
    with monkeypatch.context() as patch:
        patch.setattr(host.params, "watch", refuse)
        with pytest.raises(RuntimeError):
            writes.poll()
    assert writes.poll() == []
    host.params.put(DIRTY, 5 * GIB)
    host.params.watch_.changes.append(Change(DIRTY))
    assert [one.new for one in writes.poll()] == [5 * GIB]


def test_memory_is_locked_or_it_is_said_why() -> None:
    """In a process of its own, which then reads its status."""
    code = (
        "from zfstune.record import memory; import pathlib;"
        "memory.preload(); why = memory.lock();"
        "status = pathlib.Path('/proc/self/status').read_text();"
        "locked = [int(l.split()[1]) for l in status.splitlines() if l.startswith('VmLck')][0];"
        "assert bool(why) != bool(locked > 1000), (why, locked)"
    )
    path = os.pathsep.join(
        str(Path(__file__).parents[3] / part) for part in ("tracers", "tuner", "platform/linux")
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_with_a_limit_memory_is_not_locked(monkeypatch: pytest.MonkeyPatch) -> None:
    from zfstune.record import memory

    monkeypatch.undo()
    monkeypatch.setattr(memory, "_allowed", lambda: False)
    assert "RLIMIT_MEMLOCK is too low" in memory.lock()
