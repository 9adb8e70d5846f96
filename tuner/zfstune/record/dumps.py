"""The dump directory: incident files, the ring of the previous process, a lock, the socket.

It is opened once, at the start, and all files are reached from its descriptor: a path could lead
through a pool that hangs. For the same reason it is never on ZFS.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import socket
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from zfstrace import disk, files
from zfstrace.host import Host
from zfstrace.types import SCHEMA, Json
from zfstune.changes.paths import INCIDENTS
from zfstune.changes.state_dir import open_directory, open_file
from zfstune.errors import NotPossible
from zfstune.incident.times import ns_of
from zfstune.record.ring import Chunk, chunk_of, encode, members
from zfstune.term.units import SECOND

SAVED, SOCKET = "recorded.jsonl.gz", "record.sock"
_LOCK, _AUTOMATIC, _PART = "record.lock", "automatic", ".part"
_INCIDENT = re.compile(r"incident-.+\.jsonl\.gz")
KEPT = 5
LARGEST = 20_000_000
# Of a saved ring when it is read: more than a ring can have.
_MOST_TEXT = 80 << 20
_ELSEWHERE = f"name a directory on a tmpfs by --dump-dir, such as {INCIDENTS}"


@dataclass(frozen=True)
class Part:
    """The chunks that a file will have, and how many records of older ones find no room in it."""

    chunks: Sequence[Chunk]
    left_out: int = 0

    @property
    def records(self) -> int:
        return sum(chunk.records for chunk in self.chunks)


def fitting(chunks: Sequence[Chunk], largest: int = LARGEST) -> Part:
    """The newest chunks that fit into a file of that size."""
    size, first = 0, len(chunks)
    # a header of a host with many pools and parameters takes less than 64 KiB
    while first and size + len(chunks[first - 1].data) <= largest - (64 << 10):
        first -= 1
        size += len(chunks[first].data)
    return Part(chunks[first:], sum(chunk.records for chunk in chunks[:first]))


def pieces(header: Json, part: Part) -> Iterator[bytes]:
    """An incident file."""
    end = {"schema": SCHEMA, "type": "end", "records": part.records, "left_out": part.left_out}
    yield chunk_of([encode(header)], 0, 0, 0).data
    yield from (chunk.data for chunk in part.chunks)
    yield chunk_of([encode(end)], 0, 0, 0).data


def file_name(host: str, wall_ns: int) -> str:
    """incident-HOST-20261127T031500Z.jsonl.gz; the host's name is one that a file may have."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", host).strip(".-")[:64] or "host"
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(wall_ns // SECOND))
    return f"incident-{name}-{stamp}.jsonl.gz"


class Dumps:
    """The directory of one recorder, from open() to close()."""

    def __init__(self, path: str | Path) -> None:
        # as the person named it, but not relative: a service may have another directory
        self.path = Path(path).absolute()
        self._fd = self._lock = -1

    @property
    def socket(self) -> Path:
        return self.path / SOCKET

    @property
    def opened(self) -> bool:
        return self._fd >= 0

    def open(self, host: Host) -> None:
        """Makes the directory, with mode 0700, if it is not there. Raises NotPossible if it is on
        ZFS, if others may write there or replace it, or if another recorder uses it."""
        try:
            self._refuse_zfs(host, disk.dev_of(self._nearest()))
            self._fd = open_directory(self.path, create=True)
            # the socket is made by its path
            files.require_private(self.path)
            self._refuse_zfs(host, disk.numbers(os.fstat(self._fd).st_dev))
            self._lock = open_file(self._fd, _LOCK, os.O_RDWR | os.O_CREAT)
        except NotPossible:
            self.close()
            raise
        except OSError as error:
            self.close()
            raise NotPossible(f"cannot use {self.path}: {error.strerror}", _ELSEWHERE) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise NotPossible(
                f"cannot use {self.path}: another recorder uses it",
                "see `zfstune record status`, or give this one a --dump-dir of its own",
            ) from None

    def _nearest(self) -> Path:
        """The directory, or the first above it that exists."""
        return next(one for one in (self.path, *self.path.parents) if one.exists())

    def _refuse_zfs(self, host: Host, dev: disk.Dev) -> None:
        dataset = host.dataset_name("", 0, dev)
        if dataset:
            raise NotPossible(
                f"cannot use {self.path}: it is on ZFS ({dataset}), and a pool that hangs would "
                "hold up its own recorder",
                _ELSEWHERE,
            )

    def close(self) -> None:
        """Gives the directory up. May be called again."""
        for fd in (self._lock, self._fd):
            if fd >= 0:
                os.close(fd)
        self._fd = self._lock = -1

    def write(self, name: str, header: Json, part: Part) -> Path:
        """Writes an incident file, and removes the oldest beyond KEPT. Raises OSError."""
        name = self._free(name)
        self._replace(name, header, part)
        # after the clock was set back the new one may have the oldest time
        others = [one for one in self.names() if one != name]
        for old in others[KEPT - 1 :]:
            with contextlib.suppress(OSError):
                os.unlink(old, dir_fd=self._fd)
        return self.path / name

    def _free(self, name: str) -> str:
        """The name; for a second dump within one second, one with a number."""
        stem = name.removesuffix(".jsonl.gz")
        taken, number, free = set(os.listdir(self._fd)), 1, name  # noqa: PTH208
        while free in taken:
            number += 1
            free = f"{stem}-{number}.jsonl.gz"
        return free

    def _replace(self, name: str, header: Json, part: Part) -> None:
        """Raises OSError; a part of a file does not stay."""
        files.replace(self._fd, name, pieces(header, part), 0o600, synced=False, part=_PART)

    def names(self) -> list[str]:
        """The incident files, newest first."""
        found = []
        for name in os.listdir(self._fd):  # noqa: PTH208
            with contextlib.suppress(OSError):
                status = os.stat(name, dir_fd=self._fd, follow_symlinks=False)
                if _INCIDENT.fullmatch(name) and stat.S_ISREG(status.st_mode):
                    found.append((status.st_mtime_ns, name))
        return [name for _, name in sorted(found, reverse=True)]

    def anonymous(self, header: Json, part: Part) -> int:
        """A descriptor of such a file that has no name, to be read from its beginning. Raises
        OSError."""
        # of a process that was killed
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_PART, dir_fd=self._fd)
        fd = os.open(
            _PART, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=self._fd
        )
        try:
            os.unlink(_PART, dir_fd=self._fd)
            for piece in pieces(header, part):
                rest = memoryview(piece)
                while rest:
                    rest = rest[os.write(fd, rest) :]
            os.lseek(fd, 0, os.SEEK_SET)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def save(self, header: Json, part: Part) -> None:
        """Keeps a ring for the next process. Raises OSError."""
        self._replace(SAVED, header, part)

    def load(self, ahead: int) -> list[Chunk]:
        """The ring that the previous process saved; [] without one. The sums in the file prove that
        it is as it was written. Raises ValueError if it is not, and OSError."""
        try:
            fd = open_file(self._fd, SAVED, os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError:
            return []
        with os.fdopen(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise ValueError("it is no file")
            data = file.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise ValueError("it is too large")
        parts = list(members(data, _MOST_TEXT))
        if len(parts) < 2 or json.loads(parts[-1][1]).get("type") != "end":
            raise ValueError("it is cut short")
        return [_chunk(packed, text, ahead) for packed, text in parts[1:-1]]

    def automatic_ns(self) -> int | None:
        """When the last automatic dump was written, ns since 1970; None if never."""
        try:
            return os.stat(_AUTOMATIC, dir_fd=self._fd, follow_symlinks=False).st_mtime_ns
        except OSError:
            return None

    def mark_automatic(self, wall_ns: int) -> None:
        """Remembers that, also for the next process."""
        with contextlib.suppress(OSError):
            fd = open_file(self._fd, _AUTOMATIC, os.O_WRONLY | os.O_CREAT)
            try:
                os.utime(fd, ns=(wall_ns, wall_ns))
            finally:
                os.close(fd)

    def unlink_socket(self) -> None:
        """Of this recorder, or of one that was killed: the lock tells that it has ended."""
        with contextlib.suppress(OSError):
            os.unlink(SOCKET, dir_fd=self._fd)


def _chunk(packed: bytes, text: bytes, ahead: int) -> Chunk:
    """Raises ValueError."""
    lines = text.split(b"\n")[:-1]
    if not lines:
        raise ValueError("it has an empty chunk")
    first, last = json.loads(lines[0]), json.loads(lines[-1])
    begin, end = ns_of(first["time"]), ns_of(last["time"])
    if begin is None or end is None:
        raise ValueError("it has a chunk without a time")
    begin -= first.get("duration_ns") or 0
    return Chunk(packed, min(begin, end), max(begin, end), len(lines), len(text), ahead)


def host_name() -> str:
    """Of this machine; no name service is asked."""
    return socket.gethostname()
