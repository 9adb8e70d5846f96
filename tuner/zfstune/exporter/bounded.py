"""Names as label values: printable, and so few that no host can have too many series.

Who comes first keeps its place, but a dataset that has counted nothing for more than a day leaves
it to one that needs it, and its series end. What it counts later is part of <others>, which never
goes back, or begins at 0 in another place: for rate(), a counter that was reset.
"""

from __future__ import annotations

import fnmatch
import math
import time
from collections.abc import Callable, Sequence

from zfstrace.printable import printable
from zfstrace.summary import Key
from zfstrace.types import OTHERS

MOST_POOLS, MOST_VDEVS = 64, 32
UNKNOWN = "<unknown>"
# of names of datasets in ZFS (ZFS_MAX_DATASET_NAME_LEN)
_LONGEST = 256
# A dataset that is busy once a day, at about the same time, keeps its place.
IDLE_S = 26 * 3600.0


def label(text: str) -> str:
    """Any text as a label value."""
    return printable(text[:_LONGEST])


class _Few:
    """At most `most` names that keep their own label value; the others are OTHERS. One that was not
    busy for idle_s seconds leaves its place to one that is."""

    def __init__(
        self,
        most: int,
        idle_s: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most, self._idle_s, self._clock = most, idle_s, clock
        # when each was busy last, the longest ago first
        self._busy: dict[str, float] = {}
        # each is called with a name that leaves
        self.leaving: list[Callable[[str], None]] = []

    def of(self, name: str, *, busy: bool = True) -> str:
        """The label value of a name."""
        shown = label(name)
        if shown in (OTHERS, UNKNOWN):
            return shown
        if not busy:
            return shown if shown in self._busy else OTHERS
        now = self._clock()
        if shown not in self._busy and len(self._busy) >= self._most:
            oldest = next(iter(self._busy))
            if now - self._busy[oldest] < self._idle_s:
                return OTHERS
            del self._busy[oldest]
            for left in self.leaving:
                left(oldest)
        self._busy.pop(shown, None)
        self._busy[shown] = now
        return shown


class Names:
    """The label values of pools, datasets and vdevs. max_datasets have series of their own, only
    those that fit one of the patterns (fnmatch(3)) if there are any. clock() is in seconds."""

    def __init__(
        self,
        max_datasets: int = 16,
        patterns: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pools = _Few(MOST_POOLS)
        self._datasets = _Few(max_datasets, IDLE_S, clock)
        self._vdevs = _Few(MOST_VDEVS)
        self._patterns = tuple(patterns)
        # each is called with a dataset whose series end
        self.ending = self._datasets.leaving

    def pool(self, name: str | None) -> str:
        return self._pools.of(name) if name else UNKNOWN

    def dataset(self, key: Key, *, busy: bool = True) -> tuple[str, str]:
        """pool and dataset, from summary.name_of(). busy: it has counted something."""
        pool, dataset = self.pool(key[0]), key[1] or UNKNOWN
        if pool == OTHERS:
            return pool, OTHERS
        if dataset.startswith("<"):
            # gone before its name was read: their numbers would be a series each
            return pool, OTHERS if dataset == OTHERS else UNKNOWN
        if self._patterns and not any(fnmatch.fnmatchcase(dataset, one) for one in self._patterns):
            return pool, OTHERS
        return pool, self._datasets.of(dataset, busy=busy)

    def vdev(self, pool: str, vdev: str) -> tuple[str, str]:
        """pool and vdev, which may be OTHERS or UNKNOWN. Disks of two pools may have one name: a
        place is for both names."""
        where = self.pool(pool) if pool else OTHERS
        if OTHERS in (where, vdev):
            return where, OTHERS
        if vdev == UNKNOWN:
            return where, UNKNOWN
        found = self._vdevs.of(f"{where} {label(vdev)}"[:_LONGEST])
        return where, OTHERS if found == OTHERS else label(vdev)
