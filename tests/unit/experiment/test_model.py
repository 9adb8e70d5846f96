"""First candidates: from measurements as in the lab, and from those that point elsewhere."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.sample_host import DEFAULTS, FACTS, GIB, MIB
from support.samples import txg_row

from zfstune.experiment import model
from zfstune.experiment.blocks import Block
from zfstune.experiment.model import Measured
from zfstune.experiment.runner import Record
from zfstune.term.units import SECOND
from zfstune.tunables import catalogue, guard, planner

DEFAULT = catalogue.default_set()
# a disk of 30 MiB/s under a bulk writer and a log writer
LAB = Measured(
    bandwidth=28 * MIB,
    sync_ns=3_200_000_000,
    dirty_bytes=90 * MIB,
    fsync_p50_ns=39_000_000,
    fsync_p99_ns=314_000_000,
    stages={"log_write": 0.8, "flush": 0.1, "batch_wait": 0.0},
)
# 1 GB/s, an fsync each 0.3 ms and nothing else
FAST = Measured(
    bandwidth=2 * MIB,
    sync_ns=60_000_000,
    dirty_bytes=MIB,
    fsync_p50_ns=300_000,
    fsync_p99_ns=900_000,
    stages={"log_write": 0.5, "flush": 0.3, "batch_wait": 0.02},
)


def test_the_lab_gets_the_candidates_that_were_best_there() -> None:
    first, both, *others = model.candidates(LAB, DEFAULTS, FACTS, DEFAULT)
    depth = {"zfs_vdev_async_write_min_active": 1, "zfs_vdev_async_write_max_active": 3}
    assert first.values == depth
    reason = first.reasons["zfs_vdev_async_write_max_active"]
    assert reason.endswith("(log writes take 80% of the time of fsyncs)")
    assert both.values == {
        "zfs_dirty_data_max": 32 * MIB,
        "zfs_wrlog_data_max": 64 * MIB,
        **depth,
    }
    assert both.source == "model"
    assert both.reasons.keys() == both.values.keys()
    reason = both.reasons["zfs_dirty_data_max"]
    assert reason.startswith("the pool writes 28 MiB/s, so it syncs 32 MiB in 1.14 s: log writes")
    assert "the limit is 411 MiB" in reason
    shown = [
        (
            c.values.get("zfs_dirty_data_max", 0) // MIB,
            c.values.get("zfs_vdev_async_write_max_active"),
        )
        for c in others
    ]
    assert shown == [(16, None), (0, 2), (64, 3), (32, 2), (0, 5), (0, 1)]


def test_a_disk_with_time_to_spare_gets_short_syncs_first() -> None:
    spare = replace(LAB, inflow=14.0 * MIB)
    first, second, *_ = model.candidates(spare, DEFAULTS, FACTS, DEFAULT)
    assert first.values == {"zfs_dirty_data_max": 16 * MIB, "zfs_wrlog_data_max": 32 * MIB}
    reason = first.reasons["zfs_dirty_data_max"]
    assert reason.endswith("; programs write 14 MiB/s, so there is time for more syncs")
    full, short = replace(LAB, inflow=27.0 * MIB), replace(spare, sync_ns=900_000_000)
    for other in (full, short, LAB):
        assert model.candidates(other, DEFAULTS, FACTS, DEFAULT)[0].values == second.values


def test_a_fast_pool_gets_no_candidates() -> None:
    assert model.candidates(FAST, DEFAULTS, FACTS, DEFAULT) == []


def test_without_measurements_there_are_no_candidates() -> None:
    assert model.candidates(Measured(0.0, 0, 0, 0, 0), DEFAULTS, FACTS, DEFAULT) == []


def test_a_low_limit_is_not_lowered_further() -> None:
    low = {**DEFAULTS, "zfs_dirty_data_max": 16 * MIB, "zfs_wrlog_data_max": 32 * MIB}
    for candidate in model.candidates(LAB, low, FACTS, DEFAULT):
        assert "zfs_dirty_data_max" not in candidate.values


def test_a_short_queue_is_not_shortened() -> None:
    # 3 GB/s: ten writes are through long before an fsync is
    disk = replace(LAB, bandwidth=3000 * MIB, sync_ns=20_000_000, fsync_p50_ns=40_000_000)
    assert model.candidates(disk, DEFAULTS, FACTS, DEFAULT) == []


def test_txgs_closed_by_the_timer_get_a_shorter_timeout() -> None:
    measured = replace(LAB, dirty_bytes=50 * MIB, sync_ns=2_000_000_000)
    first = model.candidates(measured, DEFAULTS, FACTS, ["zfs_txg_timeout"])[0]
    assert first.values == {"zfs_txg_timeout": 2}
    assert "less gathers in 2 s than in 5 s" in first.reasons["zfs_txg_timeout"]


def test_batch_waits_get_a_shorter_commit_timeout() -> None:
    measured = replace(FAST, stages={"batch_wait": 0.3})
    (only,) = model.candidates(measured, DEFAULTS, FACTS, DEFAULT)
    assert only.values == {"zfs_commit_timeout_pct": 2}
    assert "30% of their time" in only.reasons["zfs_commit_timeout_pct"]


def test_waits_for_a_slog_get_a_larger_zil_slog_bulk() -> None:
    current = {**DEFAULTS, "zil_slog_bulk": 768 << 10}
    measured = replace(FAST, slog=True)
    (only,) = model.candidates(measured, current, FACTS, DEFAULT)
    assert only.values == {"zil_slog_bulk": 64 * MIB}
    assert "over 768 KiB" in only.reasons["zil_slog_bulk"]


def test_large_blocks_raise_the_lower_bound() -> None:
    facts = replace(FACTS, largest_block=16 * MIB)
    both = model.candidates(LAB, DEFAULTS, facts, DEFAULT)[1]
    assert both.values["zfs_dirty_data_max"] == 128 * MIB


def test_candidates_change_only_the_given_parameters() -> None:
    found = model.candidates(LAB, DEFAULTS, FACTS, ["zfs_dirty_data_max"])
    assert [set(c.values) for c in found] == [{"zfs_dirty_data_max", "zfs_wrlog_data_max"}] * 3
    bare = {n: v for n, v in DEFAULTS.items() if n != "zfs_wrlog_data_max"}
    found = model.candidates(LAB, bare, FACTS, ["zfs_dirty_data_max"])
    assert found[0].values == {"zfs_dirty_data_max": 32 * MIB}


def test_a_minimum_that_must_stay_bounds_the_depth() -> None:
    found = model.candidates(LAB, DEFAULTS, FACTS, ["zfs_vdev_async_write_max_active"])
    # one is below the minimum
    assert [c.values["zfs_vdev_async_write_max_active"] for c in found] == [3, 2, 5]
    least = model.candidates(
        LAB,
        {**DEFAULTS, "zfs_vdev_async_write_min_active": 4},
        FACTS,
        ["zfs_vdev_async_write_max_active"],
    )[0]
    assert least.values == {"zfs_vdev_async_write_max_active": 4}
    assert "nearest legal value" in least.reasons["zfs_vdev_async_write_max_active"]


@pytest.mark.parametrize("memory", [1, 4, 512])
@settings(max_examples=50, deadline=None)
@given(
    st.builds(
        Measured,
        bandwidth=st.floats(0, 2e10),
        sync_ns=st.integers(0, 10**11),
        dirty_bytes=st.integers(0, 1 << 36),
        fsync_p50_ns=st.integers(0, 10**10),
        fsync_p99_ns=st.integers(0, 10**11),
        stages=st.dictionaries(st.sampled_from(("log_write", "batch_wait")), st.floats(0, 1)),
        slog=st.booleans(),
        vdevs=st.integers(0, 100),
    ),
    st.lists(st.sampled_from(DEFAULT), unique=True),
)
def test_every_candidate_is_legal(memory: int, measured: Measured, names: list[str]) -> None:
    dirty = min(memory * GIB // 10, 4 * GIB)
    current = {**DEFAULTS, "zfs_dirty_data_max": dirty, "zfs_wrlog_data_max": 2 * dirty}
    facts = guard.Facts(memory * GIB, memory * GIB // 32, memory * GIB // 2)
    found = model.candidates(measured, current, facts, names)
    assert len(found) <= 5
    for candidate in found:
        assert candidate.values
        assert planner.plan(current, candidate.values, facts)
        assert all(candidate.reasons[name] for name in candidate.values)
        assert set(candidate.values) <= {*names, "zfs_wrlog_data_max"}


def test_the_model_gets_medians_of_the_baseline() -> None:
    rows = [txg_row(n, sync_ns=2 * SECOND, dirty_bytes=60_000_000) for n in range(3)]
    stages = ({"name": "flush", "total_ns": 3}, {"name": "issue", "total_ns": 1})
    metrics = {"fsync.p50": 5e6, "fsync.p99": 9e6}
    block = Block(20.0, 100, metrics, (), stages, tuple(rows))
    got = model.measured([Record(1, "aa", None, "A", 0, 0, block)], True, 2)
    assert (got.bandwidth, got.sync_ns, got.dirty_bytes) == (30e6, 2 * SECOND, 60_000_000)
    assert (got.fsync_p50_ns, got.fsync_p99_ns) == (5_000_000, 9_000_000)
    assert got.stages == {"flush": 0.75, "issue": 0.25}
    assert (got.slog, got.vdevs) == (True, 2)


@pytest.mark.parametrize(
    ("txgs", "inflow"),
    [
        # (MB, seconds that it was open, seconds of its sync)
        ([(70, 5, 2.3)] * 4, 14e6),
        # one burst, and nothing for a while: it came as fast as it could
        ([(300, 5, 5), (1, 5, 0.1), (1, 5, 0.1)], 60e6),
        # a full disk, whose txgs are large and small in turns
        ([(180, 2.7, 6), (80, 6, 2.7)], 180e6 / 2.7),
    ],
)
def test_the_inflow_is_that_of_a_typical_byte(
    txgs: list[tuple[float, float, float]], inflow: float
) -> None:
    rows = [
        txg_row(
            n,
            open_ns=round(open_s * SECOND),
            sync_ns=round(sync_s * SECOND),
            dirty_bytes=int(mb * 1e6),
        )
        for n, (mb, open_s, sync_s) in enumerate(txgs)
    ]
    record = Record(1, "aa", None, "A", 0, 0, Block(20.0, 100, {}, txgs=tuple(rows)))
    got = model.measured([record], False, 1)
    assert got.inflow == pytest.approx(inflow)
    assert got.spare == (inflow < 20e6)
