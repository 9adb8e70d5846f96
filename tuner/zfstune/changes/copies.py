"""One copy of the journal: a file, and what can go wrong with it and its directory.

The run directory is in memory and always answers. The state directory may be on a frozen disk or a
suspended pool: a child process does everything there (bounded.py), and if that does not return, the
directory is not used again.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zfstrace import files
from zfstune.changes import bounded
from zfstune.changes.paths import FILE
from zfstune.changes.records import VERSION, History, decode, encode_lines, later_version
from zfstune.changes.state_dir import free_name, keep_as, open_directory, open_file
from zfstune.errors import NotPossible

LAST, DAMAGED, FOREIGN = f"{FILE}.last", f"{FILE}.damaged", f"{FILE}.foreign"
_LARGEST = 64 << 20

# directories that did not answer, which this process does not try again
_silent: set[str] = set()


@dataclass(frozen=True)
class Look:
    """What a directory contains. there: the directory exists; data is None if there is no journal;
    error says why it cannot be read; kept are the names of journals put aside."""

    there: bool = False
    data: bytes | None = None
    error: str = ""
    last: bytes = b""
    kept: tuple[str, ...] = ()


class Content:
    """What a file contains: its intact beginning, and whether there is more."""

    def __init__(self, data: bytes | None) -> None:
        self.later = later_version(data) if data else None
        self.records, self.last = decode(data) if data and not self.later else ([], "")
        self.lines = encode_lines(self.records)
        self.history = History()
        for record in self.records:
            self.history.add(record)
        self.whole = bool(data) and b"".join(self.lines) == data
        self.damaged = data is not None and not self.whole and not self.later

    @property
    def id(self) -> str:
        """The journal's id; "" if the beginning is not intact."""
        return self.history.id

    def is_of(self, identity: str) -> bool:
        """Whether any of its layers in force belongs to that boot and module."""
        return any(layer.identity == identity for layer in self.history.in_force)


class Copy:
    """One of the two files. failed says why it cannot be relied on for now; refused: it must not be
    touched at all."""

    def __init__(self, directory: Path, *, limited: bool) -> None:
        self.directory, self.path = directory, directory / FILE
        self._limited = limited
        self.found, self.content = Look(), Content(None)
        self.failed: NotPossible | None = None
        self.refused = False
        # the name that the present file gets before it is replaced
        self.keep = ""
        # the number of its lines; size is their length, None if it has to be rewritten
        self.have = 0
        self.size: int | None = None

    def look(self, limit_s: float) -> None:
        """Reads the file; failed says why that was not possible within limit_s."""
        try:
            self.found = Look(*self._do(limit_s, _look))
        except NotPossible as error:
            self.failed = error
        except OSError as error:
            self.failed = NotPossible(f"cannot use {self.directory}: {error.strerror}")
        if self.found.error:
            self.failed = NotPossible(f"cannot read {self.path}: {self.found.error}")
        self.content = Content(self.found.data)
        if self.content.later:
            self.refused = True
            self.failed = NotPossible(
                f"{self.path} has version {self.content.later}: a later zfstune wrote it, this one "
                f"knows version {VERSION}",
                "install that one again, or run its `zfstune revert`",
            )

    def compare(self, best: Content) -> None:
        """Finds out which lines of best it has; other content is kept when it is rewritten."""
        mine = self.content
        if mine.whole and mine.lines == best.lines[: len(mine.lines)]:
            self.have, self.size = len(mine.lines), sum(map(len, mine.lines))
        elif mine.damaged or self.failed:
            # also unread content of a disk that may answer again
            self.keep = DAMAGED
        elif mine.records:
            self.keep = FOREIGN

    def lacks(self, lines: Sequence[bytes]) -> bool:
        """Whether it may have other lines than these."""
        return bool(self.failed) or self.size is None or self.have != len(lines)

    def update(self, lines: Sequence[bytes], *, sync: bool, limit_s: float) -> None:
        """Writes the lines that it lacks. Raises NotPossible, and is then unchanged."""
        if self.failed:
            raise self.failed
        try:
            if self.size is None:
                self._do(limit_s, _rewrite, b"".join(lines), self.keep)
                self.size, self.keep = 0, ""
            elif self.have < len(lines):
                self._do(limit_s, _append, b"".join(lines[self.have :]), self.size, sync)
        except NotPossible as error:
            self.failed = error
            raise
        except OSError as error:
            why = f"cannot write {self.path}: {error.strerror}"
            self.failed = NotPossible(why, "make room or set ZFSTUNE_STATE_DIR")
            raise self.failed from None
        self.have, self.size = len(lines), sum(map(len, lines))

    def cut(self, lines: Sequence[bytes]) -> None:
        """Cuts off what follows these lines, in this process."""
        size = sum(map(len, lines))
        if self.size is not None and self.size > size:
            with contextlib.suppress(OSError, NotPossible):
                _cut(str(self.directory), size)
            self.have, self.size = len(lines), size

    def again(self) -> None:
        """Lets the next update rewrite the whole file, even after a failure."""
        if self.failed and not self.refused:
            self.failed, self.size = None, None

    def aside(self, name: str, limit_s: float) -> bool:
        """Renames the file; LAST is replaced, other names get a number if they exist. Returns
        whether it is gone."""
        try:
            self._do(limit_s, _aside, name)
        except (OSError, NotPossible) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            self.failed = self.failed or NotPossible(f"cannot rename {self.path}: {reason}")
            return False
        self.have, self.size, self.keep, self.failed = 0, None, "", None
        return True

    def remove(self, limit_s: float) -> None:
        """Removes the file, if that is possible within limit_s."""
        with contextlib.suppress(OSError, NotPossible):
            self._do(limit_s, _remove)
        self.have, self.size = 0, None

    def _do(self, limit_s: float, what: Callable[..., Any], *given: object) -> Any:
        directory = str(self.directory)
        if not self._limited:
            return what(directory, *given)
        if directory in _silent:
            raise TimeoutError(errno.ETIMEDOUT, "it does not answer")
        try:
            return bounded.call(limit_s, what, directory, *given)
        except TimeoutError:
            _silent.add(directory)
            raise


# --- operations in a directory, given by its path: a child process opens the state directory


def _look(directory: str) -> tuple[bool, bytes | None, str, bytes, tuple[str, ...]]:
    """The fields of Look. Raises OSError or NotPossible if the directory cannot be used."""
    try:
        fd = open_directory(Path(directory), create=False)
    except FileNotFoundError:
        return False, None, "", b"", ()
    data, error, last, names = None, "", b"", list[str]()
    try:
        with contextlib.suppress(OSError):
            names = os.listdir(fd)  # noqa: PTH208
        with contextlib.suppress(OSError):
            last = _content(fd, LAST)
        with contextlib.suppress(FileNotFoundError):
            data = _content(fd, FILE)
    except OSError as problem:
        error = problem.strerror or str(problem)
    finally:
        os.close(fd)
    kept = tuple(sorted(name for name in names if name.startswith((DAMAGED, FOREIGN))))
    return True, data, error, last, kept


def _content(directory: int, name: str) -> bytes:
    # opening a pipe would wait for its writer
    fd = open_file(directory, name, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        return file.read(_LARGEST)


def _rewrite(directory: str, data: bytes, keep: str) -> None:
    """Replaces the file; the previous one gets the name keep. Raises OSError, and the previous file
    is then still there."""
    with _opened(directory, create=True) as fd:
        files.replace(
            fd,
            FILE,
            [data],
            0o600,
            synced=True,
            part=f".{FILE}.new",
            before=functools.partial(keep_as, fd, FILE, keep) if keep else None,
        )


def _append(directory: str, data: bytes, size: int, sync: bool) -> None:
    """Appends to the file. Raises OSError, and the file is then as long as before."""
    with _opened(directory) as parent:
        fd = open_file(parent, FILE, os.O_WRONLY | os.O_APPEND)
        try:
            if os.fstat(fd).st_size != size:
                raise OSError(errno.EIO, "another process has changed it")
            if os.write(fd, data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if sync:
                os.fsync(fd)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(fd, size)
            raise
        finally:
            os.close(fd)


def _cut(directory: str, size: int) -> None:
    with _opened(directory) as parent:
        fd = open_file(parent, FILE, os.O_WRONLY)
        try:
            os.ftruncate(fd, size)
        finally:
            os.close(fd)


def _aside(directory: str, name: str) -> None:
    try:
        with _opened(directory) as fd:
            to = name if name == LAST else free_name(fd, name)
            os.rename(FILE, to, src_dir_fd=fd, dst_dir_fd=fd)
            os.fsync(fd)
    except FileNotFoundError:
        return


def _remove(directory: str) -> None:
    with _opened(directory) as fd:
        os.unlink(FILE, dir_fd=fd)


@contextlib.contextmanager
def _opened(directory: str, *, create: bool = False) -> Iterator[int]:
    fd = open_directory(Path(directory), create=create)
    try:
        yield fd
    finally:
        os.close(fd)
