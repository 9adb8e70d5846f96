"""The properties of disks that matter to pools."""

from __future__ import annotations

from dataclasses import dataclass


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
