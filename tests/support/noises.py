"""Made-up noise for the error rates of verdicts: nine kinds of it, by the latency of single fsyncs,
and candidates that break a test which only looks at whether most pairs are better.

A session is drawn as it is measured: blocks of seconds, a wait before each, a coin for each pair.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Random = np.random.Generator

BLOCK_S, WAIT_S = 10, 10
# the wait varies by up to so much, as txgs do
_JITTER_S = 3.0
_TAIL, _BODY = 0.02, 0.6


def steady(_random: Random, seconds: int) -> Floats:
    return np.zeros(seconds)


def _waves(random: Random, seconds: int, memory: float, size: float) -> Floats:
    """Latency that forgets a share 1 - memory of its deviation each second."""
    steps = random.normal(0, size * math.sqrt(1 - memory**2), seconds)
    level = np.zeros(seconds)
    for second in range(1, seconds):
        level[second] = memory * level[second - 1] + steps[second]
    return level


def fast_waves(random: Random, seconds: int) -> Floats:
    return _waves(random, seconds, 0.97, 0.5)


def slow_waves(random: Random, seconds: int) -> Floats:
    return _waves(random, seconds, 0.998, 0.6)


def bursts(random: Random, seconds: int) -> Floats:
    """Now and then three to fifteen times as slow, for seconds or minutes."""
    level, at = np.zeros(seconds), 0
    while (at := at + 1 + int(random.exponential(90))) < seconds:
        length = 2 + int(4 * random.pareto(1.3))
        level[at : at + length] += math.log(random.uniform(3, 15))
        at += length
    return level


def drift(random: Random, seconds: int) -> Floats:
    trend = random.uniform(-1.2, 1.2) * np.arange(seconds) / seconds
    return trend + np.cumsum(random.normal(0, 0.012, seconds))


def shifts(random: Random, seconds: int) -> Floats:
    """Another level every few minutes."""
    level, at = np.zeros(seconds), 0
    while at < seconds:
        length = 20 + int(random.exponential(240))
        level[at : at + length] = random.normal(0, 0.9)
        at += length
    return level


def sine(random: Random, seconds: int) -> Floats:
    """In step with the pairs."""
    period = random.uniform(15, 45)
    return 0.8 * np.sin(2 * np.pi * (np.arange(seconds) / period + random.random()))


def syncs(random: Random, seconds: int) -> Floats:
    """Six times as slow while a txg is synced."""
    period = random.uniform(3, 8)
    phase = (np.arange(seconds) / period + random.random()) % 1
    return np.where(phase < 0.4, math.log(6), 0.0)


# Latency of the other seconds; with heavy tails one fsync in 33 has an infinite mean
NOISES: dict[str, tuple[Callable[[Random, int], Floats], bool]] = {
    "steady": (steady, False),
    "fast waves": (fast_waves, False),
    "slow waves": (slow_waves, False),
    "bursts": (bursts, False),
    "drift": (drift, False),
    "shifts": (shifts, False),
    "sine": (sine, False),
    "syncs": (syncs, False),
    "heavy tails": (steady, True),
}


def _p99(level: Floats, random: Random, fsyncs: float, *, heavy: bool) -> float:
    """The log of the p99 of a block whose seconds have this level."""
    count = max(20, int(random.poisson(fsyncs)))
    found = level[random.integers(0, len(level), count)]
    if heavy:
        slow = random.random(count) < 1 / 33
        found = found + random.normal(0, 0.4, count) + slow * np.log1p(random.pareto(0.8, count))
    else:
        slow = random.random(count) < _TAIL
        found = found + random.normal(0, _BODY, count) + slow * random.exponential(1.2, count)
    return float(np.partition(found, rank := math.ceil(0.99 * count) - 1)[rank])


def sessions(
    name: str, count: int, pairs: int, fsyncs: float, seed: int, waits: tuple[float, float]
) -> Floats:
    """The log ratios of so many sessions (rows) by pairs, of candidates that change nothing.
    fsyncs: the mean number in a block. waits: before a block under A, and one under B."""
    make, heavy = NOISES[name]
    random = np.random.default_rng(seed)
    ratios = np.empty((count, pairs))
    for row in ratios:
        seconds = math.ceil(2 * pairs * (BLOCK_S + max(waits) + _JITTER_S)) + BLOCK_S
        level, at = make(random, seconds), 0.0
        for pair, b_first in enumerate(random.random(pairs) < 0.5):
            costs = [0.0, 0.0]
            for side in (1, 0) if b_first else (0, 1):
                at += waits[side] + random.uniform(0, _JITTER_S)
                block = level[int(at) : int(at) + BLOCK_S]
                costs[side] = _p99(block, random, fsyncs, heavy=heavy)
                at += BLOCK_S
            row[pair] = costs[1] - costs[0]
    return ratios


@dataclass(frozen=True)
class NowAndThen:
    """A candidate that is bad in a share of its blocks, by a factor, and better in the others, so
    that the mean log ratio is 0."""

    share: float
    factor: float

    @property
    def better(self) -> float:
        """The log ratio of the other blocks."""
        return -self.share * math.log(self.factor) / (1 - self.share)

    def costs(self, random: Random, shape: tuple[int, ...]) -> Floats:
        """The log of the cost of blocks under it; without noise, 0 is the baseline's."""
        bad = random.random(shape) < self.share
        return np.where(bad, math.log(self.factor), self.better)

    def __str__(self) -> str:
        return f"{self.share:.0%} of the blocks {self.factor:g} times as slow"


NOW_AND_THEN = (
    NowAndThen(0.05, 5),
    NowAndThen(0.1, 5),
    NowAndThen(0.1, 10),
    NowAndThen(0.05, 20),
)
