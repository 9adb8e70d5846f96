"""Module parameters of ZFS: what they are, which values are safe, the order of their writes."""
