"""Folded text, the common format of flame graph tools: ``frame;frame;frame count``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal

from zfstrace.printable import printable
from zfstrace.stacks import Stacks

# The rule of flamegraph.pl: the last number of a line is the count, decimals are allowed.
_LINE = re.compile(r"(.*\S)\s+([0-9]{1,18}(?:\.[0-9]*)?)")
_TWO_COUNTS = re.compile(r".*\S\s+[0-9]+(\.[0-9]*)?")


@dataclass(frozen=True)
class Parsed:
    """good and bad count lines; first_bad is a line number from 1, 0 without a bad line."""

    counts: dict[str, int]
    good: int = 0
    bad: int = 0
    first_bad: int = 0


def parse(lines: Iterable[str], scale: int = 1) -> Parsed:
    """The stacks in lines, each weight times scale; equal stacks are added.

    Lines that are not a stack count as bad, except empty ones and comments without a count.
    Decimals are rounded after the addition, and stacks without weight are left out.
    """
    counts: dict[str, int] = {}
    decimals: dict[str, Decimal] = {}
    good = bad = first_bad = 0
    for number, line in enumerate(lines, 1):
        stack, _, weight = line.rstrip().rpartition(" ")
        # The fast path for almost all lines: a file may have a million.
        if not (stack and weight.isdecimal() and weight.isascii() and len(weight) < 19):
            match = _LINE.fullmatch(line.rstrip())
            if not match:
                if line.strip() and not line.startswith("#"):
                    bad += 1
                    first_bad = first_bad or number
                continue
            stack, weight = match.groups()
            if "." in weight:
                good += 1
                decimals[stack] = decimals.get(stack, Decimal(0)) + Decimal(weight) * scale
                continue
        good += 1
        stack = stack.rstrip()
        counts[stack] = counts.get(stack, 0) + int(weight) * scale
    for stack, value in decimals.items():
        counts[stack] = counts.get(stack, 0) + int(value.to_integral_value(ROUND_HALF_UP))
    return Parsed({k: n for k, n in counts.items() if n}, good, bad, first_bad)


def has_two_counts(stacks: Iterable[str]) -> bool:
    """Whether all stacks end in a number, as in difffolded's format for two files."""
    found = False
    for stack in stacks:
        if not _TWO_COUNTS.fullmatch(stack):
            return False
        found = True
    return found


def dump(stacks: Stacks) -> Iterator[str]:
    """One line for each stack, sorted, safe to print on a terminal."""
    for stack in sorted(stacks.counts):
        yield f"{printable(stack)} {stacks.counts[stack]}\n"
