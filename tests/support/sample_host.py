"""A host with 4 GiB of memory and the defaults of ZFS 2.3, for tests of the search."""

from __future__ import annotations

from zfstune.tunables import guard

MIB = 1 << 20
GIB = 1 << 30

DEFAULTS = {
    "zfs_dirty_data_max": 411 * MIB,
    "zfs_wrlog_data_max": 822 * MIB,
    "zfs_dirty_data_sync_percent": 20,
    "zfs_delay_min_dirty_percent": 60,
    "zfs_delay_scale": 500_000,
    "zfs_txg_timeout": 5,
    "zfs_vdev_max_active": 1000,
    "zfs_vdev_sync_read_min_active": 10,
    "zfs_vdev_sync_write_min_active": 10,
    "zfs_vdev_async_read_min_active": 1,
    "zfs_vdev_scrub_min_active": 1,
    "zfs_vdev_async_write_min_active": 2,
    "zfs_vdev_async_write_max_active": 10,
    "zfs_vdev_async_write_active_min_dirty_percent": 30,
    "zfs_vdev_async_write_active_max_dirty_percent": 60,
    "zfs_commit_timeout_pct": 10,
    "zil_slog_bulk": 64 * MIB,
    "zfs_arc_min": 0,
    "zfs_arc_max": 0,
}
FACTS = guard.Facts(4 * GIB, 128 * MIB, 2 * GIB)
