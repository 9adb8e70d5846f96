"""When memory grows by too much in a day, of made-up samples."""

from __future__ import annotations

import random
from typing import Any

import pytest
from lab import growth


def run(a_day: float, hours: float = 2, noise_kib: float = 60, maps: int = 9 << 20) -> Any:
    """A run whose process gains so many MiB in a day, with its samples."""
    coins = random.Random(7)
    times = [1800 + 25 * i for i in range(int((hours * 3600 - 1800) / 25))]
    gained = [a_day * growth.MIB / growth.KIB * at / growth.DAY_S for at in times]
    samples = [
        {"seconds": at, "rss_kib": 40_000 + more + coins.gauss(0, noise_kib), "maps": maps}
        for at, more in zip(times, gained, strict=True)
    ]
    new = {"datasets": 32, "before": {"rss_kib": 41_000}, "after": {"rss_kib": 42_600}}
    done = dict.fromkeys(growth.HAPPENED, 3)
    facts = {"kstat": 123456, "uname": "6.12", "zfs": "2.3.9", "reloaded": 1790.0}
    return {"samples": samples, "new": new, "done": done, **facts}


@pytest.mark.parametrize(("a_day", "grows"), [(0, []), (12, []), (24, ["the process"]), (-4, [])])
def test_two_hours_tell_what_a_day_would_gain(a_day: float, grows: list[str]) -> None:
    """24 MiB in a day are little more than one in what is judged of these hours."""
    weeks = run(a_day)
    assert growth.too_much(weeks) == grows
    gained = growth.per_day(growth.blocks(weeks), "the process")
    assert gained and gained[0] < a_day * growth.MIB < gained[1]


def test_what_is_not_known_may_be_too_much() -> None:
    assert growth.too_much(run(0, noise_kib=3000)) == ["the process"]


def test_a_short_run_says_nothing_about_a_day() -> None:
    weeks = run(12, hours=0.7)
    assert growth.per_day(growth.blocks(weeks), "the process") is None
    assert growth.too_much(weeks) == []
    assert growth.too_much(run(300, hours=0.9)) == ["the process"]
    assert "not known" in growth.page(weeks)


def test_tables_are_judged_as_well() -> None:
    weeks = run(0)
    weeks["samples"][-1]["maps"] += 9 << 20
    assert growth.too_much(weeks) == ["tables in the kernel"]


def test_the_page_says_what_happened_and_what_was_gained() -> None:
    text = growth.page(run(0))
    assert "| a pool was exported and imported | 3 |" in text
    assert "| tables in the kernel | 9.00 MiB | 9.00 MiB | +0.00 MiB to +0.00 MiB | 1 MiB |" in text
    assert "takes 50 KiB of the process" in text and "1,023: at most 50 MiB" in text
