"""The text of a configuration file, with errors that name the place."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from zfstune.errors import NotPossible, UsageError

# A configuration has some kilobytes.
_MOST_BYTES = 4 << 20
_GIVE = "give a configuration file"
OWN_FDS = "/proc/self/fd"
_PATH = getattr(os, "O_PATH", 0)


def read(path: Path, included: str = "") -> str:
    """The text of a file. included is the place that includes it, for messages. Raises UsageError
    if it is no text file, NotPossible if permission is lacking."""
    by = f" (included in {included})" if included else ""
    try:
        with open(path, "rb", opener=_regular) as file:
            data = file.read(_MOST_BYTES + 1)
    except _NoFile as error:
        raise UsageError(f"{path}{by} is {error}", _GIVE) from None
    except FileNotFoundError as error:
        raise UsageError(f"cannot read {path}{by}: {error.strerror}") from None
    except PermissionError as error:
        why = error.strerror
        raise NotPossible(f"cannot read {path}{by}: {why}", "run as its owner or root") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"cannot read {path}{by}: {why}", _GIVE) from None
    if len(data) > _MOST_BYTES:
        raise UsageError(f"{path}{by} is too large for a configuration file", "check its name")
    if b"\0" in data:
        raise UsageError(f"{path}{by} is not text", _GIVE)
    try:
        # with or without a byte order mark
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(
            f"{path}{by} is not UTF-8 in line {line}", "convert a copy with iconv(1)"
        ) from None


class _NoFile(Exception):
    """No regular file; the message completes "is ..."."""


def _regular(path: str, flags: int) -> int:
    """Opens a regular file only: opening a device may have effects (/dev/watchdog), and opening a
    FIFO waits for a writer. Raises _NoFile."""
    found = os.open(path, _PATH) if _PATH else None
    try:
        status = Path(path).stat() if found is None else os.fstat(found)
        if not stat.S_ISREG(status.st_mode):
            raise _NoFile("a directory" if stat.S_ISDIR(status.st_mode) else "no regular file")
        # opens the file just examined even if the name is another's now; needs /proc
        own = f"{OWN_FDS}/{found}"
        name = own if found is not None and os.path.exists(own) else path  # noqa: PTH110
        fd = os.open(name, flags | os.O_NONBLOCK | os.O_NOCTTY)
    finally:
        if found is not None:
            os.close(found)
    if not os.path.samestat(status, os.fstat(fd)):
        os.close(fd)
        raise _NoFile("another file now")
    return fd


def entries(directory: Path, place: str) -> list[Path]:
    """The files in a directory, sorted by name; place is where it is included. Servers skip the
    directories in it. Raises UsageError, NotPossible."""
    try:
        return sorted(one for one in directory.iterdir() if not is_directory(one))
    except (OSError, ValueError) as error:
        kind = NotPossible if isinstance(error, PermissionError) else UsageError
        why = getattr(error, "strerror", None) or error
        raise kind(f"{place}: cannot list {directory}: {why}") from None


def is_directory(path: Path) -> bool:
    """False also without permission: reading it then says why."""
    try:
        return path.is_dir()
    except OSError:
        return False
