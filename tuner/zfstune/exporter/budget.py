"""What tracing costs, measured now and then, and which views have to go when that is too much.

The kernel reads a clock twice for each run of a program while it counts, so it counts for two
seconds in ten minutes.
"""

from __future__ import annotations

from collections.abc import Mapping

from zfstune.record.costed import Costed, costed, run_ns
from zfstune.term.units import SECOND

# What goes first; the view `light` never does.
ORDER = ("device", "read", "throttle", "fsync", "txg", "arc")
# A view that cost too much is tried again after this time.
AGAIN_NS = 1800 * SECOND

_FIRST_NS, _EVERY_NS, _COUNT_NS = 30 * SECOND, 600 * SECOND, 2 * SECOND


class Budget:
    """Measures the views in turns of two seconds. share is what all may cost, of one CPU."""

    def __init__(self, share: float) -> None:
        self.share = share
        # of each view, as measured last
        self.ratios: dict[str, float] = {}
        self._due: int | None = None
        self._names: set[str] = set()
        # since when the kernel counts, for which sessions, and what they had cost then
        self._since: int | None = None
        self._before: dict[str, tuple[Costed, int]] = {}

    @property
    def cost(self) -> float:
        """Of all views together."""
        return sum(self.ratios.values())

    def tick(self, now: int, sessions: Mapping[str, object]) -> list[str]:
        """To be called each second, at a time in ns, with the sessions of the views that are on.
        Returns the views that have to go. Raises TraceError if the kernel does not count."""
        if self._due is None:
            self._due = now + _FIRST_NS
        there = {name: one for name, any_ in sessions.items() if (one := costed(any_))}
        for name in self.ratios.keys() - there.keys():
            del self.ratios[name]
        if there.keys() - self._names:
            # what is attached anew is not left to itself for ten minutes
            self._due = min(self._due, now + _FIRST_NS)
        self._names = set(there)
        if self._since is not None and now - self._since >= _COUNT_NS:
            return self._finish(now, there)
        if self._since is None and now >= self._due and there:
            self._due = now + _EVERY_NS
            self._begin(now, there)
        return []

    def _begin(self, now: int, there: Mapping[str, Costed]) -> None:
        try:
            for name, one in there.items():
                # each for itself: any of them may be closed meanwhile. What has begun to count is
                # known before it is read, so that an error cannot leave it on
                self._before[name] = one, 0
                one.count_cost()
                self._before[name] = one, run_ns(one)
        except BaseException:
            self.close()
            raise
        self._since = now

    def _finish(self, now: int, there: Mapping[str, Costed]) -> list[str]:
        """What has been closed meanwhile is left out."""
        spent = max(1, now - (self._since or 0))
        try:
            self.ratios = {
                name: max(0, run_ns(one) - before) / spent
                for name, (one, before) in self._before.items()
                if there.get(name) is one
            }
        finally:
            self.close()
        gone = self._too_much()
        if gone:
            # to see what that has changed
            self._due = now + _FIRST_NS
        return gone

    def _too_much(self) -> list[str]:
        """As few views as possible, in the order; not those that cost nothing."""
        stays = sum(ratio for name, ratio in self.ratios.items() if name not in ORDER)
        # what is too much by itself cannot be made up for: the others are judged without it
        left = self.cost - (stays if stays > self.share else 0)
        gone = []
        for name in ORDER:
            if left > self.share and self.ratios.get(name):
                left -= self.ratios[name]
                gone.append(name)
        return gone

    def close(self) -> None:
        """Ends a measurement that has begun."""
        before, self._before, self._since = self._before, {}, None
        for one, _ in before.values():
            one.end_cost()
