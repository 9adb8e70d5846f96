"""Disks as /sys/class/block describes them."""

from __future__ import annotations

import os
from pathlib import Path

from zfs_linux import kstat
from zfstrace.disk import Disk

# Documentation/ABI/stable/sysfs-block in the kernel's source; a cache that survives a power failure
# is also "write through".
_VOLATILE = {"write back": True, "write through": False}

# virtio_blk, xen-blkfront, and SCSI disks of hypervisors report 1 whatever is behind them
_VIRTUAL = ("vd", "xvd")
_VENDORS = ("QEMU", "VMware", "VMware,", "Msft", "Google")


def inspect(path: str, sys: Path) -> Disk | None:
    """A disk or partition by its path, which may be a symbolic link; None for anything else."""
    real = os.path.realpath(path)
    name = Path(real).name
    entry = sys / "class/block" / name
    # a vdev may also be a file, of any name
    if not real.startswith("/dev/") or not entry.is_dir():
        return None
    if (entry / "partition").exists():
        # a partition shares the queue of its disk, its parent directory
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
