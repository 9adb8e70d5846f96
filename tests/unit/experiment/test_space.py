"""The search space: every point is legal, whatever is free and whatever the host is like."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from support.sample_host import DEFAULTS, FACTS, GIB, MIB

from zfstune.experiment.space import Knob, Space
from zfstune.tunables import catalogue, guard, planner

DEFAULT = catalogue.default_set()
slow = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
names = st.lists(st.sampled_from(DEFAULT), unique=True, min_size=1)
shares = st.lists(st.floats(0, 1), min_size=16, max_size=16)


def legal(current: dict[str, int], values: dict[str, int], facts: guard.Facts) -> bool:
    """Whether the guard has an order of writes for it."""
    planner.plan(current, values, facts)
    return not [v for v in guard.check({**current, **values}, facts) if v.hard]


def point(space: Space, parts: list[float]) -> dict[str, float]:
    pairs = zip(space.knobs, parts, strict=False)
    return {knob.name: knob.clip(knob.low + part * (knob.high - knob.low)) for knob, part in pairs}


@slow
@given(names, shares)
def test_every_point_is_legal(names: list[str], parts: list[float]) -> None:
    space = Space(names, DEFAULTS, FACTS)
    values = space.values(point(space, parts))
    assert set(values) == set(space.parameters())
    assert legal(DEFAULTS, values, FACTS)


@st.composite
def states(draw: st.DrawFn) -> tuple[dict[str, int], guard.Facts]:
    """A host and values that an administrator may have set."""
    memory = draw(st.sampled_from((1, 2, 4, 16, 64, 512, 4096))) * GIB
    cache = draw(st.integers(memory // 16, memory - 1))
    facts = guard.Facts(memory, min(memory // 32, cache // 2), cache)
    now = dict(DEFAULTS)
    dirty = draw(st.integers(16 * MIB, max(16 * MIB, min(memory // 4, cache // 4, 1 << 40))))
    now["zfs_dirty_data_max"] = dirty
    now["zfs_wrlog_data_max"] = min(2 * dirty + draw(st.integers(0, dirty)), memory // 2)
    percents = sorted(draw(st.lists(st.integers(1, 100), min_size=4, max_size=4, unique=True)))
    for name, value in zip(
        (
            "zfs_dirty_data_sync_percent",
            "zfs_vdev_async_write_active_min_dirty_percent",
            "zfs_vdev_async_write_active_max_dirty_percent",
            "zfs_delay_min_dirty_percent",
        ),
        percents,
        strict=True,
    ):
        now[name] = value
    depths = sorted(draw(st.lists(st.integers(1, 1000), min_size=2, max_size=2)))
    now["zfs_vdev_async_write_min_active"], now["zfs_vdev_async_write_max_active"] = depths
    now["zfs_txg_timeout"] = draw(st.integers(1, 120))
    now["zfs_delay_scale"] = draw(st.integers(1000, 10**8))
    return now, facts


@slow
@given(states(), names, shares)
def test_every_point_is_legal_from_any_legal_state(
    state: tuple[dict[str, int], guard.Facts], names: list[str], parts: list[float]
) -> None:
    current, facts = state
    assume(not guard.check(guard.in_force(current, facts), facts))
    space = Space(names, current, facts)
    assert legal(current, space.values(point(space, parts)), facts)


@slow
@given(names, shares)
def test_a_point_can_be_found_again(names: list[str], parts: list[float]) -> None:
    space = Space(names, DEFAULTS, FACTS)
    values = space.values(point(space, parts))
    assert space.values(space.point(values)) == values


def test_the_current_values_are_a_point() -> None:
    space = Space(DEFAULT, DEFAULTS, FACTS)
    assert space.values({}) == {name: DEFAULTS[name] for name in space.parameters()}


def test_the_lab_optimum_is_in_it() -> None:
    space = Space(DEFAULT, DEFAULTS, FACTS)
    best = {
        "zfs_dirty_data_max": 32 * MIB,
        "zfs_wrlog_data_max": 64 * MIB,
        "zfs_vdev_async_write_min_active": 1,
        "zfs_vdev_async_write_max_active": 1,
    }
    found = space.values(space.point(best))
    assert {name: found[name] for name in best} == best


def test_parameters_missing_on_the_host_are_left_out() -> None:
    current = {n: v for n, v in DEFAULTS.items() if n != "zfs_commit_timeout_pct"}
    space = Space([*DEFAULT, "no_such_name"], current, FACTS, slog=False)
    assert not {"zfs_commit_timeout_pct", "zil_slog_bulk", "no_such_name"} & {*space.parameters()}
    assert Space((), DEFAULTS, FACTS).bounds() == {}


def test_percents_without_room_stay() -> None:
    current = {**DEFAULTS, "zfs_vdev_async_write_active_min_dirty_percent": 4}
    assert Space(["zfs_dirty_data_sync_percent"], current, FACTS).names == ()


@pytest.mark.parametrize("names", [DEFAULT, ("zfs_dirty_data_max", "zfs_txg_timeout")])
def test_values_stay_within_the_bounds(names: tuple[str, ...]) -> None:
    space = Space(names, DEFAULTS, FACTS)
    bounds = space.bounds()
    for parts in ([0.0] * 14, [0.3] * 14, [0.9, 0.1] * 7, [1.0] * 14):
        for name, value in space.values(point(space, parts)).items():
            assert bounds[name][0] <= value <= bounds[name][1]


def test_levels_of_a_grid_are_spread_over_the_range() -> None:
    assert Knob("x", 1, 32, log=True, whole=True).levels(3) == [1, 6, 32]
    assert Knob("x", 1, 3, whole=True).levels(9) == [1, 2, 3]
    assert Knob("x", 0, 1).levels(1) == [0.5]


# Recorded when the ranges were literals of space.py.
BOUNDS = {
    "zfs_dirty_data_max": (16 * MIB, 411 * MIB),
    "zfs_wrlog_data_max": (32 * MIB, 822 * MIB),
    "zfs_vdev_async_write_max_active": (1, 32),
    "zfs_vdev_async_write_min_active": (1, 32),
    "zfs_dirty_data_sync_percent": (5, 60),
    "zfs_vdev_async_write_active_min_dirty_percent": (6, 70),
    "zfs_vdev_async_write_active_max_dirty_percent": (11, 90),
    "zfs_delay_min_dirty_percent": (20, 95),
    "zfs_delay_scale": (5000, 10000000),
    "zfs_txg_timeout": (1, 30),
    "zfs_commit_timeout_pct": (1, 100),
    "zil_slog_bulk": (262144, 1024 * MIB),
}


def test_ranges_on_4_gib_are_as_recorded() -> None:
    space = Space(DEFAULT, DEFAULTS, FACTS)
    assert space.bounds() == BOUNDS
    assert [knob.name for knob in space.knobs if knob.whole] == [
        "zfs_vdev_async_write_max_active",
        "zfs_txg_timeout",
        "zfs_commit_timeout_pct",
    ]


@slow
@given(states(), shares)
def test_any_parameter_can_be_tuned(
    state: tuple[dict[str, int], guard.Facts], parts: list[float]
) -> None:
    """`tunes = true` is enough: the range is then the guard's."""
    new = ("zfs_vdev_sync_write_min_active", "zfs_vdev_sync_write_max_active", "zfs_txg_history")
    current, facts = state
    current = {**current, new[1]: 10, new[2]: 100}
    assume(not guard.check(guard.in_force(current, facts), facts))
    entries, rules = catalogue.load(), catalogue.rules()
    changed = {**entries, **{name: replace(entries[name], tunes=True) for name in new}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalogue, "_read", lambda: (changed, rules))
        assert catalogue.default_set() == (*DEFAULT, new[2], *new[:2])
        space = Space(catalogue.default_set(), current, facts)
        assert set(new) <= {knob.name for knob in space.knobs}
        assert legal(current, space.values(point(space, parts)), facts)
