"""Names of parameters that code refers to."""

from __future__ import annotations

DIRTY = "zfs_dirty_data_max"

WRLOG = "zfs_wrlog_data_max"

SYNC_PERCENT = "zfs_dirty_data_sync_percent"

ASYNC_MIN = "zfs_vdev_async_write_min_active"

ASYNC_MAX = "zfs_vdev_async_write_max_active"

TXG_TIMEOUT = "zfs_txg_timeout"

COMMIT_PCT = "zfs_commit_timeout_pct"

SLOG_BULK = "zil_slog_bulk"


DELAY_SCALE = "zfs_delay_scale"

ACTIVE_MIN = "zfs_vdev_async_write_active_min_dirty_percent"

ACTIVE_MAX = "zfs_vdev_async_write_active_max_dirty_percent"

DELAY_MIN = "zfs_delay_min_dirty_percent"

ARC_MAX, ARC_MIN = "zfs_arc_max", "zfs_arc_min"
