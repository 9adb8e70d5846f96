"""I/O of the disks of a pool, by vdev and class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from zfstrace.hist import Hist
from zfstrace.types import OTHERS, SCHEMA, Json, Losses

# In the order of enum zfstrace_io_class (zfstrace_tables.h). Log blocks are sync_write, writes of a
# txg sync async_write. unknown: the class could not be read. flush: a cache flush; it does not
# queue.
CLASSES = (
    "sync_read",
    "sync_write",
    "async_read",
    "async_write",
    "scrub",
    "removal",
    "initializing",
    "trim",
    "rebuild",
    "unknown",
    "flush",
)


@dataclass(frozen=True)
class ClassCounts:
    """One class on one vdev. size is the sum of bytes. queue is the time in ZFS's own queue, device
    the time from there to the end; an I/O that is merged into a larger one is not counted.
    active_sum and active_max are over the number of I/Os of this class at the device when one of
    them ended, None when that could not be read."""

    count: int = 0
    size: int = 0
    queue: Hist = field(default_factory=Hist)
    device: Hist = field(default_factory=Hist)
    active_sum: int | None = None
    active_max: int | None = None


@dataclass(frozen=True)
class DeviceCounts:
    """One leaf vdev since the session began. rest marks the sum of those without an entry."""

    pool: str
    guid: int
    rest: bool
    classes: Mapping[str, ClassCounts]


@dataclass(frozen=True)
class Spread:
    """Statistics of a distribution, in ns."""

    mean: int
    p50: int
    p99: int
    max: int


@dataclass(frozen=True)
class DeviceRow:
    """One class on one vdev over an interval; time is its end, ISO 8601, UTC.

    vdev is the name in `zpool status`, the guid when that is unknown, OTHERS for the sum of those
    without an entry. queue is None for flushes. active_mean and active_max, which is since the
    session began, are None when unknown.
    """

    time: str
    duration_ns: int
    pool: str
    vdev: str
    guid: int
    io_class: str
    count: int
    size: int
    queue: Spread | None
    device: Spread
    active_mean: float | None
    active_max: int | None
    losses: Losses = field(default_factory=Losses)

    def to_json(self) -> Json:
        """A ``device`` object of the schema; the key of io_class is ``class``."""
        row = asdict(self)
        del row["losses"]
        row["class"] = row.pop("io_class")
        return {"schema": SCHEMA, "type": "device", **row, "lost": self.losses.lost}


def _subtract(now: ClassCounts, earlier: ClassCounts) -> ClassCounts:
    return replace(
        now,
        count=now.count - earlier.count,
        size=now.size - earlier.size,
        queue=now.queue.subtract(earlier.queue),
        device=now.device.subtract(earlier.device),
        active_sum=None if now.active_sum is None else now.active_sum - (earlier.active_sum or 0),
    )


def since(now: Sequence[DeviceCounts], earlier: Sequence[DeviceCounts]) -> list[DeviceCounts]:
    """The I/Os between two states of one session."""
    was = {(d.pool, d.guid): d.classes for d in earlier}  # the rest is "" and 0
    return [
        replace(
            d,
            classes={
                name: _subtract(c, was.get((d.pool, d.guid), {}).get(name, ClassCounts()))
                for name, c in d.classes.items()
            },
        )
        for d in now
    ]


def _spread(hist: Hist) -> Spread:
    return Spread(
        hist.sum_ns // max(1, hist.count), hist.quantile(500), hist.quantile(990), hist.max_ns
    )


def rows(
    counts: Sequence[DeviceCounts],
    names: Mapping[int, str],
    time: str,
    duration_ns: int,
    losses: Losses,
) -> list[DeviceRow]:
    """A row for each vdev and class with I/Os, sorted by pool, vdev and class. names are the names
    of the vdevs by guid."""
    found = [
        DeviceRow(
            time,
            duration_ns,
            d.pool,
            OTHERS if d.rest else names.get(d.guid, str(d.guid)),
            d.guid,
            name,
            c.count,
            c.size,
            None if name == "flush" else _spread(c.queue),
            _spread(c.device),
            None if c.active_sum is None else c.active_sum / c.count,
            c.active_max,
            losses,
        )
        for d in counts
        for name, c in d.classes.items()
        if c.count
    ]
    return sorted(found, key=lambda r: (r.pool, r.vdev, CLASSES.index(r.io_class)))


# Classes of I/O that no program asked for, and what causes them.
BACKGROUND = {
    "scrub": "a scrub or resilver",
    "rebuild": "a sequential resilver",
    "removal": "the removal of a vdev",
    "initializing": "`zpool initialize`",
    "trim": "a trim",
}

# The p50 of fewer I/Os is meaningless.
_FEW = 10


def device_ns(row: DeviceRow) -> int:
    """The total time of a row's I/Os at the device."""
    return row.device.mean * row.count


def against_siblings(rows: Sequence[DeviceRow]) -> list[tuple[float, DeviceRow, int]]:
    """Compares each vdev with the others of its pool in the same class, slowest first: the factor
    by which it is slower, its row, and the median of the others' p50 in ns."""
    compared = [row for row in rows if row.count >= _FEW]
    found = []
    for row in compared:
        others = sorted(
            other.device.p50
            for other in compared
            if other.guid != row.guid and (other.pool, other.io_class) == (row.pool, row.io_class)
        )
        if others:
            middle = others[len(others) // 2]
            found.append((row.device.p50 / max(1, middle), row, middle))
    return sorted(found, key=lambda entry: -entry[0])
