"""The two directories of the journal, and the files in them.

The state directory is on disk. The run directory is on a tmpfs (on FreeBSD a boot empties it,
rc.d/cleanvar), whose content lives exactly as long as the values of parameters do: until the
host boots.
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
    """Of the journal on disk, and of that in memory with the lock."""

    state: Path
    run: Path


def places() -> Places:
    """The two directories of this host."""
    return Places(Path(paths.state_directory()), Path(paths.run_directory()))


def open_directory(path: Path, *, create: bool) -> int:
    """A descriptor of a directory that nobody else can write into.

    Raises NotPossible, and FileNotFoundError when it is not there and not to be created.
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
        raise NotPossible(f"cannot use {path}, no permission, run as root") from None
    except OSError as error:
        reason = error.strerror
        if error.errno in (errno.ENOTDIR, errno.ELOOP, errno.EMLINK):
            reason = "it is a symbolic link or no directory"
        raise NotPossible(f"cannot use {path}, {reason}, repair or remove it") from None
    status = os.fstat(fd)
    problem = None
    if status.st_uid != os.geteuid():
        problem = f"it belongs to user {status.st_uid}"
    elif stat.S_IMODE(status.st_mode) & 0o022:
        problem = f"others may write there (mode {stat.S_IMODE(status.st_mode):04o})"
    if problem:
        os.close(fd)
        advice = "run as that user" if "belongs" in problem else f"run `chmod 0700 {path}`"
        if not os.geteuid():
            advice = f"run `chown root {path} && chmod 0700 {path}` if you trust what is in it"
        raise NotPossible(f"cannot use {path}, {problem}, {advice}")
    return fd


def open_file(directory: int, name: str, flags: int) -> int:
    """A file of the directory that is no symbolic link; mode 0600 when it is new."""
    return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=directory)


def free_name(directory: int, name: str) -> str:
    """The name, or if it is taken the name with the first number behind it that is free."""
    taken, found, number = set(os.listdir(directory)), name, 0
    while found in taken:
        number += 1
        found = f"{name}.{number}"
    return found


def keep_as(directory: int, name: str, keep: str) -> None:
    """Gives a file the name keep, or one like it that is free; it has its own name as well, so that
    at no moment there is none, and no room is needed for the content. Raises OSError."""
    free = free_name(directory, keep)
    try:
        os.link(name, free, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return
    except OSError:
        # of a directory, or where there are no links
        os.rename(name, free, src_dir_fd=directory, dst_dir_fd=directory)
