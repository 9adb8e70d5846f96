"""When a light trace attaches and opens windows, and what it makes of them: with stand-ins for the
tracers and the host, and a clock."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.fake_host import FakeHost
from support.samples import counts, from_values

from zfs_linux import light
from zfstrace.errors import TraceError, UnknownName
from zfstrace.light import CommitCounts, SlowCommit
from zfstrace.types import DatasetCounts, LightOptions, Losses

SECOND = 1_000_000_000
OPTIONS = LightOptions("tank", None, None, SECOND, 60 * SECOND, 2 * SECOND)
LIMITS: light.Limits = {"pool": "tank", "objset": 54, "dev": (0, 40), "pid": 0, "max_datasets": 33}


def limits() -> light.Limits:
    return LIMITS


class Fsyncs:
    """Attached between resume() and pause(), and then busy for as many calls as under_way says."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.attached, self.under_way, self.closed, self.tidied = True, 0, False, 0
        self.log: list[str] = []
        self.counts: list[DatasetCounts] = [counts(objset=0, rest=True)]
        self.lost = Losses()

    def pause(self, *, now: bool = False) -> int:
        if self.under_way and not now:
            self.under_way -= 1
            return 1
        self.attached = False
        return 0

    def resume(self) -> None:
        assert not self.attached
        self.attached = True

    def tidy(self) -> None:
        self.tidied += 1

    def refresh(self) -> None:
        assert not self.attached  # a window is read when it is over

    def datasets(self) -> list[DatasetCounts]:
        return list(self.counts)

    def losses(self) -> Losses:
        return self.lost

    def probes(self) -> tuple[()]:
        return ()

    def close(self) -> None:
        self.closed = True


class Commits:
    def __init__(self, **options: Any) -> None:
        self.options = options
        self.events: list[SlowCommit] = []
        self.counts: list[CommitCounts] = []
        self.tidied = self.closed = self.refreshed = 0

    def tidy(self) -> None:
        self.tidied += 1

    def slow(self) -> list[SlowCommit]:
        found, self.events = self.events, []
        return found

    def refresh(self) -> None:
        self.refreshed += 1

    def datasets(self) -> list[CommitCounts]:
        return list(self.counts)

    def losses(self) -> Losses:
        return Losses(start=3, unfinished=2)

    def probes(self) -> tuple[()]:
        return ()

    def close(self) -> None:
        self.closed = True


class World:
    """A light trace whose seconds pass when asked to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, options: LightOptions = OPTIONS) -> None:
        self.now = 5 * SECOND
        monkeypatch.setattr(light, "FsyncTrace", Fsyncs)
        monkeypatch.setattr(light, "CommitTrace", Commits)
        monkeypatch.setattr("time.monotonic_ns", lambda: self.now)
        self.host = FakeHost()
        self.trace = light.LightTrace(options, limits, self.host)

    @property
    def fsyncs(self) -> Any:
        assert self.trace._open
        return self.trace._open._fsyncs

    @property
    def commits(self) -> Any:
        assert self.trace._open
        return self.trace._open.commits

    def second(self) -> bool:
        """Whether a window is open after the next second."""
        self.now += SECOND
        self.trace.tick()
        return bool(self.fsyncs.attached)

    def until_closed(self) -> int:
        """The seconds until the open window is closed."""
        return next(i for i in range(1, 100) if not self.second())

    def seconds(self, count: int) -> list[int]:
        """Those of the next seconds after which a window is open."""
        return [i for i in range(count) if self.second()]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_it_begins_with_commits_alone(world: World) -> None:
    assert not world.fsyncs.attached
    assert world.commits.options["slow_ns"] == SECOND
    assert "slow_ns" not in world.fsyncs.options
    # a window must not touch the trampolines of the others
    assert world.fsyncs.options["no_fentry"] and not world.commits.options["no_fentry"]
    # of the 16 MiB that a light trace may take
    assert world.fsyncs.options["table_mib"] + world.commits.options["table_mib"] <= 10


def test_each_minute_has_one_window_of_two_seconds(world: World) -> None:
    open_after = world.seconds(60 * 60)
    begins = [second for second in open_after if second - 1 not in open_after]
    assert len(world.trace.windows()) in (59, 60)
    assert {second // 60 for second in begins} == set(range(60))
    # at any moment of it
    assert len({second % 60 for second in begins}) > 20
    assert len(open_after) == pytest.approx(2 * 60, abs=2)
    assert all(w.duration_ns == 2 * SECOND and not w.cause for w in world.trace.windows())


def test_only_the_last_windows_are_kept(world: World) -> None:
    world.seconds(3 * 60 * 60)
    assert len(world.trace.windows()) == 60


def open_window(world: World) -> None:
    while not world.second():
        pass


def test_a_sample_is_what_was_counted_since_the_last_window(world: World) -> None:
    for times in (1, 3):
        open_window(world)
        values = {"flush": [4] * times, "log_write": [6] * times}
        world.fsyncs.counts[1:] = [counts(objset=68, stages=values)]
        world.seconds(3)
    first, second = world.trace.windows()
    (one,), (other,) = first.samples, second.samples
    assert (one.objset, one.count, sum(one.stage_ns)) == (68, 1, 10)
    assert (other.objset, other.count, sum(other.stage_ns)) == (68, 2, 20)


def test_operations_that_began_in_a_window_may_end_after_it(world: World) -> None:
    open_window(world)
    world.fsyncs.under_way = 4
    # those of the window, and the four
    assert world.until_closed() == 2 + 4
    assert world.trace.windows()[0].lost == 0


def test_those_that_take_too_long_are_counted_as_lost(world: World) -> None:
    open_window(world)
    world.fsyncs.under_way = 1000
    world.fsyncs.lost = replace(Losses(), cut=7, missed=1)
    assert 12 <= world.until_closed() <= 15
    assert world.trace.windows()[0].lost == 8


def test_a_slow_commit_opens_a_window_that_is_kept_apart(world: World) -> None:
    worst = SlowCommit(3 * SECOND, 12, "postgres")
    world.commits.events = [SlowCommit(2 * SECOND, 9, "sync"), worst]
    assert world.second()
    world.seconds(3)
    assert world.trace.windows() == []
    (window,) = world.trace.kept()
    assert window.cause == worst
    assert world.trace.kept() == []


def test_the_slowest_until_the_window_ends_is_its_cause(world: World) -> None:
    first, worst = SlowCommit(SECOND, 12, "postgres"), SlowCommit(5 * SECOND, 13, "mysqld")
    world.commits.events = [first]
    assert world.second()
    world.commits.events = [worst, SlowCommit(SECOND, 14, "sync")]
    world.seconds(3)
    (window,) = world.trace.kept()
    assert window.cause == worst


def test_a_random_window_with_a_slow_commit_is_kept_and_estimated_from(world: World) -> None:
    """Its slowest, also one that ends while the window waits for its operations."""
    open_window(world)
    world.fsyncs.under_way = 4
    world.commits.events = [SlowCommit(SECOND, 12, "postgres")]
    world.seconds(4)
    worst = SlowCommit(5 * SECOND, 13, "mysqld")
    world.commits.events = [worst]
    world.until_closed()
    (kept,), (window,) = world.trace.kept(), world.trace.windows()
    assert kept.cause == worst
    assert window == replace(kept, cause=None)


def test_no_second_one_is_kept_in_a_minute(world: World) -> None:
    world.commits.events = [SlowCommit(SECOND, 12, "postgres")]
    world.second()
    world.until_closed()
    assert len(world.trace.kept()) == 1
    open_window(world)  # the random one of the first minute
    world.commits.events = [SlowCommit(SECOND, 13, "mysqld")]
    world.until_closed()
    assert world.trace.kept() == [] and len(world.trace.windows()) == 1


def test_those_that_nobody_asks_for_are_few(world: World) -> None:
    for _ in range(6000):
        world.commits.events = [SlowCommit(SECOND, 12, "postgres")]
        world.second()
    assert 10 < len(world.trace.kept()) <= light._WINDOWS


def test_not_more_than_one_a_minute_is_opened_for_that(world: World) -> None:
    windows = 0
    for _ in range(600):
        world.commits.events = [SlowCommit(SECOND, 12, "postgres")]
        world.second()
        windows += len(world.trace.kept())
    assert 9 <= windows <= 10
    assert len(world.trace.windows()) >= 8  # it takes no place from the others


def test_losses_are_those_of_what_is_counted_always(world: World) -> None:
    assert world.trace.losses().start == 3


def test_both_are_tidied_each_second(world: World) -> None:
    """Datasets go between windows, too, and what comes back is to be known by its old counts."""
    world.seconds(60)
    assert world.commits.tidied == world.fsyncs.tidied == 60


def test_both_are_closed(world: World) -> None:
    fsyncs, commits = world.fsyncs, world.commits
    world.trace.close()
    assert fsyncs.closed and commits.closed
    world.trace.close()


def db(*times: int, objset: int = 68, dev: tuple[int, int] = (0, 40)) -> CommitCounts:
    return CommitCounts("tank", objset, dev, False, from_values(times))


def rest() -> CommitCounts:
    return CommitCounts("", 0, (0, 0), True)


def leave(world: World) -> tuple[Any, Any]:
    """Exports all pools; returns what was attached."""
    fsyncs, commits = world.fsyncs, world.commits
    world.host.imported = []
    world.now += SECOND
    world.trace.tick()
    return fsyncs, commits


def test_nothing_is_attached_while_no_pool_is_imported(world: World) -> None:
    world.commits.counts = [rest(), db(1, 2)]
    fsyncs, commits = leave(world)
    assert world.trace.waiting and fsyncs.closed and commits.closed
    # what was counted until then is read, and stays
    assert commits.refreshed == 1
    assert [one.total.count for one in world.trace.commits()] == [0, 2]
    assert world.trace.losses() == Losses(start=3)
    world.now += SECOND
    world.trace.tick()
    world.trace.refresh()
    assert world.trace.waiting


def test_it_goes_on_with_a_module_that_is_loaded_again(world: World) -> None:
    world.commits.counts = [rest(), db(1, 2), db(9, objset=70)]
    leave(world)
    world.host.loaded_as, world.host.imported = "boot:2", ["tank"]
    world.host.kstats["zil"] = {"zil_commit_count": 5}
    world.now += SECOND
    world.trace.tick()
    assert not world.trace.waiting
    world.commits.counts = [rest(), db(7, objset=71), db(5, dev=(0, 44))]
    found = world.trace.commits()
    assert [(one.objset, one.total.count) for one in found] == [(0, 0), (68, 3), (70, 1), (71, 1)]
    assert found[1].dev == (0, 44)
    # of both, and the five commits before it was attached
    assert world.trace.losses() == Losses(start=3 + 3, missed=5, unfinished=2)


def test_commits_of_an_import_before_its_probes_are_lost(world: World) -> None:
    world.host.kstats["zil"] = {"zil_commit_count": 100}
    leave(world)
    world.host.imported = ["tank"]
    world.host.kstats["zil"] = {"zil_commit_count": 104}
    world.trace.tick()
    assert world.trace.losses().missed == 4


def test_a_module_that_was_loaded_again_between_two_ticks_is_noticed(world: World) -> None:
    fsyncs = world.fsyncs
    world.host.loaded_as = "boot:2"
    world.host.kstats["zil"] = {"zil_commit_count": 6}
    world.trace.tick()
    assert fsyncs.closed and not world.trace.waiting and world.fsyncs is not fsyncs
    assert world.trace.losses().missed == 6


def test_it_waits_for_its_dataset(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    leave(world)

    def missing() -> light.Limits:
        raise UnknownName("dataset tank/db is not in use here", "mount it first")

    monkeypatch.setattr(world.trace, "_limits", missing)
    world.host.imported = ["tank"]
    world.trace.tick()
    assert world.trace.waiting
    monkeypatch.setattr(world.trace, "_limits", limits)
    world.trace.tick()
    assert not world.trace.waiting


def test_another_dataset_s_commits_are_not_missed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those before its own was mounted."""
    leave(world)

    def missing() -> light.Limits:
        raise UnknownName("dataset tank/db is not in use here", "mount it first")

    monkeypatch.setattr(world.trace, "_limits", missing)
    world.host.imported = ["tank"]
    world.host.kstats["zil"] = {"zil_commit_count": 50}
    world.trace.tick()
    assert world.trace.waiting and world.trace.why == ""
    monkeypatch.setattr(world.trace, "_limits", limits)
    world.host.kstats["zil"] = {"zil_commit_count": 53}
    world.trace.tick()
    assert world.trace.losses().missed == 3


class Refusing:
    """Tracers that cannot attach, as many times as it says, and do something meanwhile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, times: int = 1_000_000) -> None:
        self.times, self.tried = times, 0
        monkeypatch.setattr(light, "CommitTrace", self.open)

    def meanwhile(self) -> None:
        """Nothing."""

    def open(self, **options: Any) -> Commits:
        self.tried += 1
        if self.tried > self.times:
            return Commits(**options)
        self.meanwhile()
        raise TraceError("cannot attach: the kernel refused it", "look at its log")


WHY = "cannot attach: the kernel refused it; look at its log"


def import_again(world: World, commits: int) -> None:
    world.host.imported = ["tank"]
    world.host.kstats["zil"] = {"zil_commit_count": commits}


def test_it_tries_again_after_a_minute(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    leave(world)
    refusing = Refusing(monkeypatch, times=2)
    import_again(world, 0)
    for second in range(150):
        world.host.kstats["zil"] = {"zil_commit_count": 10 * second}
        world.trace.tick()
        assert refusing.tried == 1 + second // 60
        assert world.trace.waiting == (refusing.tried <= 2)
        assert world.trace.why == (WHY if world.trace.waiting else "")
        # also meanwhile, and no more once it is attached
        assert world.trace.losses().missed == min(10 * second, 1200)
        world.now += SECOND


def test_an_export_ends_the_minute(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    leave(world)
    refusing = Refusing(monkeypatch)
    import_again(world, 0)
    world.trace.tick()
    assert world.trace.why == WHY
    world.host.imported = []
    world.trace.tick()
    assert world.trace.waiting and world.trace.why == ""
    import_again(world, 0)
    world.trace.tick()
    assert refusing.tried == 2


def test_so_does_another_module(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose commits are its own."""
    leave(world)
    refusing = Refusing(monkeypatch, times=1)
    import_again(world, 40)
    world.trace.tick()
    world.host.loaded_as = "boot:2"
    import_again(world, 30)
    world.trace.tick()
    assert refusing.tried == 2 and not world.trace.waiting
    assert world.trace.losses().missed == 40 + 30


def test_a_pool_that_goes_while_it_attaches_is_no_failure(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(world)
    refusing = Refusing(monkeypatch, times=1)
    monkeypatch.setattr(refusing, "meanwhile", lambda: setattr(world.host, "imported", []))
    import_again(world, 0)
    world.trace.tick()
    assert world.trace.waiting and world.trace.why == ""
    import_again(world, 0)
    world.trace.tick()
    assert not world.trace.waiting


def test_commits_are_counted_while_a_window_cannot_be_opened(world: World) -> None:
    def refuse() -> None:
        raise TraceError("cannot attach: no room")

    resume, world.fsyncs.resume = world.fsyncs.resume, refuse
    world.seconds(120)
    assert not world.trace.waiting and world.trace.why == "cannot attach: no room"
    assert world.commits.tidied == 120 and not world.trace.windows()
    world.fsyncs.resume = resume
    world.seconds(120)
    assert world.trace.windows() and world.trace.why == ""


def test_a_closed_trace_attaches_no_more(world: World) -> None:
    """Its host may tick it once more."""
    world.trace.close()
    world.trace.tick()
    assert world.trace.waiting


def test_windows_outlive_the_module(world: World) -> None:
    world.seconds(200)
    before = world.trace.windows()
    assert before
    leave(world)
    world.host.imported = ["tank"]
    world.seconds(200)
    assert world.trace.windows()[: len(before)] == before
    assert len(world.trace.windows()) > len(before)


def test_nothing_stays_attached_if_commits_cannot_be_traced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Fsyncs] = []

    class Noted(Fsyncs):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            made.append(self)

    def refuse(**_options: Any) -> None:
        raise TraceError("no")

    monkeypatch.setattr(light, "FsyncTrace", Noted)
    monkeypatch.setattr(light, "CommitTrace", refuse)
    with pytest.raises(TraceError):
        light.LightTrace(OPTIONS, limits, FakeHost())
    assert made[0].closed
