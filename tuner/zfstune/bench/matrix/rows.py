"""The rows of a matrix of `zfstune bench`, and how measured rates compare with reported ones."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from zfstune.rules import data as rule_data

MATRICES = ("reports-2014",)
KINDS = ("zfs", "ext4", "zvol", "raw")
ON = ("disks", "slog", "disks+slog")

# Rates that differ by less than this factor count as the same: so do two runs of a few seconds.
SAME = 1.25

# Rates by row and test.
Rates = Mapping[tuple[str, str], float]


@dataclass(frozen=True)
class ReportRow:
    """A setup; the head of the matrix's file explains the fields."""

    id: str
    label: str
    kind: str
    on: str
    tests: tuple[str, ...]
    dataset: Mapping[str, str] = field(default_factory=dict)
    reported: Mapping[str, float] = field(default_factory=dict)
    words: str = ""
    like: str = ""

    @property
    def limit(self) -> str | None:
        """The row that measures the raw device of its log; None if its syncs wait for none."""
        if self.kind == "raw" or self.dataset.get("sync") == "disabled":
            return None
        past_log = self.dataset.get("logbias") == "throughput"
        return "raw-slog" if "slog" in self.on and not past_log else "raw-disk"


@dataclass(frozen=True)
class Matrix:
    """The rows of a report; source describes the reported setup."""

    name: str
    title: str
    source: str
    rows: tuple[ReportRow, ...]

    def of(self, row_id: str) -> ReportRow:
        """The row with this id. Raises StopIteration."""
        return next(row for row in self.rows if row.id == row_id)


def load_matrix(name: str) -> Matrix:
    """A matrix that comes with zfstune."""
    return parse_matrix(name, rule_data.read(__package__, name))


def parse_matrix(name: str, data: Mapping[str, Any]) -> Matrix:
    """A matrix from the data of its file. Raises KeyError, TypeError."""
    rows = [_row(entry, data["tests"]) for entry in data["row"]]
    return Matrix(name, data["title"], data["source"], tuple(rows))


def _row(entry: Mapping[str, Any], tests: Sequence[str]) -> ReportRow:
    return ReportRow(**(dict(entry) | {"tests": tuple(entry.get("tests", tests))}))


@dataclass(frozen=True)
class Pair:
    """Two rows in one test; reported and measured are the rate of one divided by that of other."""

    test: str
    one: str
    other: str
    reported: float
    measured: float

    @property
    def agrees(self) -> bool:
        """Whether both say that one is faster, slower, or the same."""
        return side(self.reported) == side(self.measured)

    @property
    def reversed(self) -> bool:
        """Whether they disagree on which one is faster."""
        return side(self.reported) * side(self.measured) < 0


def side(ratio: float) -> int:
    """1 for faster, -1 for slower, 0 for the same."""
    if abs(math.log(ratio)) < math.log(SAME):
        return 0
    return 1 if ratio > 1 else -1


def pairs(matrix: Matrix, measured: Rates) -> list[Pair]:
    """All pairs of measured rows that the report compares, by numbers or in words; first the row
    that it says is faster."""
    found = []
    for one, other in itertools.combinations(matrix.rows, 2):
        for test in one.tests:
            ours = [measured.get((row.id, test), 0.0) for row in (one, other)]
            if test not in other.tests or not all(ours):
                continue
            if test in one.reported and test in other.reported:
                ratio = one.reported[test] / other.reported[test]
            elif other.like == one.id:
                ratio = 1.0
            else:
                continue
            pair = Pair(test, one.id, other.id, ratio, ours[0] / ours[1])
            found.append(pair if ratio >= 1 else _turned(pair))
    return found


def _turned(pair: Pair) -> Pair:
    return Pair(pair.test, pair.other, pair.one, 1 / pair.reported, 1 / pair.measured)


def worst_first(found: Sequence[Pair]) -> list[Pair]:
    """The pairs that disagree, reversed ones first."""
    wrong = [pair for pair in found if not pair.agrees]
    return sorted(wrong, key=lambda pair: (not pair.reversed, pair.measured / pair.reported))


def base(matrix: Matrix, measured: Rates) -> ReportRow | None:
    """The row that the others are compared with: the first one both reported and measured."""
    seen = {row for row, _ in measured}
    return next((row for row in matrix.rows if row.reported and row.id in seen), None)


def ratio(value: float | None, first: float | None) -> float | None:
    """value / first; None if either is unknown or 0."""
    return value / first if value and first else None
