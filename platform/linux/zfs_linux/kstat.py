"""Readers for the kstats of ZFS on Linux, /proc/spl/kstat/zfs.

A named kstat has a line of numbers, a line ``name type data``, then one line per value
(module/os/linux/spl/spl-kstat.c, all versions); zfstrace.kstat has what FreeBSD shares. Malformed
lines are skipped, never an error.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from zfstrace.kstat.parse import Value, is_number

_CHAR, _STRING = "0", "7"
# dmu_tx_assign has names with spaces ("1024 ns"), as datasets may
_LINE = re.compile(r"(\S.*?)\s+([0-7])(?:\s+(.*))?")
_OBJSET = re.compile(r"objset-0x([0-9a-f]{1,16})")


def parse_named(text: str) -> dict[str, Value]:
    """The values of a named kstat: int, or str for the types char and string."""
    values: dict[str, Value] = {}
    body = text.partition("name")[2].split("\n")[1:]
    for line in body:
        match = _LINE.fullmatch(line)
        if not match:
            continue
        name, kind, value = match[1], match[2], match[3] or ""
        if kind in (_CHAR, _STRING):
            values[name] = value
        elif is_number(value):
            values[name] = int(value)
    return values


def count(text: str, name: str) -> int | None:
    """One count in a named kstat; None if it is absent. Called often, and takes less than half the
    time of parse_named() and a lookup."""
    match = re.search(rf"^{name}\s+[1-6]\s+(\d{{1,20}})$", text, re.MULTILINE)
    return int(match[1]) if match else None


def read(path: Path) -> str:
    """The text of a file in /proc or /sys; "" if it does not exist or cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def read_number(path: Path) -> int | None:
    """The number in a file, e.g. a module parameter; None if there is none."""
    text = read(path).strip()
    return int(text) if is_number(text) else None


def pools(root: Path) -> list[str]:
    """Names of the imported pools, sorted; each has a directory under root."""
    try:
        with os.scandir(root) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())
    except OSError:
        return []


def objsets(root: Path, pool: str) -> dict[int, Path]:
    """Object set id -> path of its kstat, for the datasets of a pool that are in use."""
    numbers = ((objset(name), root / pool / name) for name in files(root, pool))
    return {number: path for number, path in numbers if number is not None}


def files(root: Path, pool: str) -> frozenset[str]:
    """The names of a pool's kstats; none when it is exported at this moment."""
    try:
        # paths would take three times as long, each second
        return frozenset(os.listdir(root / pool))  # noqa: PTH208
    except OSError:
        return frozenset()


def objset(name: str) -> int | None:
    """The id of the object set that a kstat is of, by its name; None if it is of something else."""
    match = _OBJSET.fullmatch(name)
    return int(match[1], 16) if match else None


def dataset_name(text: str) -> str | None:
    """The dataset that an objset kstat belongs to."""
    name = parse_named(text).get("dataset_name")
    return name if isinstance(name, str) and name else None
