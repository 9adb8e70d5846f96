"""The conditions that end a session, and their messages."""

from __future__ import annotations

import pytest
from support.fake_host import FakeHost, FakeSession, FakeStop
from support.samples import counts

from zfstrace.zpool.status import scan_of
from zfstune.experiment import guardrails
from zfstune.experiment.blocks import BlockMeter
from zfstune.experiment.guardrails import Guardrails
from zfstune.experiment.runner import Abort, Disturbed
from zfstune.term.units import MS, SECOND

STATUS = """\
  pool: tank
 state: ONLINE
  scan: {scan}
config:
"""


def rails(host: FakeHost, stop: FakeStop) -> Guardrails:
    return Guardrails(host, "tank", stop.now, SECOND)


@pytest.fixture(autouse=True)
def scans(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The scans that zpool(8) reports, one after the other, then none."""
    found: list[str | None] = []
    monkeypatch.setattr(guardrails, "scanning", lambda _pool: found.pop(0) if found else None)
    return found


def test_a_scrub_ends_the_session(scans: list[str | None]) -> None:
    scans += [None, "scrub"]
    stop = FakeStop()
    watch = rails(FakeHost(), stop)
    with pytest.raises(Disturbed, match="a scrub is running on tank"):
        for _ in range(30):
            stop.clock += SECOND
            watch(None, False)
    assert 19 <= stop.clock / SECOND <= 22


def test_a_quiet_pool_ends_nothing() -> None:
    host, stop = FakeHost(), FakeStop()
    watch = rails(host, stop)
    for _ in range(100):
        stop.clock += SECOND
        watch(None, False)


@pytest.mark.parametrize("state", ["DEGRADED", "SUSPENDED", ""])
def test_a_pool_that_is_not_online_ends_the_session(state: str) -> None:
    host = FakeHost()
    host.state = state
    with pytest.raises(Abort, match=state or "gone"):
        rails(host, FakeStop())(None, False)


def test_memory_pressure_ends_the_session() -> None:
    host = FakeHost()
    watch = rails(host, FakeStop())
    host.kstats["arcstats"] = {"memory_throttle_count": 7, "memory_available_bytes": -1}
    watch(None, False)
    host.kstats["arcstats"] = {"memory_throttle_count": 8}
    with pytest.raises(Abort, match="memory is short"):
        watch(None, False)
    host.kstats["arcstats"] = {"memory_throttle_count": 8, "memory_available_bytes": -(4 << 30)}
    with pytest.raises(Abort, match=r"must free 4\.00G"):
        watch(None, False)


def test_a_load_that_stops_ends_the_session() -> None:
    one = counts(stages={"flush": [5 * MS]})
    host, stop = FakeHost(FakeSession([(), (one,)])), FakeStop()
    watch, meter = rails(host, stop), BlockMeter(host, "tank", host.session)
    meter.start(stop.now())
    with pytest.raises(Abort, match="no fsync on tank for 30 s"):
        for _ in range(40):
            stop.clock += SECOND
            watch(meter, True)
    assert 30 <= (stop.clock - 1_000_000_000) / SECOND <= 33


@pytest.mark.parametrize("measuring", [True, False])
def test_a_load_that_never_began_ends_nothing_here(measuring: bool) -> None:
    host, stop = FakeHost(FakeSession([()])), FakeStop()
    watch, meter = rails(host, stop), BlockMeter(host, "tank", host.session)
    meter.start(stop.now())
    for _ in range(100):
        stop.clock += SECOND
        watch(meter, measuring)


def test_an_fsync_over_max_latency_ends_the_session() -> None:
    slow = counts(stages={"flush": [5 * MS, 1500 * MS]})
    host, stop = FakeHost(FakeSession([(), (slow,)])), FakeStop()
    watch, meter = rails(host, stop), BlockMeter(host, "tank", host.session)
    meter.start(stop.now())
    with pytest.raises(Abort, match=r"took 1\.50 s, more than --max-latency 1\.00 s"):
        watch(meter, True)


@pytest.mark.parametrize(
    ("scan", "what"),
    [
        ("scrub in progress since Sat Nov 21 10:00:00 2026", "scrub"),
        ("resilver in progress since Sat Nov 21 10:00:00 2026", "resilver"),
        ("scrub repaired 0B in 00:00:01 with 0 errors on Sat Nov 21 10:00:00 2026", None),
        ("none requested", None),
    ],
)
def test_scrubs_and_resilvers_are_read_from_zpool_status(scan: str, what: str | None) -> None:
    assert scan_of(STATUS.format(scan=scan)) == what
