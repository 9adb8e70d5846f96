"""The search space: independent knobs that map to legal values.

Parameters are coupled by the guard's rules: percents must stay in order and apart, a minimum may
not exceed its maximum. Drawn one by one, most sets would be illegal. So a coupled parameter is a
share (0 to 1) of the gap that earlier ones leave, and sizes are drawn by their logarithm. Every
point is legal, also if only some parameters are free.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from zfstune.rules import language
from zfstune.tunables import catalogue, guard
from zfstune.tunables.catalogue import Search
from zfstune.tunables.guard import broken_by
from zfstune.tunables.names import (
    ACTIVE_MAX,
    ACTIVE_MIN,
    ASYNC_MAX,
    ASYNC_MIN,
    DELAY_MIN,
    DIRTY,
    SLOG_BULK,
    SYNC_PERCENT,
    WRLOG,
)

MIB = 1 << 20

# Rules of the guard keep them in this order.
_PERCENTS = (SYNC_PERCENT, ACTIVE_MIN, ACTIVE_MAX, DELAY_MIN)
# Depend on other parameters; all others are drawn independently.
_COUPLED = {DIRTY, ASYNC_MAX, ASYNC_MIN, *_PERCENTS}


@dataclass(frozen=True)
class Knob:
    """A value that a sampler draws, named like the parameter that it sets. log: drawn by its
    logarithm. whole: an integer."""

    name: str
    low: float
    high: float
    log: bool = False
    whole: bool = False

    def clip(self, value: float) -> float:
        value = min(self.high, max(self.low, value))
        return float(round(value)) if self.whole else value

    def levels(self, count: int) -> list[float]:
        """At most count values, evenly from low to high."""
        shares = [i / (count - 1) for i in range(count)] if count > 1 else [0.5]
        return sorted({self.at(share) for share in shares})

    def at(self, share: float) -> float:
        """The value at this share (0 to 1) of the range, on its scale."""
        if self.log:
            low, high = math.log(self.low), math.log(self.high)
            return self.clip(math.exp(low + share * (high - low)))
        return self.clip(self.low + share * (self.high - self.low))

    def share(self, value: float) -> float:
        """The reverse of at()."""
        low, high, value = self.low, self.high, self.clip(value)
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return (value - low) / (high - low)


class Space:
    """The space of those parameters in names that the host has (in current).

    slog: without a log device zil_slog_bulk does nothing and is left out. Points are legal by the
    guard if current is.
    """

    def __init__(
        self,
        names: Sequence[str],
        current: Mapping[str, int],
        facts: guard.Facts,
        *,
        slog: bool = True,
    ) -> None:
        self._now = dict(current)
        self._facts = facts
        self._env = guard.values(self._now, facts)
        wanted = {n for n in names if n in current and (slog or n != SLOG_BULK)}
        self._percents = self._free_percents(wanted)
        known = [n for n in catalogue.default_set() if n in wanted]
        self.names = tuple(n for n in known if n not in _PERCENTS or n in self._percents)
        knobs = (self._knob(name) for name in self.names)
        self.knobs = tuple(knob for knob in knobs if knob.low < knob.high)
        self.names = tuple(knob.name for knob in self.knobs)
        self._most_at_least = self._least_active() if ASYNC_MIN in self.names else 1
        self._bounds = self.bounds()
        if WRLOG in self._bounds:
            # the model uses the guard's minimum, whatever the current ratio
            low, high = (
                catalogue.least(WRLOG, DIRTY, self._bounds[DIRTY][0]),
                self._bounds[WRLOG][1],
            )
            self._bounds[WRLOG] = low, high

    def parameters(self) -> tuple[str, ...]:
        """All parameters that a point may set: names, and zfs_wrlog_data_max with
        zfs_dirty_data_max."""
        return (*self.names, WRLOG) if DIRTY in self.names and WRLOG in self._now else self.names

    def bounds(self) -> dict[str, tuple[int, int]]:
        """Parameter -> (lowest, highest) value that any point sets."""
        low = self.values({knob.name: knob.low for knob in self.knobs})
        high = self.values({knob.name: knob.high for knob in self.knobs})
        return {name: (low[name], high[name]) for name in low}

    def has(self, values: object) -> bool:
        """Whether these are values, within bounds(), of parameters that a point sets. For data from
        outside: values may have any type."""
        if not isinstance(values, dict) or not values.keys() <= self._bounds.keys():
            return False
        # type(): a bool is an int, and 3.0 is equal to 3
        return all(
            type(value) is int and self._bounds[name][0] <= value <= self._bounds[name][1]
            for name, value in values.items()
        )

    def values(self, point: Mapping[str, float]) -> dict[str, int]:
        """The parameters at a point; knobs missing there keep their current values."""
        point = {**self.point({}), **point}
        out: dict[str, int] = {}
        self._set_sizes(point, out)
        self._set_depth(point, out)
        self._set_percents(point, out)
        for name in self.names:
            if name not in _COUPLED:
                value = out[name] = _rounded(name, point[name])
                legal = guard.nearest(name, {**self._now, **out}, self._facts)
                out[name] = value if legal is None else legal
        return out

    def point(self, values: Mapping[str, int]) -> dict[str, float]:
        """The point of these values (others are as now), or the nearest in the space."""
        state = {**self._now, **values}
        point: dict[str, float] = {}
        for knob in self.knobs:
            value: float = state[knob.name]
            if knob.name in _PERCENTS:
                low, high = self._room(knob.name, state, self._percents)
                value = (value - low) / (high - low) if high > low else 0.0
            elif knob.name == ASYNC_MIN:
                most = state.get(ASYNC_MAX, self._deepest())
                value = math.log(max(1, value)) / math.log(most) if most > 1 else 0.0
            point[knob.name] = knob.clip(value)
        return point

    def _knob(self, name: str) -> Knob:
        now = self._now[name]
        if name in self._percents or name == ASYNC_MIN:
            return Knob(name, 0.0, 1.0)
        if name == ASYNC_MAX:
            low, high = self._range(name)
            if ASYNC_MIN not in self.names:
                low = max(low, self._now.get(ASYNC_MIN, 1))
            _, high = self._within(name, low, max(high, now))
            return Knob(name, low, max(low, high), log=True, whole=True)
        if name == DIRTY:
            return Knob(name, self._dirty_least(), self._dirty_most(), log=True)
        low, high = self._range(name)
        low, high = self._within(name, min(low, max(1, now)), max(high, now))
        whole = catalogue.load()[name].unit not in ("bytes", "ns")
        return Knob(name, low, high, log=low > 0, whole=whole)

    def _range(self, name: str) -> tuple[int, int]:
        """The catalogue's search range; (0, 0) if a fact is unknown."""
        parameter = catalogue.load()[name]
        search = parameter.search or Search()
        texts = (search.low or parameter.low, search.high or parameter.high)
        try:
            low, high = (language.evaluate(text or "0", self._env) for text in texts)
        except language.Unknown:
            return 0, 0
        return low, high

    def _deepest(self) -> int:
        return self._range(ASYNC_MAX)[1]

    def _dirty_least(self) -> int:
        return self._legal_towards(self._range(DIRTY)[0], up=True)

    def _dirty_most(self) -> int:
        return self._legal_towards(self._range(DIRTY)[1], up=False)

    def _legal_towards(self, size: int, *, up: bool) -> int:
        """The first legal limit of dirty data from size towards the current one."""
        now = self._now[DIRTY]
        while (size < now) if up else (size > now):
            if not broken_by(self._dirty(size), self._now, self._facts):
                return size
            size = size * 2 if up else size // 2
        return now

    def _dirty(self, size: int) -> dict[str, int]:
        """The limit of dirty data, and that of log data in the current ratio, or the least legal
        one."""
        if WRLOG not in self._now:
            return {DIRTY: size}
        ratio = self._now[WRLOG] / max(1, self._now[DIRTY])
        return {DIRTY: size, WRLOG: max(catalogue.least(WRLOG, DIRTY, size), int(size * ratio))}

    def _within(self, name: str, low: int, high: int) -> tuple[int, int]:
        """The range within the guard's bounds."""
        lowest, highest = guard.bounds(name, self._now, self._facts)
        return max(low, lowest or 0), high if highest is None else min(high, highest)

    def _set_sizes(self, point: Mapping[str, float], out: dict[str, int]) -> None:
        if DIRTY in self.names:
            out.update(self._dirty(_near(point[DIRTY], self._now[DIRTY])))

    def _set_depth(self, point: Mapping[str, float], out: dict[str, int]) -> None:
        if ASYNC_MAX in self.names:
            out[ASYNC_MAX] = round(point[ASYNC_MAX])
        if ASYNC_MIN in self.names:
            most = out.get(ASYNC_MAX, self._now.get(ASYNC_MAX, self._deepest()))
            depth = max(1, round(most ** point[ASYNC_MIN]))
            out[ASYNC_MIN] = min(most, depth, self._most_at_least)

    def _least_active(self) -> int:
        """The largest zfs_vdev_async_write_min_active that leaves other I/O classes their share."""
        for depth in range(self._deepest(), 1, -1):
            depths = {ASYNC_MIN: depth}
            if ASYNC_MAX in self._now:
                depths[ASYNC_MAX] = max(depth, self._now[ASYNC_MAX])
            if not broken_by(depths, self._now, self._facts):
                return depth
        return 1

    def _set_percents(self, point: Mapping[str, float], out: dict[str, int]) -> None:
        state = dict(self._now)
        for name in _PERCENTS:
            if name in self.names:
                low, high = self._room(name, state, self._percents)
                state[name] = out[name] = low + round(point[name] * (high - low))

    def _free_percents(self, wanted: Iterable[str]) -> frozenset[str]:
        """The percents in wanted; none if the current values of the others leave no room."""
        free = frozenset(wanted) & frozenset(_PERCENTS)
        state = dict(self._now)
        for name in _PERCENTS:
            if name in free:
                low, high = self._room(name, state, free)
                if low > high:
                    return frozenset()
                state[name] = low
        return free

    def _room(self, name: str, state: Mapping[str, int], free: frozenset[str]) -> tuple[int, int]:
        """The range of a percent, given state: all percents before it, and those after it that are
        not free."""
        present = [other for other in _PERCENTS if other in state]
        index = present.index(name)
        low, high = self._range(name)
        if index:
            before = present[index - 1]
            low = max(low, state[before] + _gap(before))
        distance = 0
        for before, other in zip(present[index:], present[index + 1 :]):
            distance += _gap(before)
            highest = self._range(other)[1] if other in free else state[other]
            high = min(high, highest - distance)
        return low, high


def _gap(name: str) -> int:
    """The least distance from a percent to the next one."""
    return catalogue.least(_PERCENTS[_PERCENTS.index(name) + 1], name, 0)


def _near(size: float, now: int) -> int:
    """Whole MiB, or the current size if within 1 % of it."""
    if now and abs(size - now) <= now / 100:
        return now
    return max(1, round(size / MIB)) * MIB


def _rounded(name: str, value: float) -> int:
    """Readable: two digits, or whole 64 KiB."""
    if catalogue.load()[name].unit == "bytes":
        return max(1, round(value / 65536)) * 65536
    if value < 100:
        return round(value)
    unit: int = 10 ** (len(str(int(value))) - 2)
    return round(value / unit) * unit
