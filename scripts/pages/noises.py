#!/usr/bin/env python3
"""Measures how often verdicts err on made-up noise; writes docs/measurements/statistics.md.

usage: scripts/pages/noises.py [--sessions N]

All draws have fixed seeds, so the machine does not matter. Takes some minutes. Status 1 if one of
the goals in its last table is missed.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / folder) for folder in ("tuner", "tracers", "tests")]

from support import noises, recorded_noise  # noqa: E402

from zfstrace import hist  # noqa: E402
from zfstune.experiment import proof as proofs  # noqa: E402
from zfstune.experiment import soak  # noqa: E402
from zfstune.experiment.blocks import Block  # noqa: E402
from zfstune.experiment.objective import Limit, Objective  # noqa: E402
from zfstune.experiment.proof import Proof  # noqa: E402
from zfstune.experiment.runner import Record  # noqa: E402
from zfstune.experiment.statistics import BETTER, design_for  # noqa: E402

PAGE = ROOT / "docs/measurements/statistics.md"
PAIRS, MARGIN = 38, 0.05
DESIGN = design_for(PAIRS, MARGIN)
OBJECTIVE = Objective.parse("fsync.p99")
LIMIT = Limit.parse("write.throughput>=-5%")
FSYNCS = (500, 200, 30)
GAINS = (0.1, 0.2, 0.5)
# the noise of a pair, as a log ratio: of p99, and of the throughput on the lab's disk
PAIR, THROUGHPUT = 0.3, 0.052
# the fsyncs of a block as shares of its p99: log-normal
SHAPE = np.exp([0.5 * (NormalDist().inv_cdf((k + 0.5) / 200) - 2.326) for k in range(200)])
Shares = tuple[str, list[float]]

HEAD = """\
# How often a verdict errs, by the noise

Written by `make statistics` on {date}, with seeds that do not change; {sessions}
sessions for each number without a gain and for each candidate, a tenth of them for each gain.
[statistics.md](../statistics.md) says what follows.

"""

NOISE = """\
## Nine kinds of noise

{pairs} pairs of blocks of {block} s, {wait} s before each; nothing changed (promised: at most 5 %
end `better`), or the candidate is that much faster.

| noise | fsyncs a block | sd of a pair | nothing: `better` | {gains} |
|---|---|---|---|{lines}
"""

UNEQUAL = """
## Waits

A wait that depends on the values also makes the time of later blocks depend on the coins. A latency
that grows twentyfold during the session, noise of 5 %, nothing changed; in a proof both sides wait
equally.

| waits | nothing: `better` |
|---|---|
"""

NOW_AND_THEN = """
## Candidates that are bad now and then

On average of the logarithms they change nothing, so each is worse than the current values by the
mean of its latency. Noise of a pair {pair:.1f}; a proof of {pairs} pairs at most, then the gate on
the p99 of all its fsyncs, then the soak.

| candidate | pairs alone: `better` | with the gate | and the soak |
|---|---|---|---|
"""

LIMITS = """
## Limits

`{limit}`, noise of a pair {noise:.1%}, a proof of 38 pairs at most, of a candidate that
halves p99. Only a limit that is kept beyond doubt lets a candidate in.

| true change of throughput | kept | missed | unknown |
|---|---|---|---|
"""

TAILS = """
## Slow fsyncs that blocks do not see

A candidate under which fsyncs are 40 % faster, but three times as many wait for something else: its
true p99 is {truth:.1f} times as high. By the fsyncs in a block; a session does not begin a proof of
p99 with fewer than 100. The gate is the p99 of all fsyncs of the proof.

| fsyncs a block | pairs alone: `better` | with the gate |
|---|---|---|
"""


GOALS = """
## Goals

| in sessions of 100 | goal | worst | |
|---|---|---|---|
"""


@dataclass(frozen=True)
class Goal:
    """The worst of some shares must be at most that, or at least, by more than the chance of so
    few sessions explains."""

    what: str
    share: float
    at_least: bool = False

    def row(self, found: Sequence[float], count: int) -> tuple[str, bool]:
        worst = min(found) if self.at_least else max(found)
        chance = 3 * math.sqrt(self.share * (1 - self.share) / count)
        kept = worst >= self.share - chance if self.at_least else worst <= self.share + chance
        sign = "at least" if self.at_least else "at most"
        state = "kept" if kept else "**missed**"
        return f"| {self.what} | {sign} {self.share:.0%} | {worst:.1%} | {state} |\n", kept


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sessions", type=int, default=2000, help="for each number (default 2000)")
    count = parser.parse_args().sessions
    text = HEAD.format(date=datetime.date.today().isoformat(), sessions=f"{count:,}")
    with ProcessPoolExecutor() as pool:

        def rows(one: Callable[..., Shares], cases: Sequence[Any], sessions: int) -> list[Shares]:
            return list(pool.map(one, cases, itertools.repeat(sessions)))

        noisy = rows(noise, list(itertools.product(noises.NOISES, FSYNCS)), count)
        waits = rows(unequal, [(18.0, 4.0), (18.0, 18.0)], count)
        rare = rows(now_and_then, noises.NOW_AND_THEN, count)
        limits = rows(limit, (0.0, -0.02, -0.04, -0.06, -0.07, -0.08, -0.1), count)
        tails = rows(tail, (22, 50, 100, 300), count // 10)
    text += NOISE.format(
        pairs=PAIRS,
        block=noises.BLOCK_S,
        wait=noises.WAIT_S,
        gains=" | ".join(f"{gain:.0%}" for gain in GAINS),
        lines="---|" * len(GAINS),
    )
    text += "".join(row for row, _ in noisy)
    text += UNEQUAL + "".join(row for row, _ in waits)
    text += NOW_AND_THEN.format(pair=PAIR, pairs=PAIRS) + "".join(row for row, _ in rare)
    text += LIMITS.format(limit=LIMIT, noise=THROUGHPUT) + "".join(row for row, _ in limits)
    text += TAILS.format(truth=tail_truth()) + "".join(row for row, _ in tails)
    shifts = list(noises.NOISES).index("shifts") * len(FSYNCS) + FSYNCS.index(200)
    goals = (
        (Goal("nothing changed: `better`", 0.05), [found[0] for _, found in noisy], count),
        (Goal("the same with equal waits, drift", 0.05), waits[1][1], count),
        (Goal("bad now and then: in force", 0.05), [found[-1] for _, found in rare], count),
        (Goal("throughput really 7 % lower: kept", 0.05), limits[4][1][:1], count),
        (
            Goal("three times as many slow fsyncs, 100 or more a block: in force", 0.05),
            [found[-1] for _, found in tails[2:]],
            count // 10,
        ),
        (
            Goal("20 % less, `shifts`, 200 fsyncs a block: `better`", 0.65, at_least=True),
            noisy[shifts][1][2:3],
            count // 10,
        ),
    )
    judged = [goal.row(found, sessions) for goal, found, sessions in goals]
    text += GOALS + "".join(row for row, _ in judged)
    PAGE.write_text(text, encoding="utf-8")
    print(text)
    return 0 if all(kept for _, kept in judged) else 1


def noise(case: tuple[str, int], count: int) -> Shares:
    name, fsyncs = case
    waits = (float(noises.WAIT_S), float(noises.WAIT_S))
    drawn = noises.sessions(name, count, PAIRS, fsyncs, sum(map(ord, name)) + fsyncs, waits)
    better = recorded_noise.better(drawn, DESIGN) / count
    some = drawn[: count // 10]
    power = [recorded_noise.better(some + math.log1p(-gain), DESIGN) / len(some) for gain in GAINS]
    gains = " | ".join(f"{share:.0%}" for share in power)
    return f"| {name} | {fsyncs} | {drawn.std():.2f} | {better:.1%} | {gains} |\n", [better, *power]


def unequal(waits: tuple[float, float], count: int) -> Shares:
    random = np.random.default_rng(5)
    at = np.zeros((count, PAIRS, 2))
    now = np.zeros(count)
    for pair in range(PAIRS):
        first = (random.random(count) < 0.5).astype(int)  # 1: B
        for side in (first, 1 - first):
            now += np.where(side == 1, waits[1], waits[0])
            at[np.arange(count), pair, side] = now
            now += noises.BLOCK_S
    slope = math.log(20) / (PAIRS * (2 * noises.BLOCK_S + sum(waits)))
    costs = slope * at + random.normal(0, 0.05 / math.sqrt(2), at.shape)
    better = recorded_noise.better(costs[:, :, 1] - costs[:, :, 0], DESIGN) / count
    return f"| A {waits[0]:g} s, B {waits[1]:g} s | {better:.1%} |\n", [better]


def now_and_then(candidate: noises.NowAndThen, count: int) -> Shares:
    random = np.random.default_rng(7)
    proved = gated = passed = 0
    for _ in range(count):

        def costs(label: str, blocks: int) -> Iterator[Record]:
            found = random.normal(0, PAIR / math.sqrt(2), blocks)
            if label == "B":
                found = found + candidate.costs(random, (blocks,))
            return (spread(label, cost) for cost in found)

        proof = Proof(OBJECTIVE, [], DESIGN)
        pairs = zip(costs("A", PAIRS), costs("B", PAIRS), strict=True)
        done: list[Record] = []
        for pair in pairs:
            done += pair
            if proof.add(pair):
                break
        if proof.verdict().kind != BETTER:
            continue
        proved += 1
        found = proofs.tails(done)
        if found is None or not found.ok:
            continue
        gated += 1
        later = [next(costs(label, 1)) for label in soak.ROUND * soak.ROUNDS]
        passed += soak.judge(later, done, OBJECTIVE).ok
    return shares(str(candidate), [proved / count, gated / count, passed / count])


def limit(change: float, count: int) -> Shares:
    random = np.random.default_rng(9)
    states = dict.fromkeys((proofs.KEPT, proofs.MISSED, proofs.UNKNOWN), 0)
    for _ in range(count):
        proof = Proof(OBJECTIVE, [LIMIT], DESIGN)
        p99 = random.normal(math.log(0.5), PAIR, PAIRS)
        throughput = random.normal(math.log1p(change), THROUGHPUT, PAIRS)
        for one, other in zip(p99, throughput, strict=True):
            before = {"fsync.p99": 1.0, "write.throughput": 1.0}
            after = {"fsync.p99": math.exp(one), "write.throughput": math.exp(other)}
            if proof.add([record("A", before), record("B", after)]):
                break
        states[proof.limits()[0].state] += 1
    return shares(f"{change:+.0%}", [found / count for found in states.values()])


def fsyncs_of(label: str, random: np.random.Generator, count: int) -> noises.Floats:
    """The log of the latency of so many fsyncs in ns."""
    slow = random.random(count) < (0.006 if label == "A" else 0.018)
    quick = random.normal(math.log(30e6 if label == "A" else 18e6), 0.5, count)
    return np.where(slow, random.normal(math.log(400e6), 0.3, count), quick)


def tail_truth() -> float:
    random = np.random.default_rng(11)
    a, b = (np.quantile(fsyncs_of(label, random, 1_000_000), 0.99) for label in "AB")
    return math.exp(b - a)


def tail(fsyncs: int, count: int) -> Shares:
    random = np.random.default_rng(fsyncs)
    proved = gated = 0
    for _ in range(count):
        proof = Proof(OBJECTIVE, [], DESIGN)
        done: list[Record] = []
        for _pair in range(PAIRS):
            level = random.normal(0, 0.25)
            pair = [block(label, level, random, fsyncs) for label in "AB"]
            done += pair
            if proof.add(pair):
                break
        if proof.verdict().kind == BETTER:
            proved += 1
            found = proofs.tails(done)
            gated += found is None or found.ok
    return shares(str(fsyncs), [proved / count, gated / count])


def block(label: str, level: float, random: np.random.Generator, fsyncs: int) -> Record:
    found = fsyncs_of(label, random, fsyncs) + level + random.normal(0, 0.15)
    ns = np.exp(np.sort(found))
    buckets = Counter(hist.index(int(one)) for one in ns)
    counts = tuple((hist.low(k), hist.low(k + 1), n) for k, n in sorted(buckets.items()))
    metrics = {"fsync.p99": float(ns[math.ceil(0.99 * fsyncs) - 1])}
    return Record(1, "confirm", 1, label, 0.0, 0.0, Block(10.0, fsyncs, metrics, counts))


def spread(label: str, cost: float) -> Record:
    """A block with that log cost, whose fsyncs are log-normal."""
    p99 = 100e6 * math.exp(cost)
    buckets = Counter(hist.index(int(p99 * one)) for one in SHAPE)
    counts = tuple((hist.low(k), hist.low(k + 1), n) for k, n in sorted(buckets.items()))
    return Record(
        1, "confirm", 1, label, 0.0, 0.0, Block(10.0, len(SHAPE), {"fsync.p99": p99}, counts)
    )


def shares(what: str, found: list[float]) -> Shares:
    """A row of the table, and its numbers."""
    return f"| {what} | {' | '.join(f'{share:.1%}' for share in found)} |\n", found


def record(label: str, metrics: dict[str, float]) -> Record:
    return Record(1, "confirm", 1, label, 0.0, 0.0, Block(10.0, 1000, metrics))


if __name__ == "__main__":
    sys.exit(main())
