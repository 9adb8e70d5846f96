"""Writers that ZFS delays: which, how long, and by which limit.

Every wait is one call of dmu_tx_wait() (module/zfs/dmu_tx.c).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from zfstrace.hist import Hist
from zfstrace.types import OTHERS, SCHEMA, Json, Losses

# dirty_delay: over zfs_delay_min_dirty_percent, slowed by a computed sleep;
# dirty_hard: at zfs_dirty_data_max, stopped until the sync has written something;
# wrlog_delay: the same sleep because of log data (zfs_wrlog_data_max);
# txg_wait: any other reason, e.g. a dnode that the previous txg still holds, or a suspended pool;
# unknown: not determined, because a probe is missing.
KINDS = ("dirty_delay", "dirty_hard", "wrlog_delay", "txg_wait", "unknown")


@dataclass(frozen=True)
class Waits:
    """Waits of one kind: their number, total and maximum."""

    count: int = 0
    total_ns: int = 0
    max_ns: int = 0


@dataclass(frozen=True)
class ThrottleCounts:
    """One process on one pool since the session began. rest marks the sum of those without an
    entry. latency covers all its waits. dirty_bytes is the pool's dirty data at its last wait, None
    when it could not be read. life identifies the process; if it is 0, the index in the list
    does."""

    pool: str
    pid: int
    comm: str
    rest: bool
    kinds: Mapping[str, Waits]
    latency: Hist
    dirty_bytes: int | None
    life: int = 0


@dataclass(frozen=True)
class ThrottleState:
    """The throttle of a pool during a span of time; None means unknown.

    dirty_bytes is the reading nearest to its end, dirty_data_max is zfs_dirty_data_max. delayed
    says whether any writer was delayed, including one that still is.
    """

    dirty_bytes: int | None = None
    dirty_data_max: int | None = None
    delayed: bool | None = None

    @property
    def dirty_percent(self) -> float | None:
        """Dirty data in percent of zfs_dirty_data_max; None when either is unknown."""
        return percent_of(self.dirty_bytes, self.dirty_data_max)

    def to_json(self) -> Json:
        """The field ``throttle`` of a ``slow_fsync``."""
        return {
            "dirty_bytes": self.dirty_bytes,
            "dirty_percent": self.dirty_percent,
            "delayed": self.delayed,
        }


def percent_of(dirty_bytes: int | None, dirty_data_max: int | None) -> float | None:
    """Dirty data in percent of the limit, with one decimal; None when either is unknown."""
    if dirty_bytes is None or not dirty_data_max:
        return None
    return round(100 * dirty_bytes / dirty_data_max, 1)


@dataclass(frozen=True)
class ThrottleRow:
    """One process on one pool over an interval; time is its end, ISO 8601, UTC.

    comm is OTHERS for the sum of those without an entry. dirty_data_max is the current
    zfs_dirty_data_max, None when unknown.
    """

    time: str
    duration_ns: int
    pool: str
    pid: int
    comm: str
    count: int
    total_ns: int
    p50: int
    p99: int
    max: int
    kinds: Mapping[str, Waits]
    dirty_bytes: int | None
    dirty_data_max: int | None
    losses: Losses = field(default_factory=Losses)

    def to_json(self) -> Json:
        """A ``throttle`` object of the schema."""
        row = asdict(self)
        del row["losses"]
        return {"schema": SCHEMA, "type": "throttle", **row, "lost": self.losses.lost}


def _subtract(now: ThrottleCounts, earlier: ThrottleCounts) -> ThrottleCounts:
    """The maximum of a kind is not recorded for an interval: at most that of all kinds, and the
    total."""
    latency = now.latency.subtract(earlier.latency)

    def added(waits: Waits, before: Waits) -> Waits:
        total_ns = waits.total_ns - before.total_ns
        most_ns = min(waits.max_ns, latency.max_ns, total_ns)
        return Waits(waits.count - before.count, total_ns, most_ns)

    kinds = {kind: added(waits, earlier.kinds[kind]) for kind, waits in now.kinds.items()}
    return replace(now, kinds=kinds, latency=latency)


def _add(one: ThrottleCounts, other: ThrottleCounts) -> ThrottleCounts:
    return replace(
        one,
        kinds={
            kind: Waits(
                waits.count + other.kinds[kind].count,
                waits.total_ns + other.kinds[kind].total_ns,
                max(waits.max_ns, other.kinds[kind].max_ns),
            )
            for kind, waits in one.kinds.items()
        },
        latency=one.latency.merge(other.latency),
    )


class Ended:
    """Processes that have ended: the last ones individually, the others summed."""

    def __init__(self, most: int = 1024) -> None:
        self._last: deque[ThrottleCounts] = deque()
        self._most = most
        self._sum: ThrottleCounts | None = None

    def add(self, counts: ThrottleCounts) -> None:
        """Adds a process with its final counts."""
        self._last.append(counts)
        if len(self._last) > self._most:
            first = self._last.popleft()
            self._sum = _add(self._sum, first) if self._sum else first

    def last(self) -> list[ThrottleCounts]:
        """The last ones, oldest first."""
        return list(self._last)

    def rest(self, rest: ThrottleCounts) -> ThrottleCounts:
        """rest plus those that are no longer kept individually."""
        return _add(rest, self._sum) if self._sum else rest


def since(now: Sequence[ThrottleCounts], earlier: Sequence[ThrottleCounts]) -> list[ThrottleCounts]:
    """The waits between two states of one session."""
    was = {c.life or -i: c for i, c in enumerate(earlier)}
    found = []
    for i, counts in enumerate(now):
        before = was.pop(counts.life or -i, None)
        found.append(_subtract(counts, before) if before else counts)
    for gone in was.values():  # now part of the rest, with all its earlier waits
        found[0] = _subtract(found[0], gone)
    return found


def rows(
    counts: Sequence[ThrottleCounts],
    time: str,
    duration_ns: int,
    dirty_data_max: int | None,
    losses: Losses,
) -> list[ThrottleRow]:
    """A row for each process that waited, longest total first."""
    found = [
        ThrottleRow(
            time,
            duration_ns,
            c.pool,
            c.pid,
            OTHERS if c.rest else c.comm,
            c.latency.count,
            c.latency.sum_ns,
            c.latency.quantile(500),
            c.latency.quantile(990),
            c.latency.max_ns,
            c.kinds,
            c.dirty_bytes,
            dirty_data_max,
            losses,
        )
        for c in counts
        if c.latency.count
    ]
    return sorted(found, key=lambda row: -row.total_ns)


class Seen:
    """A history of waits. The kernel keeps only the last one of each process, which may be newer
    than the fsync in question."""

    def __init__(self, most: int = 1024) -> None:
        self._waits: deque[tuple[str, int, int, int]] = deque(maxlen=most)
        self._last: dict[tuple[str, int], int] = {}

    def note(self, pool: str, who: int, start_ns: int, end_ns: int) -> None:
        """Adds the last wait of a process; who is any number that identifies it."""
        # an end that was read during an update may be older than its start
        if end_ns >= start_ns > 0 and self._last.get((pool, who)) != end_ns:
            self._last[pool, who] = end_ns
            self._waits.append((pool, who, start_ns, end_ns))

    def end(self, pool: str, who: int) -> None:
        """Forgets a process, but not its waits."""
        self._last.pop((pool, who), None)

    def within(self, pool: str, start_ns: int, end_ns: int) -> int:
        """How many processes waited for the pool in a span of time."""
        return len(
            {
                who
                for where, who, start, end in self._waits
                if where == pool and start <= end_ns and end >= start_ns
            }
        )
