"""The pools and file systems that a benchmark makes on scratch disks, and takes away again.

Only what was made here is ever destroyed: a pool by its name and guid. Nothing here waits without
a limit, since a disk may fail at any time and a command then hangs in the kernel.
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
# A file system just used may be looked at by others for a moment.
_BUSY_S = 10.0
_VOLUME_SHARE = 2
_HANGS = "does not end"


@dataclass(frozen=True)
class Target:
    """Where to measure: a directory or, for raw devices, a disk. pool is None without ZFS."""

    path: Path
    pool: str | None = None


@dataclass
class Made:
    """What is there of a row, to be taken away in reverse; left says what could not be."""

    host: Host
    directory: Path | None = None
    mounted: bool = False
    pool: str | None = None
    guid: str = ""
    devices: tuple[str, ...] = ()
    left: list[str] = field(default_factory=list)

    def stuck(self) -> str:
        """Why nothing can be written to the pool or file system; "" when nothing is known."""
        for device in self.devices:
            if not Path(device).exists():
                return f"{device} is gone"
        state = self.host.pool_state(self.pool) if self.pool else ""
        return f"the pool is {state}" if state in WRITES_BLOCKED else ""

    def undo(self) -> None:
        """Takes all away. Never raises."""
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
            # the command would hang, and while it does all others wait, on any pool
            self.left.append(
                f"pool {pool}, which cannot be destroyed since {why}: commands on it may hang, "
                "and the next boot comes without it"
            )
            return
        if _guid(pool) != self.guid:
            if pool in self.host.pools():
                self.left.append(
                    f"pool {pool} does not answer, or is not the one that was created: "
                    f"see `zpool status {pool}`"
                )
            return
        deadline = time.monotonic() + _BUSY_S
        while error := _run(["zpool", "destroy", "-f", "--", pool], _DESTROY_S):
            if time.monotonic() > deadline or self.stuck():
                self.left.append(f"pool {pool} is still there ({error}): `zpool destroy {pool}`")
                return
            time.sleep(0.5)
        self.pool = None


def make(
    row: ReportRow, host: Host, disks: Sequence[Scratch], slog: Scratch | None, made: Made
) -> Target:
    """Makes what a row is measured on; made gets each thing before it is there. Raises
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
    # with failmode=continue its state would be ONLINE also when it is suspended
    # (spa_state_to_name()), and an fsync would hang all the same
    words = ["-o", f"ashift={max(12, ashift)}", "-o", "cachefile=none", "-o", "failmode=wait"]
    zvol = row.kind == "zvol"
    words += ["-O", "mountpoint=none" if zvol else f"mountpoint={made.directory}"]
    for name, value in {"atime": "off", **({} if zvol else row.dataset)}.items():
        words += ["-O", f"{name}={value}"]
    words += ["--", pool, *(disk.device for disk in data), *(["log", log.device] if log else [])]
    # without -f: what is in use after all, zpool(8) refuses
    error = _run(["zpool", "create", *words], _MAKE_S)
    made.guid = _guid(pool)
    if made.guid:
        made.pool = pool
    elif _HANGS in error:
        made.left.append(f"pool {pool} may appear later: `zpool destroy {pool}`")
    if error:
        raise BenchFailed(f"the pool cannot be created: {error}")
    return pool


def _guid(pool: str) -> str:
    """ "" when there is no such pool."""
    return processes.output(
        ["zpool", "get", "-H", "-o", "value", "guid", "--", pool], _LIST_S
    ).strip()


def _volume(row: ReportRow, pool: str) -> str:
    said = processes.output(
        ["zfs", "get", "-Hpo", "value", "available", "--", pool], _LIST_S
    ).strip()
    size = (int(said) if said.isdigit() else 0) // _VOLUME_SHARE >> 20 << 20
    words = [word for name, value in row.dataset.items() for word in ("-o", f"{name}={value}")]
    # sparse, so that nothing is reserved
    error = _run(["zfs", "create", "-s", *words, "-V", str(size), "--", f"{pool}/volume"], _MAKE_S)
    if error:
        raise BenchFailed(f"the volume cannot be created: {error}")
    device = f"/dev/zvol/{pool}/volume"
    deadline = time.monotonic() + _MAKE_S
    while not Path(device).exists():
        if time.monotonic() > deadline:
            raise BenchFailed(f"{device} does not appear, is udev running?")
        time.sleep(0.1)
    return device


def _mount(device: str, directory: Path, made: Made) -> None:
    """An ext4 with its tables written, so that nothing is done behind the tests' back."""
    lazy = "lazy_itable_init=0,lazy_journal_init=0"
    for words in (
        ["mkfs.ext4", "-q", "-F", "-E", lazy, "--", device],
        ["mount", "-t", "ext4", "-o", "noatime", "--", device, str(directory)],
    ):
        error = _run(words, _MAKE_S)
        made.mounted = directory.is_mount()
        if error:
            raise BenchFailed(f"ext4 cannot be made on {device}: {error}")


def _run(words: Sequence[str], limit_s: float) -> str:
    """ "" when the command has ended well, otherwise what is wrong. A Ctrl-C does not reach it:
    what it makes is taken away by us."""
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
    """What a row is measured on, for the time of the body; left gets what could not be taken
    away. Raises BenchFailed."""
    made = Made(host)
    try:
        yield make(row, host, disks, slog, made), made
    finally:
        made.undo()
        left += made.left


def leftovers(host: Host) -> list[str]:
    """Pools of runs that did not come to their end, in words."""
    return [
        f"pool {name} is of a `zfstune bench` that did not end (or still runs): "
        f"`zpool destroy {name}` removes it"
        for name in host.pools()
        if name.startswith(PREFIX)
    ]
