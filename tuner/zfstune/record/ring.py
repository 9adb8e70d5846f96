"""The ring: the last hours as compressed chunks, bounded in memory.

A chunk is a gzip member of JSON lines, so that a file is written by putting chunks one after the
other: nothing is compressed again while a host is in trouble. It is of a minute, which compresses
ten times better than single intervals.

Chunks remember how far the wall clock was ahead of one that is never set. When the wall clock is
set, the times in older chunks are corrected, a few chunks at a time, so that all times are in order
and agree with the clock that people read now.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from zfstrace.clock import iso_utc
from zfstrace.types import Json
from zfstune.incident.times import ns_of
from zfstune.incident.writer import encode
from zfstune.term.units import SECOND

__all__ = [
    "STEP_NS",
    "Chunk",
    "Limits",
    "Ring",
    "chunk_of",
    "encode",
    "members",
    "shift",
    "shifted",
]

CHUNK_NS = 60 * SECOND
# What Python keeps beside the bytes of a chunk and of a line; measured with sys.getsizeof.
_CHUNK_OVERHEAD, _LINE_OVERHEAD = 512, 64
# A step of the wall clock; less is the noise of reading two clocks one after the other.
STEP_NS = SECOND
_LEVEL = 6
_READ = 1 << 16


@dataclass(frozen=True)
class Limits:
    """memory in bytes, of all that the ring keeps; span of the kept time in ns. text and records
    are of the whole ring when it is read: less than what readers of incident files take, so that a
    dump of all of it can be read."""

    memory: int = 8 << 20
    span: int = 6 * 3600 * SECOND
    text: int = 60 << 20
    records: int = 190_000
    line: int = 256 << 10


@dataclass(frozen=True)
class Chunk:
    """Lines that belong to a span of time, ns since 1970; text is their length. ahead is how far
    the wall clock was ahead of the steady one, in ns."""

    data: bytes
    begin: int
    end: int
    records: int
    text: int
    ahead: int

    @property
    def memory(self) -> int:
        return len(self.data) + _CHUNK_OVERHEAD

    def lines(self) -> list[bytes]:
        """Without their line breaks."""
        return gzip.decompress(self.data).split(b"\n")[:-1]


def chunk_of(lines: Sequence[bytes], begin: int, end: int, ahead: int) -> Chunk:
    """Compresses lines."""
    text = b"".join(line + b"\n" for line in lines)
    # mtime 0: equal lines make equal chunks
    data = gzip.compress(text, _LEVEL, mtime=0)
    return Chunk(data, begin, end, len(lines), len(text), ahead)


class Ring:
    """The chunks, and the lines that make the next one. dropped counts records that were too long
    for a line."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._chunks: deque[Chunk] = deque()
        self._lines: list[bytes] = []
        self._begin = self._end = self._ahead = 0
        self._waiting = 0  # memory of the lines
        self.memory = self.text = self.records = 0
        self.dropped = 0
        # more lines than that are a chunk before the minute is over
        self._most = min(512 << 10, self.limits.memory // 4, self.limits.text // 4)
        self._most_lines = max(1, self.limits.records // 4)

    @property
    def begin(self) -> int:
        """When the first record was made, ns since 1970; 0 without any."""
        return self._chunks[0].begin if self._chunks else self._begin

    @property
    def end(self) -> int:
        """When the last one was made."""
        return self._end

    def add(self, records: Sequence[Json], begin: int, end: int, ahead: int) -> None:
        """Adds the records of the span from begin to end, ns since 1970, in order of time."""
        # a clock that is slewed back a little must not reorder
        begin = max(begin, self._end) if abs(ahead - self._ahead) < STEP_NS else begin
        end = max(begin, end)
        if self._lines and (abs(ahead - self._ahead) >= STEP_NS or end - self._begin > CHUNK_NS):
            self._seal()
        self._ahead = ahead
        for record in records:
            line = encode(record)
            size = len(line) + _LINE_OVERHEAD
            if len(line) > self.limits.line or size > self._most:
                self.dropped += 1
                continue
            full = self._waiting + size > self._most or len(self._lines) >= self._most_lines
            if self._lines and full:
                self._end = end
                self._seal()
            if not self._lines:
                self._begin = begin
            self._lines.append(line)
            self._waiting += size
            self._count(size, len(line) + 1, 1)
            self._trim(end)
        self._end = end
        self._trim(end)

    def _count(self, memory: int, text: int, records: int) -> None:
        self.memory += memory
        self.text += text
        self.records += records

    def _seal(self) -> None:
        """Makes a chunk of the lines."""
        if not self._lines:
            return
        chunk = chunk_of(self._lines, self._begin, self._end, self._ahead)
        self._lines = []
        self._count(chunk.memory - self._waiting, 0, 0)
        self._waiting = 0
        self._chunks.append(chunk)

    def _trim(self, now: int) -> None:
        """Lets the oldest chunks go until the ring is within its limits. Their age is that of the
        steady clock: they may not be corrected yet."""
        limits, steady = self.limits, now - self._ahead
        while self._chunks and (
            self.memory > limits.memory
            or self.text > limits.text
            or self.records > limits.records
            or self._chunks[0].end - self._chunks[0].ahead < steady - limits.span
        ):
            old = self._chunks.popleft()
            self._count(-old.memory, -old.text, -old.records)

    def chunks(self, begin: int = 0, end: int | None = None) -> list[Chunk]:
        """Those with records of the span, ns since 1970, oldest first: whole chunks, so up to a
        minute more."""
        found = list(self._chunks)
        if self._lines:
            found.append(chunk_of(self._lines, self._begin, self._end, self._ahead))
        return [one for one in found if one.end >= begin and (end is None or one.begin <= end)]

    def restamp(self, ahead: int, most: int | None = None) -> bool:
        """Corrects the times of chunks, the newest first, that were made before the wall clock was
        set, at most so many; True if none is left."""
        if self._lines and abs(ahead - self._ahead) >= STEP_NS:
            self._seal()
        for i in range(len(self._chunks) - 1, -1, -1):
            old = self._chunks[i]
            if abs(ahead - old.ahead) < STEP_NS:
                continue
            if most == 0:
                return False
            most = None if most is None else most - 1
            new = shifted(old, ahead - old.ahead)
            self._count(new.memory - old.memory, new.text - old.text, 0)
            self._chunks[i] = new
        if self._chunks and not self._lines:
            self._end, self._ahead = self._chunks[-1].end, self._chunks[-1].ahead
        self._trim(self._end)
        return True

    def restore(self, chunks: Sequence[Chunk]) -> None:
        """Puts chunks of an earlier process, in order of time, before all others."""
        before = self._chunks[0].begin if self._chunks else self._begin if self._lines else None
        older = [one for one in chunks if before is None or one.end <= before]
        for one in older:
            self._count(one.memory, one.text, one.records)
        self._chunks.extendleft(reversed(older))
        if older and before is None:
            self._end, self._ahead = older[-1].end, older[-1].ahead
        self._trim(self._end)


def shifted(chunk: Chunk, by: int) -> Chunk:
    """The chunk with all its times that much later, in ns."""
    lines = []
    for line in chunk.lines():
        record = json.loads(line)
        shift(record, by)
        lines.append(encode(record))
    new = chunk_of(lines, chunk.begin + by, chunk.end + by, chunk.ahead)
    return replace(new, ahead=chunk.ahead + by)


def shift(record: Json, by: int) -> None:
    """Makes the times of a record that much later, in ns."""
    measured = record.get("measurements")
    for one in (record, measured if isinstance(measured, dict) else {}):
        then = ns_of(str(one.get("time", "")))
        if then is not None and then + by >= 0:
            one["time"] = iso_utc(then + by)


def shift_old(records: Iterable[Json], at: int, by: int, now: int) -> None:
    """Shifts those whose time is of the clock before it was set, by so many ns; at is the time soon
    after that, now the present, both of the clock as it is. Of a clock set back such times lie in
    the future; of one set ahead before at, and by later they are not in the future. What began
    before that and was seen after it has the right time already."""
    for record in records:
        then = ns_of(str(record.get("time", "")))
        if then is None:
            continue
        late = now + STEP_NS
        if then > late if by < 0 else then < at - STEP_NS and then + by <= late:
            shift(record, by)


def members(data: bytes, most: int) -> Iterator[tuple[bytes, bytes]]:
    """Each gzip member of a file, and its text. Raises ValueError for what is damaged, cut short or
    has more than so many bytes of text."""
    at = 0
    while at < len(data):
        unpack = zlib.decompressobj(wbits=31)
        parts, begin = [], at
        while not unpack.eof:
            block = data[at : at + _READ]
            if not block:
                raise ValueError("it is cut short")
            try:
                parts.append(unpack.decompress(block, most + 1))
            except zlib.error as error:
                raise ValueError(str(error)) from None
            if unpack.unconsumed_tail:
                raise ValueError("it is too large")
            at += len(block) - len(unpack.unused_data)
            most -= len(parts[-1])
            if most < 0:
                raise ValueError("it is too large")
        yield data[begin:at], b"".join(parts)
