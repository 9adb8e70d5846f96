"""The two copies of the journal, either of which is enough: faults of the other, unreadable copies,
copies of different journals."""

from __future__ import annotations

import errno
import os
import signal
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from support.fake_module import ARC, DEFAULTS, GIB, MIB, NAMES, ModuleHost, lock_is_free
from support.faults import Faults
from support.waiting import wait_for

from zfstune.changes import recover, recovery, revert, status
from zfstune.changes.apply import Applier, ApplyError
from zfstune.changes.journal import Journal
from zfstune.changes.lock import Lock
from zfstune.changes.records import APPLIED, Original, decode, encode, encode_lines
from zfstune.changes.session import ChangeSession, set_values
from zfstune.changes.state_dir import Places
from zfstune.errors import NotPossible
from zfstune.tunables.catalogue import load

CANDIDATE = {"zfs_txg_timeout": 60, "zfs_dirty_data_max": 256 * MIB}


def crash(host: ModuleHost, wanted: Mapping[str, int] = CANDIDATE) -> None:
    """Leaves what a session leaves that is killed together with its supervisor."""
    lock = Lock.take(host.where, "zfstune tune tank")
    lock.mark_session()
    journal = Journal(host.where, write=True)
    applier = Applier(host, journal, load(), print, still_s=0)
    originals = applier.originals(wanted)
    journal.begin("session", "boot:1", "zfstune tune tank", originals)
    applier.apply(wanted)
    lock.release()


def change(host: ModuleHost, wanted: dict[str, int]) -> None:
    set_values(host, wanted, "zfstune params set", print, where=host.where)


def recovered(*, forget: bool = False) -> int:
    return recover.run(Namespace(wait=False, forget=forget))


def shown(capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    capsys.readouterr()
    code = status.run(Namespace(json=False))
    return code, capsys.readouterr().out.splitlines()


def reverted(capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    capsys.readouterr()
    code = revert.run(Namespace(json=False, print=False))
    return code, capsys.readouterr().out.splitlines()


# --- one copy is enough, whatever is wrong with the other (H1)


def writable(directory: Path) -> None:
    directory.chmod(0o775)


def no_directory(directory: Path) -> None:
    directory.rename(directory.with_name("away"))
    directory.write_text("a file")


def link(directory: Path) -> None:
    directory.rename(directory.with_name("away"))
    directory.symlink_to("away")


def gone(directory: Path) -> None:
    directory.rename(directory.with_name("away"))


def no_file(directory: Path) -> None:
    (directory / "journal").unlink()
    (directory / "journal").mkdir()


def a_pipe(directory: Path) -> None:
    (directory / "journal").unlink()
    os.mkfifo(directory / "journal")


def empty(directory: Path) -> None:
    (directory / "journal").write_bytes(b"")


HARM = [writable, no_directory, link, gone, no_file, a_pipe, empty]


@pytest.mark.parametrize("which", ["state", "run"])
@pytest.mark.parametrize("harm", HARM)
def test_one_copy_is_enough_for_recover(
    host: ModuleHost, harm: Callable[[Path], None], which: str
) -> None:
    crash(host)
    harm(getattr(host.where, which))
    assert recovered() == 0
    assert host.now() == DEFAULTS


@pytest.mark.parametrize("which", ["state", "run"])
@pytest.mark.parametrize("harm", HARM)
def test_one_copy_is_enough_for_revert(
    host: ModuleHost,
    harm: Callable[[Path], None],
    which: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    change(host, {"zfs_txg_timeout": 7})
    harm(getattr(host.where, which))
    code, lines = shown(capsys)
    assert code == 0
    assert any("zfs_txg_timeout" in line and "7" in line for line in lines)
    assert [line.split()[1] for line in revert.commands(host, host.where)] == ["5"]
    assert reverted(capsys)[0] == 0
    assert host.now() == DEFAULTS
    # and it is over, also as long as that directory is as it is
    assert recovered() == 0
    code, lines = shown(capsys)
    assert code == 0
    assert any("no parameter is changed" in line for line in lines)


ERRNOS = [errno.EIO, errno.EROFS, errno.ENOSPC, errno.EACCES]


@pytest.mark.parametrize("which", ["state", "run"])
@pytest.mark.parametrize("error", ERRNOS)
@pytest.mark.parametrize("reads", [False, True])
def test_errors_of_one_copy_stop_no_restore(
    host: ModuleHost, faults: Faults, which: str, error: int, reads: bool
) -> None:
    change(host, {"zfs_txg_timeout": 7})
    crash(host)
    faults.put(getattr(host.where, which), error, reads=reads and error != errno.ENOSPC)
    if which == "run":  # the supervisor has the lock already
        recovery.restore_left(host, host.where, print)
    else:
        assert recovered() == 0
    assert host.now() == DEFAULTS | {"zfs_txg_timeout": 7}
    faults.put(getattr(host.where, which), None)
    revert.revert(host, host.where)
    assert host.now() == DEFAULTS


def test_the_reason_is_the_real_one(host: ModuleHost, faults: Faults) -> None:
    host.where.state.mkdir(0o700)
    faults.put(host.where.state, errno.EIO, reads=True)
    with pytest.raises(NotPossible, match="Input/output error"):
        change(host, {"zfs_txg_timeout": 7})
    assert host.now() == DEFAULTS


@pytest.mark.parametrize("which", ["state", "run"])
def test_an_unlistable_directory_stops_no_restore(
    host: ModuleHost,
    which: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As on a disk that has died, whose directory is still known; names are for a note only."""
    crash(host)
    bad, real = getattr(host.where, which).stat().st_ino, os.listdir

    def listdir(fd: int) -> list[str]:
        if os.fstat(fd).st_ino == bad:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(fd)

    monkeypatch.setattr(os, "listdir", listdir)
    assert recovered() == 0
    assert host.now() == DEFAULTS
    err = capsys.readouterr().err
    assert "the process that does it was killed" not in err


def test_nothing_begins_with_one_copy(host: ModuleHost) -> None:
    change(host, {"zfs_txg_timeout": 7})
    writable(host.where.state)
    with pytest.raises(NotPossible, match="others may write there"):
        change(host, {"zfs_txg_timeout": 8})
    with pytest.raises(NotPossible, match="others may write there"):
        ChangeSession(host, "tune", NAMES, print, host.where, still_s=0).__enter__()
    assert host.now() == DEFAULTS | {"zfs_txg_timeout": 7}


def test_a_restore_ignores_where_the_state_directory_is_now(
    host: ModuleHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash(host)
    other = Places(tmp_path / "other", host.where.run)
    report = recovery.restore_left(host, other, print)
    assert report and report.complete
    assert host.now() == DEFAULTS
    assert not (host.where.state / "journal").exists()


def test_the_end_of_a_session_is_known_without_the_disk(
    host: ModuleHost, capsys: pytest.CaptureFixture[str]
) -> None:
    change(host, {"zfs_txg_timeout": 7})
    revert.revert(host, host.where)
    writable(host.where.state)
    code, lines = shown(capsys)
    assert code == 0
    assert "others may write there" in lines[0]
    assert lines[1] == "no parameter is changed by zfstune"
    assert reverted(capsys)[0] == 0


# --- a disk that does not answer (H2)


@pytest.fixture
def child() -> Iterator[Callable[[Callable[[], object]], int]]:
    """Runs a function in a child process, as a supervisor does, and kills it at the end."""
    pids = []

    def start(what: Callable[[], object]) -> int:
        pid = os.fork()
        if not pid:
            try:
                os.setpgid(0, 0)
                what()
            finally:
                os._exit(0)
        pids.append(pid)
        return pid

    yield start
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@pytest.mark.parametrize("reads", [False, True])
def test_restore_waits_for_no_disk(
    host: ModuleHost,
    faults: Faults,
    child: Callable[[Callable[[], object]], int],
    reads: bool,
) -> None:
    crash(host)
    faults.put(host.where.state, "hang", reads=reads)
    child(lambda: recovery.restore_now(host, host.where, "zfstune recover", print, 0))
    wait_for(lambda: host.now() == DEFAULTS, 15)
    wait_for(lambda: lock_is_free(host))
    # the stale copy does not lead a later command wrong
    faults.put(host.where.state, None)
    host.params.put("zfs_txg_timeout", 60)
    assert recovered() == 0
    assert host.now() == DEFAULTS | {"zfs_txg_timeout": 60}
    assert not (host.where.state / "journal").exists()


# --- what cannot be read (M6)


def damage(path: Path) -> None:
    path.write_bytes(b"x" + path.read_bytes()[1:])


def both(host: ModuleHost) -> list[Path]:
    return [host.where.state / "journal", host.where.run / "journal"]


def test_what_cannot_be_read_is_not_forgotten(
    host: ModuleHost, capsys: pytest.CaptureFixture[str]
) -> None:
    change(host, {"zfs_txg_timeout": 60})
    for path in both(host):
        damage(path)
    data = both(host)[0].read_bytes()
    first = shown(capsys)
    assert first[0] == 1
    for _ in range(2):
        assert recovered() == 1
        assert reverted(capsys)[0] == 1
        code, lines = shown(capsys)
        assert (code, lines[-1]) == (1, first[1][-1])
        with pytest.raises(NotPossible, match="recover --forget"):
            change(host, {"zfs_txg_timeout": 8})
        with pytest.raises(NotPossible, match="recover --forget"):
            ChangeSession(host, "tune", NAMES, print, host.where, still_s=0).__enter__()
    assert host.now() == DEFAULTS | {"zfs_txg_timeout": 60}
    assert recovered(forget=True) == 0
    assert shown(capsys)[0] == 0
    change(host, {"zfs_txg_timeout": 8})
    assert reverted(capsys)[0] == 0
    # the damaged data is kept
    assert data in [path.read_bytes() for path in host.where.state.glob("journal.damaged*")]


def test_a_part_that_cannot_be_read_is_not_forgotten(
    host: ModuleHost, capsys: pytest.CaptureFixture[str]
) -> None:
    change(host, {"zfs_txg_timeout": 60})
    change(host, {"zfs_commit_timeout_pct": 4})
    for path in both(host):
        parts = path.read_bytes().splitlines(keepends=True)
        second = [i for i, part in enumerate(parts) if b'"begin"' in part][1]
        path.write_bytes(b"".join(parts[:second]) + b"x" * 30)
    for _ in range(2):
        code, lines = reverted(capsys)
        assert code == 1
        assert "recover --forget" in lines[-1]
        assert shown(capsys)[0] == 1
    # what is known is restored, the rest is left
    assert host.now() == DEFAULTS | {"zfs_commit_timeout_pct": 4}
    assert recovered(forget=True) == 0
    assert shown(capsys)[0] == 0


def test_no_room_to_put_a_damaged_journal_aside_loses_nothing(
    host: ModuleHost, faults: Faults, capsys: pytest.CaptureFixture[str]
) -> None:
    change(host, {"zfs_txg_timeout": 60})
    for path in both(host):
        damage(path)
        faults.put(path.parent, errno.ENOSPC)
    before = [path.read_bytes() for path in both(host)]
    for _ in range(2):
        assert recovered() == 1
        assert shown(capsys)[0] == 1
    found = [
        [path.read_bytes() for path in directory.glob("journal*")]
        for directory in (host.where.state, host.where.run)
    ]
    assert all(data in there for data, there in zip(before, found, strict=True))


def test_evidence_is_never_overwritten(host: ModuleHost) -> None:
    seen = []
    for value in (7, 8, 9):
        change(host, {"zfs_txg_timeout": value})
        path = host.where.state / "journal"
        damage(path)
        seen.append(path.read_bytes())
        revert.revert(host, host.where)
    assert host.now() == DEFAULTS
    found = [path.read_bytes() for path in host.where.state.glob("journal.damaged*")]
    assert sorted(found) == sorted(seen)


def test_one_damaged_copy_is_only_a_note(
    host: ModuleHost, capsys: pytest.CaptureFixture[str]
) -> None:
    change(host, {"zfs_txg_timeout": 7})
    damage(both(host)[0])
    assert recovered() == 0
    change(host, {"zfs_txg_timeout": 8})
    assert reverted(capsys)[0] == 0
    assert host.now() == DEFAULTS
    assert shown(capsys)[0] == 0


def test_a_huge_copy_is_a_damaged_one(host: ModuleHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not look like a disk that does not answer, and is repaired."""
    monkeypatch.setattr("zfstune.changes.journal._LOOK_S", 2.0)
    change(host, {"zfs_txg_timeout": 7})
    os.truncate(host.where.state / "journal", 1 << 32)
    change(host, {"zfs_txg_timeout": 8})
    assert (host.where.state / "journal.damaged").stat().st_size == 1 << 32


def later(path: Path) -> None:
    """As of a later version, whose records are not known here."""
    lines, digest = [], ""
    for record in decode(path.read_bytes())[0]:
        record = record | ({"version": 2} if record["n"] == 0 else {"new": 1})
        line, digest = encode(record, digest)
        lines.append(line)
    path.write_bytes(b"".join(lines))


def test_a_later_version_is_refused_and_untouched(
    host: ModuleHost, capsys: pytest.CaptureFixture[str]
) -> None:
    change(host, {"zfs_txg_timeout": 60})
    for path in both(host):
        later(path)
    before = [path.read_bytes() for path in both(host)]
    for _ in range(2):
        assert recovered() == 1
        assert "version 2" in capsys.readouterr().err
        assert reverted(capsys)[0] == 1
        code, lines = shown(capsys)
        assert code == 1
        assert "install" in lines[-1]
        with pytest.raises(NotPossible, match="version 2"):
            change(host, {"zfs_txg_timeout": 8})
    assert [path.read_bytes() for path in both(host)] == before
    assert sorted(path.name for path in host.where.state.iterdir()) == ["journal"]


# --- two journals that are not the same (M7)


def foreign(host: ModuleHost, tmp_path: Path, identity: str) -> bytes:
    """A longer one, of another time."""
    other = Places(tmp_path / "s2", tmp_path / "r2")
    journal = Journal(other, write=True)
    for value in range(20):
        layer = journal.begin("manual", identity, "other", {"zil_slog_bulk": Original(1)})
        journal.intend("zil_slog_bulk", 1, value)
        journal.end(layer, APPLIED)
    journal.records[0]["state"] = str(host.where.state)
    return b"".join(encode_lines(journal.records))


@pytest.mark.parametrize("identity", ["boot:0", "boot:1"])
def test_the_longer_one_of_an_earlier_boot_does_not_count(
    host: ModuleHost, tmp_path: Path, identity: str, capsys: pytest.CaptureFixture[str]
) -> None:
    crash(host)
    data = foreign(host, tmp_path, identity)
    (host.where.state / "journal").write_bytes(data)
    assert recovered() == 0
    err = capsys.readouterr().err
    assert "not there any more" not in err
    assert "reloaded" not in err
    assert host.now() == DEFAULTS
    assert data in [path.read_bytes() for path in host.where.state.iterdir()]
    assert shown(capsys)[0] == 0


def test_the_one_of_this_boot_counts_wherever_it_is(host: ModuleHost, tmp_path: Path) -> None:
    """A run directory that outlived a boot: the state directory has the present one."""
    crash(host)
    (host.where.run / "journal").write_bytes(foreign(host, tmp_path, "boot:0"))
    assert recovered() == 0
    assert host.now() == DEFAULTS


def test_values_reset_by_a_reload_are_not_reported_missing(
    host: ModuleHost, capsys: pytest.CaptureFixture[str]
) -> None:
    change(host, {"zfs_txg_timeout": 60})
    host.params.put("zfs_txg_timeout", 5)
    (host.params.root / ".identity").write_text("boot:2")
    code, lines = reverted(capsys)
    assert code == 0
    assert not any("not there any more" in line for line in lines)


def test_a_copy_that_comes_back_after_the_end_restores_nothing(host: ModuleHost) -> None:
    """As by a rollback of the state directory's dataset."""
    change(host, {"zfs_txg_timeout": 60})
    data = (host.where.state / "journal").read_bytes()
    revert.revert(host, host.where)
    host.params.put("zfs_txg_timeout", 60)
    (host.where.state / "journal").write_bytes(data)
    revert.revert(host, host.where)
    assert host.now() == DEFAULTS | {"zfs_txg_timeout": 60}
    assert not (host.where.state / "journal").exists()


def test_what_could_not_be_looked_at_is_kept(
    host: ModuleHost, faults: Faults, tmp_path: Path
) -> None:
    """A disk that answers again before the end: another journal is there."""
    crash(host)
    data = foreign(host, tmp_path, "boot:0")
    (host.where.state / "journal").write_bytes(data)
    faults.put(host.where.state, errno.EIO, reads=True)
    write = host.params.write

    def again(name: str, value: int, identity: str | None = None) -> None:
        faults.put(host.where.state, None)
        write(name, value, identity)

    host.params.write = again  # type: ignore[method-assign]
    assert recovered() == 0
    assert host.now() == DEFAULTS
    assert data in [path.read_bytes() for path in host.where.state.iterdir()]


# --- no room (M8, L8)


def test_no_room_at_the_end_of_a_session_disowns_nothing(
    host: ModuleHost, faults: Faults, capsys: pytest.CaptureFixture[str]
) -> None:
    change(host, {"zfs_txg_timeout": 7})
    with ChangeSession(host, "tune", NAMES, print, host.where, still_s=0) as session:
        session.apply({"zfs_txg_timeout": 20})
        for path in both(host):
            faults.put(path.parent, errno.ENOSPC)
    assert host.params.read("zfs_txg_timeout") == 7
    for path in both(host):
        faults.put(path.parent, None)
    assert recovered() == 0
    assert reverted(capsys)[0] == 0
    assert host.now() == DEFAULTS


def test_no_room_and_a_death_before_the_last_write_still_restores_a_limit(host: ModuleHost) -> None:
    """A restore writes the number that was in force, then 0; no record says so."""
    crash(host, {"zfs_arc_max": 20 * GIB})
    host.params.put("zfs_arc_max", ARC["c_max"])
    assert recovered() == 0
    assert host.now() == DEFAULTS
    assert host.params.arc() == ARC


def test_room_again_at_the_end_completes_the_journal(host: ModuleHost, faults: Faults) -> None:
    change(host, {"zfs_txg_timeout": 7})
    with ChangeSession(host, "tune", NAMES, print, host.where, still_s=0) as session:
        session.apply({"zfs_txg_timeout": 20})
        faults.put(host.where.run, errno.ENOSPC)
        with pytest.raises(ApplyError):
            session.apply({"zfs_txg_timeout": 21})
        faults.put(host.where.run, None)
    texts = [path.read_bytes() for path in both(host)]
    assert texts[0] == texts[1]
    assert Journal(host.where, write=False).history.open_layer is None


@pytest.mark.parametrize("which", ["state", "run"])
def test_no_room_for_an_original_is_an_apply_error(
    host: ModuleHost, faults: Faults, which: str
) -> None:
    session = ChangeSession(host, "tune", ["zfs_commit_timeout_pct"], print, host.where, still_s=0)
    with session:
        session.apply({"zfs_commit_timeout_pct": 4})
        faults.put(getattr(host.where, which), errno.ENOSPC)
        with pytest.raises(ApplyError, match="No space left on device"):
            session.apply({"zfs_txg_timeout": 20})
        assert host.now() == DEFAULTS | {"zfs_commit_timeout_pct": 4}
    assert host.now() == DEFAULTS


@pytest.mark.parametrize("which", ["state", "run"])
def test_no_room_to_record_another_writer_leaves_its_value(
    host: ModuleHost, faults: Faults, which: str
) -> None:
    """A value of another program stays, and the session continues to its end."""
    with ChangeSession(host, "tune", NAMES, print, host.where, still_s=0) as session:
        session.apply({"zfs_txg_timeout": 20, "zfs_commit_timeout_pct": 4})
        faults.put(getattr(host.where, which), errno.ENOSPC)
        host.params.put("zfs_txg_timeout", 33)
        with pytest.raises(ApplyError):
            session.apply({"zfs_txg_timeout": 21})
    assert host.now() == DEFAULTS | {"zfs_txg_timeout": 33}


@pytest.mark.parametrize("which", ["state", "run"])
def test_no_room_for_the_last_word_restores(host: ModuleHost, faults: Faults, which: str) -> None:
    session = ChangeSession(host, "tune", NAMES, print, host.where, still_s=0)
    with pytest.raises(ApplyError), session:
        session.apply({"zfs_txg_timeout": 20})
        faults.put(getattr(host.where, which), errno.ENOSPC)
        session.finish(applied=True)
    assert host.now() == DEFAULTS


def test_no_room_to_record_the_end_of_a_set_restores(
    host: ModuleHost, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next command would take it for killed, and undo what it has reported as set."""
    wrote = Journal.wrote

    def full(journal: Journal, name: str, value: int) -> None:
        wrote(journal, name, value)
        for path in both(host):
            faults.put(path.parent, errno.ENOSPC)

    monkeypatch.setattr(Journal, "wrote", full)
    with pytest.raises(ApplyError, match=r"cannot keep the values in force: .*No space left"):
        change(host, {"zfs_txg_timeout": 7})
    assert host.now() == DEFAULTS


# --- restoring comes before telling


def test_a_recovery_restores_before_it_prints(host: ModuleHost) -> None:
    crash(host)

    def say(_text: str) -> None:
        assert host.now() == DEFAULTS

    recovery.restore_now(host, host.where, "zfstune recover", say, 0)
    assert host.now() == DEFAULTS
