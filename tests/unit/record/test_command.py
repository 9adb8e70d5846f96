"""`zfstune record` through the command line."""

from __future__ import annotations

import gzip
import json
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import incidents
from support.driven import Driven, all_of, incident
from support.errors import ONE_ERROR, REFUSED
from support.fake_host import FakeHost, FakeSession, FakeStop
from support.recording import light_row
from support.samples import arc

from zfstrace.types import Check
from zfstune import cli
from zfstune.incident.reader import Reader
from zfstune.record import control
from zfstune.record.dumps import SAVED


@pytest.fixture
def driven(tmp_path: Path) -> Iterator[Driven]:
    """A recorder that runs, with names that a stranger should not see."""
    found = Driven(tmp_path / "run", "fsync.p99>200ms for 30s")
    found.rows = lambda: {
        "light": [light_row("salaries"), light_row("salaries", dataset="salaries/bob")]
    }
    found.start()
    found.seconds(100)
    yield found
    found.recorder.close()


@pytest.fixture
def zfstune(driven: Driven, capsys: pytest.CaptureFixture[str]) -> Any:
    """zfstune(words): status, stdout, stderr, while the recorder runs."""

    def run(*words: str) -> tuple[int, str, str]:
        status: list[int] = []
        directory = str(driven.recorder.dumps.path)
        given = ["record", *words, "--dump-dir", directory]
        thread = threading.Thread(target=lambda: status.append(cli.main(given)))
        thread.start()
        while thread.is_alive():
            driven.tick()
            thread.join(0.001)
        out, err = capsys.readouterr()
        return status[0], out, err

    return run


def record(*words: str) -> int:
    return cli.main(["record", *words])


def test_a_dump_goes_into_the_directory(zfstune: Any, driven: Driven) -> None:
    status, out, err = zfstune("dump")
    assert (status, out) == (0, "")
    (name,) = driven.files
    assert re.fullmatch(rf"zfstune: {driven.recorder.dumps.path}/{name}: [0-9]+ records\n", err)
    assert len(driven.read().intervals) == 10


def test_a_dump_goes_into_a_file_of_its_user(zfstune: Any, driven: Driven, tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl.gz"
    status, _, err = zfstune("dump", "-o", str(file), "--last", "30s")
    assert (status, driven.files) == (0, [])
    assert err.startswith(f"zfstune: {file}: ")
    assert file.stat().st_mode & 0o777 == 0o600
    assert 4 <= len(incident(file).intervals) < 10


def test_without_names_none_is_left(zfstune: Any, tmp_path: Path) -> None:
    file, again = tmp_path / "x.jsonl.gz", tmp_path / "y.jsonl.gz"
    assert zfstune("dump", "--anonymise", "-o", str(file))[0] == 0
    text = gzip.decompress(file.read_bytes()).decode()
    assert "salaries" not in text
    assert "bob" not in text
    found = incident(file)
    pools = {row["pool"] for row in all_of(found, "light_summary")}
    assert len(pools) == 1
    assert record("anonymise", str(file), "-o", str(again)) == 0
    assert len(incident(again).intervals) == len(found.intervals)


def test_to_leave_names_out_takes_no_other_file(
    zfstune: Any, driven: Driven, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory for temporary files may be on a pool that hangs."""
    directory, file = driven.recorder.dumps.path, tmp_path / "x.jsonl.gz"
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "hangs"))
    before = set(directory.iterdir())
    assert zfstune("dump", "--anonymise", "-o", str(file))[0] == 0
    assert incident(file).intervals
    assert set(directory.iterdir()) == before


def test_a_name_that_only_records_have_as_one_is_replaced_in_the_header(tmp_path: Path) -> None:
    """The pool of the trigger was exported before the file was written."""
    rows = [one for one in incidents.records([3]) if one.get("pool", "tank") == "tank"]
    header = {"reason": "trigger txg.sync>10s: 12 s on tank", "pools": {}}
    source = incidents.write(tmp_path / "x", rows, header)
    assert record("anonymise", str(source), "-o", str(tmp_path / "y")) == 0
    assert "tank" not in gzip.decompress((tmp_path / "y").read_bytes()).decode()
    assert len(incident(tmp_path / "y").intervals) == 1


def test_what_cannot_be_asked_is_one_line(zfstune: Any, tmp_path: Path) -> None:
    for words, status, what in (
        (["dump", "--anonymise"], 2, "--anonymise needs a file to write"),
        (["dump", "--at", "25:00"], 2, "--at: 25:00 is no time of day"),
        (["dump", "--at", "03:05"], 2, "the recorder: --at: 03:05 is not in the record"),
        (["dump", "-o", str(tmp_path)], 2, "is not a regular file"),
        (["dump", "-o", str(tmp_path / "a/b")], 2, "does not exist"),
        (["dump", "--last", "5"], 2, "has no unit"),
    ):
        got, out, err = zfstune(*words)
        assert (got, out) == (status, ""), err
        assert what in err
        assert re.fullmatch(ONE_ERROR, err)


def test_status_says_what_there_is(zfstune: Any, driven: Driven) -> None:
    driven.off = {"txg": "no probe"}
    driven.lost = {"light": 3}
    zfstune("dump")
    status, out, _ = zfstune("status")
    assert status == 0
    lines = out.splitlines()
    assert lines[0].startswith("recorded: 1 m 40 s, 2026-11-27 12:00:00 to 12:01:40 UTC, ")
    assert lines[1].startswith("memory: ")
    assert lines[2:6] == [
        "off: txg: no probe",
        "lost: light 3",
        "trigger: fsync.p99>200ms for 30s; now 1.00 ms",
        "diagnoses: none are made",
    ]
    assert lines[6].startswith("incidents: 1 written; in /")
    assert lines[-1] == f"  {driven.files[0]}"
    assert max(map(len, lines)) < 100
    found = json.loads(zfstune("status", "--json")[1])
    assert found["type"] == "record_status"
    assert found["pid"] == os.getpid()


def test_a_status_of_another_version_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("zfstune.record.command.ask", lambda *_: control.Reply({"pid": 1}))
    assert record("status") == 3
    assert "is of another version" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["dump"], ["status"], ["dump", "-o", "-"]])
def test_without_a_recorder_there_is_a_hint(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert record(*words, "--dump-dir", str(tmp_path)) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(ONE_ERROR, err)
    assert "no recorder runs" in err
    assert "hint: start `zfstune exporter`" in err


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--trigger", "fsync.p98>1ms"], "no metric 'fsync.p98'\nhint: did you mean fsync.p99?"),
        (["--trigger", "device.log.p99>1ms"], "can never fire"),
        (["--budget", "0%"], "'0%' is no share of a CPU"),
        (["--budget", "0"], "'0' is no share of a CPU\nhint: write it like 1%"),
        (["--budget", "101%"], "100% at most"),
        (["--budget", "nan%"], "'nan%' is no share"),
        (["--views", "ligth"], "there is no view 'ligth'\nhint: did you mean light?"),
        (["--views", "read"], "there is no view 'read'\nhint: choose from light"),
        (["--views", ""], "'' has an empty name"),
    ],
)
def test_nonsense_is_refused_in_one_line(
    words: list[str], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert record("run", *words) == 2
    err = capsys.readouterr().err
    assert what in err
    assert re.fullmatch(ONE_ERROR, err)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    """`record run` on this host, whose seconds do not last."""
    host = FakeHost()

    class Stop(FakeStop):
        def __init__(self, _out: object) -> None:
            super().__init__()

        def __enter__(self) -> FakeStop:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr("zfstune.host.open_host", lambda: host)
    monkeypatch.setattr("zfstune.term.signals.Stop", Stop)
    monkeypatch.setattr("zfstune.record.recorder.Observer.ask", lambda *_: False)
    return host


def test_it_waits_for_zfs_and_keeps_its_record(
    alone: FakeHost, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone.unloaded, alone.imported = True, []
    assert record("run", "--dump-dir", str(tmp_path / "run"), "--duration", "1m") == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "recording the last 6 h 0 m in 8.00M of memory" in err
    assert err.count("ZFS is not loaded: waiting for it; run `modprobe zfs`") == 1
    with Reader(str(tmp_path / "run" / SAVED)) as reader:
        found = [one for one in reader.records() if one["type"] == "interval"]
    assert len(found) == 6
    assert found[0]["off"]["light"] == "ZFS is not loaded"


def test_a_host_that_does_not_answer_does_not_end_it(
    alone: FakeHost,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    answers = 0

    def pools() -> list[str]:
        nonlocal answers
        answers += 1
        if 20 < answers < 80:
            raise OSError(5, "Input/output error")
        return ["tank"]

    monkeypatch.setattr(alone, "pools", pools)
    alone.sessions = {"txg": FakeSession(), "arc": FakeSession([arc(1)])}
    words = ("run", "--dump-dir", str(tmp_path / "run"), "--duration", "2m", "--views", "txg,arc")
    assert record(*words) == 0
    err = capsys.readouterr().err
    assert err.count("host: Input/output error") == 1
    assert err.count("recorder: Input/output error") == 1
    with Reader(str(tmp_path / "run" / SAVED)) as reader:
        found = [one for one in reader.records() if one["type"] == "interval"]
    assert len(found) > 5 and not any(one["off"] for one in found)


def test_it_never_recovers(
    alone: FakeHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("wrote a parameter")

    alone.unloaded, alone.imported = True, []
    monkeypatch.setattr("zfstune.changes.recovery.if_needed", never)
    assert record("run", "--dump-dir", str(tmp_path / "run"), "--duration", "1s") == 0
    assert record("status", "--dump-dir", str(tmp_path)) == 3


def test_without_privilege_it_is_refused_at_once(
    alone: FakeHost, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone.check_list = [
        Check("privileges", "privilege", "none", "blocking", "no BPF", "run as root")
    ]
    assert record("run", "--dump-dir", str(tmp_path / "run"), "--duration", "1s") == 3
    assert re.fullmatch(REFUSED, capsys.readouterr().err)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("words", [[], ["run"], ["dump"], ["status"], ["anonymise"]])
def test_help_ends_in_examples(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        record(*words, "-h")
    text = capsys.readouterr().out
    assert "examples:" in text
    assert max(map(len, text.splitlines())) < 100


def test_a_file_that_is_no_incident_cannot_be_anonymised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x"
    file.write_text("{}")
    assert record("anonymise", str(file), "-o", str(tmp_path / "y")) == 2
    assert re.fullmatch(ONE_ERROR, capsys.readouterr().err)
    assert not (tmp_path / "y").exists()
