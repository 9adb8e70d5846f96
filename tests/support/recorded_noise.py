"""Sessions drawn from recorded noise (tests/data/noise), many at once: what the statistics would
have seen with no change to that load, or with a known one."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from support.paths import DATA

from zfstrace import hist
from zfstune.experiment.statistics import (
    ALPHA,
    BETTER,
    Design,
    Sequential,
    Verdict,
    critical,
    signed_rank_p,
)

DATA = DATA / "noise"

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Noise:
    """counts has a row per second, and a column per bucket of zfstrace.hist."""

    counts: npt.NDArray[np.int64]
    written: npt.NDArray[np.int64]

    @property
    def seconds(self) -> int:
        return len(self.counts)


def load(kind: str) -> Noise:
    """`bulk` or `wal`, as record_noise.py left it."""
    lines = gzip.decompress((DATA / f"{kind}.gz").read_bytes()).decode().splitlines()
    counts = np.zeros((len(lines), hist.BUCKETS), dtype=np.int64)
    written = np.zeros(len(lines), dtype=np.int64)
    for second, line in enumerate(lines):
        size, *buckets = line.split()
        written[second] = int(size)
        for part in buckets:
            bucket, _, count = part.partition(":")
            counts[second, int(bucket)] = int(count)
    return Noise(counts, written)


def windows(rows: npt.NDArray[Any], seconds: int) -> npt.NDArray[Any]:
    """Sums over this many seconds from each start; the recording wraps around."""
    twice = np.concatenate([np.zeros_like(rows[:1]), rows, rows[:seconds]]).cumsum(axis=0)
    sums: npt.NDArray[Any] = twice[seconds : seconds + len(rows)] - twice[: len(rows)]
    return sums


def quantiles(noise: Noise, seconds: int, permille: int = 990) -> Floats:
    """That quantile of a block of this many seconds, for each possible start; computed like
    Hist.quantile."""
    counts = windows(noise.counts, seconds)
    total = counts.sum(axis=1)
    if not total.all():
        raise ValueError(f"there are {seconds} s without an fsync")
    rank = np.maximum(1, (total * permille + 999) // 1000)
    cumulated = counts.cumsum(axis=1)
    bucket = (cumulated < rank[:, None]).sum(axis=1)
    row = np.arange(len(bucket))
    inside = counts[row, bucket]
    before = cumulated[row, bucket] - inside
    edges = np.array([hist.low(b) for b in range(hist.BUCKETS + 1)])
    width = edges[bucket + 1] - edges[bucket]
    found: Floats = edges[bucket] + width * (rank - before) / inside
    return found


def throughput(noise: Noise, seconds: int) -> Floats:
    """Bytes written per second in a block, for each second at which it can start."""
    return windows(noise.written, seconds) / seconds


@dataclass(frozen=True)
class Plan:
    """Lengths in seconds; settle passes before every block."""

    pairs: int
    block: int
    settle: int


def draw(costs: Floats, plan: Plan, sessions: int, seed: int, how: str = "coin") -> Floats:
    """A/A sessions, a row of log-ratios each: blocks in time order from a random start, the end
    followed by the beginning.

    `coin` is how a session does it: a coin for each pair, the same wait before every block.
    `abba` is a coin for each two pairs (ABBA or BAAB), and a wait only after a change.
    """
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 2, (sessions, plan.pairs))
    if how == "abba":
        first[:, 1::2] = 1 - first[:, : 2 * (plan.pairs // 2) : 2]
    blocks = np.stack([first, 1 - first], axis=2).reshape(sessions, -1)  # 1 is B
    waits = np.ones_like(blocks)
    if how == "abba":
        waits = np.diff(blocks, axis=1, prepend=1 - blocks[:, :1]) != 0
    starts = rng.integers(0, len(costs), (sessions, 1)) + plan.settle * waits.cumsum(axis=1)
    starts += plan.block * np.arange(blocks.shape[1])
    logs = np.log(costs[starts % len(costs)])
    signed = np.where(blocks == 1, logs, -logs)
    ratios: Floats = signed.reshape(sessions, plan.pairs, 2).sum(axis=2)
    return ratios


def judge(ratios: Floats, design: Design) -> list[Verdict]:
    """Each row as a session that may stop early."""
    return [_judge(row, design) for row in ratios]


def _judge(row: Floats, design: Design) -> Verdict:
    comparison = Sequential(design)
    for ratio in row:
        found = comparison.add(float(ratio))
        if found is not None:
            return found
    return comparison.verdict()


def final(row: Floats) -> Verdict:
    """The verdict on all pairs of a session, without a look before."""
    comparison = Sequential(Design((len(row),), ALPHA, 0.0))
    for ratio in row:
        comparison.add(float(ratio))
    return comparison.verdict()


def accepted(ratios: Floats, design: Design) -> npt.NDArray[np.bool_]:
    """The rows that the test alone accepts at any look: only of those can `Sequential`, which
    also asks the interval and ends early without hope, say `better`."""
    found = np.zeros(len(ratios), dtype=np.bool_)
    for pairs, alpha in zip(design.looks, design.alphas, strict=True):
        rows = ratios[:, :pairs]
        ranks = np.abs(rows).argsort(axis=1).argsort(axis=1) + 1
        one = np.where(rows > 0, ranks, 0).sum(axis=1) <= critical(pairs, alpha)
        for odd in np.flatnonzero((rows == 0).any(axis=1)):
            one[odd] = signed_rank_p(rows[odd].tolist()) <= alpha
        found |= one
    return found


def better(ratios: Floats, design: Design) -> int:
    """How many rows end `better`."""
    verdicts = judge(ratios[accepted(ratios, design)], design)
    return sum(found.kind == BETTER for found in verdicts)
