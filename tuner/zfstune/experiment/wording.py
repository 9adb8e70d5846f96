"""How a session names candidates, numbers of pairs, and times in what it says."""

from __future__ import annotations

import math
from collections.abc import Mapping

from zfstune.term.units import SECOND, format_span
from zfstune.tunables import catalogue
from zfstune.tunables import values as sizes


def describe(values: Mapping[str, int]) -> str:
    """``NAME=VALUE NAME=VALUE``, as one would set them."""
    known = catalogue.load()
    return " ".join(f"{name}={sizes.short(n, known[name].unit)}" for name, n in values.items())


def pairs(count: int) -> str:
    """``1 pair``, ``6 pairs``."""
    return f"{count} pair{'s' * (count != 1)}"


def from_to(fewest: int, most: int) -> str:
    """``6 to 12 pairs``."""
    return pairs(most) if fewest == most else f"{fewest} to {pairs(most)}"


def span(seconds: float) -> str:
    """``5 m 12 s``; of a time that is over, 0."""
    return format_span(max(0, round(seconds * SECOND)))


def budget(seconds: float) -> str:
    """The option for a session of that length: ``--budget 55m``."""
    return f"--budget {math.ceil(round(seconds) / 60)}m"
