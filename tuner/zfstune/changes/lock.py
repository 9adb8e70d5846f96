"""The lock for writing parameters. There is one per host, whichever state directory is in use."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zfstrace.clock import iso_second
from zfstune.changes.state_dir import Places, open_directory, open_file
from zfstune.errors import NotPossible

# the lock, and the file that exists while a session is in force
_LOCK, SESSION = "lock", "session"
# how long a command waits for the previous one
WAIT_S = 2.0


@dataclass(frozen=True)
class Holder:
    """The last process that took the lock."""

    pid: int
    command: str
    started: str  # ISO 8601, UTC

    def __str__(self) -> str:
        return f"process {self.pid} (`{self.command}`, since {self.started})"


class Busy(NotPossible):
    """Another process has the lock."""


class Lock:
    """Held while parameters are written. A forked supervisor shares it, so it is free only after
    both have ended."""

    def __init__(self, run: int, fd: int, *, substitute: bool = False) -> None:
        self._run, self.fd = run, fd
        # not the lock of a session that began while the run directory was in order
        self.substitute = substitute

    @classmethod
    def take(
        cls, where: Places, command: str, wait_s: float | None = None, *, restore: bool = False
    ) -> Lock:
        """Takes the lock; waits for it at most wait_s (-1: no limit), by default 2 s: `zfstune
        recover --wait` may hold it for a moment. restore: only to restore, for which the run
        directory need not be in order. Raises Busy, which names the holder, and NotPossible."""
        substitute = False
        try:
            run = open_directory(where.run, create=True)
            fd = open_file(run, _LOCK, os.O_RDWR | os.O_CREAT)
        except (NotPossible, OSError) as error:
            if not restore:
                raise
            run, fd, substitute = _substitute(where.run, error)
        try:
            _flock(fd, WAIT_S if wait_s is None else wait_s)
        except BlockingIOError:
            holder = _read_holder(fd)
            os.close(fd)
            os.close(run)
            raise Busy(
                f"cannot begin: {holder or 'another process'} is changing parameters",
                "wait until it ends, or stop it",
            ) from None
        except BaseException:
            os.close(fd)
            os.close(run)
            raise
        started = iso_second()
        # the content only names the holder
        with contextlib.suppress(OSError):
            os.ftruncate(fd, 0)
            text = json.dumps({"pid": os.getpid(), "command": command, "started": started})
            os.pwrite(fd, text.encode(), 0)
        return cls(run, fd, substitute=substitute)

    def mark_session(self) -> None:
        """Creates the file that exists while a session is in force; zfstune-recover.path watches
        it."""
        os.close(open_file(self._run, SESSION, os.O_WRONLY | os.O_CREAT))

    def release(self) -> None:
        """Releases the lock of this process; a supervisor keeps it."""
        if self.fd >= 0:
            os.close(self.fd)
            os.close(self._run)
            self.fd = -1


def _substitute(run: Path, error: Exception) -> tuple[int, int, bool]:
    """Something else to lock if the run directory cannot be used: the sessions' lock if others may
    write into the directory, otherwise its parent directory."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.suppress(OSError):
        directory = os.open(run, flags)
        try:
            fd = open_file(directory, _LOCK, os.O_RDWR)
        except OSError:
            os.close(directory)
            raise
        return directory, fd, False
    try:
        directory = os.open(run.parent, flags)
    except OSError:
        raise error from None
    if os.fstat(directory).st_uid != os.geteuid():
        os.close(directory)
        raise error from None
    return directory, os.dup(directory), True


def unmark_session(where: Places) -> None:
    """Removes the file of mark_session(): no session has left anything. Needs the lock."""
    with contextlib.suppress(OSError):
        (where.run / SESSION).unlink()


def holder(where: Places) -> Holder | None:
    """The holder of the lock; None if there is none, or the run directory cannot be used."""
    try:
        run = os.open(where.run, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fd = open_file(run, _LOCK, os.O_RDWR)
    except OSError:
        return None
    finally:
        os.close(run)
    try:
        _flock(fd, 0)
    except BlockingIOError:
        return _read_holder(fd) or Holder(0, "unknown", "")
    finally:
        os.close(fd)
    return None


def _flock(fd: int, wait_s: float) -> None:
    """Raises BlockingIOError if the lock is still taken after wait_s."""
    if wait_s < 0:
        fcntl.flock(fd, fcntl.LOCK_EX)
        return
    deadline = time.monotonic() + wait_s
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(0.05)


def _read_holder(fd: int) -> Holder | None:
    try:
        found: dict[str, Any] = json.loads(os.pread(fd, 65536, 0))
        return Holder(int(found["pid"]), str(found["command"]), str(found["started"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
