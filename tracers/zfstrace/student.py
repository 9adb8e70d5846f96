"""Student's t distribution."""

from __future__ import annotations

import math


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
