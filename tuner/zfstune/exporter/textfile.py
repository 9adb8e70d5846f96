"""Metrics in a file for the textfile collector of node_exporter."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from zfstrace import disk
from zfstrace.files import open_directory
from zfstrace.host import Host
from zfstune.errors import NotPossible, UsageError
from zfstune.term.log import say as say_on_stderr

# The collector runs as a user of its own, and the umask of a service may be 077.
MODE = 0o644


class TextFile:
    """A file that holds the metrics of the last interval, or does not exist.

    node_exporter hands out what it finds with the time of the scrape: old values look like those of
    a host on which nothing happens. So the file is removed at a clean end, and when it cannot be
    replaced. node_textfile_mtime_seconds, which node_exporter adds, does not make up for that:
    nobody's query of our metrics looks at it. It is for the end that nobody can clean up after, a
    kill or a hang, and for that an alert on it stays right. A clean end takes its series away, too:
    ZfstuneDown sees that by metrics that a host had, and has no more while node_exporter answers.

    failed counts the writes that failed; say() gets a line when that begins and when it ends. Not
    for several threads at once. Raises UsageError at start.
    """

    def __init__(self, path: Path, say: Callable[[str], None] = say_on_stderr) -> None:
        # a daemon may change its directory
        self.path = path.absolute()
        self.failed = 0
        self._say = say
        self._failing = ""
        self._wrote = False
        if path.suffix != ".prom":
            raise UsageError(
                f"cannot write {path}: node_exporter reads only files whose names end in .prom",
                "write the name with .prom",
            )
        if not self.path.parent.is_dir():
            raise UsageError(
                f"cannot write {path}: there is no directory {path.parent}",
                "make it, or name that of --collector.textfile.directory",
            )
        if self.path.is_dir():
            raise UsageError(f"cannot write {path}: it is a directory", "name a file")

    def write(self, data: bytes) -> bool:
        """Replaces the file; returns whether it could. Raises nothing: the next call tries again.
        Not synced: after a crash of the system these values are worth nothing."""
        try:
            self._replace(data)
        except OSError as error:
            self.failed += 1
            self._remove()
            self._now(error.strerror or str(error))
            return False
        self._wrote = True
        self._now("")
        return True

    def close(self) -> None:
        """Removes the file, at the end of the exporter. One that was never written is another's."""
        if self._wrote:
            self._remove()

    def _now(self, why: str) -> None:
        """Says when writes begin to fail, fail for another reason, or work again."""
        if why != self._failing:
            self._say(
                f"cannot write {self.path}: {why}" if why else f"{self.path} is written again"
            )
        self._failing = why

    def _replace(self, data: bytes) -> None:
        # not *.prom, which is read; fixed, so that a killed exporter leaves one file at most
        part = f".{self.path.name[:200]}.part"
        directory = open_directory(self.path.parent)
        try:
            _unlink(part, directory)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(part, flags, MODE, dir_fd=directory)
            try:
                _fill(fd, data)
                os.rename(part, self.path.name, src_dir_fd=directory, dst_dir_fd=directory)
            except BaseException:
                with contextlib.suppress(OSError):
                    _unlink(part, directory)
                raise
        finally:
            os.close(directory)

    def _remove(self) -> None:
        with contextlib.suppress(OSError):
            directory = open_directory(self.path.parent)
            try:
                _unlink(self.path.name, directory)
            finally:
                os.close(directory)


def refuse_zfs(path: Path, host: Host) -> None:
    """Raises NotPossible for a file whose directory is on ZFS."""
    try:
        dataset = host.dataset_name("", 0, disk.dev_of(path.parent))
    except OSError as error:
        raise NotPossible(f"cannot write {path}: {error.strerror}", "name another FILE") from None
    if dataset:
        raise NotPossible(
            f"cannot write {path}: it is on ZFS ({dataset}), and a pool that hangs would hold up "
            "the exporter",
            "name a file on a tmpfs, and its directory for --collector.textfile.directory",
        )


def _fill(fd: int, data: bytes) -> None:
    """Writes all of a file, sets its mode, and closes it."""
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(fd, left) :]
        os.fchmod(fd, MODE)
    finally:
        os.close(fd)


def _unlink(name: str, directory: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)
