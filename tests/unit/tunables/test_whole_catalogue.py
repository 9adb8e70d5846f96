"""The guard over the whole catalogue: from any legal state to any set that it accepts, and back,
the model in support/kernel.py meets no illegal state, and everything is as before in the end.

ZFSTUNE_CASES is how many sets to judge (a million takes about a quarter of an hour on one CPU),
ZFSTUNE_SEED the first seed. A failure names its seed: `ZFSTUNE_CASES=1 ZFSTUNE_SEED=...` runs
that one alone.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from support import kernel
from support.fake_host import FakeHost
from support.kernel import CLASSES, DELAY, DIRTY, HIGH, LEAST, LOW, MOST, SCALE, WRLOG, G, Kernel, M

from zfstrace.version import version_key
from zfstune.changes import apply
from zfstune.changes.records import Original
from zfstune.rules import language
from zfstune.tunables import catalogue, guard, planner
from zfstune.tunables.catalogue import Parameter

CASES = int(os.environ.get("ZFSTUNE_CASES", "20000"))
SEED = int(os.environ.get("ZFSTUNE_SEED", "1"))
ARC_MAX, ARC_MIN, SYS_FREE = "zfs_arc_max", "zfs_arc_min", "zfs_arc_sys_free"
RW = [one for one in catalogue.load().values() if one.access == "rw" and one.linux]
META_2_1 = {"zfs_arc_meta_limit": 0, "zfs_arc_meta_limit_percent": 75, "zfs_arc_meta_min": 0}


class Host(FakeHost):
    """What the guard sees of a kernel."""

    def __init__(self, of: Kernel) -> None:
        self._kernel = of

    def kstat(self, name: str) -> dict[str, int]:
        return self._kernel.arc.stats() if name == "arcstats" else {}


def there(parameter: Parameter, version: kernel.Version) -> bool:
    since, until = parameter.since or "2.1", parameter.until or "2.4"
    return version_key(since)[:2] <= version <= version_key(until)[:2]


NAMES = {version: [one.name for one in RW if there(one, version)] for version in kernel.VERSIONS}


# --- legal states, by what the sources say and not by what the guard does


def loaded(rng: random.Random, version: kernel.Version) -> Kernel:
    """A module with its defaults, or with its own limits of the ARC."""
    memory = int(2 ** rng.uniform(27, 42.6)) & ~4095
    if rng.random() < 0.1:
        memory = rng.choice((128 * M, 256 * M, 512 * M, G, 6 << 40))
    text = ".".join(map(str, version)) + ".9"
    values = guard.at_load({}, text, guard.Facts(memory, 0, 0))
    values = {name: values.get(name, 0) for name in NAMES[version]}
    if version == (2, 1):
        values |= META_2_1
    if rng.random() < 0.2:
        values[ARC_MAX] = rng.randint(64 * M, memory - 1)
    return Kernel(version, memory, values)


def legal(rng: random.Random, version: kernel.Version) -> Kernel:
    """A state in which another program has set random values, whatever the guard would say."""
    found = loaded(rng, version)
    values, memory = found.param, found.arc.memory
    some = rng.random() ** 2
    for name in NAMES[version]:
        if rng.random() < some and name in SINGLE:
            low, high = SINGLE[name]
            found.write(name, rng.randint(low, high))
    for kind in CLASSES:
        if rng.random() < some:
            pair = sorted(rng.randint(1, 1000) for _ in range(2))
            values[f"zfs_vdev_{kind}_min_active"], values[f"zfs_vdev_{kind}_max_active"] = pair
    if rng.random() < some:
        values[LEAST], values[MOST] = sorted(rng.randint(1, 1000) for _ in range(2))
    if rng.random() < some:
        values[LOW] = rng.randint(0, 99)
        values[HIGH] = rng.randint(values[LOW] + 1, 100)
    if rng.random() < some:
        values[DIRTY] = rng.randint(M, memory // 2)
        values[WRLOG] = rng.randint(M, memory)
    if values[SCALE] * max(values[DIRTY], values[WRLOG]) >= 1 << 64:
        values[SCALE] = 500_000
    if rng.random() < some:
        values["zil_maxblocksize"] = 4096 * rng.randint(9, 32)
    arc = found.arc
    if rng.random() < some:
        found.write(ARC_MAX, rng.randint(max(64 * M, arc.c_min + 1), memory - 1))
    if rng.random() < some:
        found.write(ARC_MIN, rng.randint(32 * M, arc.c_max - 1))
    if rng.random() < some:
        found.write(SYS_FREE, rng.randint(M, memory // 2))
    if rng.random() < some:
        found.write("zfs_arc_dnode_limit_percent", rng.randint(1, 100))
    if rng.random() < some and arc.dnode_limit >= 16 * M:
        found.write("zfs_arc_dnode_limit", rng.randint(16 * M, max(16 * M, arc.meta_limit)))
    for name in ("shrink_shift", "grow_retry", "min_prefetch_ms", "min_prescient_prefetch_ms"):
        if rng.random() < some:
            found.write(f"zfs_arc_{name}", rng.randint(6, 16))
    found.rest()
    found.judge(values)
    return found


SINGLE = {
    "zfs_dirty_data_sync_percent": (1, 100),
    DELAY: (1, 100),
    SCALE: (1, 1 << 27),
    "zfs_txg_timeout": (1, 3600),
    "zfs_txg_history": (0, 100_000),
    "zfs_per_txg_dirty_frees_percent": (1, 100),
    "zfs_sync_pass_deferred_free": (2, 200),
    "zfs_sync_pass_dont_compress": (1, 200),
    "zfs_sync_pass_rewrite": (1, 200),
    "zfs_vdev_max_active": (1, 100_000),
    "zfs_vdev_nia_delay": (0, 1000),
    "zfs_vdev_nia_credit": (1, 1000),
    "zfs_vdev_aggregation_limit": (0, 16 * M),
    "zfs_vdev_read_gap_limit": (0, M),
    "zfs_commit_timeout_pct": (1, 200),
    "zil_slog_bulk": (0, 1 << 40),
    "zil_maxcopied": (0, 128 << 10),
    "zfs_immediate_write_sz": (0, 16 * M),
    "zio_slow_io_ms": (1, 1 << 22),
    "zfs_arc_meta_balance": (1, 10_000),
    "zfs_arc_lotsfree_percent": (0, 100),
    "zfs_arc_pc_percent": (0, 10_000),
    "zfs_arc_evict_batch_limit": (1, 10_000),
}


# --- what is wanted


def wanted(
    rng: random.Random, now: Mapping[str, int], names: list[str], facts: guard.Facts
) -> dict[str, int]:
    """Values of a few names or of nearly all: at, beside and between the bounds."""
    many = rng.random() < 0.02
    chosen = rng.sample(names, rng.randint(1, len(names) if many else 6))
    if rng.random() < 0.5:
        chosen += rng.sample(COUPLED, rng.randint(1, 4))
    out, env = {}, guard.values(now, facts)
    for name in dict.fromkeys(chosen):
        if name not in now:
            continue
        parameter = catalogue.load()[name]
        low = language.evaluate(parameter.low or "0", env)
        high = language.evaluate(parameter.high or "1T", env)
        at: tuple[int, ...]
        if name in (LOW, HIGH):
            # where the two meet by turns
            at = (low, high, now[LOW], now[HIGH], rng.randint(low, high))
        elif name in (DIRTY, WRLOG):
            share = now[name] * now[LOW] // max(1, now[HIGH])
            at = (low, high, share, now[name] * 2, now[name] // 2, _between(rng, low, high))
        else:
            at = (low, high, now[name], _between(rng, low, high), _between(rng, low, high))
        if rng.random() < 0.03:
            at = (0, low - 1, high + 1, low + 1, 1 << 63)
        out[name] = max(0, rng.choice(at))
    return out


COUPLED = [LOW, HIGH, DIRTY, DELAY, WRLOG, LEAST, MOST, ARC_MAX, ARC_MIN]


def _between(rng: random.Random, low: int, high: int) -> int:
    value = int(low + (high - low) * rng.random() ** 4)
    return value & ~4095 if value > 1 << 20 or rng.random() < 0.2 else value


# --- the property


@dataclass
class Count:
    accepted: int = 0
    refused: int = 0
    writes: int = 0
    names: set[str] = field(default_factory=set)


def one(seed: int, count: Count) -> None:
    """Several sets, one after the other, from a legal state. Raises kernel.Broken."""
    rng = random.Random(seed)
    version = rng.choice(kernel.VERSIONS)
    module = legal(rng, version)
    host = Host(module)
    before = module.everything()
    limits = guard.lasting(host.kstat("arcstats"))
    facts = guard.facts(host)
    originals: dict[str, Original] = {}
    for _ in range(8):
        asked = wanted(rng, module.param, NAMES[version], facts)
        # a refusal names a legal value, which is then accepted
        for _ in range(4):
            try:
                writes = planner.plan(module.param, asked, facts, force=rng.random() < 0.5)
                break
            except guard.Refused as refused:
                count.refused += 1
                nearest = refused.nearest
                wrong = {n for v in refused.violations for n in v.names} & asked.keys()
                asked = {n: v for n, v in asked.items() if n not in wrong}
                asked |= {n: v for n, v in nearest.items() if rng.random() < 0.7}
        else:
            continue
        if not asked:
            continue
        count.accepted += 1
        count.names |= asked.keys()
        for write in writes:
            originals.setdefault(
                write.name, Original(module.param[write.name], limits.get(write.name))
            )
        follow(module, writes, count)
        facts = guard.facts(host)
    in_force = guard.limits(host.kstat("arcstats"))
    changed = {
        name: was
        for name, was in originals.items()
        if module.param[name] != was.value or was.effective not in (None, in_force.get(name))
    }
    follow(module, apply.way_back(module.param, changed, facts), count)
    after = module.everything()
    for was, now in zip(before, after, strict=True):
        for name in was:
            if was[name] != now[name]:
                raise kernel.Broken(f"{name} is not put back: {was[name]} -> {now[name]}")


def follow(module: Kernel, writes: list[planner.Write], count: Count) -> None:
    """Between plans a session measures, or a user types: no function takes that long."""
    module.rest()
    for write in writes:
        count.writes += 1
        module.write(write.name, write.value, quiet=write.quiet)
        module.judge([write.name])


def test_the_kernel_meets_no_illegal_state_on_any_way() -> None:
    count, seed = Count(), SEED
    while count.accepted < CASES:
        try:
            one(seed, count)
        except (kernel.Broken, guard.Refused) as error:
            pytest.fail(f"seed {seed}: {error}")
        seed += 1
    told = f"{count.accepted} sets accepted, {count.refused} refused, {count.writes} writes"
    print(f"{told}, seeds {SEED} to {seed - 1}")
    if CASES >= 5000:
        assert count.names == {name for names in NAMES.values() for name in names}


@pytest.mark.parametrize(
    ("version", "writes", "message"),
    [
        ((2, 1), {"zil_maxblocksize": 4096}, "a log record does not fit"),
        ((2, 2), {"zil_maxblocksize": 32 << 10}, "a log record does not fit"),
        ((2, 1), {"zil_maxblocksize": 50 << 10}, "beyond the log block"),
        ((2, 4), {"zfs_sync_pass_deferred_free": 1}, "spa_sync_deferred_frees"),
        ((2, 3), {LOW: 10, HIGH: 30}, "vdev_queue_max_async_writes divides by 0"),
        ((2, 3), {DIRTY: 2 * G}, "vdev_queue_max_async_writes divides by 0"),
        ((2, 3), {MOST: 20, LEAST: 12}, "interpolates below zero"),
        ((2, 4), {DIRTY: 3 * G}, "dmu_tx_delay divides by 0 with .* dirty"),
        ((2, 1), {WRLOG: 5 * G}, "dmu_tx_delay divides by 0 with a log"),
        ((2, 3), {SCALE: 1 << 33}, "overflows"),
        ((2, 3), {ARC_MAX: 63 * M}, "ignores zfs_arc_max"),
        ((2, 3), {SYS_FREE: 1 << 50}, "ignores zfs_arc_sys_free"),
        ((2, 3), {"zfs_txg_timeout": 0}, "txg_sync_thread"),
        ((2, 3), {"zfs_vdev_scrub_max_active": 0}, "never issues"),
        ((2, 3), {"zfs_arc_evict_batch_limit": 0}, "arc_evict_state"),
        ((2, 3), {"zfs_per_txg_dirty_frees_percent": 0}, "dmu_free_long_range"),
        ((2, 2), {"zfs_vdev_queue_depth_pct": 9}, "max_queue_depth"),
    ],
)
def test_the_model_of_the_kernel_notices_illegal_states(
    version: kernel.Version, writes: Mapping[str, int], message: str
) -> None:
    """Written at once and in this order, without the planner."""
    text = ".".join(map(str, version)) + ".9"
    values = guard.at_load({}, text, guard.Facts(64 * G, 0, 0))
    module = Kernel(version, 64 * G, {name: values.get(name, 0) for name in NAMES[version]})
    with pytest.raises(kernel.Broken, match=message):
        for name, value in writes.items():
            module.write(name, value, quiet=False)
            module.judge([name])


@pytest.mark.parametrize(
    ("name", "value", "variable"),
    [
        (SYS_FREE, 8 * G, "sys_free"),
        (ARC_MAX, 8 * G, "c_max"),
        (ARC_MIN, 3 * G, "c_min"),
        ("zfs_arc_shrink_shift", 3, "no_grow_shift"),
        ("zfs_arc_grow_retry", 60, "grow_retry"),
    ],
)
@pytest.mark.parametrize("version", kernel.VERSIONS)
def test_writing_0_does_not_restore_a_limit(
    version: kernel.Version, name: str, value: int, variable: str
) -> None:
    module = Kernel(version, 64 * G, dict.fromkeys(NAMES[version], 0))
    before = module.everything()[1][variable]
    module.write(name, value)
    module.write(name, 0)
    assert module.everything()[1][variable] != before
