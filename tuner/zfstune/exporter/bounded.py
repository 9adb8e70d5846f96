"""Names as label values: printable, and so few that no host can have too many series.

Who comes first keeps its place for as long as the exporter runs: a name that lost it would make its
counters, and those of <others>, go back.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

from zfstrace.printable import printable
from zfstrace.summary import Key
from zfstrace.types import OTHERS

MOST_POOLS, MOST_VDEVS = 64, 32
UNKNOWN = "<unknown>"
# of names of datasets in ZFS (ZFS_MAX_DATASET_NAME_LEN)
_LONGEST = 256


def label(text: str) -> str:
    """Any text as a label value."""
    return printable(text[:_LONGEST])


class _Few:
    """At most `most` names that keep their own label value; the others are OTHERS."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: set[str] = set()

    def of(self, name: str) -> str:
        """The label value of a name."""
        shown = label(name)
        if shown not in self._kept:
            if shown in (OTHERS, UNKNOWN):
                return shown
            if len(self._kept) >= self._most:
                return OTHERS
            self._kept.add(shown)
        return shown


class Names:
    """The label values of pools, datasets and vdevs. max_datasets have series of their own, only
    those that fit one of the patterns (fnmatch(3)) if there are any."""

    def __init__(self, max_datasets: int = 16, patterns: Sequence[str] = ()) -> None:
        self._pools = _Few(MOST_POOLS)
        self._datasets = _Few(max_datasets)
        self._vdevs = _Few(MOST_VDEVS)
        self._patterns = tuple(patterns)

    def pool(self, name: str | None) -> str:
        return self._pools.of(name) if name else UNKNOWN

    def dataset(self, key: Key) -> tuple[str, str]:
        """pool and dataset, from summary.name_of()."""
        pool, dataset = self.pool(key[0]), key[1] or UNKNOWN
        if pool == OTHERS:
            return pool, OTHERS
        if dataset.startswith("<"):
            # gone before its name was read: their numbers would be a series each
            return pool, OTHERS if dataset == OTHERS else UNKNOWN
        if self._patterns and not any(fnmatch.fnmatchcase(dataset, one) for one in self._patterns):
            return pool, OTHERS
        return pool, self._datasets.of(dataset)

    def vdev(self, pool: str, vdev: str) -> tuple[str, str]:
        """pool and vdev. Disks of two pools may have one name: a place is for both names."""
        where = self.pool(pool) if pool else OTHERS
        if OTHERS in (where, vdev):
            return where, OTHERS
        found = self._vdevs.of(f"{where} {label(vdev)}"[:_LONGEST])
        return where, OTHERS if found == OTHERS else label(vdev)
