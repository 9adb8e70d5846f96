"""docs/measurements/reports-2014.md is written from results only."""

from __future__ import annotations

import itertools
from typing import Any

from pages import reports_2014

Json = dict[str, Any]


def measured(name: str, per_s: float, **stages: int) -> Json:
    """A test with ten fsyncs, in which the stages took these ns in total."""
    total = sum(stages.values()) or 1
    rows = [{"name": stage, "total_ns": ns} for stage, ns in stages.items()]
    return {
        "test": name,
        "per_s": per_s,
        "shares": {stage: ns / total for stage, ns in stages.items()},
        "fsync": {"count": 10, "stages": rows} if stages else None,
    }


def row_of(name: str, reported: Json, *tests: Json, **more: Any) -> Json:
    return {
        "row": name,
        "label": f"the {name}",
        "reported": reported,
        "words": "",
        "device_per_s": None,
        "tests": list(tests),
        "failed": None,
    } | more


def result() -> Json:
    slow = measured("fdatasync", 100, flush=900_000, issue=100_000)
    quick = measured("fdatasync", 200, log_write=300_000, issue=200_000)
    pair = {"test": "fdatasync", "one": "slog", "other": "flash", "reported": 1.5}
    return {
        "zfs": "2.3.9-1",
        "uname": "6.12",
        "duration": "1s",
        "rows": [
            row_of("slog", {"fdatasync": 7285}, slow, device_per_s=125.0),
            row_of("flash", {"fdatasync": 6605}, quick, words="or so"),
            row_of("slog-again", {}, measured("fdatasync", 90)),
            row_of("ext4", {}, failed="no mkfs"),
        ],
        "matrix": {"first": "slog", "pairs": [pair | {"measured": 0.5, "agrees": False}]},
    }


def test_the_page_is_written_from_results() -> None:
    text = reports_2014.page([result()])
    split = (
        "| the flash, fdatasync | 2.3.9-1 | 10 | 50 µs | 30 µs | 20 µs | 40 % | `issue` 20 µs |  |"
    )
    assert split in text
    assert "| the slog | fdatasync | 100/s | 1.00 | 7,285/s | 1.00 | 80 % | flush 90 %" in text
    assert "* the flash: or so" in text and "* the ext4: no mkfs" in text
    assert "against itself: fdatasync 0.90." in text
    assert "0 of 1 pairs of rows are in the order" in text
    assert "| fdatasync | the slog | the flash | 1.50 | 0.50 | flush 90 %, issue 10 % |" in text
    lines = [line for line in text.splitlines() if line.startswith("|")]
    for before, after in itertools.pairwise(lines):
        if after.startswith("|---"):
            assert before.count("|") == after.count("|")
