"""Files written whole or not at all, and never through another user's symbolic link.

A file is written under a temporary name in a directory that is held open, then renamed: a symbolic
link of its name is replaced, not followed. So in another user's directory, as after `cd
/home/alice` under sudo, no other file is in danger. On the path to the directory only links of root
or the caller are followed; those of others could lead anywhere.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

# O_PATH opens even what cannot be read, and a link itself. Without it all links are refused.
_PATH = getattr(os, "O_PATH", os.O_RDONLY) | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LINKS = 40  # as in Linux and FreeBSD

# Called with each directory on the path, and its path; raises OSError to reject it.
Look = Callable[[os.stat_result, str], None]


def write(path: Path, pieces: Iterable[bytes], mode: int = 0o666, *, synced: bool = False) -> None:
    """Creates or replaces a file; mode is subject to the umask. synced: wait until it is on stable
    storage. Raises OSError, also for another user's link on the path; the previous file then
    remains."""
    directory = open_directory(path.parent)
    try:
        replace(directory, path.name, pieces, mode, synced=synced)
    finally:
        os.close(directory)


def replace_text(path: Path, text: str, mode: int = 0o644) -> None:
    """write() for a system configuration file, synced."""
    write(path, [text.encode("utf-8", "surrogateescape")], mode, synced=True)


def replace(
    directory: int,
    name: str,
    pieces: Iterable[bytes],
    mode: int,
    *,
    synced: bool,
    part: str = "",
    before: Callable[[], object] | None = None,
) -> None:
    """write() in a directory that is open (from open_directory(), or for reading).

    The only writer of a file may pass part, a fixed temporary name, so that a killed writer's
    remains are removed by the next. before() is called right before the rename. Raises OSError, and
    what pieces and before() raise.
    """
    if part:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part, dir_fd=directory)
    # of at most 255 bytes: a character may have four
    new = part or f".{name[:50]}.{os.urandom(6).hex()}.part"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(new, flags, mode, dir_fd=directory)
    try:
        with os.fdopen(fd, "wb") as file:
            file.writelines(pieces)
            file.flush()
            if synced:
                os.fsync(fd)
        if before:
            before()
        os.rename(new, name, src_dir_fd=directory, dst_dir_fd=directory)
        if synced:
            _sync(directory)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(new, dir_fd=directory)
        raise


def _sync(directory: int) -> None:
    # the descriptor may be O_PATH, which cannot be synced
    readable = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    try:
        os.fsync(readable)
    finally:
        os.close(readable)


def open_directory(path: Path, look: Look | None = None, *, create: bool = False) -> int:
    """A descriptor of a directory, for use as dir_fd. create makes missing directories with mode
    0700. Raises OSError, also for a link on the path that belongs to neither root nor the caller,
    and what look raises."""
    rest, place, links = list(path.parts[::-1]), "", 0
    fd = os.open(".", _PATH | os.O_DIRECTORY)
    try:
        while rest:
            name = rest.pop()
            target = _link(fd, name, path)
            if target is None:
                fd, place = _below(fd, name, create=create), os.path.join(place, name)  # noqa: PTH118
                if look:
                    look(os.fstat(fd), place)
                continue
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            rest += Path(target).parts[::-1]
    except BaseException:
        os.close(fd)
        raise
    return fd


def require_private(path: Path, *, create: bool = False) -> None:
    """Raises OSError, with a readable strerror, if another user may write into a directory or
    replace it. The caller of sudo is trusted: with --workload they could run anything as root."""
    caller = os.environ.get("SUDO_UID", "")
    trusted = {0, os.geteuid(), int(caller) if caller.isdecimal() else 0}

    def look(status: os.stat_result, place: str, *, last: bool = False) -> None:
        if status.st_uid not in trusted:
            raise PermissionError(errno.EPERM, f"{place} belongs to user {status.st_uid}")
        if status.st_mode & 0o022 and (last or not status.st_mode & stat.S_ISVTX):
            mode = f"{stat.S_IMODE(status.st_mode):04o}"
            raise PermissionError(errno.EPERM, f"others may write into {place} (mode {mode})")

    fd = open_directory(Path.cwd() / path, look, create=create)
    try:
        look(os.fstat(fd), str(path), last=True)
    finally:
        os.close(fd)


def _below(directory: int, name: str, *, create: bool) -> int:
    """Opens a directory that is not a link, and closes its parent."""
    if create:
        # of "/" FreeBSD says EISDIR (mkdir(2)), not EEXIST
        with contextlib.suppress(FileExistsError, IsADirectoryError):
            os.mkdir(name, 0o700, dir_fd=directory)
    fd = os.open(name, _PATH | os.O_DIRECTORY, dir_fd=directory)
    os.close(directory)
    return fd


def _link(directory: int, name: str, path: Path) -> str | None:
    """The target of a link; None for anything else. Raises PermissionError for another user's."""
    try:
        fd = os.open(name, _PATH, dir_fd=directory)
    except OSError:
        return None
    try:
        status = os.fstat(fd)
        if not stat.S_ISLNK(status.st_mode):
            return None
        if status.st_uid not in (0, os.geteuid()):
            why = f"{name!r} is a link of another user, who can point it anywhere"
            raise PermissionError(errno.EPERM, why, str(path))
        # by descriptor: the name may belong to another file by now
        return os.readlink("", dir_fd=fd)
    finally:
        os.close(fd)
