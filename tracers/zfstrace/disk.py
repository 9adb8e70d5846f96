"""The properties of disks that matter to pools."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Disk:
    """None means unknown. volatile: it reports a write cache that loses its data in a power
    failure; disks with power loss protection usually report none."""

    logical_bytes: int | None = None
    physical_bytes: int | None = None
    rotational: bool | None = None
    volatile: bool | None = None


# A device number: major, minor.
Dev = tuple[int, int]


def dev_of(path: str | Path) -> Dev:
    """The device number of the file system that holds a path. Raises OSError."""
    return numbers(Path(path).stat().st_dev)


def numbers(device: int) -> Dev:
    """Of a st_dev or st_rdev. On FreeBSD those of ZFS may have the top bit set: stat(2) of Python
    takes such a number as negative, and os.major() refuses negative ones."""
    device %= 1 << 64
    return os.major(device), os.minor(device)


@dataclass(frozen=True)
class Scratch:
    """A disk or partition that is to be erased.

    path is as given, device the kernel's name (``/dev/dm-0``), disk the whole disk that it is on.
    in_use says what uses it, None when it is free. data lists the signatures and other data found
    on it; without any, it has zeros at both ends.
    """

    path: str
    device: str
    dev: Dev
    disk: Dev
    size_bytes: int
    sector_bytes: int
    model: str
    in_use: str | None
    data: tuple[str, ...]
