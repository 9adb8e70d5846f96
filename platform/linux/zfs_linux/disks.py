"""Disks as /sys/class/block has them."""

from __future__ import annotations

import os
from pathlib import Path

from zfs_linux import kstat
from zfstrace.disk import Disk

# Documentation/ABI/stable/sysfs-block in the kernel's source; "write through" is also said of a
# cache that a power failure does not empty.
_VOLATILE = {"write back": True, "write through": False}

# virtio_blk, xen-blkfront, and SCSI disks of hypervisors: they say 1 whatever is behind them
_VIRTUAL = ("vd", "xvd")
_VENDORS = ("QEMU", "VMware", "VMware,", "Msft", "Google")


def inspect(path: str, sys: Path) -> Disk | None:
    """A disk or partition by its path, which may be a symbolic link; None for anything else."""
    real = os.path.realpath(path)
    name = Path(real).name
    entry = sys / "class/block" / name
    # a pool may also be in a file, which may have any name
    if not real.startswith("/dev/") or not entry.is_dir():
        return None
    if (entry / "partition").exists():
        # a partition has the queue of its disk, in whose directory it is
        entry = Path(os.path.realpath(entry)).parent
    queue = entry / "queue"
    rotational = kstat.read_number(queue / "rotational")
    vendor = kstat.read(entry / "device/vendor").strip()
    if name.startswith(_VIRTUAL) or vendor in _VENDORS:
        rotational = None
    return Disk(
        kstat.read_number(queue / "logical_block_size"),
        kstat.read_number(queue / "physical_block_size"),
        None if rotational is None else bool(rotational),
        _VOLATILE.get(kstat.read(queue / "write_cache").strip()),
    )
