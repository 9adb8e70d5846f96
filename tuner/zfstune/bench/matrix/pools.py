"""The pools and file systems that a benchmark creates on scratch disks, and removes.

It destroys only pools that it created, by name and guid. Every wait is limited: a disk may fail at
any time, and a command then hangs in the kernel.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from zfstrace import processes
from zfstrace.disk import Scratch
from zfstrace.host import Host
from zfstrace.types import WRITES_BLOCKED
from zfstune.bench.load import BenchFailed
from zfstune.bench.matrix.rows import ReportRow

PREFIX = "zfstune-bench-"
_MAKE_S = 120.0
_LIST_S = 10.0
_DESTROY_S = 60.0
_UNMOUNT_S = 20.0
# For as long another process may briefly use a file system that we have just used.
_BUSY_S = 10.0
_VOLUME_SHARE = 2
_HANGS = "does not end"


@dataclass(frozen=True)
class Target:
    """Where to measure: a directory, or a raw disk. pool is None without ZFS."""

    path: Path
    pool: str | None = None


@dataclass
class Made:
    """What was created for a row; undo() removes it, and left gets what it could not remove."""

    host: Host
    directory: Path | None = None
    mounted: bool = False
    pool: str | None = None
    guid: str = ""
    devices: tuple[str, ...] = ()
    left: list[str] = field(default_factory=list)

    def stuck(self) -> str:
        """Why nothing can be written to the pool or file system; "" if no reason is known."""
        for device in self.devices:
            if not Path(device).exists():
                return f"{device} is gone"
        state = self.host.pool_state(self.pool) if self.pool else ""
        return f"the pool is {state}" if state in WRITES_BLOCKED else ""

    def undo(self) -> None:
        """Removes everything, in reverse. Never raises."""
        if self.mounted and self.directory:
            self._unmount(self.directory)
        if self.pool:
            self._destroy(self.pool)
        if self.directory and not (self.mounted or self.pool):
            try:
                self.directory.rmdir()
            except FileNotFoundError:
                pass
            except OSError as error:
                self.left.append(f"directory {self.directory} ({error.strerror})")

    def _unmount(self, directory: Path) -> None:
        deadline = time.monotonic() + _BUSY_S
        while error := _run(["umount", "--", str(directory)], _UNMOUNT_S):
            if time.monotonic() > deadline:
                self.left.append(f"{directory} is still mounted ({error})")
                return
            time.sleep(0.5)
        self.mounted = False

    def _destroy(self, pool: str) -> None:
        why = self.stuck()
        if why:
            # the command would hang, and every other command, on any pool, would wait for it
            self.left.append(
                f"pool {pool} cannot be destroyed: {why}; commands on it may hang, and it is gone "
                "after a reboot"
            )
            return
        if _guid(pool) != self.guid:
            if pool in self.host.pools():
                self.left.append(
                    f"pool {pool} does not answer, or is not the one that was created; "
                    f"see `zpool status {pool}`"
                )
            else:
                self.pool = None  # somebody else has destroyed it
            return
        deadline = time.monotonic() + _BUSY_S
        while error := _run(["zpool", "destroy", "-f", "--", pool], _DESTROY_S):
            if time.monotonic() > deadline or self.stuck():
                self.left.append(
                    f"pool {pool} is still there ({error}); run `zpool destroy {pool}`"
                )
                return
            time.sleep(0.5)
        self.pool = None


def make(
    row: ReportRow, host: Host, disks: Sequence[Scratch], slog: Scratch | None, made: Made
) -> Target:
    """Creates what a row is measured on; made gets each thing before it exists. Raises
    BenchFailed."""
    first = disks[0] if "disks" in row.on else slog
    assert first is not None
    data = disks if "disks" in row.on else [first]
    log = slog if row.on == "disks+slog" else None
    made.devices = tuple(disk.device for disk in (*data, *([log] if log else [])))
    if row.kind == "raw":
        return Target(Path(first.device))
    made.directory = Path(tempfile.mkdtemp(prefix=PREFIX))
    if row.kind == "ext4":
        _mount(first.device, made.directory, made)
        return Target(made.directory)
    pool = _pool(row, data, log, made)
    if row.kind == "zvol":
        _mount(_volume(row, pool), made.directory, made)
    return Target(made.directory, pool)


def _pool(row: ReportRow, data: Sequence[Scratch], log: Scratch | None, made: Made) -> str:
    pool = f"{PREFIX}{os.urandom(3).hex()}"
    disks = [*data, *([log] if log else [])]
    ashift = max(disk.sector_bytes for disk in disks).bit_length() - 1
    # with failmode=continue a suspended pool would be ONLINE (spa_state_to_name()), although an
    # fsync hangs as well
    words = ["-o", f"ashift={max(12, ashift)}", "-o", "cachefile=none", "-o", "failmode=wait"]
    zvol = row.kind == "zvol"
    words += ["-O", "mountpoint=none" if zvol else f"mountpoint={made.directory}"]
    for name, value in {"atime": "off", **({} if zvol else row.dataset)}.items():
        words += ["-O", f"{name}={value}"]
    words += ["--", pool, *(disk.device for disk in data), *(["log", log.device] if log else [])]
    # without -f, so that zpool(8) can refuse a disk in use
    error = _run(["zpool", "create", *words], _MAKE_S)
    made.guid = _guid(pool)
    if made.guid:
        made.pool = pool
    elif _HANGS in error:
        made.left.append(f"pool {pool} may appear later; then run `zpool destroy {pool}`")
    if error:
        raise BenchFailed(f"cannot create the pool: {error}")
    return pool


def _guid(pool: str) -> str:
    """ "" if there is no such pool."""
    return processes.output(
        ["zpool", "get", "-H", "-o", "value", "guid", "--", pool], _LIST_S
    ).strip()


def _volume(row: ReportRow, pool: str) -> str:
    said = processes.output(
        ["zfs", "get", "-Hpo", "value", "available", "--", pool], _LIST_S
    ).strip()
    size = (int(said) if said.isdigit() else 0) // _VOLUME_SHARE >> 20 << 20
    words = [word for name, value in row.dataset.items() for word in ("-o", f"{name}={value}")]
    # sparse: no reservation
    error = _run(["zfs", "create", "-s", *words, "-V", str(size), "--", f"{pool}/volume"], _MAKE_S)
    if error:
        raise BenchFailed(f"cannot create the volume: {error}")
    device = f"/dev/zvol/{pool}/volume"
    deadline = time.monotonic() + _MAKE_S
    while not Path(device).exists():
        if time.monotonic() > deadline:
            raise BenchFailed(f"{device} does not appear", "see whether udev is running")
        time.sleep(0.1)
    return device


def _mount(device: str, directory: Path, made: Made) -> None:
    """Mounts a new ext4, with its tables written: the kernel shall not write them during a test."""
    lazy = "lazy_itable_init=0,lazy_journal_init=0"
    for words in (
        ["mkfs.ext4", "-q", "-F", "-E", lazy, "--", device],
        ["mount", "-t", "ext4", "-o", "noatime", "--", device, str(directory)],
    ):
        error = _run(words, _MAKE_S)
        made.mounted = directory.is_mount()
        if error:
            raise BenchFailed(f"cannot make ext4 on {device}: {error}")


def _run(words: Sequence[str], limit_s: float) -> str:
    """Why the command failed; "" if it did not. Ctrl-C does not reach it."""
    try:
        done = processes.run(words, limit_s, os.environ | {"LC_ALL": "C"})
    except TimeoutError:
        return f"`{' '.join(words[:2])}` {_HANGS}"
    except OSError as error:
        return f"{words[0]}: {error.strerror}"
    said = " ".join(done.err[:4000].split())
    return "" if done.status == 0 else said or f"{words[0]} ended with status {done.status}"


@contextlib.contextmanager
def made_for(
    row: ReportRow, host: Host, disks: Sequence[Scratch], slog: Scratch | None, left: list[str]
) -> Iterator[tuple[Target, Made]]:
    """What a row is measured on, for the time of the block; left gets what could not be removed.
    Raises BenchFailed."""
    made = Made(host)
    try:
        yield make(row, host, disks, slog, made), made
    finally:
        made.undo()
        left += made.left


def leftovers(host: Host) -> list[str]:
    """A sentence for each pool of a run that died."""
    return [
        f"pool {name} was left by another `zfstune bench`; if none is in progress, remove it with "
        f"`zpool destroy {name}`"
        for name in host.pools()
        if name.startswith(PREFIX)
    ]
