"""The search: what it asks for, what it remembers, and what it refuses."""

from __future__ import annotations

import functools
import math
import socket
import sqlite3
import stat
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from support import searching
from support.sample_host import DEFAULTS, FACTS, MIB
from support.searching import DEFAULT, asked

from zfstune.errors import CommandError, NotPossible, UsageError
from zfstune.experiment.model import Candidate
from zfstune.experiment.samplers import TPE
from zfstune.experiment.search import Exhausted, Searcher, ablation, require
from zfstune.experiment.sharing import sharing_facts, workload_name
from zfstune.experiment.space import Space
from zfstune.experiment.storage import StorageLost
from zfstune.tunables import planner

pytest.importorskip("optuna")

searcher = functools.partial(searching.searcher, sampler=TPE)
BOTH = Candidate(
    {
        "zfs_dirty_data_max": 32 * MIB,
        "zfs_wrlog_data_max": 64 * MIB,
        "zfs_vdev_async_write_min_active": 1,
        "zfs_vdev_async_write_max_active": 1,
    },
    "model",
    {"zfs_dirty_data_max": "the pool writes 28 MiB/s"},
)
DEPTH = Candidate({"zfs_vdev_async_write_max_active": 4}, "model", {})


def test_the_models_candidates_come_first() -> None:
    search = searcher(BOTH, DEPTH)
    for want in (BOTH, DEPTH):
        got = search.ask()
        assert (got.values, got.source, got.reasons) == (want.values, "model", want.reasons)
        search.tell(got, -0.5)
    drawn = search.ask()
    assert drawn.source == "tpe"
    assert drawn.values.keys() == drawn.reasons.keys()
    assert all(value != DEFAULTS[name] for name, value in drawn.values.items())


def test_the_reason_of_a_drawn_value_names_its_range() -> None:
    search = searcher(names=("zfs_txg_timeout",), sampler="random")
    assert search.ask().reasons == {"zfs_txg_timeout": "drawn by random from 1s to 30s (now 5s)"}


@pytest.mark.parametrize("sampler", ["tpe", "random", "grid"])
def test_the_same_seed_asks_the_same_candidates(sampler: str) -> None:
    one, other = searcher(BOTH, sampler=sampler), searcher(BOTH, sampler=sampler)
    assert asked(one, 12) == asked(other, 12)
    assert asked(searcher(BOTH, sampler=sampler, seed=2), 12) != asked(one, 12)


@pytest.mark.parametrize("sampler", ["tpe", "random", "grid"])
def test_nothing_is_asked_twice_and_all_is_legal(sampler: str) -> None:
    values = asked(searcher(BOTH, sampler=sampler), 40)
    assert len({tuple(sorted(v.items())) for v in values}) == 40
    for each in values:
        assert planner.plan(DEFAULTS, each, FACTS)


def test_a_small_space_is_exhausted() -> None:
    search = searcher(names=("zfs_txg_timeout",), sampler="grid")
    with pytest.raises(Exhausted):
        asked(search, 40)
    assert {v["zfs_txg_timeout"] for v, _ in [(c.values, s) for c, s in search.told()]} == {
        1,
        2,
        13,
        30,
    }


def test_the_best_candidate_has_the_lowest_score() -> None:
    search = searcher(BOTH, DEPTH)
    assert search.best() is None
    search.tell(search.ask(), -0.1)
    search.tell(search.ask(), -0.9)
    best = search.best()
    assert best is not None
    assert (best[0].values, best[1]) == (DEPTH.values, -0.9)
    assert [score for _, score in search.told()] == [-0.9, -0.1]


def test_pruned_and_failed_candidates_have_no_score() -> None:
    search = searcher(BOTH, DEPTH)
    search.prune(search.ask(), "write.throughput fell by 20 %")
    search.fail(search.ask(), "the workload ended")
    assert search.told() == []
    values = asked(search, 10)
    assert BOTH.values not in values


def test_a_sampler_learns_from_scores() -> None:
    def score(values: dict[str, int]) -> float:
        return float(values.get("zfs_vdev_async_write_max_active", 10))

    search = searcher(seed=4)
    late: list[float] = []
    for i in range(40):
        candidate = search.ask()
        search.tell(candidate, score(candidate.values))
        if i >= 25:
            late.append(score(candidate.values))
    assert sorted(late)[len(late) // 2] <= 4


def test_optuna_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asked(searcher(BOTH), 8)
    assert capfd.readouterr() == ("", "")


def test_importing_the_search_does_not_import_optuna() -> None:
    code = "import sys; import zfstune.experiment.search; print('optuna' in sys.modules)"
    env = {"PYTHONPATH": ":".join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True)
    assert done.stdout == b"False\n"


def test_a_resumed_search_remembers_candidates_and_scores(tmp_path: Path) -> None:
    file = tmp_path / "study.db"
    search = searcher(BOTH, DEPTH, storage=file)
    search.tell(search.ask(), -0.7)
    begun = search.ask()
    search.close()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    again = searcher(BOTH, storage=file, resume=True)
    # what looked best is measured again: a score alone may be anybody's
    assert again.best() is None
    first = again.ask()
    assert (first.values, first.reasons) == (BOTH.values, BOTH.reasons)
    again.tell(first, -0.6)
    best = again.best()
    assert best is not None
    assert (best[0].values, best[1]) == (BOTH.values, -0.6)
    # a candidate left running by the first is tried before any new one
    assert again.ask().values == begun.values == DEPTH.values
    again.close()


def test_a_resumed_search_repeats_the_best_and_no_other_draw(tmp_path: Path) -> None:
    search = searcher(storage=tmp_path / "a", sampler="random")
    before = asked(search, 5)
    search.close()
    after = asked(searcher(storage=tmp_path / "a", sampler="random", resume=True), 5)
    assert [values for values in after if values in before] == after[:1] == before[:1]


def test_a_trial_that_changed_nothing_is_not_repeated() -> None:
    search = searcher(names=("zfs_txg_timeout",), sampler="random")
    seen: set[int] = set()
    for _ in range(15):
        candidate = search.ask()
        search.tell(candidate, 0.0)
        assert not seen & set(candidate.values.values())
        seen |= set(candidate.values.values())


def test_a_study_is_not_overwritten(tmp_path: Path) -> None:
    searcher(storage=tmp_path / "study.db").close()
    with pytest.raises(UsageError, match="study zfstune already exists") as raised:
        searcher(storage=tmp_path / "study.db")
    assert raised.value.hint.startswith("continue it with --resume")


def test_a_study_with_other_facts_is_refused(tmp_path: Path) -> None:
    facts = sharing_facts(
        version="2.3.9-0+deb13u1",
        memory_bytes=4 << 30,
        layout="vdb",
        workload="fio",
        objective="fsync.p99",
        baseline={"zfs_txg_timeout": 5},
    )
    searcher(storage=tmp_path / "study.db", facts=facts).close()
    searcher(storage=tmp_path / "study.db", facts=facts, resume=True).close()
    with pytest.raises(CommandError, match=r"zfs is '2.3.9', here it is '2.4.4'"):
        searcher(storage=tmp_path / "study.db", facts={**facts, "zfs": "2.4.4"}, resume=True)


@pytest.mark.parametrize(
    ("baseline", "same"),
    [
        ("zfs_dirty_data_max=411024998 zfs_txg_timeout=5", True),  # after another boot
        ("zfs_dirty_data_max=420000000 zfs_txg_timeout=5", False),
        ("zfs_dirty_data_max=411026227 zfs_txg_timeout=6", False),
        ("zfs_dirty_data_max=411026227", False),
        ("", False),
    ],
)
def test_facts_tolerate_small_differences_of_a_size(
    baseline: str, same: bool, tmp_path: Path
) -> None:
    facts = {"baseline": "zfs_dirty_data_max=411026227 zfs_txg_timeout=5"}
    file = tmp_path / "study.db"
    searcher(storage=file, facts=facts).close()
    if same:
        require(str(file), "zfstune", {"baseline": baseline}, sampler=TPE, resume=True)
    else:
        with pytest.raises(CommandError, match="its baseline is") as raised:
            require(str(file), "zfstune", {"baseline": baseline}, sampler=TPE, resume=True)
        assert raised.value.hint == "use another --study"


def test_two_hosts_share_a_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = searcher(BOTH, DEPTH, storage=tmp_path / "study.db")
    monkeypatch.setattr("socket.gethostname", lambda: "other")
    other = searcher(BOTH, DEPTH, storage=tmp_path / "study.db", resume=True)
    first, second = one.ask(), other.ask()
    assert (first.values, second.values) == (BOTH.values, DEPTH.values)
    one.tell(first, -0.3)
    other.tell(second, -0.9)
    best = one.best()
    assert best is not None
    assert (best[0].values, best[1]) == (BOTH.values, -0.3)
    # what is better elsewhere is measured here, too
    assert one.ask().values == DEPTH.values


def test_a_host_of_the_same_name_takes_a_trial_over(tmp_path: Path) -> None:
    one = searcher(BOTH, DEPTH, storage=tmp_path / "study.db")
    begun, also = one.ask(), one.ask()
    other = searcher(storage=tmp_path / "study.db", resume=True)
    assert other.ask().values == begun.values
    one.tell(begun, -0.5)
    one.fail(also, "the workload ended")
    assert [score for _, score in one.told()] == [-0.5]


def test_a_lost_storage_ends_the_session(tmp_path: Path) -> None:
    search = searcher(BOTH, storage=tmp_path / "study.db")
    candidate = search.ask()
    with sqlite3.connect(tmp_path / "study.db") as database:
        database.execute("DROP TABLE trials")
    for call in (
        lambda: search.tell(candidate, -0.5),
        lambda: search.fail(candidate, "x"),
        lambda: search.prune(candidate, "x"),
        search.ask,
    ):
        with pytest.raises(StorageLost, match=r"trials.*; all parameters are restored") as raised:
            call()
        assert "\n" not in str(raised.value)


def test_the_first_look_makes_no_study(tmp_path: Path) -> None:
    file = tmp_path / "study.db"
    require(str(file), "zfstune", {}, sampler=TPE, resume=False)
    searcher(storage=file).close()
    require(str(file), "zfstune", {}, sampler=TPE, resume=True)
    require(str(file), "another", {}, sampler=TPE, resume=False)
    with pytest.raises(UsageError, match="already exists"):
        require(str(file), "zfstune", {}, sampler=TPE, resume=False)


def test_facts_tolerate_small_differences_of_memory() -> None:
    def memory(size: int) -> str:
        facts = sharing_facts(
            version="", memory_bytes=size, layout="", workload="", objective="", baseline={}
        )
        return facts["memory"]

    assert memory(4005 * MIB) == memory(4096 * MIB)
    assert memory(4096 * MIB) != memory(8192 * MIB)


@pytest.mark.parametrize("storage", ["/nonexistent/study.db", "/", "nosuchdb://here/x"])
def test_an_unusable_storage_is_refused(storage: str) -> None:
    with pytest.raises(NotPossible, match=r"cannot (use|open)") as raised:
        Searcher(Space(DEFAULT, DEFAULTS, FACTS), DEFAULTS, FACTS, storage=storage)
    assert "\n" not in str(raised.value)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotPossible):
        searcher(storage=tmp_path / "link")
    assert not (tmp_path / "elsewhere").exists()


def test_an_unknown_sampler_is_refused() -> None:
    with pytest.raises(UsageError, match="no sampler 'magic'") as raised:
        searcher(sampler="magic")
    assert raised.value.hint == "choose from local, tpe, random, grid"


def test_ablation_removes_each_change_in_turn() -> None:
    values = {**BOTH.values, "zfs_txg_timeout": 2, "zfs_vdev_async_write_min_active": 1}
    left = ablation(Candidate(values, "tpe", BOTH.reasons), DEFAULTS, FACTS)
    gone = [names for names, _ in left]
    assert gone == [
        ("zfs_dirty_data_max", "zfs_wrlog_data_max"),
        # the minimum of 2 that was there would be above the maximum of 1
        ("zfs_vdev_async_write_min_active", "zfs_vdev_async_write_max_active"),
        ("zfs_vdev_async_write_max_active",),
        ("zfs_txg_timeout",),
    ]
    for names, candidate in left:
        assert candidate.source == "ablation"
        assert set(candidate.values) == set(values) - set(names)
        assert planner.plan(DEFAULTS, candidate.values, FACTS)


def test_ablation_removes_coupled_percents_together() -> None:
    values = {
        "zfs_dirty_data_sync_percent": 40,
        "zfs_vdev_async_write_active_min_dirty_percent": 50,
        "zfs_txg_timeout": 2,
    }
    gone = [names for names, _ in ablation(Candidate(values, "tpe", {}), DEFAULTS, FACTS)]
    assert gone == [
        ("zfs_dirty_data_sync_percent",),
        ("zfs_dirty_data_sync_percent", "zfs_vdev_async_write_active_min_dirty_percent"),
        ("zfs_txg_timeout",),
    ]


def test_ablation_never_removes_the_only_change() -> None:
    assert ablation(Candidate({"zfs_txg_timeout": 2}, "tpe", {}), DEFAULTS, FACTS) == []


def test_a_study_does_not_store_the_command_of_the_load() -> None:
    said = {workload_name(f"mysqlslap -p{word} x") for word in ("geheim", "secret")}
    assert len(said) == 2
    for one in said:
        assert one.startswith("mysqlslap (")
        assert "geheim" not in one
        assert len(one) < 20
    assert workload_name("mysqlslap -pgeheim x") in said
    assert workload_name(None) == "observed"
    assert "geheim" not in workload_name("PGPASSWORD=geheim pgbench \udcff")


# --- a study that others can write into

EVIL = "x\x1b]0;owned\x07\nzfstune: all is well"
HOSTILE: list[dict[str, Any]] = [
    {"values": {"zil_maxblocksize": 4096}},
    {"values": {"zfs_txg_timeout": 3, "zio_slow_io_ms": 1}},
    {"values": {"no_such_parameter": 1}},
    {"values": {"zfs_txg_timeout": 31}},
    {"values": {"zfs_txg_timeout": 0}},
    {"values": {"zfs_txg_timeout": -5}},
    {"values": {"zfs_txg_timeout": True}},
    {"values": {"zfs_txg_timeout": 3.0}},
    {"values": {"zfs_txg_timeout": "3"}},
    {"values": {"zfs_txg_timeout": None}},
    {"values": {"zfs_txg_timeout": [3]}},
    {"values": {"zfs_txg_timeout": float("nan")}},
    {"values": {"zfs_txg_timeout": float("inf")}},
    {"values": {"zfs_txg_timeout": 10**400}},
    {"values": {EVIL: 3}},
    {"values": [["zfs_txg_timeout", 3]]},
    {"values": "zfs_txg_timeout=3"},
    {"values": None},
]
POINTS: list[object] = [float("nan"), -1, 0, 31, 1e300, "x", None, [1]]
ONE = ("zfs_txg_timeout",)


def study_of(file: Path) -> Any:
    import optuna

    return optuna.load_study(study_name="zfstune", storage=f"sqlite:///{file}")


def asked_at_all(search: Searcher) -> list[Candidate]:
    found = []
    with pytest.raises(Exhausted):
        while True:
            found.append(search.ask())
            search.tell(found[-1], 0.5)
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("sampler", ["tpe", "grid"])
def test_only_parameters_of_the_session_are_asked(sampler: str, tmp_path: Path) -> None:
    said: list[str] = []
    where = f"sqlite:///{tmp_path / 's'}"
    search = searcher(names=ONE, sampler=sampler, storage=where, said=said)
    study = study_of(tmp_path / "s")
    for attributes in HOSTILE:
        study.enqueue_trial({}, user_attrs={**attributes, "source": EVIL, "reasons": {EVIL: EVIL}})
    for value in POINTS:
        study.enqueue_trial({"zfs_txg_timeout": value})
    good = {"values": {"zfs_txg_timeout": 7}, "source": EVIL, "reasons": {"zfs_txg_timeout": EVIL}}
    for odd in (good, {"values": {"zfs_txg_timeout": 8}, "source": 5, "reasons": [1]}):
        study.enqueue_trial({}, user_attrs=odd)
    found = asked_at_all(search)
    assert [one.values for one in found[:2]] == [{"zfs_txg_timeout": 7}, {"zfs_txg_timeout": 8}]
    for one in found:
        assert one.values.keys() == {"zfs_txg_timeout"}
        assert type(one.values["zfs_txg_timeout"]) is int
        assert 1 <= one.values["zfs_txg_timeout"] <= 30
        assert (one.source + "".join(one.reasons.values())).isprintable()
    assert search.dropped >= len(HOSTILE)
    assert said[0].startswith("dropped from the study, 1 so far: ")
    assert len(said) < 10


@pytest.mark.filterwarnings("ignore")
def test_values_that_are_not_whole_numbers_are_not_taken(tmp_path: Path) -> None:
    """4.0 is 4, and True is 1, until they are written into the kernel."""
    search = searcher(DEPTH, storage=tmp_path / "s")
    name = "zfs_vdev_async_write_max_active"
    study_of(tmp_path / "s").enqueue_trial({}, user_attrs={"values": {name: 4.0}})
    for _ in range(4):
        candidate = search.ask()
        assert {type(value) for value in candidate.values.values()} <= {int}
        search.fail(candidate, "")


@pytest.mark.filterwarnings("ignore")
def test_a_study_that_optuna_cannot_read_ends_the_session(tmp_path: Path) -> None:
    """It stores the point before checking it, and then fails on it each time."""
    search = searcher(names=ONE, storage=tmp_path / "s")
    study_of(tmp_path / "s").enqueue_trial({"zfs_txg_timeout": float("inf")})
    with pytest.raises(StorageLost, match=r"that no session writes: ") as raised:
        asked_at_all(search)
    assert raised.value.hint == "use another --study"


@pytest.mark.filterwarnings("ignore")
def test_candidates_left_running_are_checked_too(tmp_path: Path) -> None:
    where = f"sqlite:///{tmp_path / 's'}"
    searcher(names=ONE, sampler="grid", storage=where).close()
    study = study_of(tmp_path / "s")
    for attributes in HOSTILE:
        trial = study.ask()
        trial.set_user_attr("owner", socket.gethostname())
        for key, value in attributes.items():
            trial.set_user_attr(key, value)
    search = searcher(names=ONE, sampler="grid", storage=where, resume=True)
    # none is queued again
    assert len(study_of(tmp_path / "s").trials) == len(HOSTILE)
    assert all(set(one.values) == set(ONE) for one in asked_at_all(search))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("score", [-99.0, -1e308, float("-inf")])
def test_a_score_that_was_not_measured_here_is_not_the_best(score: float, tmp_path: Path) -> None:
    import optuna

    searcher(names=ONE, storage=tmp_path / "s").close()
    study = study_of(tmp_path / "s")
    for attributes in [*HOSTILE, {"values": {"zfs_txg_timeout": 2}, "source": EVIL}]:
        study.add_trial(optuna.create_trial(value=score, user_attrs=attributes))
    search = searcher(names=ONE, storage=tmp_path / "s", resume=True)
    assert search.best() is None
    if math.isfinite(score):
        # it is a reason to measure it
        candidate = search.ask()
        assert candidate.values == {"zfs_txg_timeout": 2}
        assert candidate.source.isprintable()
        search.tell(candidate, 0.3)
    else:
        search.tell(search.ask(), 0.3)
    best = search.best()
    assert best is not None
    assert best[1] == 0.3
    # and only once
    assert candidate.values != search.ask().values if math.isfinite(score) else search.ask()


@pytest.mark.filterwarnings("ignore")
def test_candidates_of_others_alternate_with_drawn_ones(tmp_path: Path) -> None:
    import optuna

    searcher(storage=tmp_path / "s").close()
    study = study_of(tmp_path / "s")
    for value in range(6, 30):
        attributes = {"values": {"zfs_txg_timeout": value}, "source": "model", "reasons": {}}
        study.add_trial(optuna.create_trial(value=-99.0, user_attrs=attributes))
    search = searcher(BOTH, storage=tmp_path / "s", resume=True, sampler="random")
    sources = []
    for _ in range(8):
        candidate = search.ask()
        sources.append(candidate.source)
        search.tell(candidate, 0.5)
    assert sources == ["model", "random"] * 4


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "facts", ["x", 5, ["zfs"], {"baseline": EVIL}, {"baseline": 5}, {EVIL: EVIL}]
)
def test_foreign_facts_are_refused(facts: object, tmp_path: Path) -> None:
    import optuna

    url = f"sqlite:///{tmp_path / 's'}"
    optuna.create_study(study_name="zfstune", storage=url).set_user_attr("facts", facts)
    for _ in range(2):
        with pytest.raises(CommandError, match="study zfstune") as raised:
            searcher(storage=tmp_path / "s", facts={"baseline": "a=1"}, resume=True)
        assert str(raised.value).isprintable()
        assert raised.value.hint == "use another --study"


@pytest.mark.parametrize("where", ["trials", "trial_values"])
def test_a_corrupt_storage_is_an_error_of_one_line(where: str, tmp_path: Path) -> None:
    search = searcher(BOTH, storage=tmp_path / "s")
    candidate = search.ask()
    search.tell(candidate, -0.5)
    with sqlite3.connect(tmp_path / "s") as database:
        change = {"trials": "state='NOSUCH'", "trial_values": "value='abc'"}[where]
        database.execute(f"UPDATE {where} SET {change}")
    other = searcher(storage=tmp_path / "t")
    other.close()
    with pytest.raises((StorageLost, NotPossible), match=r"stor") as raised:
        searcher(storage=tmp_path / "s", resume=True).ask()
    assert "\n" not in str(raised.value)
