"""Whether the ARC has settled, and what its ghost lists say of a larger one."""

from __future__ import annotations

import pytest
from support.fake_host import FakeHost, FakeStop

from zfstrace.hist import Hist
from zfstrace.read import Op
from zfstune.experiment import cache
from zfstune.experiment.cache import Steadiness
from zfstune.term.units import SECOND

MIB = 1 << 20
# Of a cache that is full, after a while of reads
FULL = {
    "c": 100 * MIB,
    "c_max": 100 * MIB,
    "size": 100 * MIB,
    "demand_data_hits": 1000,
    "demand_data_misses": 3000,
    "mru_ghost_size": 60 * MIB,
    "mfu_ghost_size": 40 * MIB,
    "mru_ghost_hits": 900,
    "mfu_ghost_hits": 600,
}
NONE = dict.fromkeys(FULL, 0)


class Cache:
    """Looks at an ARC whose size and reads the test sets, second by second."""

    def __init__(self) -> None:
        self.host, self.stop = FakeHost(), FakeStop()
        self.host.kstats["arcstats"] = dict(FULL)
        self.steadiness = Steadiness(self.host, self.stop.now, 30, 300)
        self.steadiness.begin()

    def goes_on(self, seconds: int, *, hits: int, misses: int, grows: int = 0) -> int | None:
        """The second in which it counted as settled; None if it did not."""
        stats = self.host.kstats["arcstats"]
        for second in range(1, seconds + 1):
            self.stop.clock += SECOND
            stats = self.host.kstats["arcstats"] = {
                **stats,
                "size": stats["size"] + grows,
                "demand_data_hits": stats["demand_data_hits"] + hits,
                "demand_data_misses": stats["demand_data_misses"] + misses,
            }
            if self.steadiness.steady():
                return second
        return None


def test_a_full_cache_with_equal_misses_has_settled_after_two_looks() -> None:
    assert Cache().goes_on(100, hits=50, misses=50) == 60


def test_a_cache_that_fills_has_not_settled() -> None:
    one = Cache()
    one.host.kstats["arcstats"]["size"] = 50 * MIB
    assert one.goes_on(100, hits=50, misses=50, grows=MIB // 4) is None
    assert one.goes_on(200, hits=50, misses=50) is not None


def test_a_cache_that_grows_no_more_has_settled_below_its_target() -> None:
    one = Cache()
    one.host.kstats["arcstats"]["size"] = 50 * MIB
    assert one.goes_on(100, hits=50, misses=50) == 60


@pytest.mark.parametrize(("over", "settles"), [(15, True), (17, False)])
def test_a_txg_above_the_target_is_no_growth(over: int, settles: bool) -> None:
    """The size swings by what is being written, more than a hundredth of this cache."""
    one = Cache()
    one.goes_on(30, hits=50, misses=50)
    stats = one.host.kstats["arcstats"]
    one.host.kstats["arcstats"] = {**stats, "size": stats["size"] + over * MIB}
    assert (one.goes_on(30, hits=50, misses=50) == 30) is settles


def test_misses_that_still_fall_are_waited_for() -> None:
    one = Cache()
    assert one.goes_on(30, hits=20, misses=80) is None
    assert one.goes_on(30, hits=50, misses=50) is None
    assert one.goes_on(30, hits=50, misses=50) == 30


def test_a_new_limit_begins_anew() -> None:
    one = Cache()
    assert one.goes_on(60, hits=50, misses=50) == 60
    one.steadiness.begin()
    assert one.goes_on(59, hits=50, misses=50) is None


def test_waiting_ends_and_is_counted() -> None:
    one = Cache()
    one.host.kstats["arcstats"]["size"] = 0
    assert one.goes_on(400, hits=50, misses=50, grows=MIB // 8) == 300
    assert one.steadiness.given_up == 1


def test_nothing_read_is_steady() -> None:
    assert Cache().goes_on(100, hits=0, misses=0) == 60


def op(count: int, mean_ns: int) -> Op:
    return Op(count, 0, Hist(count, count * mean_ns, mean_ns, {}))


def test_ghost_hits_are_misses_that_a_larger_cache_saves() -> None:
    found = cache.forecast(NONE, FULL, op(500, 10), op(1500, 1010), 1 << 40)
    assert (found.now, found.size) == (100 * MIB, 200 * MIB)
    assert (found.reads, found.misses, found.saved) == (4000, 3000, 1500)
    assert found.misses_change == -0.5
    # 500 x 10 + 1500 x 1010 = 1,520,000 before; then half of those that missed take 1000 less
    assert found.read_change == pytest.approx(-750_000 / 1_520_000)
    assert found.to_json()["misses_change"] == -0.5


def test_a_part_of_the_ghosts_saves_that_part() -> None:
    found = cache.forecast(NONE, FULL, op(0, 0), op(0, 0), 150 * MIB)
    assert (found.size, found.saved) == (150 * MIB, 750)
    assert found.read_change is None


@pytest.mark.parametrize("most", [0, 99 * MIB])
def test_there_may_be_no_room(most: int) -> None:
    found = cache.forecast(NONE, FULL, op(0, 0), op(0, 0), most)
    assert (found.size, found.saved, found.misses_change) == (100 * MIB, 0, 0.0)


def test_a_host_without_ghosts_or_reads() -> None:
    found = cache.forecast({}, {"c": 7}, op(0, 0), op(0, 0), 1 << 40)
    assert (found.size, found.saved, found.misses_change) == (7, 0, 0.0)


def test_more_ghost_hits_than_misses_save_all_misses() -> None:
    """Prefetches hit ghosts, too."""
    found = cache.forecast(NONE, {**FULL, "mru_ghost_hits": 9000}, op(0, 0), op(0, 0), 1 << 40)
    assert found.saved == found.misses


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, None),
        ({"c": 80 * MIB, "size": 80 * MIB}, "target is 80 MiB, below its limit of 100 MiB"),
        ({"size": 50 * MIB}, "has 50 MiB, less than its limit of 100 MiB"),
    ],
)
def test_a_limit_that_does_not_bind_is_named(changed: dict[str, int], said: str | None) -> None:
    found = cache.unlimited(FULL | changed)
    assert found is None if said is None else said in (found or "")


def test_free_memory_is_shared_with_programs() -> None:
    assert cache.room({"c_max": 100, "memory_available_bytes": 1000}) == 850
    assert cache.room({"c_max": 100, "memory_available_bytes": -1000}) == 100
