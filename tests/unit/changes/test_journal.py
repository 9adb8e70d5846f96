"""The journal: its contents after any damage, and that nothing is written without it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from support.faults import Faults

from zfstune.changes.journal import Journal
from zfstune.changes.lock import Busy, Lock, holder
from zfstune.changes.records import APPLIED, RESTORED, Original, Override, decode
from zfstune.changes.state_dir import Places
from zfstune.errors import NotPossible


@pytest.fixture
def where(tmp_path: Path) -> Places:
    return Places(tmp_path / "state", tmp_path / "run")


def fill(where: Places) -> Journal:
    """Two parameters changed by hand, one of them again by a session that is open."""
    journal = Journal(where, write=True)
    layer = journal.begin("manual", "boot:1", "zfstune params set", {"a": Original(1)})
    journal.original("b", Original(0, 100))
    journal.intend("a", 1, 2)
    journal.wrote("a", 2)
    journal.end(layer, APPLIED)
    journal.begin("session", "boot:1", "zfstune tune", {"a": Original(2), "c": Original(7)})
    journal.intend("a", 2, 3)
    journal.wrote("a", 3)
    journal.intend("c", 7, 8)
    return journal


def test_layers_bases_and_expected_values_are_read_back(where: Places) -> None:
    fill(where).close()
    history = Journal(where, write=False).history
    assert [layer.end for layer in history.layers] == [APPLIED, None]
    assert history.open_layer is history.layers[1]
    assert history.layers[1].originals == {"a": Original(2), "c": Original(7)}
    assert history.base == {"a": Original(1), "b": Original(0, 100), "c": Original(7)}
    assert history.expected == {"a": {3}, "b": {0}, "c": {7, 8}}
    assert history.written == {"a", "c"}


def test_both_copies_are_the_same_and_private(where: Places) -> None:
    before = os.umask(0)
    try:
        fill(where).close()
    finally:
        os.umask(before)
    paths = [where.state / "journal", where.run / "journal"]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert {path.stat().st_mode & 0o777 for path in paths} == {0o600}
    assert {path.parent.stat().st_mode & 0o777 for path in paths} == {0o700}


def test_a_session_that_restored_keeps_the_layer_below(where: Places) -> None:
    journal = fill(where)
    journal.end(journal.layer, RESTORED)
    assert journal.history.base == {"a": Original(1), "b": Original(0, 100)}
    assert [layer.end for layer in journal.history.in_force] == [APPLIED]


def test_what_others_set_is_not_ours_until_it_joins_again(where: Places) -> None:
    journal = fill(where)
    journal.override(Override("a", 9, 4711, "bash"))
    assert "a" not in journal.history.base
    assert journal.layer.overrides[0].pid == 4711
    journal.end(journal.layer, RESTORED)
    journal.begin("manual", "boot:1", "zfstune params set", {"a": Original(9)})
    assert journal.history.base["a"] == Original(9)


def test_no_layer_is_put_on_one_of_another_module(where: Places) -> None:
    journal = fill(where)
    journal.end(journal.layer, RESTORED)
    with pytest.raises(NotPossible, match="cannot begin: the zfs module was reloaded"):
        journal.begin("manual", "boot:2", "zfstune params set", {"a": Original(1)})
    assert len(journal.history.layers) == 2


def test_a_finished_journal_is_put_aside(where: Places) -> None:
    journal = fill(where)
    for layer in reversed(journal.history.layers):
        journal.end(layer, RESTORED)
    assert not journal.history.in_force
    journal.put_aside()
    assert not (where.state / "journal").exists()
    assert not (where.run / "journal").exists()
    last = Journal(where, write=False).last
    assert last and last.layers[-1].command == "zfstune tune"
    journal.begin("manual", "boot:1", "again", {})
    assert [layer.command for layer in Journal(where, write=False).history.layers] == ["again"]


def damages(data: bytes) -> list[bytes]:
    """Cut, and a flipped bit, at offsets all over it, every bit of a byte in turn."""
    offsets = range(0, len(data), 5)
    cut = [data[:i] for i in offsets]
    flipped = [data[:i] + bytes([data[i] ^ 1 << i % 8]) + data[i + 1 :] for i in offsets]
    return cut + flipped


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("which", ["state", "run"])
def test_one_damaged_copy_changes_nothing(where: Places, which: str) -> None:
    fill(where).close()
    path = getattr(where, which) / "journal"
    data = path.read_bytes()
    for damaged in damages(data):
        path.write_bytes(damaged)
        journal = Journal(where, write=False)
        assert len(journal.records) == len(decode(data)[0])
        journal.close()
    Journal(where, write=True).close()
    assert path.read_bytes() == data


@pytest.mark.usefixtures("in_process")
def test_damage_of_both_copies_keeps_the_intact_beginning(where: Places) -> None:
    fill(where).close()
    paths = [where.state / "journal", where.run / "journal"]
    data = paths[0].read_bytes()
    records = decode(data)[0]
    for damaged in damages(data):
        for path in paths:
            path.write_bytes(damaged)
        journal = Journal(where, write=False)
        length = len(journal.records)
        assert journal.records == records[:length]
        # no less than the whole lines before the damage
        same = next((i for i, (a, b) in enumerate(zip(data, damaged, strict=False)) if a != b), -1)
        assert length == data[: len(damaged) if same < 0 else same].count(b"\n")
        journal.close()


def test_lines_of_another_journal_do_not_continue_it(where: Places, tmp_path: Path) -> None:
    fill(where).close()
    other = Places(tmp_path / "s2", tmp_path / "r2")
    fill(other).close()
    lines = (where.state / "journal").read_bytes().splitlines(keepends=True)
    others = (other.state / "journal").read_bytes().splitlines(keepends=True)
    records, _last = decode(b"".join(lines[:3] + others[3:]))
    assert len(records) == 3
    for i in range(1, len(lines) - 1):
        assert len(decode(b"".join(lines[:i] + lines[i + 1 :]))[0]) == i


def test_damage_is_reported_and_the_damaged_file_kept(where: Places) -> None:
    fill(where).close()
    path = where.state / "journal"
    path.write_bytes(path.read_bytes()[:-5] + b"xxxxx")
    journal = Journal(where, write=True)
    assert journal.notes == [f"{path} is damaged after record 12, the other copy is used"]
    # the copy on disk is rewritten when there is time
    assert path.read_bytes().endswith(b"xxxxx")
    journal.close()
    assert (where.state / "journal.damaged").read_bytes().endswith(b"xxxxx")
    assert path.read_bytes() == (where.run / "journal").read_bytes()


def test_a_copy_alone_is_enough(where: Places) -> None:
    journal = fill(where)
    count = len(journal.records)
    journal.close()
    (where.state / "journal").unlink()
    journal = Journal(where, write=True)
    assert len(journal.records) == count
    journal.close()
    (where.run / "journal").unlink()
    assert len(Journal(where, write=True).records) == count


def no_room(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a full disk: a part of what is written arrives, in that directory only."""
    write, inode = os.write, (directory / "journal").stat().st_ino

    def full(fd: int, data: bytes) -> int:
        if os.fstat(fd).st_ino == inode:
            return write(fd, data[: len(data) // 2])
        return write(fd, data)

    monkeypatch.setattr(os, "write", full)


@pytest.mark.parametrize("which", ["state", "run"])
def test_a_full_disk_changes_no_copy(
    where: Places, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = fill(where)
    paths = [where.state / "journal", where.run / "journal"]
    before = [path.read_bytes() for path in paths]
    no_room(getattr(where, which), monkeypatch)
    with pytest.raises(NotPossible, match="No space left on device"):
        journal.intend("c", 7, 9)
    assert [path.read_bytes() for path in paths] == before
    assert journal.history.expected["c"] == {7, 8}
    # a restore needs no room: the other copy has it
    journal.tolerant = True
    journal.end(journal.layer, RESTORED)
    journal.close()
    monkeypatch.undo()
    assert Journal(where, write=True).history.open_layer is None


def test_a_directory_of_another_user_is_refused(where: Places) -> None:
    where.state.mkdir()
    where.state.chmod(0o777)
    with pytest.raises(NotPossible, match=r"others may write there \(mode 0777\)"):
        Journal(where, write=True)
    where.state.rmdir()
    elsewhere = where.state.with_name("elsewhere")
    elsewhere.mkdir(0o700)
    where.state.symlink_to(elsewhere)
    with pytest.raises(NotPossible, match="symbolic link"):
        Journal(where, write=True)


def test_symbolic_link_is_not_followed(where: Places, tmp_path: Path) -> None:
    where.state.mkdir(0o700)
    theirs = tmp_path / "theirs"
    theirs.write_text("precious")
    (where.state / "journal").symlink_to(theirs)
    with pytest.raises(NotPossible, match="levels of symbolic links"):
        fill(where)
    Journal(where, write=True).forget()
    fill(where).close()
    assert theirs.read_text() == "precious"
    assert not (where.state / "journal").is_symlink()


def test_nothing_begins_on_a_journal_in_another_state_directory(
    where: Places, tmp_path: Path
) -> None:
    fill(where).close()
    journal = Journal(Places(tmp_path / "other", where.run), write=True)
    # it can be undone, but nothing begins on top of it
    assert len(journal.history.layers) == 2
    with pytest.raises(NotPossible, match=f"state directory {where.state}"):
        journal.begin("manual", "boot:1", "x", {})


def test_another_version_is_refused(where: Places) -> None:
    fill(where).close()
    for path in (where.state / "journal", where.run / "journal"):
        path.write_bytes(path.read_bytes().replace(b'"version":1', b'"version":2'))
    assert Journal(where, write=False).records == []


def test_the_lock_says_who_holds_it(where: Places) -> None:
    assert holder(where) is None
    lock = Lock.take(where, "zfstune tune tank")
    found = holder(where)
    assert found and (found.pid, found.command) == (os.getpid(), "zfstune tune tank")
    with pytest.raises(Busy, match=f"process {os.getpid()} .`zfstune tune tank`, since 20"):
        Lock.take(where, "second", 0)
    lock.release()
    assert holder(where) is None
    Lock.take(where, "third", 0).release()


def test_a_journal_on_a_read_only_disk_is_known_to_be_finished(
    where: Places, faults: Faults
) -> None:
    journal = fill(where)
    faults.put(where.state, errno.EROFS)
    journal.tolerant = True
    for layer in reversed(journal.history.layers):
        journal.end(layer, RESTORED)
    journal.put_aside()
    journal.close()
    # the copy that could be written says that nothing is in force
    for _ in range(2):
        journal = Journal(where, write=True)
        assert journal.history.layers and not journal.history.in_force
        journal.put_aside()
        journal.close()
    faults.put(where.state, None)
    journal = Journal(where, write=True)
    journal.put_aside()
    assert not (where.state / "journal").exists()
    assert not (where.run / "journal").exists()
    last = Journal(where, write=False).last
    assert last and not last.in_force
