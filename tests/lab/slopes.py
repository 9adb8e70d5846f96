"""Whether something grows, for scenarios that last."""

from __future__ import annotations

import math

from zfstrace.student import student_quantile


def slope(x: list[float], y: list[float]) -> tuple[float, float]:
    """The interval of 95 % of what y gains with x, by least squares."""
    n, mean_x, mean_y = len(x), math.fsum(x) / len(x), math.fsum(y) / len(y)
    spread = math.fsum((a - mean_x) ** 2 for a in x)
    best = math.fsum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / spread
    rest = math.fsum((b - mean_y - best * (a - mean_x)) ** 2 for a, b in zip(x, y, strict=True))
    reach = student_quantile(0.975, n - 2) * math.sqrt(rest / (n - 2) / spread)
    return best - reach, best + reach
