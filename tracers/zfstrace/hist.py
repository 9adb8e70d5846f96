"""Log-linear histograms of times: the Python twin of the one in C.

32 sub-buckets per power of two, so a bucket is at most 1/32 of its value wide; values below 64 have
a bucket each, values of 2^42 ns and above share the last. Indexes, bounds and quantiles equal those
of zfstrace_hist_*() in tracers/libzfstrace; a test compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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
        before = 0
        for bucket in sorted(self.buckets):
            inside = self.buckets[bucket]
            if rank <= before + inside:
                start = low(bucket)
                width = low(bucket + 1) - start
                return min(self.max_ns, start + width * (rank - before) // inside)
            before += inside
        # The kernel updates count and bucket in two steps, and a reader may see only one.
        return self.max_ns

    def merge(self, other: Hist) -> Hist:
        """The sum of two histograms."""
        if not other.count:
            return self
        if not self.count:
            return other
        buckets = dict(self.buckets)
        for bucket, n in other.buckets.items():
            buckets[bucket] = buckets.get(bucket, 0) + n
        return Hist(
            self.count + other.count,
            self.sum_ns + other.sum_ns,
            max(self.max_ns, other.max_ns),
            buckets,
        )

    def subtract(self, earlier: Hist) -> Hist:
        """The values added since an earlier state of the same histogram.

        The maximum of an interval is not recorded: the upper bound of its highest bucket replaces
        it, which is less than 1/32 too high.
        """
        buckets = {
            bucket: n - earlier.buckets.get(bucket, 0)
            for bucket, n in self.buckets.items()
            if n > earlier.buckets.get(bucket, 0)
        }
        if not buckets:
            return Hist()
        highest = max(buckets)
        bound = low(highest + 1) - 1 if highest < BUCKETS - 1 else self.max_ns
        return Hist(
            max(0, self.count - earlier.count),
            max(0, self.sum_ns - earlier.sum_ns),
            min(self.max_ns, bound),
            buckets,
        )

    def rows(self) -> tuple[tuple[int, int, int], ...]:
        """(low, high, count) of each non-empty bucket, ascending, in ns."""
        return tuple((low(b), low(b + 1), self.buckets[b]) for b in sorted(self.buckets))
