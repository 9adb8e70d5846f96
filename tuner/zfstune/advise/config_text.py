"""Text of a configuration file, and what can be wrong with it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from zfstune.errors import NotPossible, UsageError

# A configuration of a database has some kilobytes.
_MOST_BYTES = 4 << 20
_OWN = "/proc/self/fd"
_PATH = getattr(os, "O_PATH", 0)


def read(path: Path, included: str = "") -> str:
    """Its text. included is the place that names it, for messages. Raises UsageError when it is
    no text, NotPossible when it cannot be read."""
    by = f" (included in {included})" if included else ""
    try:
        with open(path, "rb", opener=_regular) as file:
            data = file.read(_MOST_BYTES + 1)
    except _NoFile as error:
        raise UsageError(f"{path}{by} is {error}, give a configuration file") from None
    except FileNotFoundError:
        raise UsageError(f"cannot read {path}{by}, there is no such file") from None
    except PermissionError as error:
        why = error.strerror
        raise NotPossible(f"cannot read {path}{by}, {why}, run as its owner or root") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"cannot read {path}{by}, {why}, give a configuration file") from None
    if len(data) > _MOST_BYTES:
        raise UsageError(f"{path}{by} is too large for a configuration file, look at the name")
    if b"\0" in data:
        raise UsageError(f"{path}{by} is no text, give a configuration file")
    try:
        # with or without the mark that editors of Windows put first
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(
            f"{path}{by} is not UTF-8 in line {line}, convert it with iconv(1) into a copy"
        ) from None


class _NoFile(Exception):
    """What was named is no regular file."""


def _regular(path: str, flags: int) -> int:
    """Looks first, since the mere opening of a device may do something (/dev/watchdog), and that of
    a FIFO waits for one who writes. Raises _NoFile."""
    found = os.open(path, _PATH) if _PATH else None
    try:
        status = Path(path).stat() if found is None else os.fstat(found)
        if not stat.S_ISREG(status.st_mode):
            raise _NoFile("a directory" if stat.S_ISDIR(status.st_mode) else "no regular file")
        # what was looked at, whatever has its name now; without /proc only the name is left
        own = f"{_OWN}/{found}"
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
    """The files in it by name; place is where it is included. Raises UsageError, NotPossible."""
    try:
        return sorted(directory.iterdir())
    except (OSError, ValueError) as error:
        kind = NotPossible if isinstance(error, PermissionError) else UsageError
        why = getattr(error, "strerror", None) or error
        raise kind(f"{place}: cannot list {directory}, {why}") from None


def is_directory(path: Path) -> bool:
    """False also where that may not be looked at: reading it says why."""
    try:
        return path.is_dir()
    except OSError:
        return False
