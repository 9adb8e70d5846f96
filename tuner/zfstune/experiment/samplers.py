"""Samplers: each draws the next point of the search space from those that have scores.

`local` changes some knobs of a good point, most of them a little; `random` draws from the whole
space, `grid` goes through levels. TPE is Optuna's.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence

from zfstune.experiment.space import Space

LOCAL, TPE, RANDOM, GRID = "local", "tpe", "random", "grid"
SAMPLERS = (LOCAL, TPE, RANDOM, GRID)

Point = Mapping[str, float]
# Points with their scores; less is better. Then knobs that keep a value.
Draw = Callable[[Sequence[tuple[Point, float]], Point], "dict[str, float] | None"]

# Levels of the first, the second ... parameter of a grid; it has no more parameters.
_LEVELS = (5, 4, 2, 3, 2)
# Points from the whole space that a local search begins with, the model's candidates included.
_STARTUP = 6
# The share of points that count as good, how many draws a point is chosen from, and the standard
# deviation of a kernel around a single point, as a share of a knob's range.
_GOOD, _DRAWS, _WIDTH = 0.1, 24, 0.2


def sampler(kind: str, space: Space, seed: int | None) -> Draw:
    """The draws of a sampler, each a point, or None after the last. Not for TPE."""
    if kind == GRID:
        points = grid(space, seed)
        return lambda _told, _held: next(points, None)
    coins = random.Random(seed)
    if kind == RANDOM:
        return lambda _told, held: {**_anywhere(space, coins), **held}
    return lambda told, held: local(space, coins, told, held)


def local(
    space: Space, coins: random.Random, told: Sequence[tuple[Point, float]], held: Point
) -> dict[str, float]:
    """A point near a good one, and far from bad ones: of some drawn around the best, the one with
    the largest ratio of the densities of good and of other points (Bergstra et al., Algorithms for
    Hyper-Parameter Optimization, 2011, with kernels over all knobs at once)."""
    knobs = [knob for knob in space.knobs if knob.name not in held]
    if len(told) < _STARTUP or not knobs:
        return {**_anywhere(space, coins), **held}
    ranked = [
        [knob.share(point.get(knob.name, knob.low)) for knob in knobs]
        for point, _ in sorted(told, key=lambda one: one[1])
    ]
    count = math.ceil(_GOOD * len(ranked))
    good, other = ranked[:count], ranked[count:]
    widths = [_WIDTH * max(1, len(each)) ** (-1 / (len(knobs) + 4)) for each in (good, other)]

    def drawn() -> list[float]:
        at = coins.randrange(count + 1)
        if at == count:
            return [coins.random() for _ in knobs]
        return [_near(share, widths[0], coins) for share in good[at]]

    best = max(
        (drawn() for _ in range(_DRAWS)),
        key=lambda shares: _density(shares, good, widths[0]) - _density(shares, other, widths[1]),
    )
    return {**{knob.name: knob.at(share) for knob, share in zip(knobs, best)}, **held}


def _near(share: float, width: float, coins: random.Random) -> float:
    """A normal draw within 0 to 1."""
    while not 0 <= (found := coins.gauss(share, width)) <= 1:
        pass
    return found


def _density(shares: Sequence[float], points: Sequence[Sequence[float]], width: float) -> float:
    """The logarithm of the mean of a uniform density and a normal one around each point."""
    normal = math.sqrt(2 * math.pi) * width
    sums = [1.0]
    for point in points:
        squares = sum((a - b) ** 2 for a, b in zip(shares, point))
        mass = 1.0
        for b in point:
            mass *= 0.5 * (math.erf((1 - b) / width / 2**0.5) + math.erf(b / width / 2**0.5))
        sums.append(math.exp(-squares / (2 * width * width)) / (normal ** len(point) * mass))
    return math.log(math.fsum(sums) / len(sums))


def _anywhere(space: Space, coins: random.Random) -> dict[str, float]:
    return {knob.name: knob.at(coins.random()) for knob in space.knobs}


def grid(space: Space, seed: int | None) -> Iterator[dict[str, float]]:
    """Every combination of levels of the knobs that matter most, shuffled."""
    now = space.point({})
    axes = [
        [(knob, level) for level in knob.levels(count)] for knob, count in zip(space.knobs, _LEVELS)
    ]
    combinations = list(itertools.product(*axes))
    random.Random(seed).shuffle(combinations)
    for pairs in combinations:
        yield {**now, **{knob.name: level for knob, level in pairs}}
