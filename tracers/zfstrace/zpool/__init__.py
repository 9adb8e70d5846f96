"""Parsers for the output of zpool(8) and zfs(8)."""
