"""Reads and writes of files by dataset: how many, how large, how long; hits and misses apart.

What read(2), write(2) and their relatives (pread, readv, sendfile, io_uring, NFS) move. Pages that
mmap(2) faults in are not among them, and neither are volumes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from zfstrace.hist import Hist
from zfstrace.strict import strict_zip
from zfstrace.types import SCHEMA, Json, Latency, Losses

# hit: a read that did not wait for an I/O; miss: one that did; write: a write.
OPS = ("hit", "miss", "write")


@dataclass(frozen=True)
class Op:
    """Operations of one of OPS that moved data. latency is empty where they are not timed."""

    count: int = 0
    size: int = 0
    latency: Hist = field(default_factory=Hist)

    def subtract(self, earlier: Op) -> Op:
        """What was added since an earlier state."""
        return Op(
            self.count - earlier.count,
            self.size - earlier.size,
            self.latency.subtract(earlier.latency),
        )

    def merge(self, other: Op) -> Op:
        """The sum of two."""
        return Op(
            self.count + other.count, self.size + other.size, self.latency.merge(other.latency)
        )


@dataclass(frozen=True)
class ReadCounts:
    """A dataset since the session began; identity and rest as in types.DatasetCounts.

    Where nothing is timed (kstats) all reads count as hits, and errors, held and held_ns are 0.
    errors are operations that returned one, counted nowhere else; held are writes that a
    transaction held up (throttle, or a txg), for held_ns in all.
    """

    pool: str
    objset: int
    dev: tuple[int, int]
    rest: bool
    hit: Op = field(default_factory=Op)
    miss: Op = field(default_factory=Op)
    write: Op = field(default_factory=Op)
    errors: int = 0
    held: int = 0
    held_ns: int = 0

    def _ops(self) -> tuple[Op, Op, Op]:
        return self.hit, self.miss, self.write

    def _with(self, ops: Sequence[Op], errors: int, held: int, held_ns: int) -> ReadCounts:
        hit, miss, write = ops
        return replace(
            self, hit=hit, miss=miss, write=write, errors=errors, held=held, held_ns=held_ns
        )

    def subtract(self, earlier: ReadCounts) -> ReadCounts:
        """What was added since an earlier state."""
        return self._with(
            [a.subtract(b) for a, b in strict_zip(self._ops(), earlier._ops())],
            self.errors - earlier.errors,
            self.held - earlier.held,
            self.held_ns - earlier.held_ns,
        )

    def merge(self, other: ReadCounts) -> ReadCounts:
        """The sum of two, with this one's identity."""
        return self._with(
            [a.merge(b) for a, b in strict_zip(self._ops(), other._ops())],
            self.errors + other.errors,
            self.held + other.held,
            self.held_ns + other.held_ns,
        )

    @property
    def busy(self) -> bool:
        """Whether there was anything."""
        return bool(self.errors or any(op.count for op in self._ops()))


@dataclass(frozen=True)
class ReadState:
    """All datasets since the session began, the rest first, a dataset at its index for good; and
    the arcstats kstat. timed is False where the source is kstats."""

    datasets: Sequence[ReadCounts]
    arc: Mapping[str, int]
    timed: bool = True


@dataclass(frozen=True)
class ReadRow:
    """A dataset over an interval; time is its end, ISO 8601, UTC. Times in ns, sizes in bytes.

    hits, misses, hit_ratio, the latencies, errors and held are None where nothing is timed; a
    latency also without an operation, hit_ratio without a read. read is the latency of all reads.
    """

    time: str
    duration_ns: int
    pool: str | None
    dataset: str
    reads: int
    read_bytes: int
    hits: int | None
    misses: int | None
    hit_ratio: float | None
    read: Latency | None
    hit: Latency | None
    miss: Latency | None
    miss_bytes: int | None
    writes: int
    write_bytes: int
    write: Latency | None
    held: int | None
    held_ns: int | None
    errors: int | None
    source: str
    note: str | None = None
    losses: Losses = field(default_factory=Losses)

    def to_json(self) -> Json:
        """A ``read`` object of the schema."""
        row = asdict(self)
        del row["losses"]
        return {"schema": SCHEMA, "type": "read", **row, "lost": self.losses.lost}


@dataclass(frozen=True)
class Demand:
    """Demand reads of blocks by the whole host, as arcstats counts them."""

    hits: int
    misses: int

    @property
    def miss_ratio(self) -> float | None:
        """The share that missed; None without any."""
        return self.misses / (self.hits + self.misses) if self.hits + self.misses else None


def demand(now: Mapping[str, int], earlier: Mapping[str, int]) -> Demand:
    """Between two states of arcstats; 0 of all if the module was unloaded meanwhile. A read that
    found its block on the way from the disk (iohit, from 2.2) is neither."""

    def count(what: str) -> int:
        names = (f"demand_data_{what}", f"demand_metadata_{what}")
        return max(0, sum(now.get(name, 0) - earlier.get(name, 0) for name in names))

    return Demand(count("hits"), count("misses"))


def since(now: ReadState, earlier: ReadState) -> list[ReadCounts]:
    """What each dataset did between two states of one session, by index."""
    old = earlier.datasets
    return [d.subtract(old[i]) if i < len(old) else d for i, d in enumerate(now.datasets)]
