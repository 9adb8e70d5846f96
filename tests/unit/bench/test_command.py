"""`zfstune bench` through the command line, on a made-up host with made-up programs."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from support import fake_programs
from support.errors import ONE_ERROR
from support.fake_host import FakeHost, FakeSession
from support.samples import counts, scratch_disk

from zfstrace.errors import TraceError
from zfstrace.types import Check, Losses
from zfstune import cli
from zfstune.bench import command, pg_test_fsync
from zfstune.bench import place as bench_place
from zfstune.bench.load import TESTS
from zfstune.errors import UsageError
from zfstune.term.units import MS


class Counting(FakeSession):
    """Between two looks tank/db has fsyncs of 1 ms: 10 in the warm-up, then 100 each."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.looks = 0

    def refresh(self) -> None:
        self.looks += 1
        # twice for each test: before and after
        n = 10 + 100 * (self.looks // 2)
        self.now = [
            counts(objset=68, stages={"issue": [MS // 4] * n, "flush": [3 * MS // 4] * n}),
            counts(objset=70, stages={"flush": [9 * MS] * n}),
        ]


def unwrapped(text: str) -> str:
    """Line breaks depend on the length of the temporary directory's name."""
    return " ".join(text.split())


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeHost:
    """tmp_path/data is on tank/db."""
    data = tmp_path / "data"
    data.mkdir()
    host = FakeHost(Counting())
    host.devices = {}
    number = data.stat().st_dev
    host.devices[os.major(number), os.minor(number)] = "tank/db"
    monkeypatch.setattr("zfstune.bench.command.open_host", lambda: host)
    monkeypatch.setattr("zfstune.changes.recovery.if_needed", lambda _who: None)
    monkeypatch.setattr(pg_test_fsync, "DEBIAN", tmp_path / "none")
    programs = tmp_path / "bin"
    fake_programs.fio(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    return host


@pytest.fixture
def zfstune(host: FakeHost, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """zfstune(*words): status, stdout, stderr, of a bench of tmp_path/data; nothing is left."""

    def run(*words: str, where: str | None = None) -> tuple[int, str, str]:
        place = str(tmp_path / "data") if where is None else where
        given = [*([place] if place else []), "--duration", "100ms", *words]
        status = cli.main(["bench", *given])
        assert list((tmp_path / "data").iterdir()) == []
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return status, out, err

    return run


def test_the_table_has_rates_and_stages(zfstune: Any, host: FakeHost) -> None:
    status, out, err = zfstune("--test", "fdatasync,plain,committers-3")
    assert status == 0, err
    head = out.partition("\n\n")[0].replace("\n", " ")
    lines = out.splitlines()[out.splitlines().index("") - 1 :]
    assert "data (tank/db), ZFS 2.3.9-1: fio 3.39, 0.1 s for each test" in head
    # 0.75 ms of each ms: 1333 for one, three times that for three; fio says 2000
    assert re.match(
        r"8 kB, fdatasync +2,000/s +\S+ us +\S+ us +1,333/s +150 % +flush 75% issue 25%$", lines[3]
    )
    assert re.match(r"8 kB, no sync +7,\d\d\d/s .* - +- ", lines[4])
    assert re.match(
        r"3 x 8 kB, fdatasync +2,000/s .* 4,000/s +50 % +flush 75% issue 25%$", lines[5]
    )
    assert "device limit: " in out
    assert "lost 0" in out
    assert max(map(len, lines)) < 100
    assert isinstance(host.session, Counting)
    assert host.session.closed
    assert "zfstune: 8 kB, fdatasync: 2,000/s\n" in err


def test_json_has_a_line_for_each_test(zfstune: Any) -> None:
    status, out, err = zfstune("--json")
    assert status == 0
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["test"] for row in rows] == [test.name for test in TESTS]
    for row in rows:
        assert (row["schema"], row["type"], row["lost"]) == (1, "bench", 0)
        # of the dataset, and of the test only
        assert (row["fsync"]["dataset"], row["fsync"]["count"]) == ("tank/db", 100)
        assert row["shares"] == {"flush": 0.75, "issue": 0.25}
        assert row["fsync"]["histogram"] == []
    assert rows[0]["share"] == pytest.approx(1.5, abs=0.01)
    assert "lost 0" in err


def test_verbose_shows_all_stages(zfstune: Any) -> None:
    _, out, _ = zfstune("--test", "fsync", "-v")
    assert re.search(r"^ +flush +75\.\d %", out, re.MULTILINE)
    # of the test alone: fio's runtime in the recording
    assert "100 operations in 0.5 s" in out


def test_the_page_has_the_table_and_its_data(zfstune: Any, tmp_path: Path) -> None:
    page = tmp_path / "x.html"
    status, _, err = zfstune("--test", "fsync,plain", "--html", str(page))
    assert status == 0
    assert f"page: {page}" in err
    text = page.read_text()
    assert text.startswith("<!DOCTYPE html>")
    assert "tank/db" in text
    assert text.count("<rect") == 4
    assert 'class="raw-json"' in text
    data = json.loads(text.split('json" id="data">')[1].split("</script>")[0])
    assert [row["test"] for row in data["tests"]] == ["fsync", "plain"]


def test_fio_runs_the_tests_that_pg_test_fsync_lacks(zfstune: Any, tmp_path: Path) -> None:
    fake_programs.pg_test_fsync(tmp_path / "bin")
    status, out, _ = zfstune("--test", "fsync,committers-2")
    assert status == 0
    assert "pg_test_fsync 17.11, 0.1 s" in unwrapped(out)
    assert re.search(r"^8 kB, fsync +6,170/s +1.00 ms +1.00 ms +1,333/s ", out, re.MULTILINE)
    assert "by fio 3.39: committers-2." in out
    assert "p50, p99: by the trace where pg_test_fsync 17.11 reports none." in out


def test_committers_need_fio(zfstune: Any, tmp_path: Path) -> None:
    (tmp_path / "bin/fio").unlink()
    fake_programs.pg_test_fsync(tmp_path / "bin")
    status, out, _ = zfstune("--test", "fsync,committers-2")
    assert status == 1
    assert "committers-2 was skipped: pg_test_fsync has only one writer; install fio" in out


def test_off_zfs_there_are_rates_without_stages(
    zfstune: Any, host: FakeHost, tmp_path: Path
) -> None:
    host.devices = {}
    status, out, _ = zfstune("--test", "fsync")
    assert status == 0
    assert f"no stages: {tmp_path}/data is not on ZFS." in unwrapped(out)
    assert host.options is None


def test_no_trace_attaches_nothing(zfstune: Any, host: FakeHost) -> None:
    status, out, _ = zfstune("--test", "fsync", "--no-trace")
    assert status == 0
    assert "no stages: --no-trace." in out
    assert host.options is None


def test_without_privilege_there_are_rates_without_stages(zfstune: Any, host: FakeHost) -> None:
    host.check_list = [
        Check("privileges", "privilege", "none", "blocking", "no BPF", "run as root")
    ]
    status, out, _ = zfstune("--test", "fsync")
    assert status == 1
    assert "2,000/s" in out
    assert "the stages were not measured: cannot trace: privileges none: no BPF" in out


def test_a_failing_trace_leaves_the_rates(zfstune: Any, host: FakeHost) -> None:
    host.sessions["fsync"] = TraceError("no probe")
    status, out, _ = zfstune("--test", "fsync")
    assert status == 1
    assert "the stages were not measured: no probe" in out


def test_losses_are_printed_and_status_1(zfstune: Any, host: FakeHost) -> None:
    class Losing(Counting):
        def losses(self) -> Losses:
            return Losses(event=self.looks)

    host.session = Losing()
    status, out, _ = zfstune("--test", "fsync")
    assert status == 1
    assert "lost 1 " in out


def test_results_before_a_failure_are_printed(zfstune: Any, tmp_path: Path) -> None:
    """Results are printed before the error."""
    log = tmp_path / "bin/fio.log"
    path = tmp_path / "bin/fio"
    text = path.read_text()
    path.write_text(text.replace("if False:", f"if open({str(log)!r}).read().count('\\n') > 2:"))
    status, out, err = zfstune("--test", "fdatasync,fsync,plain")
    assert status == 1
    assert "8 kB, fdatasync  2,000/s" in out
    assert "not measured: fsync, plain" in out
    assert err.splitlines()[-1] == (
        "zfstune: error: fio ended with status 1: "
        "fio: io_u error on file bench.0.0: No space left on device"
    )


@pytest.mark.parametrize("number", [2, 15])
def test_a_signal_keeps_what_was_measured(
    zfstune: Any, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(
        "zfstune.bench.command.ProgressBar.row", lambda _self, _one: os.kill(os.getpid(), number)
    )
    status, out, err = zfstune("--json")
    assert status == 1
    (line,) = out.splitlines()
    assert json.loads(line)["test"] == "fdatasync"
    assert "not measured: fsync, o_dsync" in err


def test_no_test_begins_after_a_signal(zfstune: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even one whose program ends before anybody looks."""
    monkeypatch.setattr("zfstune.bench.fio.Child.running", lambda one: one.process.wait() is None)
    monkeypatch.setattr(
        "zfstune.bench.command.ProgressBar.row",
        lambda _self, _one: os.kill(os.getpid(), signal.SIGINT),
    )
    status, out, err = zfstune("--json")
    assert status == 1
    assert len(out.splitlines()) == 1
    assert "not measured: fsync, o_dsync" in err


def test_a_signal_during_the_first_test_ends_it(zfstune: Any, tmp_path: Path) -> None:
    fake_programs.fio(tmp_path / "bin", seconds=60)

    def interrupt() -> None:
        while not (tmp_path / "bin/fio.log").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    status, out, _ = zfstune("--test", "fsync,plain")
    assert status == 1
    assert "not measured: fsync, plain" in out


@pytest.mark.parametrize(
    ("words", "status", "hint"),
    [
        ([], 2, "PATH|DATASET is missing"),
        (["tank/bd"], 2, "no dataset 'tank/bd'"),
        (["tank/db@now"], 2, "'tank/db@now' is a snapshot"),
        (["/nowhere/x"], 2, "/nowhere/x does not exist\nhint: name a directory"),
        (["/etc/passwd"], 2, "/etc/passwd is not a directory\nhint: name one"),
        ([""], 2, "is empty\nhint: name a directory"),
        (["/tmp", "--test", "fsnyc"], 2, "--test: no test 'fsnyc'\nhint: choose from fdatasync"),
        (["/tmp", "--test", "committers-0"], 2, "no test 'committers-0'"),
        (["/tmp", "--test", "fsync,,plain"], 2, "has an empty name"),
        (["/tmp", "--jobs", "0"], 2, "1 or more"),
        (["/tmp", "--jobs", "5000"], 2, "1024 at most"),
        (["/tmp", "--size", "1"], 2, "is out of range\nhint: use 64K to 1T"),
        (["/tmp", "--size", "1T"], 3, "are needed\nhint: take a smaller --size"),
        (["/tmp", "--duration", "3"], 2, "has no unit"),
        (["/tmp", "--with", "dd"], 2, "--with"),
        (["/tmp", "--with", "pg_test_fsync"], 3, "server)\nhint: use --with fio"),
        (["--matrix", "reports-2014", "--rows", ","], 2, "has an empty name"),
        (["/tmp", "--disk", "/dev/sdx"], 2, "--disk needs --matrix"),
        (["/tmp", "--yes"], 2, "--yes and --force-erase need"),
        (["/tmp", "--html", "/nowhere/x.html"], 2, "cannot write a file there"),
        (["/tmp", "--html", "/tmp"], 2, "cannot write a file there\nhint: name another"),
        (["/tmp", "--matrix", "reports-2014"], 2, "PATH cannot be used with --matrix"),
        (["--matrix", "reports-2014", "--size", "1M"], 2, "--size cannot be used with --matrix"),
    ],
)
def test_errors_are_one_line(
    host: FakeHost, words: list[str], status: int, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["bench", *words]) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(ONE_ERROR, err)
    assert hint in err


@pytest.mark.parametrize("state", ["SUSPENDED", "FAULTED"])
def test_a_pool_that_cannot_write_is_refused(zfstune: Any, host: FakeHost, state: str) -> None:
    host.state = state
    status, out, err = zfstune()
    assert (status, out) == (3, "")
    assert f"cannot write to pool tank: it is {state}\nhint: see `zpool status tank`" in err


def test_a_disk_that_is_in_use_by_now_is_not_written(
    zfstune: Any, host: FakeHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody may mount it while the question is open."""

    def refuses(_disk: object) -> None:
        raise TraceError("/dev/sdx is now in use: nothing was written")

    monkeypatch.setattr(host, "erase", refuses)
    host.scratches["/dev/sdx"] = scratch_disk("/dev/sdx")
    status, out, err = zfstune("--raw", "/dev/sdx", "--yes")
    assert (status, out) == (3, "")
    assert "error: /dev/sdx is now in use: nothing was written\n" in err
    assert "test data is left" not in err
    assert not (tmp_path / "bin/fio.log").exists()


def test_a_degraded_pool_is_reported(zfstune: Any, host: FakeHost) -> None:
    host.state = "DEGRADED"
    status, _, err = zfstune("--test", "fsync")
    assert status == 0
    assert "pool tank is DEGRADED" in err


def test_a_dataset_may_be_given_by_name(
    zfstune: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = f"tank                            /tank\ntank/db    {tmp_path}/data\n"
    monkeypatch.setattr(
        "zfstrace.processes.output", lambda argv, _s: said if "zfs" in argv else "fio-3"
    )
    status, out, _ = zfstune("--test", "fsync", where="tank/db")
    assert status == 0
    assert f"{tmp_path}/data (tank/db)" in unwrapped(out)
    status, _, err = zfstune(where="tank/home")
    assert status == 2
    assert "tank/home has no directory (a volume, or not mounted)\nhint: name a path" in err


def test_leftovers_of_another_run_are_named(zfstune: Any, host: FakeHost, tmp_path: Path) -> None:
    other = tmp_path / "data" / f"{bench_place.PREFIX}abcd"
    other.mkdir()
    found = bench_place.others(tmp_path / "data")
    assert found == [str(other)]
    other.rmdir()
    host.pools = lambda: ["tank", "zfstune-bench-12ab"]  # type: ignore[method-assign]
    status, _, err = zfstune("--test", "fsync")
    assert status == 0
    assert "pool zfstune-bench-12ab was left by another `zfstune bench`" in err


def test_what_cannot_be_removed_is_named(host: FakeHost, tmp_path: Path) -> None:
    left: list[str] = []
    place = bench_place.Place(tmp_path / "data", "tank", "tank/db")
    with bench_place.directory(host, place, left) as made:
        host.state = "SUSPENDED"
    assert left == [f"{made} is left (pool tank is SUSPENDED); remove it with `rm -r`"]
    assert made.is_dir()


def test_tests_and_committers_are_chosen_by_name() -> None:
    assert command.chosen(None, None) == list(TESTS)
    names = [test.name for test in command.chosen(None, [16])]
    assert names[-2:] == ["committers-16", "plain"]
    assert [one.jobs for one in command.chosen(["fsync", "committers-64"], [4])] == [1, 64, 4]
    with pytest.raises(UsageError):
        command.chosen(["committers-"], None)


def test_help_ends_in_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["bench", "-h"])
    text = capsys.readouterr().out
    assert "examples:" in text
    assert "exit status:" in text
    assert max(map(len, text.splitlines())) < 100
