"""Whether a disk is free, what is on it, and how it is made blank.

Everything that can be known of its use is looked up, to name it; what cannot (another mount
namespace, a pool that does not answer) is caught by opening it for exclusive use, which the kernel
refuses while a file system, swap, dm, md or ZFS has it or one of its partitions.
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
from zfstrace.disk import Dev, Scratch
from zfstrace.errors import TraceError, UnknownName

# As much at both ends of a disk is looked at.
_LOOK_BYTES = 1 << 20
# As much is made zero: with the labels of a pool in a partition that ZFS has made, which begins
# at 1 MiB and ends 8 MiB before the end.
_ERASE_BYTES = 16 << 20
_TIMEOUT_S = 10.0
_BLKRRPART = 0x125F
# Headings of `zpool list -v`, which have no indent.
_CLASSES = ("logs", "cache", "spare", "special", "dedup")
# An open by udev, which looks at each new disk, is over soon.
_BUSY_S = 10.0


class NotFree(TraceError):
    """The disk is in use, or not the one that was looked at."""


def inspect(path: str, root: Path = Path("/")) -> Scratch:
    """The disk at a path, as it is now; reads only. Raises UnknownName when there is no disk,
    TraceError when it cannot be read."""
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
        # what is in use is not read: it is refused anyway
        () if in_use else _data(device, entry),
    )


def erase(disk: Scratch) -> None:
    """Makes both ends zero, so that no signature is left. Raises NotFree when it is in use or
    another disk by now, and OSError when it cannot be written."""
    fd = _open(disk.device, os.O_RDWR)
    try:
        if _numbers(os.fstat(fd).st_rdev) != disk.dev or os.lseek(fd, 0, 2) != disk.size_bytes:
            raise NotFree(f"{disk.path} is not the disk any more that it was, nothing was written")
        length = min(_ERASE_BYTES, disk.size_bytes // 2)
        for start in (0, disk.size_bytes - length):
            _zero(fd, start, length)
        os.fsync(fd)
        # its partitions are gone as well; it may be one that cannot have any
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
    """For exclusive use. Raises NotFree."""
    deadline = time.monotonic() + _BUSY_S
    while True:
        try:
            return os.open(device, flags | os.O_EXCL | os.O_CLOEXEC)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            if time.monotonic() > deadline:
                raise NotFree(f"{device} is in use by now, nothing was written") from None
        time.sleep(0.2)


def _dev(path: str, device: str) -> Dev:
    try:
        found = Path(device).stat()
    except OSError as error:
        raise UnknownName(f"{path}: {error.strerror}, name a disk") from None
    if not stat.S_ISBLK(found.st_mode):
        raise UnknownName(f"{path} is no disk, name one like /dev/sdx")
    return _numbers(found.st_rdev)


def _numbers(dev: int) -> Dev:
    return os.major(dev), os.minor(dev)


def _text(dev: Dev) -> str:
    return f"{dev[0]}:{dev[1]}"


def _number(entry: Path) -> Dev | None:
    major, _, minor = kstat.read(entry / "dev").strip().partition(":")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else None


def _in_use(root: Path, entry: Path, whole: Path, device: str) -> str | None:
    """By what, in words."""
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
        raise TraceError(f"{device} cannot be read, run as root") from None
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
    """The numbers of each mounted disk; btrfs and the like have others, so the source counts,
    too."""
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
                yield _numbers(found.st_rdev), where


def _swaps(root: Path) -> list[str]:
    lines = kstat.read(root / "proc/swaps").split("\n")[1:]
    return [os.path.realpath(mounts.unescape(line.split()[0])) for line in lines if line.split()]


def _loops(root: Path) -> Iterator[tuple[str, str]]:
    """Loop devices, and the file or disk behind each: they do not ask for exclusive use."""
    for loop in _list(root / "sys/block"):
        behind = kstat.read(loop / "loop/backing_file").strip()
        if behind:
            yield loop.name, os.path.realpath(behind)


def _pool_of(devices: set[str]) -> str | None:
    """The imported pool that has one of them; None also when zpool(8) does not answer."""
    pool = None
    for line in processes.output(["zpool", "list", "-v", "-H", "-P", "-L"], _TIMEOUT_S).split("\n"):
        words = line.split("\t")
        if words[0] and not (words[0].strip() in _CLASSES and words[1:2] == ["-"]):
            pool = words[0]
        elif len(words) > 1 and words[1] in devices:
            return pool
    return None


def _data(device: str, entry: Path) -> tuple[str, ...]:
    """Signatures on it and on its partitions; what has none but is not zero is data, too."""
    found: dict[str, None] = {}
    for part in [entry, *_partitions(entry)]:
        for signature in _signatures(f"/dev/{part.name}"):
            found[signature] = None
    if not found and not _zero_at_ends(device):
        found["data of an unknown kind"] = None
    return tuple(found)


def _signatures(device: str) -> list[str]:
    """Raises TraceError when that cannot be told."""
    try:
        done = processes.run(["wipefs", "--no-act", "--json", "--", device], _TIMEOUT_S)
        if done.status:
            raise ValueError(f"it ended with {processes.how_ended(done.status)}")
        said = json.loads(done.out or "{}")
    except FileNotFoundError:
        raise TraceError("wipefs is not there, install util-linux") from None
    except (OSError, ValueError) as error:
        raise TraceError(f"wipefs cannot tell what is on {device}: {error}") from None
    return parse_signatures(said)


def parse_signatures(said: object) -> list[str]:
    """In words, from the JSON of wipefs(8), which is empty when there are none."""
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
