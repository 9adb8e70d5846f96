"""Disks as diskinfo(8) describes them."""

from __future__ import annotations

import re

from zfstrace import processes
from zfstrace.disk import Disk
from zfstrace.kstat.parse import is_number

_TIMEOUT_S = 5
_LINE = re.compile(r"\s*(\S.*?)\s*# (sectorsize|stripesize|Rotation rate in RPM)\s*")


def parse_diskinfo(text: str) -> Disk | None:
    """What `diskinfo -v` prints (usr.sbin/diskinfo/diskinfo.c); None when it is nothing of it.
    The stripe is the physical sector where a disk has one; that it is 0 means the same size as
    the logical one. Nothing is said of a write cache."""
    found = {}
    for line in text.split("\n"):
        match = _LINE.fullmatch(line)
        if match and is_number(match[1]) and not match[1].startswith("-"):
            found[match[2]] = int(match[1])
    if not found:
        return None
    sector, rate = found.get("sectorsize"), found.get("Rotation rate in RPM")
    # 1 stands for "does not rotate" in older versions
    return Disk(sector, found.get("stripesize") or sector, None if rate is None else rate > 1, None)


def inspect(path: str) -> Disk | None:
    """Needs to read the device, so root."""
    return parse_diskinfo(processes.output(["diskinfo", "-v", path], _TIMEOUT_S))
