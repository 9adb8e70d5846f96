"""A light trace at load for a while (`make test-weeks`: two hours), whatever happens meanwhile:
each commit is counted, and its memory does not grow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from attaching import may_skip
from lab import growth
from lab.rows import Json

LIMIT = 16 << 20


@pytest.fixture
def weeks(scenario: Callable[[str, str], Json], flavour: str) -> Json:
    return scenario("weeks", flavour)


def test_every_commit_is_counted(weeks: Json, flavour: str) -> None:
    assert weeks["status"] == 0, weeks["stderr"]
    pools = [row for row in weeks["rows"] if row["dataset"] is None and "commits" in row]
    # those of an import are over before the trace is attached again
    unseen = sum(max(row["losses"]["return"] for row in rows) for rows in by_time(pools).values())
    missing = weeks["kstat"] - unseen - sum(row["commits"] for row in pools)
    # in the module of Debian 12 zil_close() does not call zil_commit(): docs/stages.md, "Limits"
    least = -unseen if may_skip(weeks["host"]) else 0  # a program that counts nothing was skipped
    assert least <= missing <= (weeks["closed"] if flavour.startswith("bookworm") else 0)
    assert weeks["kstat"] > 1000 and unseen < 100
    losses = [row["losses"] for row in pools]
    assert not any(one[kind] for one in losses for kind in ("start", "event", "log_block"))
    assert not any(row["estimated"]["lost"] for row in pools)


def by_time(rows: Sequence[Json]) -> dict[str, list[Json]]:
    """The rows of each interval: all of them have the losses of the whole trace."""
    found: dict[str, list[Json]] = {}
    for row in rows:
        found.setdefault(row["time"], []).append(row)
    return found


def test_a_trace_outlives_the_module(weeks: Json) -> None:
    said = weeks["stderr"]
    assert said.index("no pool is imported: detached") < said.index("attached again")


def test_memory_does_not_grow(weeks: Json, request: pytest.FixtureRequest) -> None:
    text = growth.page(weeks)
    print(f"\n{text}")
    if request.config.getoption("--page"):
        Path(request.config.getoption("--page")).write_text(text, encoding="utf-8")
    samples = weeks["samples"]
    assert all(weeks["done"].get(name) for name in growth.HAPPENED), weeks["done"]
    assert max(one["maps"] for one in samples) < LIMIT
    # more while there is a window
    half = len(samples) // 2
    early, late = (min(one["files"] for one in part) for part in (samples[:half], samples[half:]))
    assert late <= early
    assert growth.too_much(weeks) == []
    assert growth.for_a_dataset(weeks) < growth.DATASET_KIB


def test_nothing_stays(weeks: Json) -> None:
    assert weeks["programs_left"] == []
