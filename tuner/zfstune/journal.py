"""The journal: which parameters were changed, from which values and by whom, written before
the change.

There are two copies of one file, in the state and in the run directory (places.py). Each
line is a checksum and a JSON object; the checksum covers the line and the checksum before it, so
that nothing can be changed, left out or put in between. What counts is the longest intact
beginning of either copy. Every write of a parameter is announced in both before it is
done, so that any one of them is enough.

Layers: `params set` makes manual ones, which end "applied" at once. A tune session is a
layer on top of them; one that was left open by a crash is undone to the state at its
beginning. What ended "applied" stays until it is reverted, to the values from before the first.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Mapping
from pathlib import Path

from zfstune.errors import NotPossible
from zfstune.journal_records import (
    RESTORED,
    VERSION,
    History,
    Layer,
    Original,
    Override,
    Record,
    decode,
    encode,
    encode_all,
)
from zfstune.paths import FILE
from zfstune.places import Places, open_directory, open_file, replace_file

LAST, DAMAGED = f"{FILE}.last", f"{FILE}.damaged"
_LARGEST = 64 << 20


class _Copy:
    """One of the two files, and whether it can still be relied on for writing."""

    def __init__(self, path: Path, directory: int | None) -> None:
        self.path, self.directory = path, directory
        self.size = 0  # of what is known to be good
        self.failed: OSError | None = None

    def read(self) -> bytes:
        if self.directory is None:
            return b""
        try:
            with os.fdopen(open_file(self.directory, FILE, os.O_RDONLY), "rb") as file:
                data = file.read(_LARGEST)
        except FileNotFoundError:
            return b""
        except OSError as error:
            self.failed = error
            return b""
        self.size = len(data)
        return data

    def rewrite(self, data: bytes) -> None:
        if self.directory is None:
            return
        try:
            replace_file(self.directory, FILE, data)
            self.size, self.failed = len(data), None
        except OSError as error:
            self.failed = error

    def append(self, line: bytes, sync: bool) -> None:
        """Raises OSError; the file is then as long as before, and takes no more."""
        if self.failed or self.directory is None:
            raise self.failed or FileNotFoundError(errno.ENOENT, "is not there")
        try:
            fd = open_file(self.directory, FILE, os.O_WRONLY | os.O_APPEND)
            try:
                if os.fstat(fd).st_size != self.size:
                    raise OSError(errno.EIO, "somebody else has changed it")
                if os.write(fd, line) != len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                if sync:
                    os.fsync(fd)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(fd, self.size)
                raise
            finally:
                os.close(fd)
        except OSError as error:
            self.failed = error
            raise
        self.size += len(line)

    def cut(self, size: int) -> None:
        """Takes back the last record."""
        if self.size > size and self.directory is not None:
            with contextlib.suppress(OSError):
                fd = open_file(self.directory, FILE, os.O_WRONLY)
                os.ftruncate(fd, size)
                os.close(fd)
            self.size = size

    def remove(self) -> None:
        if self.directory is not None:
            with contextlib.suppress(OSError):
                os.unlink(FILE, dir_fd=self.directory)
        self.size, self.failed = 0, None

    def close(self) -> None:
        if self.directory is not None:
            os.close(self.directory)
            self.directory = None


class Journal:
    """Opened by whoever holds the lock; read by anybody with the privilege."""

    def __init__(self, where: Places, *, write: bool) -> None:
        """Raises NotPossible. notes then has what a person must know of its state."""
        self.notes: list[str] = []
        self._copies = [
            _Copy(path / FILE, _directory(path, write)) for path in (where.state, where.run)
        ]
        self._state = str(where.state)
        # where a record cannot be written, go on all the same: for a restore
        self.tolerant = False
        contents = [copy.read() for copy in self._copies]
        found = [decode(data) for data in contents]
        self.records, self._last = max(found, key=lambda one: len(one[0]))
        self.history = History()
        for record in self.records:
            self.history.add(record)
        self._judge(contents, [len(records) for records, _digest in found])
        if write:
            self._repair(contents)

    @property
    def layer(self) -> Layer:
        """The one that is written to."""
        return self.history.layers[-1]

    @property
    def unreadable(self) -> bool:
        """Whether there is one of which nothing can be used."""
        failed = self.damaged or any(copy.failed for copy in self._copies)
        return failed and not self.history.layers

    def _judge(self, contents: list[bytes], lengths: list[int]) -> None:
        elsewhere = self.history.header.get("state", self._state)
        if elsewhere != self._state:
            raise NotPossible(
                f"cannot use {self._state}, parameters were changed with the state directory "
                f"{elsewhere}, set ZFSTUNE_STATE_DIR={elsewhere}"
            )
        self.damaged = False
        for copy, data, length in zip(self._copies, contents, lengths, strict=True):
            if len(data) > len(encode_all(self.records[:length])):
                self.damaged = True
                other = ", the other copy is used" if len(self.records) > length else ""
                self.notes.append(f"{copy.path} is damaged after record {length}{other}")

    def _repair(self, contents: list[bytes]) -> None:
        """Makes both copies what counts; a damaged one is kept for a look at it."""
        wanted = encode_all(self.records)
        for copy, data in zip(self._copies, contents, strict=True):
            if data == wanted:
                continue
            if self.damaged and data and copy.directory is not None:
                with contextlib.suppress(OSError):
                    replace_file(copy.directory, DAMAGED, data)
            if wanted:
                copy.rewrite(wanted)
            else:
                copy.remove()

    def _append(self, record: Record, *, sync: bool = True) -> None:
        """Raises NotPossible when a copy cannot be written, unless tolerant."""
        record = {"n": len(self.records), **record}
        line, digest = encode(record, self._last)
        problem = None
        sizes = [copy.size for copy in self._copies]
        for copy in self._copies:
            try:
                copy.append(line, sync)
            except OSError as error:
                problem = problem or f"cannot write {copy.path}, {error.strerror}"
        if problem and not self.tolerant:
            # a copy that took it is cut back: the record has not happened
            for copy, size in zip(self._copies, sizes, strict=True):
                copy.cut(size)
            raise NotPossible(f"{problem}, nothing can be changed without a journal, make room")
        self.records.append(record)
        self._last = digest
        self.history.add(record)

    def begin(
        self, kind: str, identity: str, command: str, originals: Mapping[str, Original]
    ) -> Layer:
        """A new layer, on stable storage in both copies. Raises NotPossible."""
        if not self.records:
            self._create()
        self._append(
            {
                "type": "begin",
                "kind": kind,
                "identity": identity,
                "pid": os.getpid(),
                "command": command,
                "time": now_utc(),
            }
        )
        layer = self.layer
        try:
            for name, original in originals.items():
                self.original(name, original, sync=False)
        except NotPossible:
            # nothing has begun
            self.tolerant = True
            self.end(layer, RESTORED)
            raise
        return layer

    def _create(self) -> None:
        header = {
            "n": 0,
            "type": "journal",
            "version": VERSION,
            "id": os.urandom(8).hex(),
            "state": self._state,
        }
        line, digest = encode(header, "")
        for copy in self._copies:
            copy.rewrite(line)
            if copy.failed:
                reason = copy.failed.strerror
                for other in self._copies:
                    other.remove()
                raise NotPossible(
                    f"cannot write {copy.path}, {reason}, nothing can be changed "
                    "without a journal, make room or set ZFSTUNE_STATE_DIR"
                )
        self.records, self._last = [header], digest
        self.history = History()
        self.history.add(header)

    def original(self, name: str, original: Original, *, sync: bool = True) -> None:
        """The value of a parameter before the layer's first write of it."""
        self._append(
            {
                "type": "original",
                "name": name,
                "value": original.value,
                "effective": original.effective,
            },
            sync=sync,
        )

    def intend(self, name: str, old: int, new: int) -> None:
        """To be called before each write. Raises NotPossible: then it must not be done."""
        self._append({"type": "intend", "name": name, "old": old, "new": new})

    def wrote(self, name: str, value: int) -> None:
        """The write was done. Not synced: after a power failure the value is gone, too."""
        self._append({"type": "wrote", "name": name, "value": value}, sync=False)

    def override(self, override: Override) -> None:
        self._append(
            {
                "type": "override",
                "name": override.name,
                "value": override.value,
                "pid": override.pid,
                "comm": override.comm,
                "time": override.time or now_utc(),
                "lost": override.lost,
            }
        )

    def end(self, layer: Layer, how: str) -> None:
        if layer.end != how:
            self._append({"type": "end", "layer": layer.number, "how": how, "time": now_utc()})

    def put_aside(self) -> None:
        """Nothing of it is in force any more: it becomes journal.last. Where it cannot, as on a
        disk that became read-only, the copy of the run directory stays, which says so."""
        state, run = self._copies
        if state.directory is not None and self.records:
            if state.failed:
                state.rewrite(encode_all(self.records))
            try:
                os.rename(FILE, LAST, src_dir_fd=state.directory, dst_dir_fd=state.directory)
                os.fsync(state.directory)
            except FileNotFoundError:
                pass
            except OSError:
                return
        state.remove()
        run.remove()
        self.records, self._last, self.history = [], "", History()

    def close(self) -> None:
        for copy in self._copies:
            copy.close()


def read_last(where: Places) -> History | None:
    """The journal that was put aside last. Raises NotPossible without privilege."""
    directory = _directory(where.state, create=False)
    if directory is None:
        return None
    try:
        with os.fdopen(open_file(directory, LAST, os.O_RDONLY), "rb") as file:
            records, _last = decode(file.read(_LARGEST))
    except OSError:
        return None
    finally:
        os.close(directory)
    history = History()
    for record in records:
        history.add(record)
    return history if history.layers else None


def exists(where: Places) -> bool:
    """Whether there is a journal, as far as this process may see: the cheap question."""
    for path in (where.state / FILE, where.run / FILE):
        with contextlib.suppress(OSError):
            path.lstat()
            return True
    return False


def now_utc() -> str:
    """Of now, ISO 8601 in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _directory(path: Path, create: bool) -> int | None:
    try:
        return open_directory(path, create=create)
    except FileNotFoundError:
        return None
