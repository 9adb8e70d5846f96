"""A light trace at load for a while (`make test-weeks`: two hours), whatever happens meanwhile:
each commit is counted, and its memory does not grow."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from lab.rows import Json

from zfstrace.student import student_quantile

LIMIT = 16 << 20
DAY_S = 86400
# Until the windows of the estimates are there, Python has warmed up, and tables are filled
WARM_S = 1500


@pytest.fixture
def weeks(scenario: Callable[[str, str], Json], flavour: str) -> Json:
    return scenario("weeks", flavour)


def test_every_commit_is_counted(weeks: Json) -> None:
    for one in weeks["segments"]:
        assert one["status"] == 0, one["stderr"]
        pools = [row for row in one["rows"] if row["dataset"] is None and "commits" in row]
        assert sum(row["commits"] for row in pools) == one["kstat"] > 0
        assert sum(row["lost"] + row["estimated"]["lost"] for row in pools) == 0


def test_a_trace_ends_with_the_module(weeks: Json) -> None:
    assert "ZFS was unloaded" in weeks["segments"][0]["stderr"]


def test_memory_does_not_grow(weeks: Json, flavour: str) -> None:
    samples = weeks["segments"][1]["samples"]
    assert max(one["maps"] for one in samples) < LIMIT
    assert max(one["files"] for one in samples) <= samples[0]["files"] + 2
    warm = [one for one in samples if one["seconds"] > min(WARM_S, samples[-1]["seconds"] / 2)]
    low, high = slope([one["seconds"] for one in warm], [one["rss_kib"] for one in warm])
    print(
        f"\n{flavour}: {samples[-1]['seconds'] / 60:.0f} min at load, {warm[0]['rss_kib']} to "
        f"{warm[-1]['rss_kib']} KiB; MiB per day: {low * DAY_S / 1024:+.1f} to "
        f"{high * DAY_S / 1024:+.1f}; maps {max(one['maps'] for one in samples) / 2**20:.1f} MiB"
    )
    # at most 1 MiB, or no more than chance would show
    assert low <= 0 or warm[-1]["rss_kib"] - warm[0]["rss_kib"] < 1024


def slope(x: list[float], y: list[float]) -> tuple[float, float]:
    """The interval of 95 % of what y gains with x, by least squares."""
    n, mean_x, mean_y = len(x), math.fsum(x) / len(x), math.fsum(y) / len(y)
    spread = math.fsum((a - mean_x) ** 2 for a in x)
    best = math.fsum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / spread
    rest = math.fsum((b - mean_y - best * (a - mean_x)) ** 2 for a, b in zip(x, y, strict=True))
    reach = student_quantile(0.975, n - 2) * math.sqrt(rest / (n - 2) / spread)
    return best - reach, best + reach


def test_nothing_stays(weeks: Json) -> None:
    assert weeks["programs_left"] == []
