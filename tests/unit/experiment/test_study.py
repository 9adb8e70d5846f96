"""A study in a file of our own, and the samplers that need no package."""

from __future__ import annotations

import json
import random
import sqlite3
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.sample_host import DEFAULTS, FACTS, MIB
from support.searching import DEFAULT, asked, searcher

from zfstune.errors import CommandError, NotPossible, UsageError
from zfstune.experiment import file_study, samplers, search
from zfstune.experiment.file_study import FileStudy
from zfstune.experiment.model import Candidate
from zfstune.experiment.search import Exhausted, by_optuna, require
from zfstune.experiment.space import Knob, Space
from zfstune.experiment.storage import StorageLost
from zfstune.experiment.study import COMPLETE, FAIL, RUNNING, WAITING, MemoryStudy, Study
from zfstune.tunables import planner

SHORT = Candidate({"zfs_dirty_data_max": 32 * MIB, "zfs_wrlog_data_max": 64 * MIB}, "model", {})
DEPTH = Candidate({"zfs_vdev_async_write_max_active": 4}, "model", {})
OURS = [samplers.LOCAL, samplers.RANDOM, samplers.GRID]


# --- the file


@pytest.fixture(params=["file", "memory"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Study:
    """An empty study."""
    in_file = request.param == "file"
    return FileStudy(str(tmp_path / "s"), "zfstune") if in_file else MemoryStudy()


def test_an_entry_goes_from_waiting_to_its_score(kept: Study) -> None:
    assert kept.take() is None
    kept.enqueue({"a": 0.5}, {"source": "model"})
    kept.enqueue({"a": 0.7}, {})
    assert [one.state for one in kept.entries()] == [WAITING, WAITING]
    taken = kept.take()
    assert taken is not None
    assert (taken.number, taken.state, dict(taken.point)) == (0, RUNNING, {"a": 0.5})
    kept.note(0, {"owner": "here"})
    kept.tell(0, COMPLETE, -0.25)
    kept.tell(0, FAIL)  # ended already
    (done,) = kept.entries(COMPLETE)
    assert (done.score, dict(done.attributes)) == (-0.25, {"source": "model", "owner": "here"})
    assert [one.number for one in kept.entries(WAITING)] == [1]


def test_a_study_has_facts_and_an_account(kept: Study) -> None:
    assert kept.facts() is None
    kept.set_facts({"zfs": "2.4.0"})
    assert kept.facts() == {"zfs": "2.4.0"}
    assert kept.spent("here") == 0.0
    kept.spend("here", 0.03)
    kept.spend("here", -0.01)
    assert kept.spent("here") == pytest.approx(0.02)


def test_what_is_in_a_file_stays(tmp_path: Path) -> None:
    kept = FileStudy(str(tmp_path / "s"), "zfstune")
    kept.enqueue({"a": 0.5}, {"source": "model"})
    kept.take()
    kept.tell(0, COMPLETE, -0.25)
    kept.close()
    (done,) = FileStudy(str(tmp_path / "s"), "zfstune").entries(COMPLETE)
    assert (done.score, dict(done.attributes)) == (-0.25, {"source": "model"})


def test_studies_of_a_file_are_apart(tmp_path: Path) -> None:
    one, other = (FileStudy(str(tmp_path / "s"), name) for name in ("one", "other"))
    one.enqueue({}, {})
    one.set_facts({"zfs": "2.3.9"})
    assert (other.entries(), other.facts()) == ([], None)
    assert one.facts() == {"zfs": "2.3.9"}
    assert file_study.names(str(tmp_path / "s")) == {"one", "other"}


def test_two_processes_take_different_entries(tmp_path: Path) -> None:
    one, other = (FileStudy(str(tmp_path / "s"), "zfstune") for _ in range(2))
    for _ in range(2):
        one.enqueue({}, {})
    taken = [kept.take() for kept in (one, other, one)]
    assert [entry and entry.number for entry in taken] == [0, 1, None]


def test_only_the_owner_reads_the_file(tmp_path: Path) -> None:
    searcher(storage=tmp_path / "s").close()
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("PRAGMA user_version=99", "was written by a newer zfstune"),
        ("PRAGMA application_id=7", "is a database of another program, not a study"),
    ],
)
def test_files_of_others_are_refused_and_left_alone(
    statement: str, words: str, tmp_path: Path
) -> None:
    searcher(storage=tmp_path / "s").close()
    with sqlite3.connect(tmp_path / "s") as database:
        database.execute(statement)
    before = (tmp_path / "s").read_bytes()
    with pytest.raises(UsageError, match=words):
        searcher(storage=tmp_path / "s", resume=True)
    assert (tmp_path / "s").read_bytes() == before


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("no database\n" * 100)
    with pytest.raises(NotPossible, match="file is not a database") as raised:
        searcher(storage=tmp_path / "s")
    assert raised.value.hint.startswith("name a writable file")


def test_a_lost_file_ends_the_session(tmp_path: Path) -> None:
    search = searcher(SHORT, storage=tmp_path / "s")
    candidate = search.ask()
    with sqlite3.connect(tmp_path / "s") as database:
        database.execute("DROP TABLE entry")
    with pytest.raises(StorageLost, match=r"no such table: entry; all parameters are restored"):
        search.tell(candidate, -0.5)


@pytest.mark.parametrize("text", ["x", "[]", "5", '{"values"'])
def test_what_no_session_writes_ends_the_session(text: str, tmp_path: Path) -> None:
    search = searcher(SHORT, storage=tmp_path / "s")
    with sqlite3.connect(tmp_path / "s") as database:
        database.execute("UPDATE entry SET attributes=?", (text,))
    with pytest.raises(StorageLost, match="entry 0 is not what a session writes"):
        search.ask()


# Writes entries until it is killed: argv[1] is the file.
ENDLESS = """
import sys
from zfstune.experiment.file_study import FileStudy
from zfstune.experiment.study import COMPLETE
kept = FileStudy(sys.argv[1], "zfstune")
while True:
    kept.enqueue({"a": 0.5}, {"source": "x" * 9000})
    taken = kept.take()
    kept.note(taken.number, {"owner": "here"})
    kept.tell(taken.number, COMPLETE, -0.5)
    print(taken.number, flush=True)
"""


def test_a_study_survives_being_killed_at_any_time(tmp_path: Path) -> None:
    """What was told before is there, and the rest is whole or was never there."""
    file = str(tmp_path / "s")
    env = {"PYTHONPATH": ":".join(path for path in sys.path if path)}
    coins = random.Random(5)
    for _ in range(10):
        with subprocess.Popen(
            [sys.executable, "-c", ENDLESS, file], env=env, stdout=subprocess.PIPE, text=True
        ) as child:
            assert child.stdout is not None
            told = [int(child.stdout.readline()) for _ in range(coins.randrange(1, 4))]
            time.sleep(coins.random() / 50)
            child.kill()
        assert file_study.writer(file) == "zfstune"
        kept = FileStudy(file, "zfstune")
        entries = kept.entries()
        kept.close()
        assert [one.number for one in entries] == list(range(len(entries)))
        assert [entries[number].state for number in told] == [COMPLETE] * len(told)
    # those that a kill interrupted; the next child takes the one that waits
    assert sum(one.state != COMPLETE for one in entries) <= 11


def test_the_tables_and_the_mark_come_at_once(tmp_path: Path) -> None:
    """Killed in between, a session would leave a file that is nobody's."""
    seen: list[str] = []
    connect = sqlite3.connect

    def traced(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        database: sqlite3.Connection = connect(*args, **kwargs)
        database.set_trace_callback(seen.append)
        return database

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite3, "connect", traced)
        FileStudy(str(tmp_path / "s"), "zfstune").close()
    begin = next(i for i, one in enumerate(seen) if one.startswith("BEGIN"))
    end = next(i for i, one in enumerate(seen) if one.startswith("COMMIT"))
    words = " ".join(seen[begin:end])
    assert "application_id" in words
    assert words.count("CREATE TABLE") == 3


# --- alpha


@pytest.mark.parametrize("sampler", ["local", "tpe"])
def test_sessions_of_a_study_share_one_alpha(sampler: str, tmp_path: Path) -> None:
    first = searcher(storage=tmp_path / "s", sampler=sampler)
    assert first.alpha() == pytest.approx(0.04)
    # a proof stakes more than its looks take
    first.spend(0.024)
    first.spend(0.0156 - 0.024)
    first.close()
    again = searcher(storage=tmp_path / "s", sampler=sampler, resume=True)
    assert again.alpha() == pytest.approx(0.8 * (0.05 - 0.0156))
    again.spend(1.0)
    assert again.alpha() == 0.0
    again.close()


def test_no_more_than_all_of_alpha_is_left(tmp_path: Path) -> None:
    """Whatever others write into a shared study."""
    search = searcher(storage=tmp_path / "s")
    search.spend(-1.0)
    assert search.alpha() == pytest.approx(0.04)
    search.close()


def test_another_host_has_its_own_alpha(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = searcher(storage=tmp_path / "s")
    first.spend(0.03)
    first.close()
    monkeypatch.setattr("socket.gethostname", lambda: "another")
    other = searcher(storage=tmp_path / "s", resume=True)
    assert other.alpha() == pytest.approx(0.04)
    other.close()


def test_what_waits_is_counted(tmp_path: Path) -> None:
    search = searcher(SHORT, DEPTH, storage=tmp_path / "s")
    assert search.waiting() == 2
    search.ask()
    assert search.waiting() == 1
    search.close()


# --- sessions that are continued


def test_a_resumed_search_repeats_the_best_and_what_was_interrupted(tmp_path: Path) -> None:
    search = searcher(SHORT, DEPTH, storage=tmp_path / "s")
    search.tell(search.ask(), -0.7)
    assert search.ask().values == DEPTH.values
    search.close()
    again = searcher(SHORT, storage=tmp_path / "s", resume=True)
    assert again.best() is None
    for want in (SHORT, DEPTH):
        candidate = again.ask()
        assert candidate.values == want.values
        again.tell(candidate, -0.6)


@pytest.mark.parametrize("sampler", OURS)
def test_a_resumed_search_repeats_no_draw(sampler: str, tmp_path: Path) -> None:
    search = searcher(storage=tmp_path / "s", sampler=sampler)
    before = [search.ask() for _ in range(6)]
    for candidate in before:
        search.tell(candidate, 0.5)
    search.close()
    after = asked(searcher(storage=tmp_path / "s", sampler=sampler, resume=True), 6)
    assert not [one for one in after if one in [candidate.values for candidate in before]]


def test_a_study_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "s"
    require(str(file), "zfstune", {}, sampler=samplers.LOCAL, resume=False)
    assert not file.exists()
    searcher(storage=file, facts={"zfs": "2.3.9"}).close()
    with pytest.raises(UsageError, match="study zfstune already exists"):
        require(str(file), "zfstune", {}, sampler=samplers.LOCAL, resume=False)
    with pytest.raises(CommandError, match=r"its zfs is '2.3.9', here it is '2.4.0'"):
        searcher(storage=file, facts={"zfs": "2.4.0"}, resume=True)


def test_a_study_begun_without_optuna_is_not_continued_by_tpe(tmp_path: Path) -> None:
    searcher(storage=tmp_path / "s").close()
    with pytest.raises(UsageError, match="it was begun without Optuna") as raised:
        by_optuna(str(tmp_path / "s"), samplers.TPE)
    assert raised.value.hint.startswith("use --sampler local")


def test_a_study_that_optuna_wrote_is_continued_by_it(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    search = searcher(SHORT, storage=tmp_path / "s", sampler=samplers.TPE)
    search.tell(search.ask(), -0.7)
    search.close()
    assert file_study.writer(str(tmp_path / "s")) == "optuna"
    again = searcher(storage=tmp_path / "s", resume=True)
    first = again.ask()
    assert first.values == SHORT.values
    again.tell(first, -0.6)
    assert again.ask().source == "local"


def test_without_optuna_its_study_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sqlite3.connect(tmp_path / "s") as database:
        for table in ("studies", "trials", "version_info"):
            database.execute(f"CREATE TABLE {table} (a)")
    monkeypatch.setattr(search, "has_optuna", lambda: False)
    with pytest.raises(NotPossible, match="which Optuna wrote, needs optuna: ") as raised:
        searcher(storage=tmp_path / "s", resume=True)
    assert "\n" not in raised.value.in_one_line()


# --- samplers


@pytest.mark.parametrize("sampler", OURS)
def test_the_same_seed_asks_the_same_candidates(sampler: str) -> None:
    one, other = (asked(searcher(SHORT, sampler=sampler), 14) for _ in range(2))
    assert one == other != asked(searcher(SHORT, sampler=sampler, seed=2), 14)


@pytest.mark.parametrize("sampler", OURS)
def test_nothing_is_asked_twice_and_all_is_legal(sampler: str) -> None:
    values = asked(searcher(SHORT, sampler=sampler), 40)
    assert len({json.dumps(one, sort_keys=True) for one in values}) == 40
    for each in values:
        assert planner.plan(DEFAULTS, each, FACTS)


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_a_local_search_draws_inside_of_the_space(data: st.DataObject) -> None:
    space = Space(DEFAULT, DEFAULTS, FACTS)
    coins = random.Random(data.draw(st.integers(0, 999)))
    points = st.fixed_dictionaries({k.name: st.floats(k.low, k.high) for k in space.knobs})
    told = data.draw(st.lists(st.tuples(points, st.floats(-3, 3)), max_size=9))
    held = {k.name: k.low for k in space.knobs[:2]}
    point = samplers.local(space, coins, told, held)
    assert point.keys() == {knob.name for knob in space.knobs}
    for knob in space.knobs:
        assert knob.low <= point[knob.name] <= knob.high
    assert point.items() >= held.items()


def test_a_local_search_stays_near_the_best() -> None:
    """Nearer to it than random draws, and away from what is bad."""
    space = Space(DEFAULT, DEFAULTS, FACTS)
    best = {knob.name: knob.at(0.5) for knob in space.knobs}
    bad = [({knob.name: knob.high for knob in space.knobs}, 1.0)] * 7

    def distance(point: dict[str, float]) -> float:
        return sum(abs(knob.share(point[knob.name]) - 0.5) for knob in space.knobs)

    def drawn(kind: str) -> list[dict[str, float]]:
        draw = samplers.sampler(kind, space, 3)
        return [draw([(best, -1.0), *bad], {}) or {} for _ in range(100)]

    near, far = (sum(map(distance, drawn(kind))) for kind in (samplers.LOCAL, samplers.RANDOM))
    assert near < 0.75 * far
    assert len({json.dumps(one) for one in drawn(samplers.LOCAL)}) == 100


def test_a_local_search_learns_from_scores() -> None:
    """It comes closer to a known best than random draws, in the mean of searches."""

    def score(values: dict[str, int]) -> float:
        depth = values.get("zfs_vdev_async_write_max_active", 10)
        dirty = values.get("zfs_dirty_data_max", DEFAULTS["zfs_dirty_data_max"])
        return abs(depth - 2) + abs(dirty / MIB - 64) / 32

    def best(sampler: str, seed: int) -> float:
        search = searcher(seed=seed, sampler=sampler)
        for _ in range(40):
            candidate = search.ask()
            search.tell(candidate, score(candidate.values) - 12)
        found = search.best()
        assert found is not None
        return found[1]

    means = {kind: sum(best(kind, seed) for seed in range(12)) / 12 for kind in OURS[:2]}
    assert means["local"] < means["random"]


@given(st.floats(0.5, 1e6), st.floats(1.01, 1e6), st.booleans(), st.floats(0, 1))
def test_a_knob_turns_shares_into_values_and_back(
    low: float, factor: float, log: bool, share: float
) -> None:
    knob = Knob("x", low, low * factor, log)
    assert knob.share(knob.at(share)) == pytest.approx(share, abs=1e-6)


def test_a_small_space_is_exhausted() -> None:
    search = searcher(names=("zfs_txg_timeout",), sampler=samplers.RANDOM)
    with pytest.raises(Exhausted):
        asked(search, 40)
