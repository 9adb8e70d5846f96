"""Draws docs/pictures/statistics-*.svg: how often a session errs and what it finds, on the recorded
noise of tests/data/noise. Prints the numbers of docs/statistics.md that are not from
tests/unit/experiment/test_recorded_noise.py. Takes a minute or two.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / folder) for folder in ("tuner", "tracers", "tests")]

from support import recorded_noise  # noqa: E402
from support.recorded_noise import Noise, Plan  # noqa: E402

from zfstune.experiment.statistics import BETTER, design_for, pairs_within  # noqa: E402

PICTURES = ROOT / "docs" / "pictures"
BLOCK = 10
SETTLE = {"bulk": 10, "wal": 5}
MARGIN = 0.05
SHARE = 0.85  # of the budget, for the comparison
SESSIONS = 200
LOADS = {
    "bulk": ("fsyncs beside bulk writes, disk of 30 MB/s", "#c0392b"),
    "wal": ("fsyncs alone, fast disk", "#2471a3"),
}


def main() -> None:
    matplotlib.rc("svg", hashsalt="zfstune")
    matplotlib.rc("font", size=9)
    matplotlib.rc("axes", grid=True)
    matplotlib.rc("axes.spines", top=False, right=False)
    matplotlib.rc("grid", alpha=0.3)
    noises = {name: recorded_noise.load(name) for name in LOADS}
    for name, noise in noises.items():
        neighbours(name, noise)
        seeds(name, noise)
    lengths(noises["bulk"])
    power(noises)
    false_accepts(noises)


def plan_of(load: str, minutes: float) -> Plan:
    settle = SETTLE[load]
    return Plan(pairs_within(SHARE * minutes * 60, BLOCK, settle), BLOCK, settle)


def found(noise: Noise, gain: float, plan: Plan) -> tuple[float, float]:
    """The share of sessions that end `better`, and the pairs they took (median)."""
    costs = recorded_noise.quantiles(noise, plan.block)
    ratios = recorded_noise.draw(costs, plan, SESSIONS, seed=11) + np.log1p(-gain)
    verdicts = recorded_noise.judge(ratios, design_for(plan.pairs, MARGIN))
    share = sum(one.kind == BETTER for one in verdicts) / SESSIONS
    return share, float(np.median([one.pairs for one in verdicts]))


def neighbours(name: str, noise: Noise) -> None:
    """How often the p99 of two consecutive blocks differs although nothing has changed."""
    costs = recorded_noise.quantiles(noise, BLOCK)
    ms = [np.median(recorded_noise.quantiles(noise, BLOCK, q)) / 1e6 for q in (990, 500)]
    minutes = noise.seconds // 60
    print(f"{name}, {minutes} m, median block: p99 {ms[0]:.0f} ms, p50 {ms[1]:.0f} ms")
    for wait in (0, SETTLE[name]):
        factors = np.exp(np.abs(np.log(np.roll(costs, -BLOCK - wait) / costs)))
        share = (factors >= 1.6).mean()
        print(f"{name}: p99 of {BLOCK} s and, {wait} s later, the next: {share:.0%} differ by 1.6")


def seeds(name: str, noise: Noise) -> None:
    """Sessions without a gain that end `better`, among 1,000 of each seed."""
    plan = plan_of(name, 30)
    costs = recorded_noise.quantiles(noise, plan.block)
    better = [
        recorded_noise.better(
            recorded_noise.draw(costs, plan, 1000, seed), design_for(plan.pairs, MARGIN)
        )
        for seed in range(1, 17)
    ]
    print(f"{name}, nothing changed, 1,000 sessions, seed 1: {better[0]} better")
    print(f"{name}, nothing changed, seeds 2 to 16: {sum(better[1:]) / 15000:.1%} of 15,000 better")
    print(f"{name}, by seed: {min(better)} to {max(better)}, sd {np.std(better, ddof=1):.1f}")


def lengths(noise: Noise) -> None:
    """How often a gain of 20 % is found within 24 minutes, by length of block and wait."""
    for block, settle in ((20, 10), (10, 10), (10, 5)):
        plan = Plan(pairs_within(24 * 60, block, settle), block, settle)
        share, _ = found(noise, 0.2, plan)
        print(f"bulk, 24 m, blocks of {block} s, wait {settle} s, gain 20%: {share:.1%} better")


def power(noises: dict[str, Noise]) -> None:
    """Draws power against the gain with 30 minutes, and against the budget with 20 %."""
    share, _ = found(noises["bulk"], 0.1, plan_of("bulk", 60))
    print(f"bulk, 60 m, gain 10%: {share:.1%} better")
    figure = Figure(figsize=(9, 3.4))
    left, right = figure.subplots(1, 2, sharey=True)
    gains = [0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5]
    budgets = [8, 10, 15, 20, 30, 45, 60]
    for name, noise in noises.items():
        label, color = LOADS[name]
        shares = []
        for gain in gains:
            share, pairs = found(noise, gain, plan_of(name, 30))
            print(f"{name}, 30 m, gain {gain:.0%}: {share:.1%} better, median {pairs:.0f} pairs")
            shares.append(share)
        line(left, [100 * gain for gain in gains], shares, label, color)
        shares = []
        for minutes in budgets:
            plan = plan_of(name, minutes)
            share, _ = found(noise, 0.2, plan)
            print(f"{name}, {minutes} m ({plan.pairs} pairs), gain 20%: {share:.1%}")
            shares.append(share)
        line(right, budgets, shares, label, color)
    left.set(xlabel="true gain in %, 30 minutes", ylabel="sessions that find it, %")
    right.set(xlabel="budget in minutes, true gain 20 %")
    for axes in (left, right):
        axes.axhline(80, color="gray", linewidth=0.8, linestyle="--")
        axes.set(ylim=(0, 102), xlim=(0, None))
    left.legend(loc="lower right")
    save(figure, "statistics-power.svg")


def false_accepts(noises: dict[str, Noise]) -> None:
    """Draws false accepts of the test alone, with 2,000 sessions per point: by coin and by fixed
    quads."""
    figure = Figure(figsize=(9, 3.4))
    both = figure.subplots(1, 2, sharey=True)
    blocks = [10, 15, 20, 25, 30, 40, 50, 60]
    orders = {
        "coin": ("coin, same wait before each", "-"),
        "abba": ("quads, wait after a change", ":"),
    }
    for axes, (name, noise) in zip(both, noises.items(), strict=True):
        label, color = LOADS[name]
        for how, (words, dashes) in orders.items():
            shares = []
            for block in blocks:
                plan = Plan(24, block, SETTLE[name])
                costs = recorded_noise.quantiles(noise, block)
                ratios = recorded_noise.draw(costs, plan, 2000, 13, how)
                shares.append(recorded_noise.accepted(ratios, design_for(24, MARGIN)).mean())
            print(f"{name}, {how}, 24 pairs, block {blocks} s:", *(f"{s:.1%}" for s in shares))
            line(axes, blocks, shares, words, color, dashes)
        axes.axhline(5, color="gray", linewidth=0.8, linestyle="--")
        axes.set(title=label, xlabel="length of a block in s", ylim=(0, 13))
        axes.legend(loc="upper left")
    both[0].set(ylabel="accepted without a gain, %")
    save(figure, "statistics-errors.svg")


def line(
    axes: Any,
    x: Sequence[float],
    shares: Sequence[float],
    label: str,
    color: str,
    dashes: str = "-",
) -> None:
    percent = [100 * share for share in shares]
    axes.plot(x, percent, dashes, marker="o", markersize=3, color=color, label=label)


def save(figure: Figure, name: str) -> None:
    figure.tight_layout()
    figure.savefig(PICTURES / name, metadata={"Date": None})


if __name__ == "__main__":
    main()
