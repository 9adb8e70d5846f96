"""Which writes of parameters are seen, and whose they are: with the real journal."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.exported import Exported, Scrape
from support.fake_host import FakeHost
from support.fake_module import ModuleHost

from zfstrace.params import Change, ComparingWatch
from zfstune.changes.journal import Journal
from zfstune.changes.records import APPLIED, RESTORED, Original
from zfstune.exporter.parameters import MOST, watched
from zfstune.tunables import catalogue

WRITES, CHANGED = "zfstune_parameter_writes_total", "zfstune_parameter_changed"
NAME = "zfs_txg_timeout"


class Watched:
    """A module whose writes are seen, by zfstune with its journal, and by others."""

    def __init__(self, host: ModuleHost, root: Path) -> None:
        self.host, self.params = host, host.params
        self.it = Exported(host, where=root)
        self.journal: Journal | None = None

    def scrape(self) -> Scrape:
        self.it.stop.clock += 2_000_000_000
        return Scrape(self.it.text())

    def writes(self, name: str = NAME) -> tuple[float | None, float | None]:
        scrape = self.scrape()
        ours = scrape.get(WRITES, name=name, by="zfstune")
        return ours, scrape.get(WRITES, name=name, by="other")

    def put(self, name: str, value: int, **who: object) -> None:
        """A write, and the event of it."""
        self.params.put(name, value)
        self.params.watch_.changes.append(Change(name, **who))  # type: ignore[arg-type]

    def set(self, name: str, value: int, kind: str = "manual") -> None:
        """As `params set` does it."""
        old = self.params.read(name)
        assert old is not None
        journal = Journal(self.host.where, write=True, here="boot:1")
        layer = journal.begin(kind, "boot:1", "zfstune tune tank", {name: Original(old)})
        journal.intend(name, old, value)
        self.put(name, value)
        journal.wrote(name, value)
        if kind == "manual":
            journal.end(layer, APPLIED)
        self.journal = journal

    def restore(self, name: str, value: int) -> None:
        """As the end of a session does it."""
        assert self.journal
        self.journal.tolerant = True
        now = self.params.read(name)
        assert now is not None
        self.journal.intend(name, now, value)
        self.put(name, value)
        self.journal.wrote(name, value)
        self.journal.end(self.journal.layer, RESTORED)
        self.journal.put_aside()


@pytest.fixture
def world(host: ModuleHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    monkeypatch.setattr("zfstune.changes.bounded.call", lambda _limit, what, *given: what(*given))
    found = Watched(host, tmp_path)
    found.it.collector.tick()
    yield found
    found.it.collector.close()


def test_the_first_write_of_another_program_is_seen(world: Watched) -> None:
    assert world.writes() == (0, 0)
    world.put(NAME, 30, pid=1234, comm="sh")
    scrape = world.scrape()
    assert scrape.get(WRITES, name=NAME, by="other") == 1
    assert scrape.get(WRITES, name=NAME, by="zfstune") == 0
    assert scrape.of(CHANGED) == {("other", NAME): 30}
    world.put(NAME, 5)
    assert world.scrape().of(CHANGED) == {}
    assert world.writes() == (0, 2)


def test_a_write_of_zfstune_is_known_by_its_journal(world: Watched) -> None:
    world.set(NAME, 30)
    scrape = world.scrape()
    assert scrape.of(CHANGED) == {("zfstune", NAME): 30}
    assert world.writes() == (1, 0)


def test_another_programs_value_is_not_zfstunes(world: Watched) -> None:
    world.set(NAME, 30)
    world.put(NAME, 31)
    assert world.writes() == (1, 1)
    scrape = world.scrape()
    assert scrape.of(CHANGED) == {("other", NAME): 31}


def test_an_announcement_claims_one_write_and_not_for_long(world: Watched) -> None:
    world.set(NAME, 30)
    assert world.writes() == (1, 0)
    # the same value again, by another program
    world.put(NAME, 30)
    assert world.writes() == (1, 1)
    assert world.journal
    world.journal.intend(NAME, 30, 31)
    world.it.tick(5)
    world.it.stop.clock += 60_000_000_000
    world.put(NAME, 31)
    assert world.writes() == (1, 2)


def test_a_write_that_was_refused_does_not_claim_another_value(world: Watched) -> None:
    journal = Journal(world.host.where, write=True, here="boot:1")
    journal.begin("manual", "boot:1", "zfstune params set", {NAME: Original(5)})
    journal.intend(NAME, 5, 30)
    world.put(NAME, 99)
    assert world.writes() == (0, 1)


def test_a_poll_between_the_announcement_and_the_write(world: Watched) -> None:
    journal = Journal(world.host.where, write=True, here="boot:1")
    journal.begin("manual", "boot:1", "zfstune params set", {NAME: Original(5)})
    journal.intend(NAME, 5, 30)
    assert world.writes() == (0, 0)
    world.put(NAME, 30)
    assert world.writes() == (1, 0)


def test_writes_of_a_session_between_two_polls_are_all_its(world: Watched) -> None:
    world.set(NAME, 30, kind="session")
    world.restore(NAME, 5)
    assert world.writes() == (2, 0)


def test_a_session_that_restores_is_zfstune_too(world: Watched) -> None:
    world.set(NAME, 30, kind="session")
    assert world.writes() == (1, 0)
    world.restore(NAME, 5)
    assert not (world.host.where.run / "journal").exists()
    scrape = world.scrape()
    assert scrape.get(WRITES, name=NAME, by="zfstune") == 2
    assert scrape.of(CHANGED) == {}


def test_what_zfstune_changed_before_is_known_from_its_journal(
    host: ModuleHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zfstune.changes.bounded.call", lambda _limit, what, *given: what(*given))
    first = Watched(host, tmp_path)
    first.set(NAME, 30)
    # a watch does not tell of what was before it
    host.params.watch_.changes.clear()
    later = Exported(host, where=tmp_path)
    assert later.scrape().of(CHANGED) == {("zfstune", NAME): 30}
    # of another module it is no change
    host.params.root.joinpath(".identity").write_text("boot:2")
    assert later.scrape().of(CHANGED) == {}


def test_a_reload_of_the_module_is_no_write(world: Watched) -> None:
    world.put(NAME, 30)
    assert world.writes() == (0, 1)
    world.params.put(NAME, 5)
    world.params.root.joinpath(".identity").write_text("boot:2")
    assert world.params.watch_.closed is False
    assert world.writes() == (0, 1) and world.params.watch_.closed
    assert world.scrape().of(CHANGED) == {}
    world.put(NAME, 6)
    assert world.writes() == (0, 2)


def test_an_active_session_is_shown_for_its_pool(world: Watched) -> None:
    assert world.scrape().of("zfstune_session_active") == {("idle",): 0, ("tank",): 0}
    world.set(NAME, 30, kind="session")
    assert world.scrape().of("zfstune_session_active") == {("idle",): 0, ("tank",): 1}
    world.restore(NAME, 5)
    assert world.scrape().of("zfstune_session_active") == {("idle",): 0, ("tank",): 0}


def test_a_killed_session_is_not_active(world: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    world.set(NAME, 30, kind="session")

    def dead(_pid: int, _signal: int) -> None:
        raise ProcessLookupError

    monkeypatch.setattr(os, "kill", dead)
    assert world.scrape().get("zfstune_session_active", pool="tank") == 0


@pytest.mark.parametrize("content", [b"", b"\0" * 100, b"garbage\n" * 1000, b'{"n": 0}\n'])
def test_a_damaged_journal_does_no_harm(world: Watched, content: bytes) -> None:
    world.host.where.run.mkdir(parents=True, mode=0o700)
    (world.host.where.run / "journal").write_bytes(content)
    world.put(NAME, 30)
    assert world.writes() == (0, 1)


def test_a_journal_that_may_not_be_read_is_said(
    world: Watched, capsys: pytest.CaptureFixture[str]
) -> None:
    world.host.where.run.mkdir(parents=True)
    world.host.where.run.chmod(0o777)
    world.put(NAME, 30)
    assert world.writes() == (0, 1)
    world.it.tick(10)
    assert capsys.readouterr().err.count("count as other programs': ") == 1


def test_announcements_of_what_is_not_watched_do_not_pile_up(world: Watched) -> None:
    journal = Journal(world.host.where, write=True, here="boot:1")
    journal.begin("manual", "boot:1", "zfstune params set", {"zfs_unheard_of": Original(5)})
    for value in range(6, 20):
        journal.intend("zfs_unheard_of", value - 1, value)
        world.it.tick(5)
        world.it.stop.clock += 60_000_000_000
    assert len(world.it.kstats.written._writes.journals._claims["zfs_unheard_of"]) == 1


def test_the_recorder_gets_what_was_counted(world: Watched) -> None:
    assert world.it.collector.writes() == []
    world.set(NAME, 30)
    assert world.writes() == (1, 0)
    # the name of a program is no evidence
    world.put(NAME, 31, pid=1, comm="zfstune")
    found = world.it.collector.writes()
    assert [(one.old, one.new, one.by) for one in found] == [(5, 30, "zfstune"), (30, 31, "other")]
    assert world.it.collector.writes() == []
    assert world.writes() == (1, 1)


def test_a_watch_that_fails_leaves_the_recorder_alone(
    world: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> object:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(world.params.watch_, "poll", fail)
    assert world.it.collector.writes() == []
    assert (world.scrape().get("zfstune_exporter_errors_total", what="kstat") or 0) >= 1


def test_writes_that_no_recorder_takes_stay_few(world: Watched) -> None:
    for value in range(6, 400):
        world.put(NAME, value)
        world.it.kstats.written.poll()
    assert world.writes() == (0, 394)
    assert len(world.it.collector.writes()) == 256


def test_a_watch_that_cannot_begin_is_tried_again(
    host: ModuleHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_names: list[str]) -> object:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("zfstune.changes.bounded.call", lambda _limit, what, *given: what(*given))
    found = Watched(host, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(host.params, "watch", refuse)
        assert found.scrape().of(WRITES) == {}
    assert found.writes() == (0, 0)
    found.put(NAME, 30)
    assert found.writes() == (0, 1)


def test_values_are_compared_where_nothing_tells_of_writes(
    host: ModuleHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = ComparingWatch(host.params.read, [NAME], lambda _watch: None)
    monkeypatch.setattr(host.params, "watch", lambda _names: watch)
    it = Exported(host, where=tmp_path)
    it.tick()
    host.params.put(NAME, 30)
    it.tick(5)
    scrape = it.scrape()
    assert scrape.get(WRITES, name=NAME, by="other") == 1


def test_few_parameters_are_watched_those_of_a_session_first() -> None:
    names = sorted(catalogue.load())
    found = watched([*names, "a_new_one"])
    assert len(found) == MOST and "a_new_one" not in found
    assert found[: len(catalogue.default_set())] == list(catalogue.default_set())
    assert not [name for name in found if catalogue.load()[name].access != "rw"]


def test_without_zfs_there_is_nothing_to_watch() -> None:
    host = FakeHost()
    host.unloaded, host.loaded_as, host.imported = True, "", []
    host.values = {}
    it = Exported(host)
    scrape = it.scrape()
    assert scrape.of(WRITES) == {} and scrape.get("zfstune_dirty_limit_bytes") is None
    host.unloaded, host.loaded_as, host.values = False, "boot:1", {NAME: 5}
    it.tick(5)
    assert it.scrape().get(WRITES, name=NAME, by="other") == 0


def test_kstats_are_exported_without_a_trace() -> None:
    host = FakeHost()
    host.kstats = {
        "zil": {"zil_commit_count": 12, "zil_itx_needcopy_bytes": 4096, "other": 1},
        "arcstats": {"size": 1 << 30, "c": 2 << 30, "memory_throttle_count": 7},
    }
    it = Exported(host)
    scrape = it.scrape()
    counter = "zfstune_zil_kstat_total"
    assert scrape.of(counter) == {("commit",): 12, ("itx_needcopy_bytes",): 4096}
    assert scrape.get("zfstune_arc_size_bytes") == 1 << 30
    assert scrape.get("zfstune_arc_target_bytes") == 2 << 30
    assert scrape.get("zfstune_arc_memory_throttle_total") == 7
    assert scrape.get("zfstune_dirty_limit_bytes") == 4 << 30
    assert scrape.get("zfstune_pool_state", pool="tank", state="ONLINE") == 1
    host.loaded_as = "boot:another"
    host.kstats["zil"] = {"zil_commit_count": 3}
    host.kstats["arcstats"] = {"memory_throttle_count": 2}
    host.state = "SUSPENDED"
    scrape = it.scrape()
    assert scrape.get(counter, counter="commit") == 15
    assert scrape.get("zfstune_arc_memory_throttle_total") == 9
    assert scrape.get("zfstune_arc_size_bytes") is None
    assert scrape.of("zfstune_pool_state") == {("idle", "SUSPENDED"): 1, ("tank", "SUSPENDED"): 1}
