"""Names of vdevs where zpool(8) does not answer."""

from __future__ import annotations

from support.fake_host import FakeHost, FakeSession, FakeStop
from support.samples import ios, vdev

from zfstrace.types import TraceOptions
from zfstune.term.units import MS, SECOND
from zfstune.trace.device import meter
from zfstune.trace.vdevs import VdevNames

POOLS = [f"p{i}" for i in range(25)]


class Host(FakeHost):
    """Its zpool(8) answers, or takes ten seconds to say nothing."""

    def __init__(self, stop: FakeStop) -> None:
        super().__init__()
        self.stop, self.hangs = stop, False
        self.calls: list[str] = []

    def vdev_names(self, pool: str) -> dict[int, str]:
        self.calls.append(pool)
        if not self.hangs:
            return dict(self.vdevs)
        self.stop.clock += 10 * SECOND
        return {}


def made() -> tuple[VdevNames, Host, FakeStop]:
    stop = FakeStop()
    host = Host(stop)
    return VdevNames(host, stop), host, stop


def test_each_pool_is_asked_once() -> None:
    names, host, _ = made()
    host.imported = POOLS
    found = [names.of(pool, guid) for _ in range(3) for pool in POOLS for guid in (1, 2, 3)]
    assert found == ["sda", "sdb", "sdc"] * 75
    assert host.calls == POOLS


def test_a_program_that_hangs_takes_seconds_in_ten_minutes() -> None:
    names, host, stop = made()
    host.imported, host.hangs = POOLS, True
    begun = stop.now()
    for _ in range(9):
        assert {names.of(pool, guid) for pool in POOLS for guid in range(32)} == {None}
    assert stop.now() - begun == 10 * SECOND
    assert host.calls == POOLS[:1]
    stop.clock = begun + 600 * SECOND
    host.hangs = False
    assert {names.of(pool, 1) for pool in POOLS} == {"sda"}


def test_a_pool_that_does_not_know_a_vdev_is_asked_again_later() -> None:
    names, host, stop = made()
    assert names.of("tank", 1) == "sda"
    host.vdevs[9] = "sdx"
    assert [names.of("tank", 9) for _ in range(5)] == [None] * 5
    # the others are asked all the same
    assert names.of("idle", 9) == "sdx"
    stop.clock += 60 * SECOND
    assert names.of("tank", 9) == "sdx"
    # no answer is no reason to forget a name
    host.vdevs = {}
    stop.clock += 60 * SECOND
    assert [names.of("tank", guid) for guid in (8, 9)] == [None, "sdx"]
    assert host.calls == ["tank", "idle", "tank", "tank"]


def test_pools_that_have_gone_are_forgotten() -> None:
    names, host, _ = made()
    for i in range(1000):
        host.imported = [f"p{i}"]
        assert names.of(f"p{i}", 1) == "sda"
    assert set(names._names) == set(names._again) == {"p999"}


def test_the_rows_of_a_vdev_have_its_name_once_it_is_known() -> None:
    names, host, stop = made()
    host.hangs = True
    states = [[vdev(1, flush=ios([MS] * n)), vdev(2)] for n in range(1, 4)]
    measured = meter(FakeSession(states), names, TraceOptions(), stop)

    def rows() -> list[tuple[str, int]]:
        return [(row.vdev, row.count) for row in measured.measure(step=True)[0]]

    assert [rows(), rows()] == [[("1", 1)], [("1", 1)]]
    host.hangs = False
    stop.clock += 600 * SECOND
    assert rows() == [("sda", 1)]
    # who does nothing needs no name
    assert host.calls == ["tank", "tank"]
