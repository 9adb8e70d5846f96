"""The guard: what it refuses, and that no write of its plans is dangerous.

The kernel's functions are modelled by their reads of parameters, each of which may see the old or
the new value of the one being written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake_host import FakeHost

from zfstune.tunables import catalogue, guard
from zfstune.tunables.guard import Facts, Refused, check
from zfstune.tunables.names import ARC_MAX, ARC_MIN, DELAY_MIN, DIRTY, WRLOG
from zfstune.tunables.planner import Write, plan

M, G = 1 << 20, 1 << 30
SYNC = "zfs_dirty_data_sync_percent"
SCALE = "zfs_delay_scale"
LOW = "zfs_vdev_async_write_active_min_dirty_percent"
HIGH = "zfs_vdev_async_write_active_max_dirty_percent"
LEAST = "zfs_vdev_async_write_min_active"
MOST = "zfs_vdev_async_write_max_active"
READ = ("zfs_vdev_sync_read_min_active", "zfs_vdev_sync_read_max_active")

FACTS = Facts(memory_bytes=16 * G, arc_c_min=512 * M, arc_c_max=8 * G)
STATE = {
    DIRTY: 1600 * M,
    WRLOG: 3200 * M,
    SYNC: 20,
    LOW: 30,
    HIGH: 60,
    DELAY_MIN: 60,
    SCALE: 500_000,
    LEAST: 2,
    MOST: 10,
    READ[0]: 10,
    READ[1]: 10,
    "zfs_txg_timeout": 5,
    "zfs_arc_shrink_shift": 0,
    ARC_MAX: 0,
    ARC_MIN: 0,
    "zil_nocacheflush": 0,
}


# --- states


@st.composite
def hosts(draw: st.DrawFn) -> Facts:
    memory = draw(st.integers(1 * G, 1024 * G))
    c_max = draw(st.integers(memory // 4, memory - 1))
    return Facts(memory, draw(st.integers(32 * M, c_max // 2)), c_max)


@st.composite
def states(draw: st.DrawFn, facts: Facts, *, present: bool) -> dict[str, int]:
    """A legal one. present: with the limits of the ARC that are in force."""
    low = draw(st.integers(2, 90))
    high = draw(st.integers(low + 5, 100))
    c_max = facts.arc_c_max if present else draw(st.integers(128 * M, facts.memory_bytes - 1))
    most_dirty = min(facts.memory_bytes, c_max) // 4
    dirty = draw(st.integers(min(16 * M, most_dirty), most_dirty))
    least = draw(st.integers(1, 100))
    c_min = facts.arc_c_min
    if not present:
        c_min = draw(st.integers(32 * M, min(c_max - 1, facts.memory_bytes // 2)))
    zero = present and draw(st.booleans())
    return {
        DIRTY: dirty,
        WRLOG: draw(st.integers(max(32 * M, 2 * dirty), facts.memory_bytes // 2)),
        SYNC: draw(st.integers(1, low - 1)),
        LOW: low,
        HIGH: high,
        DELAY_MIN: draw(st.integers(max(10, high), 100)),
        SCALE: draw(st.integers(1000, 20_000_000)),
        LEAST: least,
        MOST: draw(st.integers(least, 200)),
        READ[0]: 7,
        READ[1]: draw(st.integers(7, 70)),
        "zfs_txg_timeout": draw(st.integers(1, 60)),
        ARC_MAX: 0 if zero else c_max,
        ARC_MIN: 0 if zero else c_min,
    }


@st.composite
def changes(draw: st.DrawFn) -> tuple[Facts, dict[str, int], dict[str, int]]:
    """A host, a legal state, and a legal state that differs in some of the values."""
    facts = draw(hosts())
    now = draw(states(facts, present=True))
    other = draw(states(facts, present=False))
    names = draw(st.sets(st.sampled_from(sorted(now))))
    wanted = {name: other[name] for name in names}
    if check({**now, **wanted}, facts):
        # what is legal together may be illegal with half of the old state
        wanted = other
    return facts, now, wanted


NUMBERS = st.one_of(st.integers(0, 200), st.integers(0, 1 << 42), st.just((1 << 64) - 1))


@st.composite
def anything(draw: st.DrawFn) -> tuple[Facts, dict[str, int], dict[str, int]]:
    """A host, and any two states, as another program may have set them."""
    facts = draw(hosts())
    now, wanted = dict(draw(states(facts, present=True))), {}
    for name in draw(st.sets(st.sampled_from(sorted(now)))):
        now[name] = draw(NUMBERS)
    for name in draw(st.sets(st.sampled_from(sorted(now)))):
        wanted[name] = draw(NUMBERS)
    return facts, now, wanted


# --- the kernel


class Reads:
    """What a function may read: of the parameter that is being written the old or the new
    value at each read. Falling limits of the throttle are read in any order; what rises
    is read in the order of the program, where a new value stays new."""

    def __init__(self, state: Mapping[str, int], write: Write) -> None:
        self._state, self._write = state, write

    def of(self, name: str, times: int) -> list[tuple[int, ...]]:
        old = self._state[name]
        if name != self._write.name:
            return [(old,) * times]
        new = self._write.value
        mixes = list(product((old, new), repeat=times))
        return (
            mixes if new < old or name == DELAY_MIN else [m for m in mixes if list(m) == sorted(m)]
        )


def amounts(state: Mapping[str, int], write: Write, names: tuple[str, ...]) -> Iterator[int]:
    """Dirty data at and around everything that it is compared with."""
    for limit in {state[names[0]], write.value if write.name == names[0] else state[names[0]]}:
        for name in names[1:]:
            for percent in {100, state[name], write.value if write.name == name else 0}:
                for beside in (-1, 0, 1):
                    yield max(0, limit * percent // 100 + beside)
    yield 0


def divide(what: str, amount: int, divisor: int) -> None:
    # unsigned: less than 0 is a huge number, which is harmless there
    assert divisor % (1 << 64) != 0, f"{what} divides by 0 with {amount}"


def delay_of_dirty(state: Mapping[str, int], write: Write) -> None:
    """dmu_tx_wait() and dmu_tx_delay(), module/zfs/dmu_tx.c."""
    reads = Reads(state, write)
    for first, second, third in reads.of(DIRTY, 3):
        for (percent,) in reads.of(DELAY_MIN, 1):
            for dirty in amounts(state, write, (DIRTY, DELAY_MIN)):
                if dirty < first and dirty > second * percent // 100:
                    divide("dmu_tx_delay", dirty, third - dirty)


def delay_of_log(state: Mapping[str, int], write: Write) -> None:
    reads = Reads(state, write)
    for first, second, third in reads.of(WRLOG, 3):
        for (percent,) in reads.of(DELAY_MIN, 1):
            for wrlog in amounts(state, write, (WRLOG, DELAY_MIN)):
                if not wrlog >= second and wrlog > first * percent // 100:
                    divide("dmu_tx_delay", wrlog, third - wrlog)


def async_writes(state: Mapping[str, int], write: Write) -> None:
    """vdev_queue_max_async_writes(), module/zfs/vdev_queue.c."""
    reads = Reads(state, write)
    # the two reads of the limit may be compiled in any order
    limits = {m for mix in reads.of(DIRTY, 2) for m in (mix, mix[::-1])}
    for (first, second), (low,), (high,) in product(limits, reads.of(LOW, 1), reads.of(HIGH, 1)):
        least, most = first * low // 100, second * high // 100
        for dirty in {least - 1, least, least + 1, most - 1, most, most + 1, 0}:
            if not dirty > most and not dirty < least:
                divide("vdev_queue_max_async_writes", dirty, most - least)
    for (most_active,), (least_active,) in product(reads.of(MOST, 1), reads.of(LEAST, 1)):
        assert most_active >= least_active >= 1


class Arc:
    """arc_tuning_update(), module/zfs/arc.c."""

    def __init__(self, facts: Facts, state: Mapping[str, int]) -> None:
        self.c_min, self.c_max, self.memory = facts.arc_c_min, facts.arc_c_max, facts.memory_bytes
        self.file = {name: state[name] for name in (ARC_MIN, ARC_MAX)}

    def write(self, name: str, value: int) -> None:
        self.file[name] = value
        if self.file[ARC_MIN] and 32 * M <= self.file[ARC_MIN] <= self.c_max:
            self.c_min = self.file[ARC_MIN]
        if 64 * M <= self.file[ARC_MAX] < self.memory and self.file[ARC_MAX] > self.c_min:
            self.c_max = self.file[ARC_MAX]

    def in_force(self, name: str) -> int:
        return self.c_max if name == ARC_MAX else self.c_min


# --- properties


@given(changes())
def test_no_single_write_can_make_the_kernel_divide_by_zero(
    case: tuple[Facts, dict[str, int], dict[str, int]],
) -> None:
    facts, now, wanted = case
    state = dict(now)
    for write in plan(now, wanted, facts):
        for function in (delay_of_dirty, delay_of_log, async_writes):
            function(state, write)
        state[write.name] = write.value


@given(changes())
def test_every_state_on_the_way_is_legal_and_the_last_is_the_wanted(
    case: tuple[Facts, dict[str, int], dict[str, int]],
) -> None:
    facts, now, wanted = case
    state, arc = dict(now), Arc(facts, now)
    for write in plan(now, wanted, facts):
        state[write.name] = write.value
        assert not check(state, facts)
        if write.name in (ARC_MAX, ARC_MIN):
            arc.write(write.name, write.value)
            assert arc.in_force(write.name) == write.value
    assert state == {**now, **wanted}


@given(changes())
def test_a_plan_is_short_and_the_same_every_time(
    case: tuple[Facts, dict[str, int], dict[str, int]],
) -> None:
    facts, now, wanted = case
    writes = plan(now, wanted, facts)
    assert writes == plan(dict(reversed(now.items())), dict(reversed(wanted.items())), facts)
    count = [w.name for w in writes].count
    for name in now:
        changed = name in wanted and wanted[name] != now[name]
        most = {DELAY_MIN: 2, DIRTY: 2 * changed, ARC_MAX: 16 * changed}.get(name, int(changed))
        assert count(name) <= most
    assert all(before != after for before, after in pairwise(writes))


@given(anything())
def test_a_restore_always_ends_at_what_was_there(
    case: tuple[Facts, dict[str, int], dict[str, int]],
) -> None:
    facts, now, wanted = case
    state = dict(now)
    for write in plan(now, wanted, facts, back=True):
        state[write.name] = write.value
    assert state == {**now, **wanted}


@given(anything())
def test_a_restore_breaks_no_rule_on_the_way_that_both_ends_keep(
    case: tuple[Facts, dict[str, int], dict[str, int]],
) -> None:
    facts, now, wanted = case
    state = guard.in_force(now, facts)
    rules = [
        rule
        for rule in catalogue.rules()
        if rule.holds(guard.values(state, facts))
        and rule.holds(guard.values({**state, **wanted}, facts))
    ]
    for write in plan(now, wanted, facts, back=True):
        state[write.name] = write.value
        assert all(rule.holds(guard.values(state, facts)) for rule in rules)


@given(changes(), st.data())
def test_illegal_values_are_always_refused(
    case: tuple[Facts, dict[str, int], dict[str, int]], data: st.DataObject
) -> None:
    facts, now, _ = case
    name = data.draw(st.sampled_from(sorted(now)))
    value = data.draw(NUMBERS)
    broken = check({**now, name: value}, facts)
    zero = value == 0 and catalogue.load()[name].zero
    if value != now[name] and (broken or zero):
        with pytest.raises(Refused) as error:
            plan(now, {name: value}, facts)
        near = error.value.nearest.get(name)
        if near is not None:
            assert not [v for v in check({**now, name: near}, facts) if name in v.names]
    else:
        plan(now, {name: value}, facts)


@given(anything(), st.data())
def test_a_hard_rule_cannot_be_forced(
    case: tuple[Facts, dict[str, int], dict[str, int]], data: st.DataObject
) -> None:
    facts, _, wanted = case
    now = data.draw(states(facts, present=True))
    try:
        writes = plan(now, wanted, facts, force=True)
    except Refused:
        return
    state = dict(now)
    for write in writes:
        for function in (delay_of_dirty, delay_of_log, async_writes):
            function(state, write)
        state[write.name] = write.value
        assert not [violation for violation in check(state, facts) if violation.hard]


def test_the_model_finds_what_the_recipe_prevents() -> None:
    """Without it the same functions fail: lowered under a delay, and by the ratio of the
    two percents."""
    with pytest.raises(AssertionError, match="dmu_tx_delay"):
        delay_of_dirty(STATE, Write(DIRTY, 1000 * M))
    with pytest.raises(AssertionError, match="dmu_tx_delay"):
        delay_of_log(STATE, Write(WRLOG, 3000 * M))
    with pytest.raises(AssertionError, match="max_async_writes"):
        async_writes(STATE, Write(DIRTY, 800 * M))
    with pytest.raises(AssertionError, match="max_async_writes"):
        async_writes(STATE, Write(DIRTY, 3200 * M))


# --- plans


def words(writes: list[Write]) -> list[str]:
    short = {DIRTY: "dirty", WRLOG: "wrlog", DELAY_MIN: "delay", ARC_MAX: "max", ARC_MIN: "min"}
    return [
        f"{short.get(w.name, w.name)}={w.value // M if w.value >= M else w.value}"
        + ("!" if w.quiet else "")
        for w in writes
    ]


def test_limits_fall_while_nobody_is_delayed() -> None:
    writes = plan(STATE, {DIRTY: 64 * M, WRLOG: 128 * M}, FACTS)
    assert words(writes) == ["delay=100", "dirty=64!", "wrlog=128", "delay=60!"]


def test_limits_rise_from_the_top() -> None:
    writes = plan(STATE, {DIRTY: 2000 * M, WRLOG: 4000 * M}, FACTS)
    assert words(writes) == ["wrlog=4000", "dirty=2000"]
    assert writes[0].why == f"before {DIRTY} rises"


def test_a_change_by_the_ratio_of_the_percents_goes_in_two_steps() -> None:
    writes = plan(STATE, {DIRTY: 800 * M}, FACTS)
    assert words(writes) == ["delay=100", "dirty=1200!", "dirty=800!", "delay=60!"]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        # the old least is the new largest, and the other way round
        ({LOW: 10, HIGH: 30, SYNC: 5}, [f"{LOW}=10", f"{HIGH}=30!"]),
        ({LOW: 60, HIGH: 90, DELAY_MIN: 90}, [f"{HIGH}=90", f"{LOW}=60!"]),
        ({LEAST: 12, MOST: 20}, [f"{MOST}=20", f"{LEAST}=12!"]),
        # no thread could meet these together
        ({LOW: 21, HIGH: 40}, [f"{LOW}=21", f"{HIGH}=40"]),
        ({LEAST: 4, MOST: 20}, [f"{MOST}=20", f"{LEAST}=4"]),
    ],
)
def test_no_thread_meets_the_old_end_of_a_span_and_the_new_other_one(
    wanted: dict[str, int], expected: list[str]
) -> None:
    found = words(plan(STATE, wanted, FACTS))
    assert [word for word in found if word.startswith(("zfs_vdev",))] == expected


def test_a_share_of_the_old_limit_and_one_of_the_new_do_not_meet() -> None:
    """30 % of 800M are 15 % of 1600M: the limit waits for who has read the 30."""
    now = {**STATE, DIRTY: 800 * M, SYNC: 5}
    writes = plan(now, {DIRTY: 1600 * M, LOW: 10, HIGH: 15}, FACTS)
    assert words(writes) == [f"{LOW}=10", f"{HIGH}=15", "dirty=1600!"]


def test_the_delay_goes_to_its_new_value_in_the_same_move() -> None:
    writes = plan(STATE, {DIRTY: 100 * M, DELAY_MIN: 80}, FACTS)
    assert words(writes) == ["delay=100", "dirty=100!", "delay=80!"]
    assert words(plan(STATE, {DIRTY: 100 * M, DELAY_MIN: 100}, FACTS)) == [
        "delay=100",
        "dirty=100!",
    ]


def test_the_cache_shrinks_in_steps_after_what_depends_on_it() -> None:
    writes = plan(STATE, {ARC_MAX: 1 * G, ARC_MIN: 64 * M, DIRTY: 200 * M}, FACTS)
    assert words(writes) == [
        "min=64",
        "delay=100",
        "dirty=200!",
        "delay=60!",
        "max=4096",
        "max=2048!",
        "max=1024!",
    ]


def test_nothing_to_do_is_an_empty_plan() -> None:
    assert plan(STATE, {DIRTY: STATE[DIRTY]}, FACTS) == []


# --- the limits of the ARC that the kernel ignores


def test_an_ignored_limit_is_not_left_to_come_into_force_later() -> None:
    now = {**STATE, ARC_MIN: 10 * G}
    with pytest.raises(Refused, match=f"{ARC_MIN} is .* which ZFS ignores") as error:
        plan(now, {ARC_MAX: 12 * G}, FACTS)
    assert error.value.hint.startswith(f"add {ARC_MIN}=")


def test_an_ignored_limit_is_healed_before_others_change() -> None:
    now = {**STATE, ARC_MAX: 256 * M}
    writes = plan(now, {ARC_MAX: 7 * G, ARC_MIN: 64 * M}, FACTS)
    assert words(writes) == ["max=8192", "min=64", "max=7168"]
    arc = Arc(FACTS, now)
    for write in writes:
        arc.write(write.name, write.value)
    assert (arc.c_min, arc.c_max) == (64 * M, 7 * G)


def test_zero_does_not_bring_the_default_back() -> None:
    with pytest.raises(Refused, match="changes nothing") as error:
        plan({**STATE, ARC_MAX: 8 * G}, {ARC_MAX: 0}, FACTS)
    assert error.value.hint == "restore it with `zfstune revert`"


def test_a_restore_of_zero_writes_what_it_meant_first() -> None:
    now = {**STATE, "zfs_arc_shrink_shift": 9}
    writes = plan(now, {"zfs_arc_shrink_shift": 0}, FACTS, back=True)
    assert [write.value for write in writes] == [7, 0]


def test_the_cache_is_not_limited_below_what_cannot_be_evicted() -> None:
    held = replace(FACTS, arc_held=7 * G - 1)
    with pytest.raises(Refused, match="7G of the ARC cannot be evicted now") as error:
        plan(STATE, {ARC_MAX: 6600 * M}, held)
    assert error.value.nearest == {ARC_MAX: 7 * G}
    assert plan(STATE, {ARC_MAX: 7 * G}, held)
    assert plan(STATE, {ARC_MAX: 0}, held) == []


def test_limits_in_force_are_those_of_the_catalogue() -> None:
    stats = {"c_max": 1, "c_min": 2, "arc_sys_free": 3, "size": 4}
    expected = {ARC_MAX: 1, ARC_MIN: 2, "zfs_arc_sys_free": 3}
    assert guard.lasting(stats) == expected
    assert expected.items() <= guard.limits(stats).items()


def test_a_limit_that_could_not_be_put_back_stays() -> None:
    now = {**STATE, "zfs_arc_sys_free": 0}
    with pytest.raises(Refused, match="limit in force is not known"):
        plan(now, {"zfs_arc_sys_free": 1 * G}, FACTS)
    assert plan(now, {"zfs_arc_sys_free": 1 * G}, replace(FACTS, arc_sys_free=200 * M))
    assert plan(now, {"zfs_arc_sys_free": 1 * G}, replace(FACTS, arc_sys_free=15 * M))
    # ZFS takes no upper limit below 64 MiB, but begins with less on a very small host
    small = Facts(124 * M, 32 * M, 62 * M)
    with pytest.raises(Refused, match="62M is in force, which ZFS would not accept again"):
        plan(STATE, {ARC_MAX: 100 * M}, small, force=True)


@pytest.mark.parametrize("name", ["zfs_arc_dnode_limit", "zfs_arc_dnode_limit_percent", ARC_MAX])
def test_the_limit_for_dnodes_of_2_1_does_not_move_when_it_could_not_return(name: str) -> None:
    now = {**STATE, "zfs_arc_dnode_limit": 0, "zfs_arc_dnode_limit_percent": 10}
    wanted = {name: {ARC_MAX: 4 * G, "zfs_arc_dnode_limit_percent": 50}.get(name, 64 * M)}
    small = Facts(4 * G + 1, 32 * M, 128 * M, arc_dnode_limit=96 * M // 10, arc_meta_min=16 * M)
    with pytest.raises(Refused, match=r"limit for dnodes, .* would move"):
        plan(now, wanted, replace(small, arc_meta_limit=96 * M), force=True)
    # from 2.2 on it follows
    plan(now, wanted, replace(small, arc_meta_min=0), force=True)


# --- refusals


@pytest.mark.parametrize(("value", "near"), [(50 << 10, 52), (37 << 10, 36), (131071, 128)])
def test_values_off_their_step_are_refused(value: int, near: int) -> None:
    now = {**STATE, "zil_maxblocksize": 128 << 10}
    with pytest.raises(Refused, match="must be a multiple of 4K") as error:
        plan(now, {"zil_maxblocksize": value}, FACTS, force=True)
    assert error.value.hint.endswith(f"={near}K")
    assert error.value.nearest == {"zil_maxblocksize": near << 10}
    assert plan(now, {"zil_maxblocksize": near << 10}, FACTS) or near == 128


def test_a_refusal_says_why_and_what_is_legal() -> None:
    with pytest.raises(Refused, match="the minimum is 1 s") as error:
        plan(STATE, {"zfs_txg_timeout": 0}, FACTS)
    assert error.value.hint == "use zfs_txg_timeout=1s"
    assert error.value.nearest == {"zfs_txg_timeout": 1}
    assert error.value.status == 2


def test_the_nearest_value_keeps_all_rules() -> None:
    with pytest.raises(Refused) as error:
        plan(STATE, {HIGH: 31}, FACTS)
    assert error.value.nearest == {HIGH: 35, LOW: 26}
    with pytest.raises(Refused) as error:
        plan(STATE, {HIGH: 100}, FACTS)
    assert error.value.nearest == {HIGH: 60, DELAY_MIN: 100}


def test_soft_rules_can_be_forced() -> None:
    with pytest.raises(Refused) as error:
        plan(STATE, {SYNC: 50}, FACTS)
    assert error.value.hint.endswith("or override this with --force")
    assert plan(STATE, {SYNC: 50}, FACTS, force=True) == [Write(SYNC, 50)]


def test_a_soft_rule_that_is_broken_already_does_not_stop_others() -> None:
    now = {**STATE, SYNC: 50}
    assert plan(now, {LOW: 25, "zfs_txg_timeout": 6}, FACTS)


@pytest.mark.parametrize("name", [n for n, p in catalogue.load().items() if p.access == "never"])
def test_parameters_never_written_cannot_be_forced(name: str) -> None:
    now = {**STATE, name: 0}
    with pytest.raises(Refused, match="not even with --force"):
        plan(now, {name: 1}, FACTS, force=True)


def test_unknown_names_are_refused_with_a_guess() -> None:
    with pytest.raises(Refused, match="zfstune does not know it") as error:
        plan(STATE, {"zfs_dirty_data_mx": 1 * G}, FACTS)
    assert error.value.hint.startswith("did you mean zfs_dirty_data_max")
    with pytest.raises(Refused, match="this ZFS does not have it"):
        plan(STATE, {"zil_slog_bulk": 1 * G}, FACTS)
    with pytest.raises(Refused, match="when the module is loaded"):
        plan({**STATE, "zfs_dirty_data_max_max": G}, {"zfs_dirty_data_max_max": 2 * G}, FACTS)


def test_facts_come_from_the_kstats_of_a_host() -> None:
    class Host(FakeHost):
        def kstat(self, name: str) -> dict[str, int]:
            return {
                "memory_all_bytes": 8 * G,
                "c_min": 256 * M,
                "c_max": 4 * G,
                "size": 3 * G,
                "mru_evictable_data": 1 * G,
                "mfu_evictable_metadata": 512 * M,
                "mru_ghost_evictable_data": 9 * G,
            }

    found = guard.facts(Host())
    assert (found.memory_bytes, found.arc_c_min, found.arc_c_max) == (8 * G, 256 * M, 4 * G)
    assert found.arc_held == 3 * G // 2


def test_without_facts_only_known_bounds_apply() -> None:
    nothing = replace(FACTS, memory_bytes=0, arc_c_min=0, arc_c_max=0)
    assert check(STATE, nothing) == []
    with pytest.raises(Refused):
        plan(STATE, {DIRTY: 0}, nothing)


# --- the next load of the module


@pytest.mark.parametrize("version", ["2.1.11", "2.2.0", "2.3.9-1", "2.4.0", ""])
@pytest.mark.parametrize("memory", [512 * M, 4 * G, 64 * G, 2048 * G])
def test_defaults_are_legal(version: str, memory: int) -> None:
    at_load = guard.at_load({}, version, Facts(memory, 0, 0))
    assert [one for one in check(at_load, Facts(memory, 0, 0)) if one.hard] == []


def test_computed_defaults_follow_what_is_given() -> None:
    found = guard.at_load({DIRTY: 100 * M, "zfs_txg_timeout": 0}, "2.3.9", FACTS)
    assert (found[DIRTY], found["zfs_wrlog_data_max"], found["zfs_txg_timeout"]) == (
        100 * M,
        200 * M,
        0,
    )
    found = guard.at_load({DIRTY: 0, "zfs_dirty_data_max_percent": 5}, "2.3.9", FACTS)
    assert found[DIRTY] == 16 * G * 5 // 100
