"""The file for node_exporter: whole or not there, whatever the file system does."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import stat
import threading
from pathlib import Path

import pytest
from support.fake_host import FakeHost
from support.faults import Faults

from zfstrace import disk
from zfstune.errors import NotPossible, UsageError
from zfstune.exporter.textfile import TextFile, refuse_zfs


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "textfile"
    made.mkdir()
    return made


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def file(directory: Path, said: list[str]) -> TextFile:
    return TextFile(directory / "zfstune.prom", said.append)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_the_file_is_replaced(file: TextFile, directory: Path, said: list[str]) -> None:
    for data in (b"a 1\n" * 1000, b"a 2\n", b""):
        assert file.write(data)
        assert file.path.read_bytes() == data
        assert names(directory) == ["zfstune.prom"]
    assert said == []
    assert file.failed == 0


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_all_may_read_it(file: TextFile, umask: int) -> None:
    before = os.umask(umask)
    try:
        assert file.write(b"a 1\n")
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o644


def test_a_reader_never_sees_a_part(file: TextFile) -> None:
    bodies = {bytes([letter]) * (1 << 18) for letter in b"ab"}
    assert file.write(min(bodies))
    seen: list[bytes] = []
    end = threading.Event()

    def look() -> None:
        while not end.is_set():
            seen.append(file.path.read_bytes())

    reader = threading.Thread(target=look)
    reader.start()
    try:
        while len(seen) < 50:
            for body in bodies:
                assert file.write(body)
    finally:
        end.set()
        reader.join()
    assert set(seen) <= bodies


def test_what_is_not_whole_has_no_name_that_is_read(
    file: TextFile, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, seen = os.write, []

    def write(fd: int, data: bytes) -> int:
        seen.append(names(directory))
        return real(fd, data[:3])

    monkeypatch.setattr(os, "write", write)
    assert file.write(b"0123456789")
    assert len(seen) == 4
    assert not [name for row in seen for name in row if name.endswith(".prom")]
    assert file.path.read_bytes() == b"0123456789"


def test_what_a_killed_exporter_left_is_cleared(file: TextFile, directory: Path) -> None:
    (directory / ".zfstune.prom.part").write_bytes(b"half")
    assert file.write(b"a 1\n")
    assert names(directory) == ["zfstune.prom"]


def test_a_link_is_replaced_and_not_followed(file: TextFile, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("root's")
    secret.chmod(0o600)
    for name in ("zfstune.prom", ".zfstune.prom.part"):
        file.path.with_name(name).symlink_to(secret)
    assert file.write(b"a 1\n")
    assert secret.read_text() == "root's"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert not file.path.is_symlink()


def test_a_new_working_directory_changes_nothing(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(directory)
    file = TextFile(Path("a.prom"))
    monkeypatch.chdir(tmp_path)
    assert file.write(b"a 1\n")
    assert names(directory) == ["a.prom"]


def test_a_long_name_works(directory: Path) -> None:
    file = TextFile(directory / ("a" * 250 + ".prom"))
    assert file.write(b"a 1\n")


# failures


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    return Faults(monkeypatch)


def test_without_room_nothing_old_and_no_part_stays(
    file: TextFile, directory: Path, said: list[str], faults: Faults
) -> None:
    assert file.write(b"old 1\n")
    faults.put(directory, errno.ENOSPC)
    for _ in range(3):
        assert not file.write(b"new 1\n")
        assert names(directory) == []
    assert file.failed == 3
    assert said == [f"cannot write {file.path}: No space left on device"]
    faults.put(directory, None)
    assert file.write(b"good 1\n")
    assert said[1:] == [f"{file.path} is written again"]
    assert names(directory) == ["zfstune.prom"]


def test_a_limit_of_the_kernel_is_no_end(file: TextFile, directory: Path, said: list[str]) -> None:
    # part of it is really written; Python ignores the signal
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        written = file.write(b"a" * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not written
    assert names(directory) == []
    assert said == [f"cannot write {file.path}: File too large"]


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EIO])
def test_where_nothing_can_be_changed_it_goes_on(
    file: TextFile, said: list[str], faults: Faults, number: int, directory: Path
) -> None:
    assert file.write(b"old 1\n")
    faults.put(directory, number)
    for _ in range(3):
        assert not file.write(b"new 1\n")
    file.close()
    assert file.failed == 3
    assert said == [f"cannot write {file.path}: {os.strerror(number)}"]
    faults.put(directory, None)
    assert file.write(b"new 1\n")
    assert file.path.read_bytes() == b"new 1\n"


@pytest.mark.parametrize("name", ["rename", "fchmod", "write"])
def test_whatever_fails_no_part_stays(
    file: TextFile, directory: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_given: object, **_named: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with monkeypatch.context() as patch:
        patch.setattr(os, name, fail)
        assert not file.write(b"a 1\n")
    assert names(directory) == []
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    assert file.write(b"a 1\n")


def test_a_directory_may_go_and_come_back(file: TextFile, directory: Path, said: list[str]) -> None:
    shutil.rmtree(directory)
    for _ in range(3):
        assert not file.write(b"a 1\n")
    directory.mkdir()
    assert file.write(b"a 1\n")
    assert said == [
        f"cannot write {file.path}: No such file or directory",
        f"{file.path} is written again",
    ]


def test_another_reason_is_said_too(
    file: TextFile, directory: Path, said: list[str], faults: Faults
) -> None:
    for number in (errno.ENOSPC, errno.EROFS, errno.EROFS):
        faults.put(directory, number)
        assert not file.write(b"a 1\n")
    assert said == [
        f"cannot write {file.path}: {os.strerror(number)}" for number in (errno.ENOSPC, errno.EROFS)
    ]


# the end


def test_the_end_removes_the_file(file: TextFile, directory: Path) -> None:
    assert file.write(b"a 1\n")
    file.close()
    file.close()
    assert names(directory) == []


def test_the_end_removes_nothing_that_was_not_written(file: TextFile) -> None:
    file.path.write_bytes(b"of another exporter")
    file.close()
    assert file.path.exists()


def test_the_end_needs_no_directory(file: TextFile, directory: Path, said: list[str]) -> None:
    assert file.write(b"a 1\n")
    shutil.rmtree(directory)
    file.close()
    assert said == []


# what is refused at start


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("metrics.txt", "node_exporter reads only files whose names end in .prom"),
        ("metrics", "node_exporter reads only files whose names end in .prom"),
        ("metrics.prom.part", "node_exporter reads only files whose names end in .prom"),
        (".prom", "node_exporter reads only files whose names end in .prom"),
        ("missing/metrics.prom", "there is no directory {}/missing"),
        ("file/metrics.prom", "there is no directory {}/file"),
        ("directory.prom", "it is a directory"),
    ],
)
def test_a_path_that_cannot_be_right_is_refused(directory: Path, name: str, message: str) -> None:
    (directory / "file").touch()
    (directory / "directory.prom").mkdir()
    with pytest.raises(UsageError) as caught:
        TextFile(directory / name)
    assert str(caught.value) == f"cannot write {directory / name}: {message.format(directory)}"
    assert caught.value.hint


def test_a_directory_on_zfs_is_refused(file: TextFile, directory: Path) -> None:
    host = FakeHost()
    host.devices = {}
    refuse_zfs(file.path, host)
    host.devices[disk.dev_of(directory)] = "rpool/var"
    with pytest.raises(NotPossible) as caught:
        refuse_zfs(file.path, host)
    assert str(caught.value) == (
        f"cannot write {file.path}: it is on ZFS (rpool/var), and a pool that hangs would hold up "
        "the exporter"
    )
    assert "tmpfs" in caught.value.hint


def test_a_directory_that_is_gone_by_then_is_refused(file: TextFile, directory: Path) -> None:
    directory.rmdir()
    with pytest.raises(NotPossible, match="No such file or directory"):
        refuse_zfs(file.path, FakeHost())
