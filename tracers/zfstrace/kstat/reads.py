"""Reads and writes as kstats count them, without times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from zfstrace.read import Op, ReadCounts, ReadState
from zfstrace.strict import strict_zip
from zfstrace.types import Losses, Probe

# What the kstat of a dataset in use counts (module/zfs/dataset_kstats.c, all versions; of a volume,
# too).
FIELDS = ("reads", "nread", "writes", "nwritten")
# pool, id of the object set, the values of FIELDS
Objset = tuple[str, int, "tuple[int, int, int, int]"]


class KstatReads:
    """Implements zfstrace.host.ReadSession. objsets() gives the kstats of the datasets in use,
    arcstats() that of the cache. A dataset that is mounted again begins with 0: what it counts then
    is added to what it had counted before."""

    def __init__(
        self,
        objsets: Callable[[], Iterable[Objset]],
        arcstats: Callable[[], Mapping[str, int]],
    ) -> None:
        self._objsets, self._arcstats = objsets, arcstats
        self._index: dict[tuple[str, int], int] = {}
        self._last: list[ReadCounts] = []
        self._sums: list[ReadCounts] = []
        self.refresh()
        # what was counted before the session began
        self._sums = [one.subtract(one) for one in self._sums]

    def refresh(self) -> None:
        for pool, number, (reads, read, writes, written) in self._objsets():
            now = ReadCounts(
                pool, number, (0, 0), False, hit=Op(reads, read), write=Op(writes, written)
            )
            i = self._index.setdefault((pool, number), len(self._last))
            if i == len(self._last):
                self._last.append(now)
                self._sums.append(now)
                continue
            last = self._last[i]
            was = last.hit.count, last.hit.size, last.write.count, last.write.size
            again = any(n < m for n, m in strict_zip((reads, read, writes, written), was))
            self._sums[i] = self._sums[i].merge(now if again else now.subtract(last))
            self._last[i] = now

    def state(self) -> ReadState:
        return ReadState(list(self._sums), self._arcstats(), timed=False)

    def losses(self) -> Losses:
        return Losses()

    def probes(self) -> tuple[Probe, ...]:
        return ()

    def close(self) -> None:
        """Nothing to undo: nothing is attached."""
