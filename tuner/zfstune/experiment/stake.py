"""What a session puts into one proof: a part of its alpha and of its time."""

from __future__ import annotations

from dataclasses import dataclass

from zfstune.experiment import statistics
from zfstune.experiment.outlook import SPARE

# The part of what is left, as long as the rest is enough for another proof
_ONE_OF_SOME = 0.6
# Limits may have so many pairs where the gain has fewer: it is often clear long before what it
# costs, and a second proof would begin from nothing
_LIMITS = 24


@dataclass(frozen=True)
class Stake:
    """alpha and pairs are for the gain; limits_alpha, of each limit, and longest, which are no
    fewer pairs, for what it costs."""

    alpha: float
    pairs: int
    limits_alpha: float
    longest: int

    @property
    def enough(self) -> bool:
        """Whether so little can prove anything."""
        return (
            self.alpha > 0
            and self.pairs >= statistics.fewest_pairs(self.alpha)
            and self.limits_alpha > 0
            and self.longest >= statistics.fewest_pairs(self.limits_alpha)
        )


def stake(
    alpha: float, limits_alpha: float, left_s: float, pair_s: float, most: int | None = None
) -> Stake:
    """Of the alphas and the time that are left; most pairs are for the gain. The shortest proof may
    end a tenth too late."""
    part, fit = _ONE_OF_SOME * alpha, int(left_s / pair_s)
    pairs, another = int(_ONE_OF_SOME * fit), statistics.fewest_pairs(alpha - part)
    if fit - pairs < another:
        least = statistics.fewest_pairs(alpha)
        fit = max(fit, least) if left_s * SPARE >= least * pair_s else fit
        part, pairs = alpha, fit
    pairs = min(pairs, most or pairs)
    longest = min(fit, max(pairs, _LIMITS))
    if fit - longest < another:
        return Stake(part, pairs, limits_alpha, fit)
    return Stake(part, pairs, _ONE_OF_SOME * limits_alpha, longest)
