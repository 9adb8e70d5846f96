"""Which views are on, whatever the host and its traces do."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from support.fake_host import FakeHost, FakeSession, FakeStop
from support.samples import arc, counts, slow_event, txg, waits

from zfstrace.errors import NoPrivilege, NotSupported, NoZfs, TraceError
from zfstrace.types import Losses
from zfstune.record.following import BUDGET, Following
from zfstune.record.sources import view_named
from zfstune.record.traced import Attach
from zfstune.term.units import MS, SECOND


class Followed:
    """Views that are followed, with a clock that a test moves."""

    def __init__(
        self,
        host: FakeHost,
        *views: str,
        instead: Mapping[str, str] | None = None,
        **given: Any,
    ) -> None:
        self._stop = FakeStop()
        self.errors: Counter[str] = Counter()
        attach = Attach(host, self._stop, **given)
        made = functools.partial(view_named, attach=attach)
        self.following = Following(attach, made, views, instead, self._count)
        self.rows, self.off = self.following.rows, self.following.in_words
        self.missing, self.lost = self.following.missing, self.following.lost
        self.close = self.following.close

    def _count(self, number: int, what: str) -> None:
        if number:
            self.errors[what] += number

    def tick(self, seconds: int = 1) -> None:
        for _ in range(seconds):
            self.following.tick()
            self._stop.clock += SECOND


class Ticking(FakeSession):
    """What Host.tick() lets do what is due, such as to read the output of a script."""

    broken = False

    def tick(self) -> None:
        if self.broken:
            raise TraceError("dtrace(1) has ended")


def hosting(**sessions: Any) -> FakeHost:
    host = FakeHost()
    host.sessions = sessions
    return host


def fsyncs(n: int) -> Any:
    return [counts(objset=68, stages={"flush": [MS] * n})]


def counted(it: Followed) -> int:
    """The fsyncs of all rows since the last call."""
    rows = it.rows().get("fsync", ())
    return sum(row["count"] for row in rows if row["dataset"] == "tank/db")


def raising(error: Exception) -> Callable[..., Any]:
    def call(*_: object) -> Any:
        raise error

    return call


def said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line.removeprefix("zfstune: ") for line in capsys.readouterr().err.splitlines()]


# --- again


@pytest.mark.parametrize(("view", "after"), [("throttle", 300), ("light", 60)])
def test_a_view_that_fails_is_tried_again(
    view: str, after: int, capsys: pytest.CaptureFixture[str]
) -> None:
    session = FakeSession([([], [], [])] if view == "light" else [[], []])
    host = hosting(**{view: [TraceError("no probe", "look"), session]})
    it = Followed(host, view)
    it.tick(after)
    assert it.off() == {view: "no probe; look"}
    assert sum(line.startswith(f"view {view} is off: no probe; look") for line in said(capsys)) == 1
    it.tick()
    assert it.off() == {}
    assert it.errors == {view: 1}


def test_another_module_is_tried_at_once() -> None:
    host = hosting(throttle=[TraceError("no probe"), FakeSession([[], []])])
    it = Followed(host, "throttle")
    it.tick(3)
    assert it.off()
    host.loaded_as = "boot:2"
    it.tick()
    assert it.off() == {}


def test_the_first_pool_is_tried_at_once() -> None:
    """Symbols and layouts of ZFS are searched in what is there."""
    host = hosting(throttle=[TraceError("no probe"), FakeSession([[], []])])
    it = Followed(host, "throttle")
    it.tick(3)
    host.imported = []
    it.tick(3)
    assert it.off()
    host.imported = ["tank"]
    it.tick()
    assert it.off() == {}


def test_what_is_off_for_the_budget_stays_so() -> None:
    host = hosting(txg=[FakeSession(), FakeSession()])
    it = Followed(host, "txg")
    it.tick()
    (kept,) = it.following.on()
    it.following.off(kept, BUDGET, 1 << 62)
    for host.loaded_as, host.imported in (("boot:2", ["tank"]), ("boot:2", []), ("boot:3", ["a"])):
        it.tick()
        assert it.off() == {"txg": "above the budget"}


def test_what_views_wait_for_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    host = hosting(light=FakeSession([([], [], [])]), txg=FakeSession(), throttle=FakeSession([[]]))
    host.unloaded, host.loaded_as, host.imported = True, "", []
    it = Followed(host, "light", "txg", "throttle")
    it.tick(3)
    assert said(capsys) == ["ZFS is not loaded: waiting for it; run `modprobe zfs`"]
    assert it.off() == dict.fromkeys(("light", "txg", "throttle"), "ZFS is not loaded")
    assert it.rows() == {}
    host.unloaded, host.loaded_as = False, "boot:1"
    it.tick(3)
    assert said(capsys) == [
        "view light: 1 of 2 probes attached",
        "no pool is imported: waiting for one",
    ]
    host.imported = ["tank"]
    it.tick(3)
    assert it.off() == {}
    assert len(said(capsys)) == 2
    host.imported = []
    it.tick(3)
    assert said(capsys) == ["no pool is imported: waiting for one"]


def test_a_view_that_failed_says_so_while_nothing_is_there() -> None:
    host = hosting(throttle=TraceError("no probe"), txg=FakeSession())
    it = Followed(host, "throttle", "txg")
    it.tick()
    host.imported = []
    it.tick()
    assert it.off() == {"throttle": "no probe", "txg": "no pool is imported"}
    host.unloaded, host.loaded_as = True, ""
    it.tick()
    assert it.off() == {"throttle": "no probe", "txg": "ZFS is not loaded"}


def test_what_zfs_lacks_is_named_while_it_is_there() -> None:
    host = hosting(throttle=NoZfs("ZFS has no spa_sync()"))
    it = Followed(host, "throttle")
    it.tick()
    assert it.off() == {"throttle": "ZFS has no spa_sync()"}
    host.unloaded, host.loaded_as, host.imported = True, "", []
    it.tick()
    assert it.off() == {"throttle": "ZFS is not loaded"}


def test_where_there_is_no_view_another_takes_its_place() -> None:
    host = hosting(
        light=NotSupported("there are no light traces on FreeBSD"), fsync=FakeSession([fsyncs(1)])
    )
    it = Followed(host, "light", instead={"light": "fsync"})
    it.tick(2)
    assert it.off() == {} and list(it.rows()) == ["fsync"]
    asked = Followed(host, "light")
    asked.tick()
    assert asked.off() == {"light": "there are no light traces on FreeBSD"}


def test_where_nothing_can_be_attached_kstats_do(capsys: pytest.CaptureFixture[str]) -> None:
    kstat = FakeSession(events=[txg(1)], probes=())
    host = hosting(**{"txg": NoPrivilege("no"), "txg kstat": kstat, "throttle": NoPrivilege("no")})
    it = Followed(host, "txg", "throttle")
    it.tick()
    assert it.missing() == {"throttle": "privilege"}
    assert "view txg: by kstats" in said(capsys)
    strict = Followed(host, "txg", fallback=False)
    strict.tick()
    assert strict.missing() == {"txg": "privilege"}


def test_kstats_do_only_until_it_can_be_attached_again(capsys: pytest.CaptureFixture[str]) -> None:
    kstat = FakeSession(events=[txg(1)], probes=())
    full = TraceError("cannot attach: out of memory")
    host = hosting(**{"txg": [full, full, FakeSession(events=[txg(2)])], "txg kstat": kstat})
    it = Followed(host, "txg")
    it.tick(300)
    assert it.missing() == {} and it.errors == {"txg": 1}
    assert said(capsys) == ["view txg: only by kstats: cannot attach: out of memory"]
    it.tick(300)
    assert said(capsys) == [] and not kstat.closed
    it.tick()
    assert kstat.closed and not it.following.views[0].view.by_kstat
    assert [line.partition(" of ")[2] for line in said(capsys)] == ["2 probes attached"]
    assert [row["txg"] for row in it.rows()["txg"]] == [1, 2]


def test_a_view_that_fails_as_it_takes_the_place_of_kstats_is_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has no session then: neither is it taken for one that goes on."""
    kstat = FakeSession(events=[txg(1)], probes=())
    full, late = TraceError("out of memory"), FakeSession(events=[txg(2)])
    it = Followed(hosting(**{"txg": [full, late], "txg kstat": kstat}), "txg")
    it.tick(300)
    view = it.following.views[0].view
    monkeypatch.setattr(view, "_begin", raising(TraceError("no counts")))
    it.tick()
    assert it.off() == {"txg": "no counts"} and kstat.closed and late.closed


# --- pools and modules that come and go


def test_without_a_pool_nothing_keeps_the_module() -> None:
    sessions = {
        "light": FakeSession([([], [], [])]),
        "txg": FakeSession(),
        "throttle": FakeSession([[]]),
    }
    host = hosting(**sessions)
    it = Followed(host, *sessions)
    it.tick()
    host.imported = []
    it.tick()
    # a light trace lets go by itself
    assert [session.closed for session in sessions.values()] == [False, True, True]
    assert sorted(it.off()) == ["throttle", "txg"]


def test_the_last_rows_of_a_closed_session_are_kept() -> None:
    session = FakeSession([fsyncs(1)])
    host = hosting(fsync=session)
    it = Followed(host, "fsync")
    it.tick()
    assert counted(it) == 1
    session.states = [fsyncs(4)]
    host.imported = []
    it.tick()
    assert session.closed and counted(it) == 3
    # it does not know of any more
    assert it.rows() == {}


def test_kstats_of_another_module_make_no_row() -> None:
    host = hosting(arc=[FakeSession([arc(9), arc(9), arc(1)]), FakeSession([arc(1)])])
    it = Followed(host, "arc")
    it.tick()
    it.rows()
    host.loaded_as = "boot:2"
    it.tick()
    assert [row["demand_hits"] for row in it.rows()["arc"]] == [0]


def test_losses_never_go_back() -> None:
    first, second = (FakeSession([fsyncs(1)], losses=Losses(start=n)) for n in (5, 2))
    host = hosting(fsync=[first, second])
    it = Followed(host, "fsync")
    it.tick()
    host.loaded_as = "boot:2"
    it.tick()
    assert it.lost() == {"fsync": 5}
    it.rows()
    assert it.lost() == {"fsync": 7}
    second._losses = Losses()
    it.rows()
    assert it.lost() == {"fsync": 7}


# --- rows


def test_the_first_interval_is_complete() -> None:
    first = counts(objset=68, stages={"flush": [200 * MS]})
    ended = FakeSession(events=[txg(1)])
    host = hosting(fsync=FakeSession([[first]], [slow_event(0, flush=200)]), txg=ended)
    it = Followed(host, "fsync", "txg")
    it.tick(9)
    rows = it.rows()
    assert [row["type"] for row in rows["txg"]] == ["txg"]
    assert [row["type"] for row in rows["fsync"]].count("slow_fsync") == 1
    assert [row["count"] for row in rows["fsync"] if "count" in row and row["dataset"]] == [1]


def test_of_an_interval_the_slowest_are_kept() -> None:
    session = FakeSession([fsyncs(1)])
    host = hosting(fsync=session)
    it = Followed(host, "fsync")
    it.tick()
    for low in (1, 200):
        session._events = [slow_event(0, flush=ms) for ms in range(low, low + 199)]
        it.tick()
    session._events = [slow_event(9, flush=1000)]
    slow = [row for row in it.rows()["fsync"] if row["type"] == "slow_fsync"]
    assert sorted(row["total_ns"] for row in slow) == [
        *(ms * MS for ms in range(350, 399)),
        1000 * MS,
    ]
    assert {row["dataset"] for row in slow} == {"tank/db", "<unknown>"}


def test_what_a_txg_did_meanwhile_is_asked_at_once() -> None:
    """Its kstat has the last hundred."""
    asked: list[int] = []
    session = FakeSession([fsyncs(1)])
    host = hosting(fsync=session)
    it = Followed(host, "fsync")
    it.tick()
    host.txg_state = lambda _pool, start, _end: asked.append(start)  # type: ignore[assignment,method-assign]
    session._events = [slow_event(0, flush=200)]
    it.tick()
    assert len(asked) == 1


def test_losses_are_as_of_the_last_rows() -> None:
    session = FakeSession([fsyncs(1)], losses=Losses(start=2))
    it = Followed(hosting(fsync=session), "fsync")
    it.tick()
    it.rows()
    assert it.lost() == {"fsync": 2}


def test_a_recorder_that_takes_nothing_fills_no_memory() -> None:
    host = hosting(txg=FakeSession(), fsync=FakeSession([fsyncs(1)]))
    ended, slow = host.sessions["txg"], host.sessions["fsync"]
    assert isinstance(ended, FakeSession) and isinstance(slow, FakeSession)
    it = Followed(host, "txg", "fsync")
    for _ in range(9):
        ended._events = [txg(n) for n in range(400)]
        slow._events = [slow_event(0, flush=200)] * 40
        it.tick()
    rows = it.rows()
    assert len(rows["txg"]) == 1024
    assert sum(row["type"] == "slow_fsync" for row in rows["fsync"]) == 50


def test_for_no_recorder_nothing_is_kept() -> None:
    host = hosting(
        txg=FakeSession(events=[txg(1)]), fsync=FakeSession([fsyncs(1)], [slow_event(0)])
    )
    it = Followed(host, "txg", "fsync", recorded=False)
    it.tick()
    assert it.rows() == {"txg": [], "fsync": []}


# --- failures


def test_a_session_that_fails_gives_its_last_rows() -> None:
    session = Ticking([fsyncs(1)])
    host = hosting(fsync=session)
    it = Followed(host, "fsync")
    it.tick()
    assert counted(it) == 1
    session.states, session.broken = [fsyncs(3)], True
    host.fails = TraceError("dtrace(1) has ended")
    it.tick()
    assert session.closed and it.off() == {"fsync": "dtrace(1) has ended"}
    assert counted(it) == 2


def test_an_error_beside_the_rows_does_not_lose_them() -> None:
    session = FakeSession([fsyncs(1)])
    it = Followed(hosting(fsync=session), "fsync")
    it.tick()
    session.on_poll = raising(TraceError("the ring is gone"))
    assert it.rows() == {} and it.off() == {"fsync": "the ring is gone"}
    assert counted(it) == 1


def test_a_view_that_cannot_be_read_is_off_and_the_others_go_on() -> None:
    host = hosting(
        throttle=FakeSession([[], TraceError("gone")]), arc=FakeSession([arc(1), arc(2)])
    )
    it = Followed(host, "throttle", "arc")
    it.tick()
    it.rows()
    assert list(it.rows()) == ["arc"]
    assert it.off() == {"throttle": "gone"} and it.errors == {"throttle": 1}


def test_of_those_that_the_host_ticks_only_who_fails_is_off() -> None:
    sessions = {
        "fsync": Ticking([fsyncs(1)]),
        "throttle": Ticking([[waits(rest=True)]]),
        "arc": Ticking([arc(1)]),
    }
    host = hosting(**sessions)
    it = Followed(host, *sessions)
    it.tick()
    sessions["arc"].broken = True
    host.fails = TraceError("dtrace(1) has ended")
    it.tick()
    assert it.off() == {"arc": "dtrace(1) has ended"}
    assert [session.closed for session in sessions.values()] == [False, False, True]


@pytest.mark.parametrize("error", [TraceError("cannot look"), OSError(5, "Input/output error")])
def test_an_error_of_the_host_itself_is_of_no_view(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    host = hosting(fsync=Ticking([fsyncs(1)]), txg=FakeSession())
    it = Followed(host, "fsync", "txg")
    it.tick()
    said(capsys)
    for _ in range(3):
        host.fails = error
        it.tick()
    assert it.off() == {} and it.errors == {"host": 3}
    assert len(said(capsys)) == 1


@pytest.mark.parametrize("what", ["loaded", "parameters", "pools"])
def test_a_host_that_does_not_answer_is_survived(
    what: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    host = hosting(device=FakeSession([[], []]))
    it = Followed(host, "device")
    it.tick()
    said(capsys)
    with monkeypatch.context() as broken:
        broken.setattr(host, what, raising(OSError(5, "Input/output error")))
        it.tick(3)
        assert list(it.rows()) == ["device"]
        assert it.off() == {}
    assert said(capsys) == ["host: Input/output error"]
    assert it.errors == {"host": 3}


def test_a_view_with_a_bug_is_off() -> None:
    session = FakeSession([[], []])
    host = hosting(throttle=session, txg=FakeSession(events=[txg(1)]))
    it = Followed(host, "throttle", "txg")
    it.tick()
    session.states = [ValueError("a bug")]
    assert list(it.rows()) == ["txg"]
    assert it.off() == {"throttle": "ValueError: a bug"}


def test_a_light_session_that_goes_on_without_probes_says_why() -> None:
    session = FakeSession([([], [], [])])
    host = hosting(light=session)
    it = Followed(host, "light")
    it.tick()
    assert it.off() == {}
    session.waiting, session.why = True, "cannot attach: no memory"
    it.tick()
    assert it.off() == {"light": "cannot attach: no memory"} and it.errors == {"light": 1}
    session.why, host.imported = "", []
    it.tick()
    assert it.off() == {"light": "no pool is imported"}


def test_all_are_closed_although_one_cannot_be() -> None:
    sessions = {"throttle": FakeSession([[]]), "txg": FakeSession()}
    host = hosting(**sessions)
    it = Followed(host, *sessions)
    it.tick()
    sessions["throttle"].close = raising(OSError(5, "Input/output error"))  # type: ignore[method-assign]
    it.close()
    assert sessions["txg"].closed


@pytest.mark.parametrize("attached", [True, False])
def test_what_detaching_may_wait_for_is_said(
    capsys: pytest.CaptureFixture[str], attached: bool
) -> None:
    """Kstats have nothing to detach."""
    txgs = FakeSession() if attached else NoPrivilege("no")
    host = hosting(**{"txg": txgs, "txg kstat": FakeSession(probes=())})
    host.state = "SUSPENDED"
    it = Followed(host, "txg")
    it.tick()
    assert it.off() == {}
    it.close()
    assert ("pool tank is SUSPENDED: detaching may last" in capsys.readouterr().err) is attached
