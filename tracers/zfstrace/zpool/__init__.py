"""What zpool(8) and zfs(8) print."""
