"""What the tests look up in the JSON rows of a trace."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def pool_row(rows: list[Json], pool: str = "tank") -> Json:
    return next(r for r in rows if r["pool"] == pool and r["dataset"] is None)


def dataset_row(rows: list[Json], dataset: str) -> Json:
    return next(r for r in rows if r["dataset"] == dataset)


def total_ns(row: Json) -> int:
    return sum(s["total_ns"] for s in row["stages"])


def share(row: Json, *stages: str) -> float:
    """The part of the total time that some stages took."""
    part: int = sum(s["total_ns"] for s in row["stages"] if s["name"] in stages)
    return part / total_ns(row)


def stage(row: Json, name: str) -> Json:
    return next(s for s in row["stages"] if s["name"] == name)
