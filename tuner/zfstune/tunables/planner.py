"""The order of the writes that lead from one state of the parameters to another.

Between two states that keep a rule `left <= right`, every intermediate state keeps it too if values
are lowered from the bottom of the rule and raised from its top, and all falls come before all
rises: each side grows with each of its names.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from zfstrace.host import Host
from zfstune.tunables import catalogue
from zfstune.tunables.guard import Facts, at_load, in_force, refuse, stale, values
from zfstune.tunables.guard import facts as of_host
from zfstune.tunables.names import ACTIVE_MAX, ACTIVE_MIN, ARC_MAX, DELAY_MIN, DIRTY, WRLOG

_LEAST, _MOST = "zfs_vdev_async_write_min_active", "zfs_vdev_async_write_max_active"
_INTERPOLATED = (DIRTY, ACTIVE_MIN, ACTIVE_MAX, _LEAST, _MOST)
_ANY = 1 << 64


@dataclass(frozen=True)
class Write:
    """A write. quiet: first wait until the kstats dmu_tx_dirty_delay and dmu_tx_wrlog_delay stand
    still for 0.3 s, a few seconds at most."""

    name: str
    value: int
    quiet: bool = False
    why: str = field(default="", compare=False)


def plan(
    now: Mapping[str, int],
    wanted: Mapping[str, int],
    facts: Facts,
    *,
    back: bool = False,
    force: bool = False,
) -> list[Write]:
    """The writes that lead from now (all values of the host) to wanted, in order; [] if there is
    nothing to do. Raises Refused.

    back: a restore. wanted are previous values and are not judged; it always succeeds, and
    intermediate states break no rule that both now and wanted keep. force: soft rules do not count.
    """
    if not back:
        refuse(now, wanted, facts, force)
    return list(Planner(now, wanted, facts).writes())


def boot_order(host: Host, values: Mapping[str, int]) -> list[str]:
    """An order in which these values can be set one by one on a host that has just booted: no
    intermediate state breaks a hard rule. For systems that do not set them all at once."""
    facts = of_host(host)
    memory = facts.memory_bytes
    # the ARC's initial limits on FreeBSD: arc_init() in arc.c, arc_default_max() in arc_os.c
    least, most = max(memory // 32, 32 << 20), max(memory * 5 // 8, memory - (1 << 30))
    facts = replace(facts, arc_c_min=least, arc_c_max=most, arc_held=0)
    start = dict(values) | at_load({}, host.version(), facts)
    writes = plan(start, values, facts, back=True)
    last = {write.name: number for number, write in enumerate(writes)}
    return sorted(values, key=lambda name: (last.get(name, -1), name))


class Planner:
    """Walks from one state to the other.

    Why zfs_delay_min_dirty_percent goes to 100 while zfs_dirty_data_max or zfs_wrlog_data_max
    falls: dmu_tx_delay() (module/zfs/dmu_tx.c, the same in 2.1.11, 2.3.9 and 2.4.4) reads each
    of them several times without a lock. dmu_tx_wait() has made sure that dirty < max, then

        if (dirty > max * percent / 100)   delay = scale * (dirty - ...) / (max - dirty)

    With percent 100, a division by zero needs dirty < max(1), dirty > max(2), dirty == max(3), each
    an old or a new value of max: if max falls, no choice satisfies all three. For the log it is
    likewise wrlog > max(1), wrlog < max(2), wrlog == max(3). With a smaller percent one choice
    does: all old but the last. If a limit rises none ever does, since dirty < max(1) comes first
    and max only grows after that. After a quiet moment no thread is left that read the percent
    before it was 100, or, when the percent returns, an old limit: both writes are quiet.

    dsl_pool_need_dirty_delay() and dsl_pool_need_wrlog_delay() (dsl_pool.c) only compare.
    vdev_queue_max_async_writes() (vdev_queue.c) divides by the difference of two parts of max,
    which it reads twice, and subtracts the least number of writes from the largest. _sizes() deals
    with a single write of max; _torn() with a thread that reads some values before one write and
    the rest after a later one, which then waits, too.
    """

    def __init__(self, now: Mapping[str, int], wanted: Mapping[str, int], facts: Facts) -> None:
        self._file = {n: v for n, v in now.items() if n in catalogue.load() or n in wanted}
        self._wanted = {n: v for n, v in wanted.items() if n in now}
        before = in_force(now, facts)
        self._now = {**before, **{n: v for n, v in values(before, facts).items() if n in now}}
        after = values({**before, **self._wanted}, facts)
        self._target = {n: after.get(n, v) for n, v in self._wanted.items()}
        self._stale = stale(now, facts)
        # values that a thread may have read and still use
        self._read = {n: {self._now[n]} for n in _INTERPOLATED if n in self._now}
        ranks = _ranks()
        self._fall = sorted(
            (n for n, v in self._target.items() if v < self._now[n]),
            key=lambda n: (ranks.get(n, 0), n),
        )
        self._rise = sorted(
            (n for n, v in self._target.items() if v > self._now[n]),
            key=lambda n: (-ranks.get(n, 0), n),
        )

    def writes(self) -> Iterator[Write]:
        yield from self._heal()
        limits = [n for n in self._fall if n in (DIRTY, WRLOG)]
        window = {*limits, DELAY_MIN} if limits else set()
        after = _above(tuple(limits)) - window
        yield from self._move(n for n in self._fall if n not in window | after)
        if limits:
            yield from self._lower(limits)
        yield from self._move(n for n in self._fall if n in after)
        yield from self._move(n for n in self._rise if n not in window)
        yield from self._finish()

    def _heal(self) -> Iterator[Write]:
        """An ignored limit of the ARC must not take effect when another one changes."""
        for name in sorted(self._stale.keys() & self._wanted.keys()):
            if self._file[name] != self._wanted[name] or self._target[name] != self._now[name]:
                why = "the limit in force replaces a value that ZFS ignores"
                yield self._write(name, self._stale[name], why=why)

    def _lower(self, limits: list[str]) -> Iterator[Write]:
        """Lowers limits of the throttle while it delays no writer."""
        percent = self._now.get(DELAY_MIN)
        if percent is not None and percent < 100:
            yield self._write(
                DELAY_MIN, 100, why="turns off the delay, whose divisor could become 0"
            )
        for i, name in enumerate(limits):
            yield from self._move([name], quiet=i == 0)
        last = self._target.get(DELAY_MIN, percent)
        if last is not None and last != self._now[DELAY_MIN]:
            why = "" if DELAY_MIN in self._wanted else "turns the delay on again"
            yield self._write(DELAY_MIN, last, quiet=True, why=why or self._why(DELAY_MIN))

    def _move(self, names: Iterable[str], *, quiet: bool = False) -> Iterator[Write]:
        for name in names:
            *steps, last = self._steps(name)
            for step in steps:
                yield self._write(name, step, quiet=quiet, why=_STEPS.get(name, ""))
                # no thread that read the previous value may meet the next one
                quiet = True
            yield self._write(name, last, quiet=quiet, why=self._why(name))

    def _steps(self, name: str) -> list[int]:
        old, new = self._now[name], self._target[name]
        if name == DIRTY:
            return _sizes(old, new, self._now.get(ACTIVE_MIN), self._now.get(ACTIVE_MAX))
        if name == ARC_MAX:
            return _halves(old, new)
        return [new]

    def _finish(self) -> Iterator[Write]:
        """Writes values that mean the same as the present ones: 0 for "not set"."""
        for name in sorted(self._wanted):
            if self._file[name] != self._wanted[name]:
                yield self._write(
                    name, self._wanted[name], why="the previous value, with the same meaning"
                )

    def _write(self, name: str, value: int, *, quiet: bool = False, why: str = "") -> Write:
        if name in self._read:
            if not quiet and self._torn(name, value):
                quiet = True
            if quiet:
                self._read = {n: {self._now[n]} for n in self._read}
            self._read[name].add(value)
        self._now[name] = self._file[name] = value
        return Write(name, value, quiet, why)

    def _torn(self, name: str, value: int) -> bool:
        """Whether after this write a thread may use an old value of one parameter and a new value
        of another that must not meet."""
        read = {**self._read, name: self._read[name] | {value}}
        if name in (_LEAST, _MOST):
            return max(read.get(_LEAST, {0})) > min(read.get(_MOST, {_ANY}))
        if not all(n in read for n in (DIRTY, ACTIVE_MIN, ACTIVE_MAX)):
            return False
        least = {size * low // 100 for size in read[DIRTY] for low in read[ACTIVE_MIN]}
        return any(size * high // 100 in least for size in read[DIRTY] for high in read[ACTIVE_MAX])

    def _why(self, name: str) -> str:
        """Why the write comes at this place."""
        rising = name in self._rise
        moving = self._rise if rising else self._fall
        others = [
            other
            for rule in catalogue.rules()
            if name in (rule.above if rising else rule.below)
            for other in (rule.below if rising else rule.above)
            if other in moving
        ]
        unique = list(dict.fromkeys(others))
        verb = "rise" if rising else "fall"
        return f"before {' and '.join(unique)} {verb}{'s' * (len(unique) == 1)}" if unique else ""


_STEPS = {
    DIRTY: "intermediate: the thresholds of async writes must not meet",
    ARC_MAX: "in steps: eviction takes time",
}


def _sizes(old: int, new: int, low: int | None, high: int | None) -> list[int]:
    """Steps of zfs_dirty_data_max. vdev_queue_max_async_writes() divides by
    max * high / 100 - max * low / 100, and may read an old max for one and a new one for the other.
    """
    if low is None or high is None or low == high or not _meet(old, new, low, high):
        return [new]
    # at most four of these meet one of the ends
    middles = (new + (old - new) * part // 8 for part in (4, 3, 5, 2, 6, 1, 7))
    found = (m for m in middles if not _meet(old, m, low, high) and not _meet(m, new, low, high))
    middle = next(found, None)
    return [new] if middle is None else [middle, new]


def _meet(old: int, new: int, low: int, high: int) -> bool:
    return old * low // 100 == new * high // 100 or new * low // 100 == old * high // 100


def _halves(old: int, new: int) -> list[int]:
    """Steps of zfs_arc_max: each at most by half, since allocations wait while the ARC is far above
    its limit (module/zfs/arc.c, arc_wait_for_eviction())."""
    steps = []
    while old > 2 * new > 0:
        old //= 2
        steps.append(old)
    return [*steps, new]


@functools.cache
def _ranks() -> dict[str, int]:
    """The rank of each name in the rules: 0 at the bottom, higher than all that it must exceed."""
    ranks: dict[str, int] = {}
    for _ in catalogue.rules():
        for rule in catalogue.rules():
            floor = max(ranks.setdefault(name, 0) for name in rule.below)
            for name in rule.above:
                ranks[name] = max(ranks.get(name, 0), floor + 1)
    return ranks


@functools.cache
def _above(names: tuple[str, ...]) -> frozenset[str]:
    """The names that must stay above one of these, directly or indirectly."""
    found = set(names)
    for _ in catalogue.rules():
        for rule in catalogue.rules():
            if found & set(rule.below):
                found |= set(rule.above)
    return frozenset(found) - set(names)
