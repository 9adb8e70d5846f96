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
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

BETTER = "better"
EQUIVALENT = "equivalent"
WORSE = "worse"
INCONCLUSIVE = "inconclusive"

ALPHA = 0.05
POWER = 0.8

_FEWEST = 6  # pairs at the first look
_MOST_LOOKS = 3
_EXACT = 14  # up to this number of pairs all signs are tried
_FLIPS = (1 << 15) - 1
_RESAMPLES = 4999

Floats = npt.NDArray[np.float64]


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
    coins = np.random.default_rng(seed).integers(0, 2, pairs)
    return [name for coin in coins for name in ("AB" if coin else "BA")]


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
def signs(pairs: int) -> npt.NDArray[np.float32]:
    """All combinations of signs as rows, or many random ones (always the same), the first all
    positive."""
    if pairs <= _EXACT:
        bits = np.arange(1 << pairs)[:, None] >> np.arange(pairs) & 1
    else:
        bits = np.random.default_rng(pairs).integers(0, 2, (_FLIPS + 1, pairs))
        bits[0] = 0
    return (1 - 2 * bits).astype(np.float32)


@lru_cache(maxsize=4)
def _flipped(pairs: int) -> npt.NDArray[np.int64]:
    """The number of negative signs in each row of `signs`."""
    return np.asarray((signs(pairs) < 0).sum(axis=1))


def _sums(values: Floats) -> Floats:
    """The sum of values with each row of `signs`. Without BLAS, whose threads would take CPUs from
    the measured load."""
    sums: Floats = np.einsum("ij,j->i", signs(len(values)), values.astype(np.float32))
    return sums


def sign_flip_p(ratios: Sequence[float] | Floats) -> float:
    """One-sided p of the sign-flip test for a mean below 0: the share of sign assignments whose
    mean is at least as low. Exact up to 14 pairs, then from 32,768 random assignments."""
    values = np.asarray(ratios, dtype=np.float64)
    largest = np.abs(values).max(initial=0.0)
    if not largest:
        return 1.0
    values = values / largest
    # sums that differ only by rounding are equal
    limit = values.sum() + 1e-5 * np.abs(values).sum()
    return float(np.mean(_sums(values) <= limit))


def interval(
    ratios: Sequence[float] | Floats, confidence: float, seed: int = 0
) -> tuple[float, float]:
    """Two-sided interval of the mean log ratio; infinite with too few pairs.

    A bootstrap interval (BCa) is too narrow for few pairs: at six it misses two to four times as
    often as it claims. So it is widened to what the sign-flip test does not exclude.
    """
    values = np.asarray(ratios, dtype=np.float64)
    tail = (1 - confidence) / 2
    test = -_highest(-values, tail), _highest(values, tail)
    if len(values) < 2 or np.ptp(values) <= 1e-12 * np.abs(values).max():
        return test
    bootstrap = _bootstrap(values, confidence, seed)
    return min(test[0], bootstrap[0]), max(test[1], bootstrap[1])


def _highest(values: Floats, tail: float) -> float:
    """The highest mean that the sign-flip test does not exclude at the level tail.

    It excludes a mean m if at most a share tail of all subsets, including the empty one, has a
    mean of m or more (Hartigan 1969, "Using Subsample Values as Typical Values").
    """
    sizes = _flipped(len(values))
    # the sum of each flipped subset: half the difference between all and all with it flipped
    sums = (values.sum() - _sums(values)) / 2
    means = np.where(sizes > 0, sums / np.maximum(sizes, 1), np.inf)
    rank = len(means) - 1 - int(tail * len(means) + 1e-9)
    return float(np.partition(means, rank)[rank])


def _bootstrap(values: Floats, confidence: float, seed: int) -> tuple[float, float]:
    for method in ("BCa", "percentile"):  # BCa is not defined for some data
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found: Any = stats.bootstrap(
                (values,),
                np.mean,
                confidence_level=confidence,
                n_resamples=_RESAMPLES,
                vectorized=True,
                method=method,
                random_state=np.random.default_rng(seed),
            ).confidence_interval
        if math.isfinite(found.low) and math.isfinite(found.high):
            break
    return float(found.low), float(found.high)


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
        mean = float(np.mean(self.ratios)) if self.ratios else 0.0
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
    values = np.asarray(aa_ratios, dtype=np.float64)
    if not len(values) or pairs < 2:
        return 1.0
    spread = math.sqrt(float(np.mean(values**2)))  # their true mean is 0
    last = design_for(max(pairs, _FEWEST), 0.0, alpha).alphas[-1]
    needed = stats.t.isf(last, pairs - 1) + stats.t.ppf(POWER, pairs - 1)
    return -math.expm1(-float(needed) * spread / math.sqrt(pairs))
