"""What is drawn, from the lines of a session."""

from __future__ import annotations

import pytest
from support.sample_session import Json
from support.samples import from_values

from zfstune.report import data as report_data


def test_pairs_are_neighbouring_blocks_of_one_trial() -> None:
    def block(number: int, label: str, trial: int, p99: float) -> Json:
        where = {"number": number, "start_s": number * 20.0, "phase": "trial", "trial": trial}
        return {**where, "label": label, "metrics": {"fsync.p99": p99}}

    found = {
        "objective": "fsync.p99",
        "blocks": [
            block(1, "B", 1, 50.0),
            block(2, "A", 1, 100.0),
            # the trial ended here, its partner is missing
            block(3, "A", 1, 100.0),
            block(4, "A", 2, 100.0),
            block(5, "B", 2, 80.0),
        ],
    }
    pairs = report_data.pairs(found, "trial")
    assert [one.trial for one in pairs] == [1, 2]
    assert [one.ratio for one in pairs] == pytest.approx([0.5, 0.8])


def test_survival_ends_with_the_slowest() -> None:
    times, shares = report_data.survival(from_values([10, 20, 20, 30]))
    assert shares == [1.0, 0.75, 0.25, 0.25]
    assert times[0] == 10
    assert times[-1] == 31
