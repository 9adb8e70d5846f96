"""ZFS on Linux: kstats in /proc, parameters in /sys, libzfstrace for events."""
