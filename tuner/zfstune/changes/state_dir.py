"""The two directories of the journal, and the files in them.

The state directory is on disk. The run directory is on a tmpfs (on FreeBSD, rc.d/cleanvar empties
it at boot): its content lasts as long as the values of parameters, until the next boot.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from zfstune.changes import paths
from zfstune.errors import NotPossible


@dataclass(frozen=True)
class Places:
    """The directories of the journal on disk, and of the journal in memory with the lock."""

    state: Path
    run: Path


def places() -> Places:
    """The two directories of this host."""
    return Places(Path(paths.state_directory()), Path(paths.run_directory()))


def open_directory(path: Path, *, create: bool) -> int:
    """A descriptor of a directory into which only this user can write.

    Raises NotPossible, and FileNotFoundError if it does not exist and create is False.
    """
    try:
        if create:
            with contextlib.suppress(FileExistsError):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.mkdir(0o700)
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except PermissionError:
        raise NotPossible(f"cannot use {path}: no permission", "run as root") from None
    except OSError as error:
        reason = error.strerror
        if error.errno in (errno.ENOTDIR, errno.ELOOP, errno.EMLINK):
            reason = "it is a symbolic link or not a directory"
        raise NotPossible(f"cannot use {path}: {reason}", "repair or remove it") from None
    status = os.fstat(fd)
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid != os.geteuid():
        problem, hint = f"it belongs to user {status.st_uid}", "run as that user"
    elif mode & 0o022:
        problem, hint = f"others may write there (mode {mode:04o})", f"run `chmod 0700 {path}`"
    else:
        return fd
    os.close(fd)
    if not os.geteuid():
        hint = f"run `chown root {path} && chmod 0700 {path}` if you trust its content"
    raise NotPossible(f"cannot use {path}: {problem}", hint)


def open_file(directory: int, name: str, flags: int) -> int:
    """A descriptor of a file in the directory; not through a symbolic link; a new file has mode
    0600."""
    return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=directory)


def free_name(directory: int, name: str) -> str:
    """The name, or, if it is taken, the name with the first free number as suffix."""
    taken, found, number = set(os.listdir(directory)), name, 0
    while found in taken:
        number += 1
        found = f"{name}.{number}"
    return found


def keep_as(directory: int, name: str, keep: str) -> None:
    """Gives a file the additional name keep, or free_name() of that: so its own name never
    disappears, and the content needs no room. Raises OSError."""
    free = free_name(directory, keep)
    try:
        os.link(name, free, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return
    except OSError:
        # a directory, or a file system without links
        os.rename(name, free, src_dir_fd=directory, dst_dir_fd=directory)
