"""The vdevs of a pool, from `zpool list`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from zfstrace import processes
from zfstrace.strict import strict_zip

# `zpool list` may wait for a pool that is suspended.
_TIMEOUT_S = 5

Answer = TypeVar("Answer")


def of_each(pools: Iterable[str], ask: Callable[[str], Answer]) -> dict[str, Answer]:
    """What ask(), which runs zpool(8), says of each pool; when five seconds have passed, no other
    pool is asked. What makes it hang for one, a lock of all pools, makes it hang for each."""
    end = time.monotonic() + _TIMEOUT_S
    return {pool: ask(pool) for pool in pools if time.monotonic() < end}


def parse_names(named: str, numbered: str) -> dict[int, str]:
    """Names of vdevs by guid, from `zpool list -v -H` without and with -g, which print the same
    lines with names and with guids. {} when the two do not agree (a disk was replaced between the
    calls)."""
    names, guids = named.split("\n"), numbered.split("\n")
    if len(names) != len(guids):
        return {}
    found = {}
    for name_line, guid_line in strict_zip(names, guids):
        # the pool's own line has no indent, the headings of log and cache no tabs
        name, guid = name_line.split("\t")[:2], guid_line.split("\t")[:2]
        if len(name) < 2 or len(guid) < 2 or name[0] or guid[0]:
            continue
        if guid[1].isascii() and guid[1].isdigit() and len(guid[1]) <= 20:
            found[int(guid[1])] = name[1]
    return found


def names(pool: str) -> dict[int, str]:
    """Leaf vdevs of an imported pool by guid; {} when zpool(8) is missing or does not answer."""
    named = _list("--", pool)
    return parse_names(named, _list("-g", "--", pool)) if named else {}


def data_vdevs(pool: str) -> int:
    """How many top-level vdevs hold its data; 0 when zpool(8) does not answer."""
    return count_data(_list("--", pool))


def count_data(named: str) -> int:
    """The number of data vdevs in `zpool list -v -H`: only top-level vdevs have allocated bytes,
    and those of other classes follow a heading (cmd/zpool/zpool_main.c, collect_list_stats())."""
    found = 0
    for line in named.split("\n")[1:]:
        words = line.split("\t")
        if words[0]:
            break
        found += len(words) > 3 and words[3] != "-"
    return found


def log_vdevs(pool: str) -> int | None:
    """How many top-level log devices it has; None when zpool(8) does not answer."""
    named = _list("--", pool)
    return count_logs(named) if named else None


def count_logs(named: str) -> int:
    """The number of log vdevs in `zpool list -v -H`: those below the heading `logs` that have
    allocated bytes."""
    found = 0
    heading = ""
    for line in named.split("\n")[1:]:
        words = line.split("\t")
        if words[0]:
            heading = words[0].split()[0] if words[0].split() else ""
        elif heading == "logs":
            found += len(words) > 3 and words[3] != "-"
    return found


def _list(*options: str) -> str:
    return processes.output(["zpool", "list", "-v", "-H", *options], _TIMEOUT_S)
