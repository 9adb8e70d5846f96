"""Whether a candidate is better than the baseline, from blocks of measurement.

The unit is the block, never the single fsync. Two adjacent blocks, one under the baseline (A) and
one under the candidate (B), make a pair, and a pair gives one number: log(B/A) of a cost (less is
better). A coin decides for each pair which block comes first (`order`). If A and B are the same,
that coin alone determines the sign of each number, so the sign-flip test holds for any noise: heavy
tails, drift, waves with the period of the blocks.

This requires that only the values depend on the coins: the session waits by the same rule before
every block, even if the values do not change.

docs/statistics.md explains it in plain words, with error rates and limits.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import compress
from operator import add
from statistics import NormalDist, StatisticsError

BETTER = "better"
EQUIVALENT = "equivalent"
WORSE = "worse"
INCONCLUSIVE = "inconclusive"

ALPHA = 0.05
POWER = 0.8

_FEWEST = 6  # pairs at the first look
_MOST_LOOKS = 3
_EXACT = 14  # up to this number of pairs all signs are tried
_FLIPS = 1 << 15
_RESAMPLES = 4999
_BITS = 8  # of a byte, which flips as many pairs


@dataclass(frozen=True)
class Verdict:
    """The result of a comparison of costs. change, low and high are the ratio B/A minus 1 (-0.2:
    20 % less); p is one-sided, for a decrease."""

    kind: str
    change: float
    low: float
    high: float
    p: float
    pairs: int


def order(pairs: int, seed: int) -> list[str]:
    """The label, "A" or "B", of each block in time order; random within each pair."""
    coins = random.Random(seed)
    return [name for _ in range(pairs) for name in coins.choice(("AB", "BA"))]


def log_ratios(blocks: Sequence[tuple[str, float]]) -> list[float]:
    """log(B/A) of each pair of adjacent blocks ("A" or "B", cost) in time order.

    A last block without a partner is ignored. Raises ValueError if a pair has two of a kind, or a
    cost is not a positive number.
    """
    ratios = []
    for first, second in zip(blocks[::2], blocks[1::2]):
        pair = dict((first, second))
        if pair.keys() != {"A", "B"}:
            raise ValueError(f"a pair of blocks is {first[0]} and {second[0]}, not A and B")
        if not all(0 < cost < math.inf for cost in pair.values()):
            raise ValueError(f"the cost of a block is {min(pair.values())}, not a positive number")
        ratios.append(math.log(pair["B"] / pair["A"]))
    return ratios


@lru_cache(maxsize=4)
def flips(pairs: int) -> tuple[bytes, ...]:
    """All ways to flip signs, or many random ones (always the same), the first flipping none: bit b
    of byte i of the string c says whether way i flips pair 8 c + b."""
    columns = range(max(1, math.ceil(pairs / _BITS)))
    if pairs <= _EXACT:
        return tuple(bytes(way >> _BITS * c & 255 for way in range(1 << pairs)) for c in columns)
    coins = random.Random(pairs)
    return tuple(b"\0" + coins.randbytes(_FLIPS - 1) for _ in columns)


def _flipped(values: Sequence[float]) -> list[float]:
    """The sum of those values that each of `flips` flips. With a table for each byte, which takes
    milliseconds."""
    sums: list[float] = []
    for place, column in enumerate(flips(len(values))):
        table = [0.0]
        for bit in range(_BITS * place, _BITS * (place + 1)):
            value = values[bit] if bit < len(values) else 0.0
            table += [value + one for one in table]
        part = map(table.__getitem__, column)
        sums = list(map(add, sums, part) if sums else part)
    return sums


@lru_cache(maxsize=4)
def _sizes(pairs: int) -> list[float]:
    """How many signs each of `flips` flips."""
    return _flipped([1.0] * pairs)


def sign_flip_p(ratios: Sequence[float]) -> float:
    """One-sided p of the sign-flip test for a mean below 0: the share of sign assignments whose
    mean is at least as low. Exact up to 14 pairs, then from 32,768 assignments: the real one and
    random ones."""
    size = math.fsum(map(abs, ratios))
    if not size:
        return 1.0
    # flipping makes the mean lower or leaves it if the sum of what it flips is not negative; sums
    # that differ only by rounding are equal
    sums = _flipped([ratio / size for ratio in ratios])
    return sum(one >= -1e-12 for one in sums) / len(sums)


def interval(ratios: Sequence[float], confidence: float, seed: int = 0) -> tuple[float, float]:
    """Two-sided interval of the mean log ratio; infinite with too few pairs.

    A bootstrap interval (BCa) is too narrow for few pairs: at six it misses two to four times as
    often as it claims. So it is widened to what the sign-flip test does not exclude.
    """
    test = _not_excluded(ratios, (1 - confidence) / 2)
    if len(ratios) < 2 or max(ratios) - min(ratios) <= 1e-12 * max(map(abs, ratios)):
        return test
    low, high = bootstrap(ratios, confidence, random.Random(seed).choices)
    return min(test[0], low), max(test[1], high)


def _not_excluded(values: Sequence[float], tail: float) -> tuple[float, float]:
    """The lowest and highest mean that the sign-flip test does not exclude at the level tail.

    It excludes a mean m if at most a share tail of all subsets, including the empty one, has a
    mean of m or more (or less; Hartigan 1969, "Using Subsample Values as Typical Values").
    """
    sums, sizes = _flipped(values), _sizes(len(values))
    means = sorted(one / size for one, size in zip(compress(sums, sizes), filter(None, sizes)))
    # an empty subset has a mean beyond all
    rank = int(tail * len(sums) + 1e-9) - (len(sums) - len(means))
    return (means[rank], means[-1 - rank]) if rank >= 0 else (-math.inf, math.inf)


def bootstrap(
    values: Sequence[float], confidence: float, draw: Callable[..., list[float]]
) -> tuple[float, float]:
    """The BCa interval of the mean (Efron 1987, "Better Bootstrap Confidence Intervals"), or where
    that is not defined the percentile interval. draw is random.choices or the like. At least two
    different values."""
    count = len(values)
    mean = math.fsum(values) / count
    # fsum: resamples of the same values in another order must have the same mean
    means = sorted(math.fsum(draw(values, k=count)) / count for _ in range(_RESAMPLES))
    shares = [(1 - confidence) / 2, (1 + confidence) / 2]
    normal = NormalDist()
    below = sum((one < mean) + (one <= mean) for one in means) / (2 * _RESAMPLES)
    # the jackknife's influences are, for the mean, the distances from it
    away = [value - mean for value in values]
    try:
        skewness = math.fsum(one**3 for one in away) / math.fsum(one**2 for one in away) ** 1.5
        bias = normal.inv_cdf(below)
        moved = [bias + normal.inv_cdf(share) for share in shares]
        shares = [normal.cdf(bias + z / (1 - skewness / 6 * z)) for z in moved]
    except (StatisticsError, ZeroDivisionError):
        pass
    return _percentile(means, shares[0]), _percentile(means, shares[1])


def _percentile(ordered: Sequence[float], share: float) -> float:
    """Interpolated linearly."""
    place = share * (len(ordered) - 1)
    below = min(int(place), len(ordered) - 2)
    low, high = ordered[below : below + 2]
    return low + (place - below) * (high - low)


@dataclass(frozen=True)
class Design:
    """When a comparison looks at its pairs. alpha bounds, over all looks, the probability of
    `better` without a gain; a change within +-margin counts as none."""

    looks: tuple[int, ...]
    alpha: float
    margin: float

    @property
    def alphas(self) -> tuple[float, ...]:
        """The part of alpha that each look spends; the sum is alpha.

        The first spends the smallest p that its pairs can have; the others share the rest in
        proportion to their pairs.
        """
        first, *later = self.looks
        if not later:
            return (self.alpha,)
        spent = 0.5**first
        rest = (self.alpha - spent) / sum(later)
        return (spent, *(rest * pairs for pairs in later))


def design_for(max_pairs: int, margin: float, alpha: float = ALPHA) -> Design:
    """The looks at up to max_pairs: the last at all, each earlier one at half of the next, the
    first at 6 (more if alpha is small). Raises ValueError if so few pairs cannot prove anything."""
    if 0.5**max_pairs > alpha:
        fewest = math.ceil(-math.log2(alpha))
        raise ValueError(
            f"{max_pairs} pairs of blocks cannot prove a gain: {fewest} are the fewest"
        )
    first = _FEWEST
    while 0.5**first > alpha / 3:
        first += 1
    looks: list[int] = []
    pairs = max_pairs
    while pairs > first and len(looks) < _MOST_LOOKS - 1:
        looks.insert(0, pairs)
        pairs //= 2
    looks.insert(0, min(first, max_pairs))
    return Design(tuple(looks), alpha, margin)


def pairs_within(seconds: float, block: float, settle: float) -> int:
    """The number of pairs that fit into this time, with settle before every block; all in
    seconds."""
    return int(seconds / (2 * (settle + block)))


class Sequential:
    """A comparison that ends at the first look that decides it."""

    def __init__(self, design: Design, seed: int = 0) -> None:
        self.design = design
        self.ratios: list[float] = []
        self._seed = seed
        self._looked = 0
        self._verdict: Verdict | None = None

    def add(self, ratio: float) -> Verdict | None:
        """Adds a pair. Returns the verdict if that ends the comparison, else None."""
        if self._verdict is not None:
            raise ValueError("the comparison has ended")
        self.ratios.append(ratio)
        looks = self.design.looks
        if len(self.ratios) != looks[self._looked]:
            return None
        found = self._judge(self.design.alphas[self._looked])
        self._looked += 1
        if found.kind != INCONCLUSIVE or self._looked == len(looks) or self._hopeless(found):
            self._verdict = found
        return self._verdict

    def verdict(self) -> Verdict:
        """The final verdict when there is no time for more pairs. It spends the rest of alpha, so
        it must not be asked for repeatedly: that is `so_far`."""
        if self._verdict is None:
            self._verdict = self._judge(sum(self.design.alphas[self._looked :]))
        return self._verdict

    def so_far(self) -> Verdict:
        """For progress: the interval so far, `inconclusive` until the comparison has ended."""
        return self._verdict or self._measure(self.design.alphas[-1])

    def _measure(self, alpha: float) -> Verdict:
        mean = math.fsum(self.ratios) / max(1, len(self.ratios))
        low, high = interval(self.ratios, 1 - 2 * alpha, self._seed)
        return Verdict(
            INCONCLUSIVE,
            math.expm1(mean),
            math.expm1(low),
            math.expm1(high),
            sign_flip_p(self.ratios),
            len(self.ratios),
        )

    def _judge(self, alpha: float) -> Verdict:
        found = self._measure(alpha)
        margin = self.design.margin
        kind = INCONCLUSIVE
        if -margin <= found.low and found.high <= margin:
            kind = EQUIVALENT
        elif found.p <= alpha and found.high < 0:
            kind = BETTER
        elif found.low > 0 and sign_flip_p([-r for r in self.ratios]) <= alpha:
            kind = WORSE
        return Verdict(kind, found.change, found.low, found.high, found.p, found.pairs)

    def _hopeless(self, found: Verdict) -> bool:
        """Whether a relevant gain is excluded, or half of the pairs show none. Stopping here cannot
        make `better` more frequent."""
        halfway = 2 * found.pairs >= self.design.looks[-1]
        return found.low > -self.design.margin or (halfway and found.change >= 0)


def noise(aa_ratios: Sequence[float], pairs: int, alpha: float = ALPHA) -> float:
    """The smallest gain that a comparison of this many pairs detects with 80 % probability, as a
    positive share (0.2: 20 % less); from pairs without a change. 1.0 if unknown."""
    if not aa_ratios or pairs < 2:
        return 1.0
    # their true mean is 0
    spread = math.sqrt(math.fsum(ratio**2 for ratio in aa_ratios) / len(aa_ratios))
    last = design_for(max(pairs, _FEWEST), 0.0, alpha).alphas[-1]
    needed = student_quantile(1 - last, pairs - 1) + student_quantile(POWER, pairs - 1)
    return -math.expm1(-needed * spread / math.sqrt(pairs))


def student_quantile(share: float, freedom: int) -> float:
    """The quantile of Student's t, for a share from 0.5 and whole degrees of freedom, by
    bisection."""
    low, high = 0.0, 1.0
    while _student_within(high, freedom) < 2 * share - 1:
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:
        if _student_within(middle, freedom) < 2 * share - 1:
            low = middle
        else:
            high = middle
    return middle


def _student_within(t: float, freedom: int) -> float:
    """The probability of values from -t to t (Abramowitz and Stegun 26.7.3 and 26.7.4)."""
    angle = math.atan2(t, math.sqrt(freedom))
    cosine, odd = math.cos(angle), freedom % 2
    term, terms = (cosine if odd else 1.0), 0.0
    for k in range(2 + odd, freedom + 1, 2):
        terms += term
        term *= (k - 1) / k * cosine**2
    inside = math.sin(angle) * terms
    return 2 / math.pi * (angle + inside) if odd else inside
