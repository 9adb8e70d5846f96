"""The numbers of an incident for its page, folded into as much memory for a day as for a minute."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from zfstrace.types import Json
from zfstune.diagnose.from_file import Again, Best
from zfstune.incident.intervals import Incident, Interval
from zfstune.incident.times import ns_of
from zfstune.term.units import SECOND

# As many points as a plot has pixels for.
_MOST_BINS = 360
# The first ones; the page draws the busiest of them.
_MOST_POOLS = 32
MOST_SLOW, MOST_CHANGES = 20, 200
_CHANGES = ("parameter_change", "pool_state", "note")


@dataclass
class Bin:
    """A part of the time of a pool: of several intervals the worst p99, and sums. exact: of fsyncs;
    otherwise of commits, and stages are ns of them that a light trace has estimated."""

    place: int
    exact: bool = False
    count: int = 0
    duration_ns: int = 0
    p99: int = 0
    stages: Counter[str] = field(default_factory=Counter)
    sync_ns: int = 0
    txgs: int = 0
    wait_ns: int = 0

    @property
    def rate(self) -> float | None:
        """Fsyncs or commits per second; None without a row."""
        return self.count * SECOND / self.duration_ns if self.duration_ns else None


@dataclass(frozen=True)
class Bins:
    """The time of a file in equal parts, and for each pool those with anything in them. An interval
    is of the part that its middle is in: recorded is the ns of those of each part, and between has
    the parts that one reaches into."""

    first_ns: int
    step_ns: int
    count: int
    pools: dict[str, dict[int, Bin]] = field(default_factory=dict)
    recorded: Counter[int] = field(default_factory=Counter)
    between: set[int] = field(default_factory=set)

    @property
    def last_ns(self) -> int:
        return self.first_ns + self.step_ns * self.count

    def what(self, pool: str) -> str:
        """What is counted of a pool: fsyncs, commits, or now these and now those."""
        kinds = {one.exact for one in self.pools[pool].values() if one.duration_ns}
        return "fsyncs and commits" if len(kinds) > 1 else "fsyncs" if True in kinds else "commits"

    @property
    def exact(self) -> bool:
        """Whether fsyncs were counted anywhere."""
        return any(one.exact for bins in self.pools.values() for one in bins.values())

    def middle(self, place: int) -> float:
        return self.first_ns + self.step_ns * (place + 0.5)

    def at(self, pool: str, time_ns: int, duration_ns: int = 0) -> Bin | None:
        """The bin of a row in the time of the file; None if there are too many pools."""
        if pool not in self.pools and len(self.pools) >= _MOST_POOLS:
            return None
        place = self.place(time_ns, duration_ns)
        return self.pools.setdefault(pool, {}).setdefault(place, Bin(place))

    def place(self, time_ns: int, duration_ns: int) -> int:
        """The number of the part of a row."""
        # times are those of ends: the end of a part belongs to it
        return self._of(time_ns - max(1, duration_ns // 2))

    def _of(self, time_ns: int) -> int:
        return min(max((time_ns - self.first_ns) // self.step_ns, 0), self.count - 1)

    def add_interval(self, time_ns: int, duration_ns: int) -> None:
        """An interval of the recorder, which may last longer than a part."""
        self.recorded[self.place(time_ns, duration_ns)] += duration_ns
        self.between.update(range(self._of(time_ns - duration_ns), self._of(time_ns) + 1))

    def follows(self, place: int, before: int) -> bool:
        """Whether no part without a row is between two: one that no interval is of, as they last a
        bit longer than parts, is none."""
        return all(
            one in self.between and not self.recorded[one] for one in range(before + 1, place)
        )

    def waiting(self, one: Bin) -> float:
        """The threads that the write throttle held up on average."""
        return one.wait_ns / (self.recorded[one.place] or self.step_ns)

    def busiest(self) -> list[str]:
        """The pools with fsyncs, or writers that were held up, the busiest first."""
        total = {pool: _busy(bins.values()) for pool, bins in self.pools.items()}
        seen = [pool for pool in self.pools if any(total[pool])]
        return sorted(seen, key=total.__getitem__, reverse=True)


def _busy(bins: Iterable[Bin]) -> tuple[int, int]:
    counts, waits = 0, 0
    for one in bins:
        counts, waits = counts + one.count, waits + one.wait_ns
    return counts, waits


def bins_of(span: tuple[int, int], interval_ns: int | None) -> Bins:
    """Empty ones; none is shorter than an interval of the recorder."""
    first, last = span
    least = min(max(interval_ns or 0, SECOND), 3600 * SECOND)
    whole = max(1, last - first)
    step = max(least, -(-whole // _MOST_BINS))
    return Bins(first, step, -(-whole // step))


def by_view(lost: int | dict[str, int] | None) -> dict[str, int]:
    """A field `lost`, which may have no views."""
    return {"all": lost} if isinstance(lost, int) else lost or {}


class Fold:
    """What the page needs, collected record by record."""

    def __init__(self, span: tuple[int, int], interval_ns: int | None, moment: int | None) -> None:
        self.bins = bins_of(span, interval_ns)
        self.best = Best(moment)
        self.changes: list[Json] = []
        # those after the first ones, and how many of them the timeline would mark
        self.more_changes = self.more_marks = 0
        self.lost: Counter[str] = Counter()
        self.off: dict[str, tuple[str, int]] = {}
        # rows that are in no bin: of another time, or of too many pools
        self.outside = self.crowded = 0
        self.intervals = self.records = 0
        self.missing: dict[str, Json] = {}
        self._slow: list[tuple[int, int, Json]] = []
        self._commits: dict[tuple[int, str], Json] = {}

    def see(self, interval: Interval, record: Json) -> None:
        """A record of the file."""
        self.records += 1
        name = record["type"]
        self.best.see(interval, record)
        if name == "interval":
            self._interval(record)
        elif name in ("fsync_summary", "light_summary"):
            self._summary(record)
        elif name == "txg":
            self._txg(record)
        elif name == "throttle":
            found = self._bin(record)
            if found:
                found.wait_ns += record["total_ns"]
        elif name == "slow_fsync":
            entry = (record["total_ns"], self.records, record)
            push = heapq.heappush if len(self._slow) < MOST_SLOW else heapq.heappushpop
            push(self._slow, entry)
        elif name == "light_window":
            self._slow_commit(record)
        elif name in _CHANGES:
            if len(self.changes) < MOST_CHANGES:
                self.changes.append(record)
            else:
                self.more_changes += 1
                self.more_marks += name != "note"

    def slowest(self) -> list[Json]:
        """The slowest operations, the slowest first."""
        return [record for _, _, record in sorted(self._slow, key=lambda one: (-one[0], one[1]))]

    def _slow_commit(self, record: Json) -> None:
        """Of the rows of a window, that of the dataset with the most time stays."""
        key = record["cause"]["total_ns"], record["time"]
        other = self._commits.get(key)
        if other is None or _time(other) < _time(record):
            self._commits[key] = record
        if len(self._commits) > MOST_SLOW:
            del self._commits[min(self._commits)]

    def slow_commits(self) -> list[Json]:
        """The slowest commits of a light trace, the slowest first."""
        return [self._commits[key] for key in sorted(self._commits, reverse=True)]

    def _bin(self, record: Json) -> Bin | None:
        time_ns = ns_of(record["time"]) or 0
        if not self.bins.first_ns <= time_ns <= self.bins.last_ns:
            self.outside += 1
            return None
        found = self.bins.at(record["pool"] or "", time_ns, record.get("duration_ns") or 0)
        self.crowded += found is None
        return found

    def _interval(self, record: Json) -> None:
        self.intervals += 1
        time_ns = ns_of(record["time"]) or 0
        if self.bins.first_ns <= time_ns <= self.bins.last_ns:
            self.bins.add_interval(time_ns, record["duration_ns"])
        for name, count in by_view(record["lost"]).items():
            if len(self.lost) < 64 or name in self.lost:
                self.lost[name] += count
        for name, why in (record["off"] or {}).items():
            if len(self.off) < 64 or name in self.off:
                self.off[name] = why, self.off.get(name, ("", 0))[1] + 1

    def _summary(self, record: Json) -> None:
        for one in ((record["probes"] or {}).get("missing") or ())[:64]:
            if len(self.missing) < 64:
                self.missing[one["name"]] = one
        # the sum of a pool's datasets has no dataset
        if record["dataset"] is not None:
            return
        found, exact = self._bin(record), record["type"] == "fsync_summary"
        if found is None or (found.exact and not exact):
            return
        if exact and not found.exact:
            # what is counted replaces what was estimated for the same time
            found.exact, found.count, found.duration_ns, found.p99 = True, 0, 0, 0
            found.stages.clear()
        latency = record["latency"] or {}
        found.count += record["count" if exact else "commits"]
        found.duration_ns += record["duration_ns"]
        found.p99 = max(found.p99, latency.get("p99") or 0)
        if exact:
            for stage in record["stages"]:
                found.stages[stage["name"]] += stage["total_ns"]
            return
        total = (latency.get("mean") or 0) * record["commits"]
        for stage in record["estimated"]["stages"]:
            found.stages[stage["name"]] += round(stage["share"] * total)

    def _txg(self, record: Json) -> None:
        found = self._bin(record)
        if found:
            found.txgs += 1
            found.sync_ns = max(found.sync_ns, record["sync_ns"] or 0)


def _time(window: Json) -> int:
    """Of all fsyncs in it, in ns."""
    total: int = sum(window["stages"].values())
    return total


@dataclass(frozen=True)
class Story:
    """A file that was read, the interval that the page is about, and diagnoses, the worst first.
    worst: nobody asked for another moment."""

    incident: Incident
    fold: Fold
    interval: Interval
    diagnoses: Sequence[Again]
    worst: bool
