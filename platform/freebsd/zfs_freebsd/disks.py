"""Disks as diskinfo(8) describes them."""

from __future__ import annotations

import re

from zfstrace import processes
from zfstrace.disk import Disk
from zfstrace.kstat.parse import is_number

_TIMEOUT_S = 5
_LINE = re.compile(r"\s*(\S.*?)\s*# (sectorsize|stripesize|Rotation rate in RPM)\s*")


def parse_diskinfo(text: str) -> Disk | None:
    """From the output of `diskinfo -v` (usr.sbin/diskinfo/diskinfo.c); None if it has no field of
    interest. The stripe size is the physical sector size; 0 means the same as the logical one. The
    write cache is not reported."""
    found = {}
    for line in text.split("\n"):
        match = _LINE.fullmatch(line)
        if match and is_number(match[1]) and not match[1].startswith("-"):
            found[match[2]] = int(match[1])
    if not found:
        return None
    sector, rate = found.get("sectorsize"), found.get("Rotation rate in RPM")
    # older versions report 1 for disks that do not rotate
    return Disk(sector, found.get("stripesize") or sector, None if rate is None else rate > 1, None)


def inspect(path: str) -> Disk | None:
    """The disk at a path; None if it cannot be read, which needs root."""
    return parse_diskinfo(processes.output(["diskinfo", "-v", path], _TIMEOUT_S))
