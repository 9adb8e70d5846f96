"""Files that root writes: complete or not at all, and never through another user's link."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from zfstrace import files
from zfstune.errors import CommandError, UsageError
from zfstune.tune.workload import output_directory

OTHER = 65534  # nobody


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_the_mode_is_that_of_the_call(tmp_path: Path) -> None:
    files.write(tmp_path / "a", [b"x", b"y"])
    files.write(tmp_path / "b", [b"x"], 0o600)
    assert (tmp_path / "a").read_bytes() == b"xy"
    assert (mode(tmp_path / "a"), mode(tmp_path / "b")) == (0o644, 0o600)
    assert names(tmp_path) == ["a", "b"]


def test_a_link_is_replaced_and_what_it_points_to_stays(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("root's")
    (tmp_path / "out.svg").symlink_to(secret)
    files.write(tmp_path / "out.svg", [b"new"])
    assert secret.read_text() == "root's"
    assert not (tmp_path / "out.svg").is_symlink()
    assert (tmp_path / "out.svg").read_bytes() == b"new"


def test_without_room_the_previous_file_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_text("old")

    def pieces() -> Iterator[bytes]:
        yield b"half"
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError, match="No space"):
        files.write(tmp_path / "a", pieces())
    assert (tmp_path / "a").read_text() == "old"
    assert names(tmp_path) == ["a"]


def test_a_name_may_be_long(tmp_path: Path) -> None:
    name = "\u00fc" * 120  # 240 bytes
    files.write(tmp_path / name, [b"x"])
    assert names(tmp_path) == [name]


def test_an_interrupt_leaves_no_file(tmp_path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"half"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        files.write(tmp_path / "a", pieces())
    assert names(tmp_path) == []


def test_own_links_to_directories_are_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "absolute").symlink_to(tmp_path / "real")
    (tmp_path / "relative").symlink_to("absolute/deep")
    (tmp_path / "up").symlink_to("real/deep/..")
    monkeypatch.chdir(tmp_path)
    for name in ("absolute", "relative", "up", "real/deep/../deep"):
        files.write(Path(name) / "f", [name.encode()])
        assert (tmp_path / name / "f").read_bytes() == name.encode()


def test_a_loop_of_links_has_an_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        files.write(tmp_path / "a" / "f", [b""])


def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileNotFoundError):
        files.write(tmp_path / "no" / "f", [b""])
    with pytest.raises(NotADirectoryError):
        files.write(tmp_path / "file" / "f", [b""])


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of others")


@needs_root
def test_a_link_of_another_user_to_a_directory_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    home = tmp_path / "home"
    home.mkdir()
    (home / "out").symlink_to(tmp_path / "etc")
    os.lchown(home / "out", OTHER, OTHER)
    with pytest.raises(PermissionError, match="link of another user"):
        files.write(home / "out" / "x.svg", [b""])
    assert names(tmp_path / "etc") == []


@needs_root
def test_a_file_replaces_the_link_of_another_user(tmp_path: Path) -> None:
    """`cd /home/alice; sudo zfstune flame -o x.svg`: only that name can be hers."""
    home = tmp_path / "home"
    home.mkdir()
    secret = tmp_path / "secret"
    secret.write_text("root's")
    (home / "x.svg").symlink_to(secret)
    os.chown(home, OTHER, OTHER)
    files.write(home / "x.svg", [b"graph"])
    assert (secret.read_text(), (home / "x.svg").read_bytes()) == ("root's", b"graph")


# --- the directory of a session


def test_a_new_directory_is_only_for_its_owner(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        output_directory(tmp_path / "parent" / "out")
    finally:
        os.umask(before)
    assert mode(tmp_path / "parent" / "out") == 0o700
    assert mode(tmp_path / "parent") & 0o022 == 0
    assert output_directory(tmp_path / "parent" / "out") == tmp_path / "parent" / "out"


def test_mkdir_of_the_root_may_say_that_it_is_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On FreeBSD it says EISDIR."""
    mkdir = os.mkdir

    def of_freebsd(name: str, mode: int, *, dir_fd: int) -> None:
        if name == "/":
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        mkdir(name, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", of_freebsd)
    assert output_directory(tmp_path / "out") == tmp_path / "out"
    assert mode(tmp_path / "out") == 0o700


def test_a_directory_that_others_may_write_into_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out").chmod(0o777)
    with pytest.raises(UsageError, match=r"out: others may write into .*mode 0777"):
        output_directory(tmp_path / "out")
    # it is refused also where the sticky bit keeps others from taking files away
    (tmp_path / "out").chmod(0o1777)
    with pytest.raises(UsageError, match="others may write"):
        output_directory(tmp_path / "out")


def test_a_parent_that_others_may_write_into_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open" / "out").mkdir(parents=True)
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(UsageError, match=r"others may write into .*open"):
        output_directory(tmp_path / "open" / "out")
    (tmp_path / "open").chmod(0o1777)
    output_directory(tmp_path / "open" / "out")
    output_directory(tmp_path / "open" / "new")


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "out"):
        with pytest.raises(UsageError, match=r"^--out .*: (Not a directory|File exists)") as error:
            output_directory(path)
        assert error.value.hint == "name a directory that only you can write into"


@needs_root
def test_an_output_directory_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SUDO_UID", raising=False)
    out = tmp_path / "sticky" / "out"
    out.mkdir(parents=True)
    out.parent.chmod(0o1777)
    secret = tmp_path / "secret"
    secret.write_text("root's")
    (out / "session.json").symlink_to(secret)
    os.chown(out, OTHER, OTHER)
    with pytest.raises(UsageError, match=f"belongs to user {OTHER}"):
        output_directory(out)
    os.chown(out, 0, 0)
    os.lchown(out.parent, OTHER, OTHER)
    with pytest.raises(CommandError, match=f"belongs to user {OTHER}"):
        output_directory(out)
    with pytest.raises(CommandError, match=f"belongs to user {OTHER}"):
        output_directory(out.parent / "new")


@needs_root
def test_the_home_of_the_user_of_sudo_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may run this as root may run any command (--workload)."""
    (tmp_path / "home").mkdir()
    os.chown(tmp_path / "home", OTHER, OTHER)
    monkeypatch.setenv("SUDO_UID", str(OTHER))
    output_directory(tmp_path / "home" / "out")
    monkeypatch.setenv("SUDO_UID", "1000000 or so")
    with pytest.raises(UsageError, match="belongs to user"):
        output_directory(tmp_path / "home" / "out")
