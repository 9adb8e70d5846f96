"""What a session with proved values says it would do next; test_phases.py has whole sessions, also
without."""

from __future__ import annotations

import pytest

from zfstune.experiment import outlook
from zfstune.experiment.found import Found
from zfstune.experiment.model import Candidate
from zfstune.experiment.race import Arm
from zfstune.experiment.soak import Soak

TIMES = outlook.Times(600.0, 0.0, 60.0, 360.0, 140.0, lambda _arm: 60.0, late=True)
OTHER = Arm(2, Candidate({"zfs_txg_timeout": 2}, "model", {}))


@pytest.mark.parametrize(
    ("soak", "challenger", "untried", "said"),
    [
        (
            None,
            OTHER,
            2,
            "there was no time to see whether the proved values stay good: "
            "--budget 13m has time for that",
        ),
        (
            Soak(5, 0.5, 0.5),
            OTHER,
            2,
            "zfs_txg_timeout=2s may be better still: --budget 17m has time for its proof",
        ),
        (
            Soak(5, 0.5, 0.5),
            None,
            2,
            "2 other candidates were not tried: --budget 19m has time for that",
        ),
        (
            Soak(5, 0.5, 0.5),
            None,
            1,
            "1 other candidate was not tried: --budget 18m has time for that",
        ),
        (Soak(5, 0.5, 0.5), None, 0, None),
    ],
)
def test_the_first_thing_that_is_left_is_named(
    soak: Soak | None, challenger: Arm | None, untried: int, said: str | None
) -> None:
    assert outlook.further(Found(soak=soak), challenger, untried, TIMES) == said
