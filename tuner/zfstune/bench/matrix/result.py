"""The results of a matrix and its rows."""

from __future__ import annotations

from dataclasses import dataclass, field

from zfstrace.types import SCHEMA, Json
from zfstune.bench.matrix import rows as bench_rows
from zfstune.bench.matrix.rows import Matrix, ReportRow
from zfstune.bench.measure import MeasuredTest


@dataclass
class RowResult:
    """A row as far as it was measured; failed says why it is incomplete, None if it is not."""

    row: ReportRow
    measured: list[MeasuredTest] = field(default_factory=list)
    failed: str | None = None

    def to_json(self, matrix: Matrix, limit_per_s: float | None) -> Json:
        """As a ``bench_row`` object of the schema."""
        row = self.row
        return {
            "schema": SCHEMA,
            "type": "bench_row",
            "matrix": matrix.name,
            "row": row.id,
            "label": row.label,
            "kind": row.kind,
            "on": row.on,
            "dataset": dict(row.dataset),
            "reported": dict(row.reported),
            "words": row.words,
            "device_per_s": limit_per_s,
            "tests": [one.to_json() for one in self.measured],
            "failed": self.failed,
        }


@dataclass
class MatrixResult:
    """The rows measured so far; left says what could not be removed."""

    matrix: Matrix
    zfs: str
    results: list[RowResult] = field(default_factory=list)
    interrupted: bool = False
    left: list[str] = field(default_factory=list)

    @property
    def rates(self) -> dict[tuple[str, str], float]:
        """(row, test) -> syncs or writes per second."""
        return {
            (result.row.id, one.rate.test.name): one.rate.per_s
            for result in self.results
            for one in result.measured
        }

    @property
    def heading(self) -> str:
        """The version of ZFS, and the programs that measured."""
        tools = dict.fromkeys(one.rate.tool for r in self.results for one in r.measured)
        return ", ".join((f"ZFS {self.zfs or '?'}", *tools))

    def limit(self, row: ReportRow) -> float | None:
        """The rate of the raw device that the row's syncs wait for; None if not measured."""
        return self.rates.get((row.limit or "", "fdatasync"))

    def measured(self, row_id: str, test: str) -> MeasuredTest | None:
        """A test of a row, by the row's id; None if it was not measured."""
        for result in self.results:
            for one in result.measured:
                if (result.row.id, one.rate.test.name) == (row_id, test):
                    return one
        return None

    @property
    def whole(self) -> bool:
        """Whether all rows were measured without losses, and everything was removed."""
        failed = any(result.failed for result in self.results)
        return not (self.interrupted or self.left or failed or self.lost)

    @property
    def lost(self) -> int:
        """The number of operations that the traces missed."""
        return sum(one.lost for result in self.results for one in result.measured)

    def to_json(self) -> Json:
        """As a ``bench_matrix`` object of the schema."""
        rates = self.rates
        base = bench_rows.base(self.matrix, rates)
        return {
            "schema": SCHEMA,
            "type": "bench_matrix",
            "matrix": self.matrix.name,
            "zfs": self.zfs,
            "first": base.id if base else None,
            "pairs": [
                {
                    "test": pair.test,
                    "one": pair.one,
                    "other": pair.other,
                    "reported": round(pair.reported, 4),
                    "measured": round(pair.measured, 4),
                    "agrees": pair.agrees,
                }
                for pair in bench_rows.pairs(self.matrix, rates)
            ],
            "interrupted": self.interrupted,
            "left": self.left,
        }
