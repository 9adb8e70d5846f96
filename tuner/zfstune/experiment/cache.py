"""The ARC in a session on its size: whether it has settled, and what a larger one would save."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field

from zfstrace.host import Host
from zfstrace.read import Op, demand
from zfstrace.types import Json
from zfstune.term.units import SECOND

_MIB = 1 << 20
# It is as large as it may be, or grows no more, within these shares of its target; and the misses
# of two looks agree within a tenth, or a hundredth of all reads.
_FULL, _GROWS = 0.02, 0.01
_MISSES, _POINTS = 0.1, 0.01
# What the ARC may have beyond its target before it evicts: zfs_max_recordsize, by default
# (arc_is_overflowing(), module/zfs/arc.c, 2.2 and later; 1 MiB in 2.1). It comes and goes with
# every txg.
_SPILL = 16 << 20
# A host on which less than this of the ARC's limit is in use has no use for a higher one.
_IN_USE = 0.95
# Of the memory that is free now, other programs keep this part.
_SPARED = 0.25


@dataclass(frozen=True)
class _Look:
    when_ns: int
    stats: Mapping[str, int]


@dataclass
class Steadiness:
    """Whether the ARC has settled since begin(): its size, and the share of misses in two looks of
    look_s seconds each. After most_s it counts as settled all the same, and is counted in given_up.
    """

    host: Host
    now: Callable[[], int]
    look_s: float
    most_s: float
    given_up: int = 0
    _looks: list[_Look] = field(default_factory=list)
    _steady: bool = False

    def begin(self) -> None:
        """The limit has changed, or may have."""
        self._looks, self._steady = [self._look()], False

    def steady(self) -> bool:
        """Ask every second."""
        now = self.now()
        if self._steady or now - self._looks[-1].when_ns < self.look_s * SECOND:
            return self._steady
        self._looks.append(self._look())
        self._steady = self._settled()
        if not self._steady and now - self._looks[0].when_ns >= self.most_s * SECOND:
            self._steady = True
            self.given_up += 1
        return self._steady

    def words(self) -> str:
        """For the line that shows progress."""
        stats = self._looks[-1].stats
        return f"the ARC has {stats.get('size', 0) >> 20} of {stats.get('c', 0) >> 20} MiB"

    def _look(self) -> _Look:
        return _Look(self.now(), self.host.kstat("arcstats"))

    def _settled(self) -> bool:
        if len(self._looks) < 3:
            return False
        before, middle, last = (look.stats for look in self._looks[-3:])
        size, target = last.get("size", 0), last.get("c", 0)
        full = -_FULL * target <= size - target <= max(_FULL * target, _SPILL)
        if not full and abs(size - middle.get("size", 0)) > _GROWS * target:
            return False
        shares = [demand(middle, before).miss_ratio, demand(last, middle).miss_ratio]
        one, other = (share or 0.0 for share in shares)
        return abs(one - other) <= max(_MISSES * max(one, other), _POINTS)


@dataclass(frozen=True)
class Forecast:
    """What an ARC of size bytes, instead of now, would save: of misses, saved. Reads and misses are
    demand reads of blocks, of metadata too; hit_calls and miss_calls are calls of read(2), hit_ns
    and miss_ns their means, None if unknown.
    """

    now: int
    size: int
    reads: int
    misses: int
    saved: int
    hit_calls: int
    miss_calls: int
    hit_ns: float | None
    miss_ns: float | None

    @property
    def misses_change(self) -> float:
        """Of the share of misses: the ratio minus 1."""
        return -self.saved / self.misses if self.misses else 0.0

    @property
    def read_change(self) -> float | None:
        """Of the mean call, as if calls missed as much less as blocks do; None if unknown."""
        if self.hit_ns is None or self.miss_ns is None:
            return None
        before = self.hit_calls * self.hit_ns + self.miss_calls * self.miss_ns
        fewer = -self.misses_change * self.miss_calls
        return -fewer * (self.miss_ns - self.hit_ns) / before if before else 0.0

    def to_json(self) -> Json:
        """Its fields and changes."""
        changes = {"misses_change": self.misses_change, "read_change": self.read_change}
        return asdict(self) | changes


def forecast(
    before: Mapping[str, int], after: Mapping[str, int], hit: Op, miss: Op, most: int
) -> Forecast:
    """From two states of arcstats, and the calls between them; no larger than most.

    The ghost lists (arc_mru_ghost, arc_mfu_ghost in module/zfs/arc.c, all versions) remember the
    blocks that were evicted last, without their data. A miss of such a block would have been a hit
    of an ARC that is larger by the size of the lists; of a part of it, by about that part of such
    misses.
    """
    ghosts = sum(after.get(f"{name}_ghost_size", 0) for name in ("mru", "mfu"))
    hits = sum(after.get(n, 0) - before.get(n, 0) for n in ("mru_ghost_hits", "mfu_ghost_hits"))
    now, found = after.get("c", 0), demand(after, before)
    size = max(now, min(now + ghosts, most) // _MIB * _MIB)
    saved = round(hits * (size - now) / ghosts) if ghosts else 0
    return Forecast(
        now,
        size,
        found.hits + found.misses,
        found.misses,
        max(0, min(saved, found.misses)),
        hit.count,
        miss.count,
        hit.latency.sum_ns / hit.count if hit.count else None,
        miss.latency.sum_ns / miss.count if miss.count else None,
    )


def unlimited(stats: Mapping[str, int]) -> str | None:
    """Why a higher limit would change nothing now; None if the limit is what bounds the ARC."""
    limit, target, size = (stats.get(name, 0) for name in ("c_max", "c", "size"))
    if target < _IN_USE * limit:
        return (
            f"the ARC's target is {target >> 20} MiB, below its limit of {limit >> 20} MiB: memory "
            "is short, or was"
        )
    if size < _IN_USE * target:
        return f"the ARC has {size >> 20} MiB, less than its limit of {limit >> 20} MiB"
    return None


def room(stats: Mapping[str, int]) -> int:
    """The largest ARC for which there is memory now, in bytes."""
    free = max(0, stats.get("memory_available_bytes", 0))
    return int(stats.get("c_max", 0) + (1 - _SPARED) * free)
