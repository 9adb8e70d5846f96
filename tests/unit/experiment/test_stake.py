"""What a session puts into one proof."""

from __future__ import annotations

import pytest

from zfstune.experiment.stake import Stake, stake


@pytest.mark.parametrize(
    ("pairs", "most", "wanted"),
    [
        (21.0, None, Stake(0.024, 12, 0.05, 21)),  # nine would be enough for the gain of another
        (21.0, 10, Stake(0.024, 10, 0.05, 21)),
        (13.0, None, Stake(0.04, 13, 0.05, 13)),  # five would not
        (33.0, 24, Stake(0.024, 19, 0.03, 24)),
        (60.0, 24, Stake(0.024, 24, 0.03, 24)),
        (60.0, None, Stake(0.024, 36, 0.03, 36)),
        (6.6, None, Stake(0.04, 6, 0.05, 6)),
        (5.5, None, Stake(0.04, 6, 0.05, 6)),  # it may end a tenth too late
        (5.4, None, Stake(0.04, 5, 0.05, 5)),
    ],
)
def test_a_part_of_what_is_left(pairs: float, most: int | None, wanted: Stake) -> None:
    found = stake(0.04, 0.05, 50.0 * pairs, 50.0, most)
    assert (found.alpha, found.limits_alpha) == pytest.approx((wanted.alpha, wanted.limits_alpha))
    assert (found.pairs, found.longest) == (wanted.pairs, wanted.longest)
    assert found.enough == (pairs > 5.4)


@pytest.mark.parametrize(("alpha", "limits_alpha"), [(0.0, 0.05), (0.04, 0.0), (0.04, 1e-9)])
def test_nothing_is_proved_without_alpha(alpha: float, limits_alpha: float) -> None:
    assert not stake(alpha, limits_alpha, 1000.0, 50.0).enough
