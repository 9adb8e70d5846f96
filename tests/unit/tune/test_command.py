"""`zfstune tune` before its session: the request, refusals, the plan, and consent."""

from __future__ import annotations

import argparse
import io
import re
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.errors import ONE_ERROR
from support.fake_host import FakeHost
from support.hostile import EVIL, raw
from support.samples import txg_row

from zfstune import cli
from zfstune.errors import CommandError, NotPossible
from zfstune.experiment import search
from zfstune.tune import command, plan, production, request, session

GIB = 1 << 30
VALUES = {
    "zfs_dirty_data_max": 400 << 20,
    "zfs_wrlog_data_max": 800 << 20,
    "zfs_dirty_data_sync_percent": 20,
    "zfs_delay_min_dirty_percent": 60,
    "zfs_delay_scale": 500_000,
    "zfs_vdev_async_write_min_active": 2,
    "zfs_vdev_async_write_max_active": 10,
    "zfs_vdev_async_write_active_min_dirty_percent": 30,
    "zfs_vdev_async_write_active_max_dirty_percent": 60,
    "zfs_txg_timeout": 5,
    "zfs_commit_timeout_pct": 10,
    "zil_slog_bulk": 64 << 20,
}
ARC = {"c_min": GIB // 8, "c_max": 2 * GIB, "memory_all_bytes": 4 * GIB, "size": GIB}


def parsed(*words: str) -> argparse.Namespace:
    return cli.build_parser().parse_args(["tune", *words])


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeHost:
    # not the journal of the machine that runs the tests
    monkeypatch.setenv("ZFSTUNE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("ZFSTUNE_RUN_DIR", str(tmp_path / "run"))
    host = FakeHost()
    host.values = dict(VALUES)
    host.kstats["arcstats"] = ARC
    host.txgs = [txg_row(1)]
    monkeypatch.setattr(command, "open_host", lambda: host)
    monkeypatch.setattr(plan, "scanning", lambda _pool: None)
    monkeypatch.setattr(production, "signs", lambda: [])
    return host


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("tank", "no load given\nhint: add --workload CMD"),
        ("tank --observe --workload x", "not allowed with"),
        ("tank --observe --as root", "--as and --shell need --workload"),
        ("tank --workload x --as nosuchuser", "no user 'nosuchuser'"),
        ("tank --observe --budget 1m", "--budget 1 m 0 s is too short for --block 10s: 20 blocks"),
        ("tank --observe --block 1s", "--block is shorter than 2 s"),
        ("tank --observe --objective fsync.p42", "no metric 'fsync.p42'\nhint: choose from fsync"),
        ("tank --observe --limit all", "'all' is not a limit\nhint: write it like write.through"),
        ("tank --observe --limit write.throughput<=5%", "less is worse\nhint: write write.through"),
        ("tank --observe --resume /no/such/dir", "it has no study.db\nhint: "),
        ("tank/db --observe", "'tank/db' is a dataset"),
        ("--observe", "no pool given: this host has 2\nhint: name one of idle, tank"),
        ("tank --observe --parameters zfs_dirty_data_mx", "change 'zfs_dirty_data_mx'\nhint"),
        ("tank --observe --parameters zil_nocacheflush", "change 'zil_nocacheflush'\nhint: "),
        ("tank --observe --parameters zfs_arc_max", "change 'zfs_arc_max'\nhint: use --arc for it"),
        (
            "tank --observe --arc --parameters zfs_txg_timeout",
            "--parameters and --arc: a session on",
        ),
        ("tank --observe --arc --resume x", "--resume and --arc: a session on the ARC does not"),
        ("tank --observe --arc --study x", "--study and --arc: a session on the ARC does not"),
        ("tank --observe --arc --block 1m", "shorter than 2 m 0 s: the ARC does not settle"),
        ("tank --observe --arc --budget 1h", "too short for --arc: 14 sides of 10 m 0 s (--block)"),
        ("tank --observe --parameters ,", "--parameters: a session cannot change ''\nhint: "),
        ("tank --workload 'x", "No closing quotation\nhint: check the quotes"),
        ("tank --observe --out /etc/passwd", "it is not a directory\nhint: name another"),
        ("tank --observe --block 5m", "too short for --block 300s"),
        ("tank --observe", "not a terminal\nhint: add --yes"),
    ],
)
def test_bad_input_is_one_line_and_changes_nothing(
    words: str,
    said: str,
    host: FakeHost,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert cli.main(["tune", *words.split()]) == 2
    err = capsys.readouterr().err
    assert re.fullmatch(ONE_ERROR, err)
    assert said in err
    assert host.values == VALUES


def test_the_plan_prints_no_name_raw(host: FakeHost, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["tune", "tank", "--dry-run", "--workload", EVIL]) == 0
    out = capsys.readouterr().out
    assert "workload: a?]0;owned" in out
    assert not raw(out)


def test_the_plan_has_objective_parameters_and_undo(
    host: FakeHost, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["tune", "tank", "--observe", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "objective: fsync.p99; limits: write.throughput>=-5%, fsync.mean<=+10%" in out
    for name in VALUES:
        assert name in out or name == "zil_slog_bulk"  # of no use without a log device
    assert "zil_slog_bulk" not in out
    assert "zfstune revert" in out
    assert all(len(line) < 100 for line in out.splitlines())
    assert host.values == VALUES


@pytest.mark.parametrize(
    ("words", "limits", "guards"),
    [
        ("", "write.throughput>=-5% fsync.mean<=+10%", "read.p99<=+20%"),
        (
            "--limit fsync.p50<=+10%",
            "write.throughput>=-5% fsync.mean<=+10% fsync.p50<=+10%",
            "read.p99<=+20%",
        ),
        (
            "--limit fsync.mean<=+50% --limit read.p99<=+5%",
            "write.throughput>=-5% fsync.mean<=+50% read.p99<=+5%",
            "",
        ),
        ("--limit none", "", ""),
        ("--limit none --limit fsync.p50<=+10%", "fsync.p50<=+10%", ""),
        (
            "--arc --limit fsync.mean<=+5%",
            "fsync.mean<=+5%",
            "write.throughput>=-10% read.p99<=+20%",
        ),
        ("--arc --limit none", "", ""),
    ],
)
def test_a_limit_replaces_the_default_for_its_metric_only(
    words: str, limits: str, guards: str
) -> None:
    found = request.parse_request(parsed("tank", "--observe", *words.split()))
    assert " ".join(map(str, found.limits)) == limits
    assert " ".join(map(str, found.guards)) == guards


def test_the_plan_has_only_the_parameters_asked_for(
    host: FakeHost, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["tune", "tank", "--observe", "--dry-run", "--parameters", "zfs_txg_timeout"]
    assert cli.main(words) == 0
    out = capsys.readouterr().out
    assert "zfs_txg_timeout" in out
    assert "zfs_dirty_data_max" not in out


def test_the_plan_of_a_session_on_the_arc(
    host: FakeHost, capsys: pytest.CaptureFixture[str]
) -> None:
    host.values["zfs_arc_max"] = 0  # not set: half of memory is in force
    host.kstats["arcstats"] = ARC | {"c_max": GIB}
    assert cli.main(["tune", "tank", "--observe", "--arc", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "objective: read.mean" in out and "ghost lists" in out
    assert "where the load has what they need, write.throughput>=-10%" in out
    assert re.search(r"zfs_arc_max +1G +1G +2G", out)
    assert "zfs_dirty_data_max" not in out and "optuna" not in out
    assert "in sides of 10 m 0 s" in out
    assert all(len(line) < 100 for line in out.splitlines())


def test_a_session_on_the_arc_needs_its_parameter(host: FakeHost) -> None:
    with pytest.raises(NotPossible, match="has none of the parameters"):
        command.run(parsed("tank", "--observe", "--arc", "--dry-run"))


def test_production_is_left_alone(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(production, "signs", lambda: ["it has been up for 400 days"])
    with pytest.raises(NotPossible, match="looks like production: it has been up for 400 days"):
        command.run(parsed("tank", "--observe", "--yes"))


def test_a_scrub_prevents_a_session(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "scanning", lambda _pool: "scrub")
    with pytest.raises(NotPossible, match="a scrub is running on tank"):
        command.run(parsed("tank", "--observe", "--yes"))


def test_the_plan_says_why_it_would_not_begin(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(production, "signs", lambda: ["it has been up for 400 days"])
    assert cli.main(["tune", "tank", "--observe", "--dry-run"]) == 0
    assert "not now: this host looks like production" in capsys.readouterr().out


def test_without_a_history_of_txgs_no_session_begins(host: FakeHost) -> None:
    host.txgs = []
    with pytest.raises(NotPossible, match="zfs_txg_history is 0"):
        command.run(parsed("tank", "--observe", "--yes"))


class Yes(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_any_answer_but_yes_begins_nothing(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", Yes("n\n"))
    with pytest.raises(CommandError, match="nothing was changed"):
        command.run(parsed("tank", "--observe"))
    assert "zfs_dirty_data_max" in capsys.readouterr().err
    assert host.values == VALUES


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--sampler", "tpe"], "--sampler tpe needs optuna: "),
        (["--storage", "postgresql://u:geheim@h/d"], "--storage with a URL needs optuna: "),
    ],
)
def test_only_what_optuna_does_needs_it(
    words: list[str],
    what: str,
    host: FakeHost,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(search, "has_optuna", lambda: False)
    assert cli.main(["tune", "tank", "--observe", "--dry-run", *words]) == 3
    err = capsys.readouterr().err
    assert re.fullmatch(ONE_ERROR, err)
    assert what in err
    assert "hint: run `pip install optuna`" in err
    assert cli.main(["tune", "tank", "--observe", "--dry-run"]) == 0
    assert "sampler local" in capsys.readouterr().out


def test_a_seed_is_drawn_once_and_known() -> None:
    assert request.parse_request(parsed("tank", "--observe", "--seed", "7")).seed == 7
    drawn = request.parse_request(parsed("tank", "--observe")).seed
    assert 0 <= drawn < 1 << 31


def test_results_go_where_asked_or_resumed(tmp_path: Path) -> None:
    assert request.parse_request(parsed("tank", "--observe")).out == Path("zfstune-tank")
    (tmp_path / "study.db").touch()
    assert (
        request.parse_request(parsed("tank", "--observe", "--resume", str(tmp_path))).out
        == tmp_path
    )


@pytest.fixture
def no_sqlite(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on FreeBSD without the package."""
    monkeypatch.setitem(sys.modules, "_sqlite3", None)


@pytest.mark.usefixtures("no_sqlite")
def test_without_sqlite_the_plan_says_where_the_study_is(
    host: FakeHost, capsys: pytest.CaptureFixture[str]
) -> None:
    assert request.parse_request(parsed("tank", "--observe")).storage is None
    assert cli.main(["tune", "tank", "--observe", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "note: the study is in memory, for this Python has no sqlite3: the session " in out
    assert all(len(line) < 100 for line in out.splitlines())


@pytest.mark.usefixtures("no_sqlite")
@pytest.mark.parametrize(
    "words", ["--resume /no/such/dir", "--storage s", "--storage sqlite:///s", "--study other"]
)
def test_without_sqlite_what_needs_it_is_refused(
    words: str, host: FakeHost, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["tune", "tank", "--observe", *words.split()]) == 3
    err = capsys.readouterr().err
    assert re.fullmatch(ONE_ERROR, err)
    assert f"{words.split()[0]} needs sqlite3: " in err
    assert re.search(r"hint: .*`pkg install py3\d+-sqlite3`", err)


@pytest.mark.usefixtures("no_sqlite")
def test_without_sqlite_a_database_may_keep_the_study() -> None:
    pytest.importorskip("optuna")
    url = "postgresql+psycopg://me@db1/studies"
    words = ("tank", "--observe", "--storage", url, "--study", "other")
    assert request.parse_request(parsed(*words)).storage == url


def test_the_storage_is_tried_before_anything_is_measured(host: FakeHost, tmp_path: Path) -> None:
    args = parsed("tank", "--observe", "--storage", str(tmp_path))
    setup = plan.Setup.of(request.parse_request(args), host, "tank")
    nothing: Any = None
    run = session.TuningRun(args, setup, nothing, nothing, 0, 0)
    with ExitStack() as stack, pytest.raises(NotPossible, match="Is a directory"):
        run._tune(nothing, stack, nothing)


def test_passwords_are_never_recorded(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--storage=postgresql://u:geheim@h/d", "--workload", "env PGPASSWORD=geheim pgbench"]
    monkeypatch.setattr("sys.argv", ["zfstune", "tune", "tank", *words])
    assert session._command() == [
        "zfstune",
        "tune",
        "tank",
        "--storage=postgresql://u:***@h/d",
        "--workload",
        "env PGPASSWORD=*** pgbench",
    ]
    assert cli.main(["tune", "tank", "--dry-run", *words]) == 0
    assert "geheim" not in capsys.readouterr().out
