"""What must be known of a disk before it may be erased."""

from __future__ import annotations

from dataclasses import dataclass

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
