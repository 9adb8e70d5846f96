"""The cache: its size against the target, hits, and waits for room in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from zfstrace.hist import Hist
from zfstrace.types import SCHEMA, Json, Losses


@dataclass(frozen=True)
class ArcState:
    """The arcstats kstat (module/zfs/arc.c) at one point in time, and all waits for eviction since
    the session began, None where they are not traced (``--source kstat``)."""

    stats: Mapping[str, int]
    waits: Hist | None = None


@dataclass(frozen=True)
class ArcRow:
    """An interval; time is its end, ISO 8601, UTC. Sizes in bytes, at the end.

    demand_* are reads that a program waited for, of data and metadata; an iohit (from 2.2, else
    None) found the block on its way from the disk: neither hit nor miss. hit_ratio is hits / (hits
    + misses), None without any. evicted counts buffers. waits (for eviction), wait_ns and
    wait_max_ns are None where not traced.
    """

    time: str
    duration_ns: int
    size: int
    target: int
    target_min: int
    target_max: int
    demand_hits: int
    demand_iohits: int | None
    demand_misses: int
    hit_ratio: float | None
    evicted: int
    evict_skip: int
    evict_not_enough: int
    memory_throttle: int
    memory_available: int | None
    no_grow: bool
    waits: int | None
    wait_ns: int | None
    wait_max_ns: int | None
    losses: Losses = field(default_factory=Losses)

    def to_json(self) -> Json:
        """An ``arc`` object of the schema."""
        row = asdict(self)
        del row["losses"]
        return {"schema": SCHEMA, "type": "arc", **row, "lost": self.losses.lost}


def row(now: ArcState, earlier: ArcState, time: str, duration_ns: int, losses: Losses) -> ArcRow:
    """What the cache did between two states."""

    def count(*names: str) -> int:
        return sum(now.stats.get(n, 0) - earlier.stats.get(n, 0) for n in names)

    hits = count("demand_data_hits", "demand_metadata_hits")
    misses = count("demand_data_misses", "demand_metadata_misses")
    iohits = None
    if "demand_data_iohits" in now.stats:
        iohits = count("demand_data_iohits", "demand_metadata_iohits")
    waits = now.waits.subtract(earlier.waits or Hist()) if now.waits is not None else None
    return ArcRow(
        time,
        duration_ns,
        now.stats.get("size", 0),
        now.stats.get("c", 0),
        now.stats.get("c_min", 0),
        now.stats.get("c_max", 0),
        hits,
        iohits,
        misses,
        hits / (hits + misses) if hits + misses else None,
        count("deleted"),
        count("evict_skip"),
        count("evict_not_enough"),
        count("memory_throttle_count"),
        now.stats.get("memory_available_bytes"),
        bool(now.stats.get("arc_no_grow")),
        waits.count if waits is not None else None,
        waits.sum_ns if waits is not None else None,
        waits.max_ns if waits is not None else None,
        losses,
    )
