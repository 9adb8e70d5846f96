"""What a system tells of a disk, as far as it matters to a pool that is on it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Disk:
    """None stands for what is not known. volatile: it has a write cache that a power failure
    empties, as far as it tells; a cache with power loss protection is usually not reported."""

    logical_bytes: int | None = None
    physical_bytes: int | None = None
    rotational: bool | None = None
    volatile: bool | None = None


# The numbers of a device: major, minor.
Dev = tuple[int, int]


@dataclass(frozen=True)
class Scratch:
    """A disk or partition that somebody wants to have erased.

    path is as it was given, device as the kernel names it (``/dev/dm-0``), disk the whole disk
    that it is on. in_use says by what, in words; None when it is free. data are the signatures
    and whatever else is found on it; a disk that carries none has zeros at both ends.
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
