"""Finds out whether a disk is free and what is on it, and erases it.

Every use that can be looked up is named; the rest (another mount namespace, a pool that does not
answer) is caught by opening the disk for exclusive use, which the kernel refuses while a file
system, swap, dm, md or ZFS holds it or one of its partitions.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from zfs_linux import kstat, mounts
from zfstrace import processes
from zfstrace.disk import Dev, Scratch, numbers
from zfstrace.errors import TraceError, UnknownName

# Read at either end of a disk.
_LOOK_BYTES = 1 << 20
# Zeroed at either end. This covers the labels of a pool in a partition made by ZFS, which begins at
# 1 MiB and ends 8 MiB before the end.
_ERASE_BYTES = 16 << 20
_TIMEOUT_S = 10.0
_BLKRRPART = 0x125F
# Headings of `zpool list -v`, which have no indent.
_CLASSES = ("logs", "cache", "spare", "special", "dedup")
# udev opens each new disk for a moment.
BUSY_S = 10.0


class NotFree(TraceError):
    """The disk is in use, or no longer the one that was inspected."""


def inspect(path: str, root: Path = Path("/")) -> Scratch:
    """The disk at a path, as it is now; reads only. Raises UnknownName if it is not a disk,
    TraceError if it cannot be read."""
    device = os.path.realpath(path)
    dev = _dev(path, device)
    entry = Path(os.path.realpath(root / "sys/dev/block" / _text(dev)))
    whole = entry.parent if (entry / "partition").exists() else entry
    sectors = kstat.read_number(entry / "size") or 0
    in_use = _in_use(root, entry, whole, device)
    return Scratch(
        path,
        device,
        dev,
        _number(whole) or dev,
        sectors * 512,
        kstat.read_number(whole / "queue/physical_block_size") or 512,
        " ".join(
            kstat.read(whole / "device" / name).strip() for name in ("vendor", "model")
        ).strip()
        or kstat.read(whole / "dm/name").strip(),
        in_use,
        # a disk in use is refused anyway
        () if in_use else _data(device, entry),
    )


def erase(disk: Scratch) -> None:
    """Zeroes both ends, which removes all signatures. Raises NotFree if it is now in use or another
    disk, OSError if it cannot be written."""
    fd = _open(disk.device, os.O_RDWR)
    try:
        if numbers(os.fstat(fd).st_rdev) != disk.dev or os.lseek(fd, 0, 2) != disk.size_bytes:
            raise NotFree(f"{disk.path} is no longer the same disk: nothing was written")
        length = min(_ERASE_BYTES, disk.size_bytes // 2)
        for start in (0, disk.size_bytes - length):
            _zero(fd, start, length)
        os.fsync(fd)
        # forget its partitions; fails on a device that cannot have any
        with contextlib.suppress(OSError):
            fcntl.ioctl(fd, _BLKRRPART)
    finally:
        os.close(fd)
    processes.output(["udevadm", "settle", f"--timeout={_TIMEOUT_S:.0f}"], 2 * _TIMEOUT_S)


def _zero(fd: int, start: int, length: int) -> None:
    zeros = bytes(1 << 20)
    while length:
        written = os.pwrite(fd, zeros[: min(length, len(zeros))], start)
        start, length = start + written, length - written


def _open(device: str, flags: int) -> int:
    """Opens it for exclusive use. Raises NotFree."""
    deadline = time.monotonic() + BUSY_S
    while True:
        try:
            return os.open(device, flags | os.O_EXCL | os.O_CLOEXEC)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            if time.monotonic() > deadline:
                raise NotFree(f"{device} is now in use: nothing was written") from None
        time.sleep(0.2)


def _dev(path: str, device: str) -> Dev:
    try:
        found = Path(device).stat()
    except OSError as error:
        raise UnknownName(f"{path}: {error.strerror}", "name a disk such as /dev/sdx") from None
    if not stat.S_ISBLK(found.st_mode):
        raise UnknownName(f"{path} is not a disk", "name a disk such as /dev/sdx")
    return numbers(found.st_rdev)


def _text(dev: Dev) -> str:
    return f"{dev[0]}:{dev[1]}"


def _number(entry: Path) -> Dev | None:
    major, _, minor = kstat.read(entry / "dev").strip().partition(":")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else None


def _in_use(root: Path, entry: Path, whole: Path, device: str) -> str | None:
    """What uses it, as the predicate of a sentence ("is mounted on /"); None if it is free."""
    if entry.name.startswith("zd"):
        return "is a volume of a pool"
    if kstat.read_number(entry / "ro"):
        return "is read-only"
    parts = [entry, *_partitions(entry)]
    names = {f"/dev/{part.name}": part for part in parts}
    devs = {_number(part) for part in parts}
    for dev, where in _mounted(root):
        if dev in devs:
            return f"is mounted on {where}"
    for swap in _swaps(root):
        if swap in names:
            return "is used for swap"
    for part in parts:
        holders = sorted(holder.name for holder in _list(part / "holders"))
        if holders:
            named = [kstat.read(root / f"sys/block/{h}/dm/name").strip() or h for h in holders]
            return f"is used by {', '.join(named)}"
    for loop in _loops(root):
        if loop[1] in names:
            return f"is behind {loop[0]}"
    pool = _pool_of(set(names))
    if pool:
        return f"is part of the pool {pool}"
    return _exclusively(device)


def _exclusively(device: str) -> str | None:
    try:
        os.close(_open(device, os.O_RDONLY))
    except NotFree:
        return "is in use (a mount elsewhere, a pool, RAID or the like)"
    except PermissionError:
        raise TraceError(f"cannot read {device}: permission denied", "run as root") from None
    except OSError as error:
        return f"cannot be opened ({error.strerror})"
    return None


def _partitions(entry: Path) -> list[Path]:
    return [child for child in _list(entry) if (child / "partition").exists()]


def _list(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []


def _mounted(root: Path) -> Iterator[tuple[Dev, str]]:
    """The device number of each mounted disk, and where it is mounted. The source of the mount is
    looked at, too: btrfs and the like have device numbers of their own."""
    for line in kstat.read(root / "proc/self/mountinfo").split("\n"):
        front, separator, back = line.partition(" - ")
        fields, tail = front.split(" "), back.split(" ")
        if not separator or len(fields) < 6:
            continue
        where = mounts.unescape(fields[4])
        major, _, minor = fields[2].partition(":")
        if major.isdigit() and minor.isdigit():
            yield (int(major), int(minor)), where
        source = mounts.unescape(tail[1]) if len(tail) > 1 else ""
        if source.startswith("/dev/"):
            try:
                found = Path(source).stat()
            except OSError:
                continue
            if stat.S_ISBLK(found.st_mode):
                yield numbers(found.st_rdev), where


def _swaps(root: Path) -> list[str]:
    lines = kstat.read(root / "proc/swaps").split("\n")[1:]
    return [os.path.realpath(mounts.unescape(line.split()[0])) for line in lines if line.split()]


def _loops(root: Path) -> Iterator[tuple[str, str]]:
    """Loop devices, and the file or disk behind each, which they do not open exclusively."""
    for loop in _list(root / "sys/block"):
        behind = kstat.read(loop / "loop/backing_file").strip()
        if behind:
            yield loop.name, os.path.realpath(behind)


def _pool_of(devices: set[str]) -> str | None:
    """The imported pool that has one of them; None if none has, or zpool(8) does not answer."""
    pool = None
    for line in processes.output(["zpool", "list", "-v", "-H", "-P", "-L"], _TIMEOUT_S).split("\n"):
        words = line.split("\t")
        if words[0] and not (words[0].strip() in _CLASSES and words[1:2] == ["-"]):
            pool = words[0]
        elif len(words) > 1 and words[1] in devices:
            return pool
    return None


def _data(device: str, entry: Path) -> tuple[str, ...]:
    """Signatures on it and its partitions; if there are none but it is not zero, that is data."""
    found: dict[str, None] = {}
    for part in [entry, *_partitions(entry)]:
        for signature in _signatures(f"/dev/{part.name}"):
            found[signature] = None
    if not found and not _zero_at_ends(device):
        found["data of an unknown kind"] = None
    return tuple(found)


def _signatures(device: str) -> list[str]:
    """Raises TraceError if wipefs(8) fails."""
    try:
        done = processes.run(["wipefs", "--no-act", "--json", "--", device], _TIMEOUT_S)
        if done.status:
            raise ValueError(f"wipefs ended with {processes.how_ended(done.status)}")
        said = json.loads(done.out or "{}")
    except FileNotFoundError:
        raise TraceError("wipefs is not installed", "install util-linux") from None
    except (OSError, ValueError) as error:
        raise TraceError(f"cannot tell what is on {device}: {error}") from None
    return parse_signatures(said)


def parse_signatures(said: object) -> list[str]:
    """Kinds and labels, from the JSON of wipefs(8), which is empty if there are none."""
    entries = said.get("signatures") if isinstance(said, dict) else None
    found = []
    for one in entries if isinstance(entries, list) else []:
        if isinstance(one, dict):
            label = one.get("label")
            kind = {"zfs_member": "ZFS", "gpt": "GPT", "PMBR": "GPT", "dos": "MBR"}.get(
                str(one.get("type")), str(one.get("type"))
            )
            found.append(f"{kind} {label}" if label else kind)
    return list(dict.fromkeys(found))


def _zero_at_ends(device: str) -> bool:
    fd = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.lseek(fd, 0, 2)
        length = min(_LOOK_BYTES, size)
        return not any(os.pread(fd, length, start).strip(b"\0") for start in (0, size - length))
    finally:
        os.close(fd)
