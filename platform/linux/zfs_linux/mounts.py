"""Device numbers of mounted datasets, from /proc/self/mountinfo."""

from __future__ import annotations

import re

from zfstrace.disk import Dev

_ESCAPE = re.compile(r"\\([0-7]{3})")


def parse_mountinfo(text: str) -> dict[Dev, str]:
    """(major, minor) -> dataset, for file systems of type zfs.

    The format is described in proc_pid_mountinfo(5); blanks in names are octal escapes. Malformed
    lines are skipped.
    """
    found: dict[Dev, str] = {}
    for line in text.split("\n"):
        front, separator, back = line.partition(" - ")
        fields, tail = front.split(" "), back.split(" ")
        if not separator or len(fields) < 6 or len(tail) < 2 or tail[0] != "zfs":
            continue
        major, colon, minor = fields[2].partition(":")
        if colon and _is_device(major) and _is_device(minor) and tail[1]:
            found[int(major), int(minor)] = unescape(tail[1])
    return found


def _is_device(number: str) -> bool:
    return number.isascii() and number.isdigit() and len(number) <= 10


def unescape(name: str) -> str:
    r"""``\040`` to a blank, and so on. Bytes above 127 come unescaped."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), name)
