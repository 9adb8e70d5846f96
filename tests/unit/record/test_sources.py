"""The views of `record run`: opened when they can be, closed when the module may go."""

from __future__ import annotations

from typing import Any

import pytest
from support.fake_host import FakeHost, FakeSession, FakeStop
from support.samples import arc, counts, from_values, slow_event, txg, waits

from zfstrace.errors import NotSupported, TraceError
from zfstrace.light import CommitCounts, Sample, SlowCommit, Window
from zfstrace.stages import NAMES
from zfstrace.types import Check, Losses
from zfstune.errors import NotPossible
from zfstune.incident.reader import taken
from zfstune.record.args import DEFAULT_VIEWS
from zfstune.record.interval import picked
from zfstune.record.sources import Views, require
from zfstune.term.units import MS, SECOND

NO_ROOT = Check("privileges", "privilege", "none", "blocking", "no BPF", "run as root")
NO_ZFS = Check("zfs", "zfs", "not loaded", "blocking", "nothing to trace", "modprobe zfs")


def light_session() -> FakeSession:
    hist = from_values([5 * MS] * 9)
    db = CommitCounts("tank", 68, (0, 0), False, hist, hist, hist)
    sample = Sample("tank", 68, (0, 0), False, 30, (1,) * len(NAMES))
    slow = Window(
        "2026-11-26T11:59:58.000Z", 2 * SECOND, (sample,), SlowCommit(SECOND, 12, "postgres")
    )
    # the first is read at the restart
    return FakeSession([([], [], []), ([db], [], [slow])], losses=Losses(start=2))


def busy() -> FakeHost:
    host = FakeHost()
    many = counts(objset=68, stages={"flush": [40 * MS] * 5})
    host.sessions = {
        "light": light_session(),
        "fsync": FakeSession([[], [many]], [slow_event(), slow_event(comm="mysqld", flush=200)]),
        "txg": FakeSession(events=[txg(5)]),
        "throttle": FakeSession([[], [waits(dirty_hard=[SECOND])]]),
        "device": FakeSession([[], []]),
        "arc": FakeSession([arc(1), arc(2)]),
    }
    return host


def views_of(host: FakeHost, *names: str) -> Views:
    return Views(host, names or None, FakeStop())


def session(host: FakeHost, name: str) -> FakeSession:
    found = host.sessions[name]
    assert isinstance(found, FakeSession)
    return found


def test_each_view_gives_rows_that_a_reader_takes() -> None:
    views = views_of(busy(), "light", "fsync", "txg", "throttle", "arc")
    views.tick(0)
    rows = views.rows()
    types = {view: sorted({row["type"] for row in found}) for view, found in rows.items()}
    assert types == {
        "light": ["light_summary", "light_window"],
        "fsync": ["fsync_summary", "slow_fsync"],
        "txg": ["txg"],
        "throttle": ["throttle"],
        "arc": ["arc"],
    }
    for record in picked(rows).records:
        assert taken(dict(record))
    slow = [row for row in rows["fsync"] if row["type"] == "slow_fsync"]
    assert {row["comm"] for row in slow} == {"postgres", "mysqld"}
    assert views.lost() == {"light": 2, "fsync": 0, "txg": 0, "throttle": 0, "arc": 0}
    assert views.off == {}


def test_without_zfs_it_waits_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    host = busy()
    host.unloaded, host.imported = True, []
    views = views_of(host)
    for second in range(3):
        views.tick(second * SECOND)
    assert capsys.readouterr().err == "zfstune: ZFS is not loaded: waiting for it\n"
    assert views.off == dict.fromkeys(DEFAULT_VIEWS, "ZFS is not loaded")
    assert views.rows() == {}
    host.unloaded = False
    views.tick(3 * SECOND)
    # a light trace waits for a pool by itself
    assert sorted(views.off) == ["arc", "throttle", "txg"]
    assert "no pool is imported: waiting for it" in capsys.readouterr().err
    host.imported = ["tank"]
    views.tick(4 * SECOND)
    assert views.off == {}
    assert "a pool is imported: recording" in capsys.readouterr().err


def test_without_a_pool_nothing_keeps_the_module() -> None:
    host = busy()
    views = views_of(host)
    views.tick(0)
    host.imported = []
    views.tick(SECOND)
    assert [session(host, name).closed for name in DEFAULT_VIEWS] == [False, True, True, True]
    assert views.off == dict.fromkeys(DEFAULT_VIEWS[1:], "no pool is imported")


def test_the_last_rows_of_a_pool_are_kept() -> None:
    host = busy()
    views = views_of(host, "throttle")
    views.tick(0)
    host.imported = []
    views.tick(SECOND)
    assert session(host, "throttle").closed
    (row,) = views.rows()["throttle"]
    assert row["type"] == "throttle"
    assert views.rows() == {}


def test_kstats_of_another_module_make_no_row() -> None:
    host = busy()
    host.sessions["arc"] = FakeSession([arc(9), arc(9), arc(1)])
    views = views_of(host, "arc")
    views.tick(0)
    host.unloaded, host.imported, host.loaded_as = True, [], ""
    views.tick(SECOND)
    assert views.rows() == {}


def test_a_view_that_cannot_be_read_at_first_is_off() -> None:
    host = busy()
    host.sessions["throttle"] = FakeSession([TraceError("cannot read", "look")])
    views = views_of(host, "throttle", "arc")
    views.tick(0)
    assert views.off == {"throttle": "cannot read; look"}
    assert session(host, "throttle").closed
    assert list(views.rows()) == ["arc"]


def test_a_module_that_was_loaded_again_is_attached_again() -> None:
    host = busy()
    views = views_of(host, "throttle")
    views.tick(0)
    first = session(host, "throttle")
    host.sessions["throttle"] = FakeSession([[], []])
    host.loaded_as = "boot:2"
    views.tick(SECOND)
    assert first.closed
    assert not session(host, "throttle").closed
    assert list(views.rows()) == ["throttle"]


def test_a_view_that_fails_is_tried_again(capsys: pytest.CaptureFixture[str]) -> None:
    host = busy()
    host.sessions["throttle"] = TraceError("no probe", "look")
    views = views_of(host, "throttle", "arc")
    for second in range(300):
        views.tick(second * SECOND)
    assert views.off == {"throttle": "no probe; look"}
    assert capsys.readouterr().err.count("view throttle is off: no probe; look") == 1
    host.sessions["throttle"] = FakeSession([[], []])
    views.tick(299 * SECOND)
    assert views.off
    views.tick(300 * SECOND)
    assert views.off == {}


def test_a_view_that_fails_while_it_counts_is_off() -> None:
    host = busy()
    host.sessions["throttle"] = FakeSession([[], TraceError("gone")])
    views = views_of(host, "throttle", "arc")
    views.tick(0)
    assert list(views.rows()) == ["arc"]
    assert views.off == {"throttle": "gone"}
    assert session(host, "throttle").closed


def test_where_there_is_no_light_trace_fsyncs_are_traced(
    capsys: pytest.CaptureFixture[str],
) -> None:
    host = busy()
    host.sessions["light"] = NotSupported("there are no light traces on FreeBSD")
    views = views_of(host)
    views.tick(0)
    views.tick(SECOND)
    assert views.names == ("fsync", "txg", "throttle", "arc")
    assert "recording fsync instead" in capsys.readouterr().err
    assert "fsync" in views.rows()
    asked = views_of(host, "light")
    asked.tick(0)
    assert asked.off == {"light": "there are no light traces on FreeBSD"}


def test_only_the_slowest_of_an_interval_are_kept() -> None:
    host = busy()
    many = [slow_event(flush=ms) for ms in range(1, 400)]
    host.sessions["fsync"] = FakeSession([[], [counts(objset=68)]], many)
    views = views_of(host, "fsync")
    views.tick(0)
    slow: list[Any] = [row for row in views.rows()["fsync"] if row["type"] == "slow_fsync"]
    assert sorted(row["total_ns"] for row in slow) == [ms * MS for ms in range(350, 400)]


def test_all_are_closed_at_the_end() -> None:
    host = busy()
    views = views_of(host)
    views.tick(0)
    views.close()
    assert all(session(host, name).closed for name in DEFAULT_VIEWS)


def test_without_privilege_it_is_refused_unless_kstats_suffice() -> None:
    host = FakeHost(checks=[NO_ZFS, NO_ROOT])
    host.unloaded = True
    with pytest.raises(NotPossible, match="privileges none"):
        require(host, DEFAULT_VIEWS)
    require(host, ["txg", "arc"])
    # ZFS may come
    require(FakeHost(checks=[NO_ZFS]), DEFAULT_VIEWS)


@pytest.mark.parametrize("error", [TraceError("cannot attach"), OSError(5, "cannot attach")])
def test_a_host_that_cannot_tick_loses_one_view_after_the_other(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def failing(_host: FakeHost) -> None:
        raise error

    views = views_of(busy())
    views.tick(0)
    monkeypatch.setattr(FakeHost, "tick", failing)
    views.tick(SECOND)
    assert views.off == {"light": "cannot attach"}
    views.tick(2 * SECOND)
    assert sorted(views.off) == ["light", "throttle"]
    assert sorted(views.rows()) == ["arc", "txg"]
