"""The search: what it asks, what it remembers, whom it refuses."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from unit.tuned_host import DEFAULTS, FACTS, MIB

from zfstune import planner
from zfstune.errors import CommandError, NotPossible, UsageError
from zfstune.model import Candidate
from zfstune.search import Exhausted, Searcher, ablation, require, sharing_facts
from zfstune.space import ARC, DEFAULT, Space
from zfstune.storage import StorageLost

pytest.importorskip("optuna")

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


def searcher(
    *first: Candidate,
    names: tuple[str, ...] = DEFAULT,
    seed: int | None = 1,
    sampler: str = "tpe",
    storage: Path | None = None,
    facts: dict[str, str] | None = None,
    resume: bool = False,
) -> Searcher:
    return Searcher(
        Space(names, DEFAULTS, FACTS),
        DEFAULTS,
        FACTS,
        first=first,
        seed=seed,
        sampler=sampler,
        storage=str(storage) if storage else None,
        facts=facts,
        resume=resume,
    )


def asked(search: Searcher, count: int) -> list[dict[str, int]]:
    out = []
    for i in range(count):
        candidate = search.ask()
        out.append(candidate.values)
        search.tell(candidate, float(i % 5))
    return out


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


def test_a_reason_names_the_range() -> None:
    search = searcher(names=("zfs_txg_timeout",), sampler="random")
    assert search.ask().reasons == {"zfs_txg_timeout": "drawn by random from 1s to 30s (now 5s)"}


@pytest.mark.parametrize("sampler", ["tpe", "random", "grid"])
def test_a_seed_repeats(sampler: str) -> None:
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


def test_best_and_told() -> None:
    search = searcher(BOTH, DEPTH)
    assert search.best() is None
    search.tell(search.ask(), -0.1)
    search.tell(search.ask(), -0.9)
    best = search.best()
    assert best is not None
    assert (best[0].values, best[1]) == (DEPTH.values, -0.9)
    assert [score for _, score in search.told()] == [-0.9, -0.1]


def test_pruned_and_failed_have_no_score() -> None:
    search = searcher(BOTH, DEPTH)
    search.prune(search.ask(), "write.throughput fell by 20 %")
    search.fail(search.ask(), "the workload ended")
    assert search.told() == []
    values = asked(search, 10)
    assert BOTH.values not in values


def test_a_sampler_learns() -> None:
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


def test_optuna_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asked(searcher(BOTH), 8)
    assert capfd.readouterr() == ("", "")


def test_importing_is_cheap() -> None:
    code = "import sys; import zfstune.search; print('optuna' in sys.modules)"
    env = {"PYTHONPATH": ":".join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True)
    assert done.stdout == b"False\n"


def test_resumed(tmp_path: Path) -> None:
    file = tmp_path / "study.db"
    search = searcher(BOTH, DEPTH, storage=file)
    search.tell(search.ask(), -0.7)
    begun = search.ask()
    search.close()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    again = searcher(BOTH, storage=file, resume=True)
    best = again.best()
    assert best is not None
    assert (best[0].values, best[0].reasons, best[1]) == (BOTH.values, BOTH.reasons, -0.7)
    # what was running when the first ended is tried before anything new
    assert again.ask().values == begun.values == DEPTH.values
    again.close()


def test_a_resumed_search_draws_on(tmp_path: Path) -> None:
    search = searcher(storage=tmp_path / "a", sampler="random")
    before = asked(search, 5)
    search.close()
    after = asked(searcher(storage=tmp_path / "a", sampler="random", resume=True), 5)
    assert not [values for values in after if values in before]


def test_a_study_is_not_overwritten(tmp_path: Path) -> None:
    searcher(storage=tmp_path / "study.db").close()
    with pytest.raises(UsageError, match=r"already: give --resume"):
        searcher(storage=tmp_path / "study.db")


def test_other_facts_are_refused(tmp_path: Path) -> None:
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
def test_facts_forgive_a_little_of_a_size(baseline: str, same: bool, tmp_path: Path) -> None:
    facts = {"baseline": "zfs_dirty_data_max=411026227 zfs_txg_timeout=5"}
    file = tmp_path / "study.db"
    searcher(storage=file, facts=facts).close()
    if same:
        require(str(file), "zfstune", {"baseline": baseline}, resume=True)
    else:
        with pytest.raises(CommandError, match="give another --study"):
            require(str(file), "zfstune", {"baseline": baseline}, resume=True)


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
    assert (best[0].values, best[1]) == (DEPTH.values, -0.9)


def test_a_host_of_the_same_name_takes_a_trial_over(tmp_path: Path) -> None:
    one = searcher(BOTH, DEPTH, storage=tmp_path / "study.db")
    begun, also = one.ask(), one.ask()
    other = searcher(storage=tmp_path / "study.db", resume=True)
    assert other.ask().values == begun.values
    one.tell(begun, -0.5)
    one.fail(also, "the workload ended")
    assert one.told() == []


def test_a_storage_that_is_lost(tmp_path: Path) -> None:
    search = searcher(BOTH, storage=tmp_path / "study.db")
    candidate = search.ask()
    with sqlite3.connect(tmp_path / "study.db") as database:
        database.execute("DROP TABLE trials")
    for call in (
        lambda: search.tell(candidate, -0.5),
        lambda: search.fail(candidate, "x"),
        lambda: search.prune(candidate, "x"),
        search.ask,
        search.best,
    ):
        with pytest.raises(StorageLost, match=r"trials.*, all is put back") as raised:
            call()
        assert "\n" not in str(raised.value)


def test_the_first_look_makes_no_study(tmp_path: Path) -> None:
    file = tmp_path / "study.db"
    require(str(file), "zfstune", {}, resume=False)
    searcher(storage=file).close()
    require(str(file), "zfstune", {}, resume=True)
    require(str(file), "another", {}, resume=False)
    with pytest.raises(UsageError, match="already: give --resume"):
        require(str(file), "zfstune", {}, resume=False)


def test_facts_forgive_a_little_memory() -> None:
    def memory(size: int) -> str:
        facts = sharing_facts(
            version="", memory_bytes=size, layout="", workload="", objective="", baseline={}
        )
        return facts["memory"]

    assert memory(4005 * MIB) == memory(4096 * MIB)
    assert memory(4096 * MIB) != memory(8192 * MIB)


@pytest.mark.parametrize("storage", ["/nonexistent/study.db", "/", "nosuchdb://here/x"])
def test_a_storage_that_cannot_be_used(storage: str) -> None:
    with pytest.raises(NotPossible, match="cannot be") as raised:
        Searcher(Space(DEFAULT, DEFAULTS, FACTS), DEFAULTS, FACTS, storage=storage)
    assert "\n" not in str(raised.value)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotPossible):
        searcher(storage=tmp_path / "link")
    assert not (tmp_path / "elsewhere").exists()


def test_samplers() -> None:
    with pytest.raises(UsageError, match="give one of tpe, random, grid"):
        searcher(sampler="magic")


def test_the_arc_is_an_outer_loop() -> None:
    search = searcher(names=DEFAULT + ARC, sampler="random")
    sizes = []
    for _ in range(18):
        candidate = search.ask()
        sizes.append(candidate.values.get("zfs_arc_max"))
        search.tell(candidate, 0.0)
    runs = [size for i, size in enumerate(sizes) if i == 0 or size != sizes[i - 1]]
    assert len(runs) == 3


def test_the_arc_on_a_grid_is_an_outer_loop() -> None:
    search = searcher(names=("zfs_txg_timeout", *ARC), sampler="grid")
    sizes = []
    for _ in range(12):
        candidate = search.ask()
        sizes.append((candidate.values.get("zfs_arc_max"), candidate.values.get("zfs_arc_min")))
        search.tell(candidate, 0.0)
    runs = [size for i, size in enumerate(sizes) if i == 0 or size != sizes[i - 1]]
    assert len(runs) <= 4


def test_ablation() -> None:
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


def test_ablation_of_coupled_percents() -> None:
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


def test_ablation_leaves_something() -> None:
    assert ablation(Candidate({"zfs_txg_timeout": 2}, "tpe", {}), DEFAULTS, FACTS) == []
