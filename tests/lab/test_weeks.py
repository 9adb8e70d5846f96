"""A light trace at load for a while (`make test-weeks`: two hours), whatever happens meanwhile:
each commit is counted, and its memory does not grow."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from lab.rows import Json
from lab.slopes import slope

LIMIT = 16 << 20
DAY_S = 86400
# Until the windows of the estimates are there, Python has warmed up, and tables are filled
WARM_S = 1500


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
    assert 0 <= missing <= (weeks["closed"] if flavour.startswith("bookworm") else 0)
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


def test_memory_does_not_grow(weeks: Json, flavour: str) -> None:
    samples = weeks["samples"]
    assert max(one["maps"] for one in samples) < LIMIT
    # more while there is a window
    half = len(samples) // 2
    early, late = (min(one["files"] for one in part) for part in (samples[:half], samples[half:]))
    assert late <= early
    warm = [one for one in samples if one["seconds"] > min(WARM_S, samples[-1]["seconds"] / 2)]
    low, high = slope([one["seconds"] for one in warm], [one["rss_kib"] for one in warm])
    print(
        f"\n{flavour}: {samples[-1]['seconds'] / 60:.0f} min at load, {warm[0]['rss_kib']} to "
        f"{warm[-1]['rss_kib']} KiB; MiB per day: {low * DAY_S / 1024:+.1f} to "
        f"{high * DAY_S / 1024:+.1f}; maps {max(one['maps'] for one in samples) / 2**20:.1f} MiB"
    )
    # at most 1 MiB, or no more than chance would show
    assert low <= 0 or warm[-1]["rss_kib"] - warm[0]["rss_kib"] < 1024


def test_nothing_stays(weeks: Json) -> None:
    assert weeks["programs_left"] == []
