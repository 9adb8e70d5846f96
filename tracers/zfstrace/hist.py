"""Log-linear histograms of times: the Python twin of the one in C.

32 sub-buckets per power of two, so a bucket is at most 1/32 of its value wide; values below 64 have
a bucket each, values of 2^42 ns and above share the last. Indexes, bounds and quantiles equal those
of zfstrace_hist_*() in tracers/libzfstrace; a test compares them.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left
from collections.abc import ItemsView, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

SUB_BITS = 5
SUB = 1 << SUB_BITS
MAX_BITS = 42
BUCKETS = (MAX_BITS - SUB_BITS + 1) * SUB


def index(value: int) -> int:
    """The bucket of a value in ns (not negative)."""
    if value < 2 * SUB:
        return value
    if value >> MAX_BITS:
        return BUCKETS - 1
    shift = value.bit_length() - 1 - SUB_BITS
    return (shift << SUB_BITS) + (value >> shift)


def low(bucket: int) -> int:
    """The first value of a bucket; low(BUCKETS) is 2^42."""
    if bucket < 2 * SUB:
        return bucket
    return (SUB + bucket % SUB) << (bucket // SUB - 1)


_LOWS = tuple(map(low, range(BUCKETS + 1)))


class Table(Mapping[int, int]):
    """The non-empty buckets of all, kept as one number that has them as digits of 64 bits: sums and
    differences of tables are those of two numbers, and what is never asked for is never read."""

    def __init__(self, digits: int) -> None:
        self._digits = digits

    @classmethod
    def of(cls, raw: bytes) -> Table:
        """From an array of 64-bit counts in this machine's order of bytes."""
        if sys.byteorder == "big":
            counts = array("Q", raw)
            counts.byteswap()
            raw = counts.tobytes()
        return cls(int.from_bytes(raw, "little"))

    def columns(self) -> tuple[list[int], list[int]]:
        """The non-empty buckets, ascending, and their counts."""
        digits = self._digits
        first = max(0, (digits & -digits).bit_length() - 1) // 64
        digits >>= 64 * first
        size = self.end - first
        found = struct.unpack(f"<{size}Q", digits.to_bytes(8 * size, "little"))
        return [i for i, n in enumerate(found, first) if n], [n for n in found if n]

    @cached_property
    def _counts(self) -> dict[int, int]:
        return dict(zip(*self.columns()))

    @property
    def end(self) -> int:
        """The bucket after the last that is not empty; 0 if all are."""
        return -(-self._digits.bit_length() // 64)

    def items(self) -> ItemsView[int, int]:
        """The non-empty buckets, ascending, and their counts."""
        return self._counts.items()

    def total(self) -> int:
        """The sum of all."""
        return sum(self._counts.values())

    def plus(self, other: Table) -> Table:
        """The sum of two."""
        return Table(self._digits + other._digits)

    def since(self, earlier: Table) -> Table:
        """What was added. No bucket ever shrinks, so no digit borrows from the next."""
        return Table(max(0, self._digits - earlier._digits))

    def __getitem__(self, bucket: int) -> int:
        return self._counts[bucket]

    def __iter__(self) -> Iterator[int]:
        return iter(self._counts)

    def __len__(self) -> int:
        return len(self._counts)


@dataclass(frozen=True)
class Hist:
    """A distribution of times in ns. buckets has the non-empty ones."""

    count: int = 0
    sum_ns: int = 0
    max_ns: int = 0
    buckets: Mapping[int, int] = field(default_factory=dict)

    def quantile(self, permille: int) -> int:
        """The value in ns below which permille/1000 of the values lie, interpolated within its
        bucket, at most max_ns; 0 without values."""
        if not self.count:
            return 0
        rank = max(1, (self.count * permille + 999) // 1000)
        buckets, counts, sums = self._ranks
        i = bisect_left(sums, rank)
        if i == len(sums):
            # The kernel updates count and bucket in two steps, and a reader may see only one.
            return self.max_ns
        start, end = _LOWS[buckets[i]], _LOWS[buckets[i] + 1]
        inside = counts[i]
        return min(self.max_ns, start + (end - start) * (rank - sums[i] + inside) // inside)

    @cached_property
    def _ranks(self) -> tuple[list[int], list[int], list[int]]:
        """The non-empty buckets, ascending; how many values are in each; and in those up to it."""
        if isinstance(self.buckets, Table):
            buckets, counts = self.buckets.columns()
        else:
            buckets = sorted(self.buckets)
            counts = [self.buckets[bucket] for bucket in buckets]
        return buckets, counts, list(accumulate(counts))

    def merge(self, other: Hist) -> Hist:
        """The sum of two histograms."""
        if not other.count:
            return self
        if not self.count:
            return other
        return Hist(
            self.count + other.count,
            self.sum_ns + other.sum_ns,
            max(self.max_ns, other.max_ns),
            _sum(self.buckets, other.buckets),
        )

    def subtract(self, earlier: Hist) -> Hist:
        """The values added since an earlier state of the same histogram.

        The maximum of an interval is not recorded: the upper bound of its highest bucket replaces
        it, which is less than 1/32 too high.
        """
        buckets, end = _difference(self.buckets, earlier.buckets)
        if not end:
            return Hist()
        bound = low(end) - 1 if end < BUCKETS else self.max_ns
        return Hist(
            max(0, self.count - earlier.count),
            max(0, self.sum_ns - earlier.sum_ns),
            min(self.max_ns, bound),
            buckets,
        )

    def rows(self) -> tuple[tuple[int, int, int], ...]:
        """(low, high, count) of each non-empty bucket, ascending, in ns."""
        buckets, counts, _ = self._ranks
        return tuple((_LOWS[b], _LOWS[b + 1], n) for b, n in zip(buckets, counts))


def _sum(one: Mapping[int, int], other: Mapping[int, int]) -> Mapping[int, int]:
    if isinstance(one, Table) and isinstance(other, Table):
        return one.plus(other)
    buckets = dict(one)
    for bucket, n in other.items():
        buckets[bucket] = buckets.get(bucket, 0) + n
    return buckets


def _difference(
    now: Mapping[int, int], earlier: Mapping[int, int]
) -> tuple[Mapping[int, int], int]:
    """What was added, and the bucket after the last of it; 0 if nothing was."""
    if isinstance(now, Table) and isinstance(earlier, Table):
        table = now.since(earlier)
        return table, table.end
    buckets = {
        bucket: n - earlier.get(bucket, 0)
        for bucket, n in now.items()
        if n > earlier.get(bucket, 0)
    }
    return buckets, max(buckets, default=-1) + 1
