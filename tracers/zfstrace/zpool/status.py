"""The vdevs of a pool with their classes and states, from `zpool status`: its JSON (2.3 and
later) or its text (all versions)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from zfstrace import processes
from zfstrace.strict import strict_zip

_STATES = (
    "ONLINE|DEGRADED|FAULTED|OFFLINE|REMOVED|UNAVAIL|AVAIL|INUSE|SUSPENDED|CANT_OPEN|CLOSED|SPLIT"
)
_LINE = re.compile(rf"\t( *)(\S.*?)\s+({_STATES})\b(.*)")
_HEADING = re.compile(r"\t(logs|cache|special|dedup|spares)\s*")
# print_status_config() in cmd/zpool/zpool_main.c, since 2.0
_BLOCKS = re.compile(r"block size: (\d{1,10})B configured, (\d{1,10})B native")
_GROUPS = {"logs": "log", "cache": "cache", "l2cache": "cache", "special": "special"}
_GROUPS |= {"dedup": "dedup", "spares": "spare"}
# `zpool status` may wait for a pool that is suspended.
_TIMEOUT_S = 20.0
# No pool has more levels: root, mirror, spare or replacing, disk.
_DEEPEST = 10


@dataclass(frozen=True)
class Vdev:
    """group is data, log, special, dedup, cache or spare. configured and native are the block sizes
    if zpool(8) reports that they differ, for the worse; otherwise 0."""

    name: str
    group: str
    state: str
    path: str = ""
    configured: int = 0
    native: int = 0
    children: tuple[Vdev, ...] = field(default=())

    @property
    def kind(self) -> str:
        """mirror, raidz, draid, or disk (which includes files)."""
        match = re.match(r"(mirror|raidz|draid)(?:\d[^/]*)?-\d+$", self.name)
        return match[1] if match and self.children else "disk"

    @property
    def redundant(self) -> bool:
        """Whether it survives the loss of one of its disks."""
        return self.kind != "disk" and len(self.children) > 1

    def leaves(self) -> Iterator[Vdev]:
        """The disks and files that it consists of; itself where it is one."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves()


def parse_text(text: str) -> list[Vdev]:
    """The top-level vdevs of the first pool in the output of `zpool status`; [] without a pool."""
    group, rows = "data", []
    for line in text.split("\n"):
        heading, match = _HEADING.fullmatch(line), _LINE.match(line)
        if heading:
            group = _GROUPS[heading[1]]
        elif match:
            # the first line is the pool
            blocks = _BLOCKS.search(match[4])
            sizes = (int(blocks[1]), int(blocks[2])) if blocks else (0, 0)
            path = match[2] if match[2].startswith("/") else ""
            depth = min(len(match[1]) // 2, _DEEPEST)
            rows.append((depth, Vdev(match[2], group, match[3], path, *sizes)))
        elif rows and line and not line.startswith("\t"):
            break  # errors:, or the next pool
    return _grow(rows[1:], 1)


def _grow(rows: list[tuple[int, Vdev]], depth: int) -> list[Vdev]:
    """The rows of a depth, each with its descendants."""
    starts = [i for i, (here, _) in enumerate(rows) if here <= depth] + [len(rows)]
    return [
        replace(rows[i][1], children=tuple(_grow(rows[i + 1 : end], depth + 1)))
        for i, end in zip(starts, starts[1:])
    ]


def with_paths(named: Sequence[Vdev], pathed: Sequence[Vdev]) -> list[Vdev]:
    """Vdevs from `zpool status` with paths from `zpool status -P`; without any when the two do
    not agree (a disk was replaced between the calls)."""
    if [_shape(vdev) for vdev in named] != [_shape(vdev) for vdev in pathed]:
        return list(named)
    return [
        replace(one, path=other.path, children=tuple(with_paths(one.children, other.children)))
        for one, other in strict_zip(named, pathed)
    ]


def _shape(vdev: Vdev) -> tuple[str, int]:
    return vdev.group, len(vdev.children)


def parse_json(text: str, pool: str) -> list[Vdev]:
    """The same from `zpool status -j`; [] when the text does not have its form."""
    try:
        found = json.loads(text)
        entry = found["pools"][pool]
        vdevs = _from_json(entry["vdevs"][pool]["vdevs"], "data", 0)
        for key, group in _GROUPS.items():
            vdevs += _from_json(entry.get(key, {}), group, 0)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return []
    return vdevs


def _from_json(entries: dict[str, Any], group: str, depth: int) -> list[Vdev]:
    if depth > _DEEPEST:
        return []
    return [
        Vdev(
            str(name),
            group,
            str(entry["state"]),
            str(entry.get("path", "")),
            *_sizes(entry),
            children=tuple(_from_json(entry.get("vdevs", {}), group, depth + 1)),
        )
        for name, entry in entries.items()
    ]


def _sizes(entry: dict[str, Any]) -> tuple[int, int]:
    shifts = int(entry.get("configured_ashift", 0)), int(entry.get("physical_ashift", 0))
    return (1 << shifts[0], 1 << shifts[1]) if all(0 < n < 32 for n in shifts) else (0, 0)


def scanning(pool: str) -> str | None:
    """``scrub`` or ``resilver`` while one runs on the pool; None also when zpool(8) does not
    answer."""
    return scan_of(processes.output(["zpool", "status", "--", pool], _TIMEOUT_S))


def scan_of(status: str) -> str | None:
    """The scan that is in progress, in the output of `zpool status`; None without one."""
    for line in status.splitlines():
        name, _, rest = line.strip().partition(": ")
        if name == "scan" and " in progress" in rest:
            return rest.split(" ", 1)[0]
    return None
