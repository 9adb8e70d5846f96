"""Whether a candidate is better than the baseline, from blocks of measurement.

The unit is the block, never the single fsync. Two adjacent blocks, one under the baseline (A) and
one under the candidate (B), make a pair, and a pair gives one number: log(B/A) of a cost (less is
better). A coin decides for each pair which block comes first (`order`). If A and B are the same,
that coin alone determines the sign of each number, so a test that depends on the signs alone holds
for any noise: heavy tails, drift, waves with the period of the blocks. The test is of ranks, so one
pair of a stalled disk weighs no more than the next largest.

This requires that only the values depend on the coins: the session waits by the same rule before
every block, even if the values do not change.

docs/statistics.md explains it in plain words, with error rates and limits.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import median

from zfstrace.student import student_quantile

BETTER = "better"
EQUIVALENT = "equivalent"
WORSE = "worse"
INCONCLUSIVE = "inconclusive"

ALPHA = 0.05
POWER = 0.8

_FEWEST = 6  # pairs at the first look
_MOST_LOOKS = 3


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


def signed_rank_p(ratios: Sequence[float]) -> float:
    """One-sided p of Wilcoxon's signed-rank test for ratios below 0: the share of all ways to give
    them signs in which the ranks of the positive ones sum to no more. Exact, for any number of
    ratios, equal ones and zeros included (these keep their ranks and have no sign; Pratt 1959,
    "Remarks on Zeros and Ties in the Wilcoxon Signed Rank Procedures")."""
    sizes = sorted(map(abs, ratios))
    # twice the mean rank of equal sizes is whole
    ranks = {size: bisect_left(sizes, size) + bisect_right(sizes, size) + 1 for size in sizes}
    signed = [(ranks[abs(ratio)], ratio > 0) for ratio in ratios if ratio]
    return _share(tuple(sorted(rank for rank, _ in signed)), sum(map(math.prod, signed)))


def critical(pairs: int, tail: float) -> int:
    """The largest sum of the ranks of positive ratios whose p is at most tail; -1 if none is."""
    ranks = tuple(range(1, pairs + 1))
    low, high = -1, sum(ranks)
    while low < high:
        middle = (low + high + 1) // 2
        if _share(ranks, middle) <= tail:
            low = middle
        else:
            high = middle - 1
    return low


def _share(ranks: tuple[int, ...], most: int) -> float:
    """The share of subsets of ranks whose sum is at most that."""
    bits = len(ranks) + 1
    below = _subsets(ranks) & (1 << bits * (most + 1)) - 1
    # the sum of the digits of a number leaves the same rest by the largest digit
    return below % ((1 << bits) - 1) / (1 << len(ranks)) if ranks else 1.0


@lru_cache(maxsize=16)
def _subsets(ranks: tuple[int, ...]) -> int:
    """How many subsets of ranks have each sum: digit s, of len(ranks) + 1 bits, is that of s."""
    counts = 1
    for rank in ranks:
        counts += counts << rank * (len(ranks) + 1)
    return counts


def interval(ratios: Sequence[float], confidence: float) -> tuple[float, float]:
    """The two-sided interval of the log ratios that the signed-rank test does not exclude; infinite
    with too few pairs (Hodges and Lehmann 1963, "Estimates of Location Based on Rank Tests")."""
    means = _walsh(ratios)
    place = critical(len(ratios), (1 - confidence) / 2 + 1e-12)
    return (means[place], means[-1 - place]) if place >= 0 else (-math.inf, math.inf)


def location(ratios: Sequence[float]) -> float:
    """The log ratio that the signed-rank test excludes last: the median of the means of all two of
    them, each with itself, too. 0 without any."""
    means = _walsh(ratios)
    return median(means) if means else 0.0


def _walsh(ratios: Sequence[float]) -> list[float]:
    return sorted((one + other) / 2 for k, one in enumerate(ratios) for other in ratios[: k + 1])


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
    first = fewest_pairs(alpha)
    looks: list[int] = []
    pairs = max_pairs
    while pairs > first and len(looks) < _MOST_LOOKS - 1:
        looks.insert(0, pairs)
        pairs //= 2
    looks.insert(0, min(first, max_pairs))
    return Design(tuple(looks), alpha, margin)


def fewest_pairs(alpha: float) -> int:
    """The pairs at the first look of a comparison with more than one: the smallest p that they can
    have leaves a third of alpha to later looks."""
    first = _FEWEST
    while 0.5**first > 2 / 3 * alpha:
        first += 1
    return first


def pairs_within(seconds: float, block: float, settle: float) -> int:
    """The number of pairs that fit into this time, with settle before every block; all in
    seconds."""
    return int(seconds / (2 * (settle + block)))


class Sequential:
    """A comparison that ends at the first look that decides it."""

    def __init__(self, design: Design) -> None:
        self.design = design
        self.ratios: list[float] = []
        self._looked = 0
        self._verdict: Verdict | None = None
        # the part of alpha for the looks so far
        self.spent = 0.0

    @property
    def ended(self) -> bool:
        return self._verdict is not None

    def add(self, ratio: float) -> Verdict | None:
        """Adds a pair. Returns the verdict if that ends the comparison, else None."""
        if self._verdict is not None:
            raise ValueError("the comparison has ended")
        self.ratios.append(ratio)
        looks = self.design.looks
        if len(self.ratios) != looks[self._looked]:
            return None
        alpha = self.design.alphas[self._looked]
        self.spent += alpha
        found = self._judge(alpha)
        self._looked += 1
        if found.kind != INCONCLUSIVE or self._looked == len(looks) or self._hopeless(found):
            self._verdict = found
        return self._verdict

    def verdict(self) -> Verdict:
        """The final verdict when there is no time for more pairs. It spends the rest of alpha, so
        it must not be asked for repeatedly: that is `so_far`."""
        if self._verdict is None:
            rest = sum(self.design.alphas[self._looked :])
            self.spent += rest
            self._verdict = self._judge(rest)
        return self._verdict

    def so_far(self) -> Verdict:
        """For progress: the interval so far, `inconclusive` until the comparison has ended."""
        return self._verdict or self._measure(self.design.alphas[-1])

    def _measure(self, alpha: float) -> Verdict:
        low, high = interval(self.ratios, 1 - 2 * alpha)
        return Verdict(
            INCONCLUSIVE,
            math.expm1(location(self.ratios)),
            math.expm1(low),
            math.expm1(high),
            signed_rank_p(self.ratios),
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
        elif found.low > 0 and signed_rank_p([-ratio for ratio in self.ratios]) <= alpha:
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
    return -math.expm1(-_detected(aa_ratios, pairs, alpha))


def pairs_for(aa_ratios: Sequence[float], change: float) -> int:
    """About how many pairs detect a log ratio other than 0, in the sense of `noise`: the error of a
    mean falls with the root of their number."""
    many = 5 * _FEWEST
    return max(_FEWEST, math.ceil(many * (_detected(aa_ratios, many, ALPHA) / change) ** 2))


def _detected(aa_ratios: Sequence[float], pairs: int, alpha: float) -> float:
    """The gain of `noise`, as the amount of a log ratio."""
    # their true mean is 0
    spread = math.sqrt(math.fsum(ratio**2 for ratio in aa_ratios) / len(aa_ratios))
    last = design_for(max(pairs, _FEWEST), 0.0, alpha).alphas[-1]
    needed = student_quantile(1 - last, pairs - 1) + student_quantile(POWER, pairs - 1)
    return needed * spread / math.sqrt(pairs)
