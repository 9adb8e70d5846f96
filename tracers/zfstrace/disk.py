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
