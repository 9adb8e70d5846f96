"""The vdevs of a pool by guid, as zpool(8) names them."""

from __future__ import annotations

import subprocess

# `zpool list` may wait for a pool that is suspended.
_TIMEOUT_S = 5


def parse(named: str, numbered: str) -> dict[int, str]:
    """Vdevs by guid, from `zpool list -v -H` without and with -g: the same lines,
    with names and with guids. {} when the two do not agree (a disk was replaced between
    the calls)."""
    names, guids = named.split("\n"), numbered.split("\n")
    if len(names) != len(guids):
        return {}
    found = {}
    for name_line, guid_line in zip(names, guids, strict=True):
        # the pool's own line has no indent, the headings of log and cache no tabs
        name, guid = name_line.split("\t")[:2], guid_line.split("\t")[:2]
        if len(name) < 2 or len(guid) < 2 or name[0] or guid[0]:
            continue
        if guid[1].isascii() and guid[1].isdigit() and len(guid[1]) <= 20:
            found[int(guid[1])] = name[1]
    return found


def names(pool: str) -> dict[int, str]:
    """Of an imported pool; {} when zpool(8) is not there or does not answer."""
    return parse(_list("-v", "-H", "--", pool), _list("-v", "-H", "-g", "--", pool))


def _list(*options: str) -> str:
    try:
        done = subprocess.run(
            ["zpool", "list", *options],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
