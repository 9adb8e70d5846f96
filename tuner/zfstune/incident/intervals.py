"""The intervals of an incident file, each with its records, in little memory.

A file has up to 200,000 records, which as objects would take a gigabyte. So the lines of each
interval are kept packed, and read again when they are asked for.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from zfstrace.types import Json
from zfstune.incident.reader import Reader, checked
from zfstune.incident.times import ns_of

_LEVEL = 1


class Interval:
    """The records from one `interval` to the next. time is its end; off are the views that were not
    attached, and why; lost is how much each view could not count, without those of 0; worst is the
    highest p99 of fsyncs or commits of each pool, in ns."""

    __slots__ = ("_lines", "_packed", "duration_ns", "end_ns", "lost", "off", "time", "worst")

    def __init__(self, first: Json) -> None:
        self.time: str = first["time"]
        # the recorder may not have written one before the first records
        own = first if first["type"] == "interval" else {}
        self.duration_ns: int = own.get("duration_ns") or 0
        self.off: Mapping[str, str] = own.get("off") or {}
        self.lost: Mapping[str, int] = own.get("lost") or {}
        self.end_ns = ns_of(self.time) or 0
        self.worst: dict[str, int] = {}
        self._lines: list[bytes] = []
        self._packed = b""

    @property
    def start_ns(self) -> int:
        return max(0, self.end_ns - self.duration_ns)

    def add(self, line: bytes, record: Json) -> None:
        """A record that was read; its line is kept."""
        self._lines.append(line)
        if record["type"] in ("fsync_summary", "light_summary"):
            p99 = (record["latency"] or {}).get("p99") or 0
            pool = record["pool"] or ""
            if p99 > self.worst.get(pool, 0):
                self.worst[pool] = p99

    def close(self) -> None:
        """Nothing is added any more."""
        self._packed = zlib.compress(b"\n".join(self._lines), _LEVEL) if self._lines else b""
        self._lines = []

    def records(self, *types: str) -> Iterator[Json]:
        """Its records of these types, of all without any."""
        if not self._packed:
            return
        for line in zlib.decompress(self._packed).split(b"\n"):
            record = checked(line)
            if not types or record["type"] in types:
                yield record

    def p99(self, pool: str | None = None) -> int:
        """Of the worst pool, or that of one."""
        if pool is not None:
            return self.worst.get(pool, 0)
        return max(self.worst.values(), default=0)


@dataclass(frozen=True)
class Incident:
    """A file that was read to its end. problems are lines on what is missing in it."""

    name: str
    header: Json
    span: tuple[int, int]
    intervals: Sequence[Interval]
    problems: Sequence[str]

    def at(self, moment_ns: int) -> Interval | None:
        """The interval of a moment, the first after it if it is in a gap, else the last."""
        if not self.intervals:
            return None
        place = bisect_left([one.end_ns for one in self.intervals], moment_ns)
        return self.intervals[min(place, len(self.intervals) - 1)]

    def until(self, end: Interval, span_ns: int) -> Iterator[Interval]:
        """The intervals of a span that ends with one."""
        for one in self.intervals:
            if end.end_ns - span_ns < one.end_ns <= end.end_ns:
                yield one

    def worst(self, pool: str | None = None) -> Interval | None:
        """The interval with the highest p99, the last without any."""
        if not self.intervals:
            return None
        most = max(self.intervals, key=lambda one: one.p99(pool))
        return most if most.p99(pool) else self.intervals[-1]

    def pools(self) -> list[str]:
        """The names of all pools, of the header and of rows with fsyncs."""
        found = dict.fromkeys(self.header["pools"] or {})
        for interval in self.intervals:
            found.update(dict.fromkeys(interval.worst))
        return [name for name in found if name]


def load(reader: Reader, see: Callable[[Interval, Json], None] | None = None) -> Incident:
    """Reads a file to its end. see() gets each record with its interval. Raises UsageError."""
    found: list[Interval] = []
    for line, record in reader.lines():
        if record["type"] == "interval" or not found:
            if found:
                found[-1].close()
            found.append(Interval(record))
        found[-1].add(line, record)
        if see:
            see(found[-1], record)
    if found:
        found[-1].close()
    # anybody may have changed the file since it was written
    found.sort(key=lambda one: one.end_ns)
    return Incident(reader.name, reader.header, reader.span, found, reader.problems())
