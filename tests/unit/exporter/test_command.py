"""`zfstune exporter` through the command line."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.driven import all_of, incident
from support.exported import Scrape
from support.fake_host import FakeHost, FakeParameters, FakeSession, FakeStop
from support.fake_module import QueueWatch
from support.paths import ROOT
from support.samples import arc, counts, txg

from zfstrace import disk
from zfstrace.errors import NoPrivilege
from zfstrace.params import Change
from zfstrace.types import Check
from zfstune import cli
from zfstune.exporter import command
from zfstune.exporter.service import Service
from zfstune.record.dumps import SAVED
from zfstune.record.recorder import Recorder
from zfstune.term.units import MS

SOURCES = [ROOT / path for path in ("tracers", "tuner", "platform/linux", "platform/freebsd")]
Run = Callable[..., tuple[int, str, str]]

NO_ZFS = Check("ZFS", "zfs", "not loaded", "blocking", "nothing to trace", "run `modprobe zfs`")
NO_RIGHT = Check(
    "privileges", "privilege", "insufficient", "blocking", "BPF is not possible", "run as root"
)


def busy() -> FakeHost:
    host = FakeHost()
    # the numbers of a device of ZFS there may be those of this host's /tmp
    host.devices = {}
    host.sessions = {
        "fsync": FakeSession([[counts(objset=68, stages={"flush": [MS] * 3})]]),
        "txg": FakeSession(events=[txg(1)]),
        "arc": FakeSession([arc(1, waits=[MS])]),
        "txg kstat": FakeSession(events=[txg(1)], probes=()),
        "arc kstat": FakeSession([arc(1, None)], probes=()),
    }
    return host


@pytest.fixture
def exporter(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Run:
    """exporter(host, words): status, stdout and stderr."""
    monkeypatch.setenv("ZFSTUNE_RUN_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("ZFSTUNE_STATE_DIR", str(tmp_path / "state"))

    def run(host: FakeHost, *words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(command, "open_host", lambda: host)
        status = cli.main(["exporter", *words])
        found = capsys.readouterr()
        return status, found.out, found.err

    return run


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Callable[[], None]]]:
    """What happens in each second of a main loop, which ends after the last."""
    todo: list[Callable[[], None]] = []

    class Stop(FakeStop):
        def __init__(self, _out: object) -> None:
            super().__init__()

        def __enter__(self) -> Stop:
            return self

        def __exit__(self, *_error: object) -> None:
            pass

        def wait(self, ns: int) -> bool:
            self.clock += ns
            if todo:
                todo.pop(0)()
                return False
            return True

    monkeypatch.setattr(command, "Stop", Stop)
    yield todo


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--budget 0", "--budget: '0' is no share of a CPU\nhint: write it like 1% or 0.5%"),
        ("--budget 0%", "'0%' is no share"),
        ("--budget=-1%", "'-1%' is no share"),
        ("--budget 101%", "100% at most"),
        ("--budget nan%", "'nan%' is no share"),
        ("--budget 1", "'1' is no share"),
        ("--max-datasets 0", "1 or more"),
        ("--max-datasets 65", "65 is too many\nhint: use 64 at most"),
        ("--views fsnyc", "there is no view 'fsnyc'\nhint: did you mean fsync?"),
        ("--views txg,,arc", "has an empty name"),
        ("--source kstat --views fsync", "view fsync needs BPF or DTrace"),
        ("--source dtrace", "--source: invalid choice"),
        ("--interval 5s", "--interval is for --textfile"),
        ("--interval 5h --textfile /x.prom", "--interval is out of range\nhint: use 1s to 1h"),
        ("--interval 5ms --textfile /x.prom", "--interval is out of range"),
        ("--once --textfile /x.prom", "not allowed with"),
        ("--listen 1.2.3.4", "is not ADDRESS:PORT"),
        ("--tls-cert x", "--tls-key is missing"),
        ("--tls-cert x --tls-key y --once", "--tls-cert is for a port"),
        ("--no-record --trigger x", "--trigger is for the recorder"),
        ("--record --no-record", "not allowed with"),
        ("tank", "unrecognized arguments: tank"),
    ],
)
def test_what_makes_no_sense_is_refused(exporter: Run, words: str, says: str) -> None:
    status, out, err = exporter(busy(), *words.split())
    assert (status, out) == (2, "")
    assert says in err and err.startswith("zfstune: error: ") and len(err.splitlines()) == 2


def test_without_prometheus_client_it_says_what_to_install(
    exporter: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    status, _out, err = exporter(busy(), "--once")
    assert status == 3
    assert err == (
        "zfstune: error: cannot export metrics: the Python module prometheus_client is not "
        "installed\nhint: run `apt install python3-prometheus-client` or, with EPEL, "
        "`dnf install python3-prometheus_client`\n"
    )


def test_options_can_be_checked_before_they_are_in_force(
    exporter: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where there is nothing to trace or to serve with."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    host = FakeHost()
    host.unloaded = True
    right = ("--check", "--listen", ":9810", "--trigger", "commit.p99>200ms for 30s")
    assert exporter(host, *right) == (0, "", "zfstune: these options can be used\n")
    for wrong in (
        ("--trigger", "commit.p99>200"),
        ("--views", "lihgt"),
        ("--interval", "5s"),
        ("--tls-cert", "/nowhere/cert", "--tls-key", "/nowhere/key"),
        ("--textfile", "/run/zfstune.txt"),
        ("--textfile", "/nowhere/zfstune.prom"),
    ):
        status, out, err = exporter(host, "--check", *wrong)
        assert (status, out) == (2, "") and err.startswith("zfstune: error: "), err
    assert host.options is None


def test_it_writes_no_parameter_and_recovers_nothing(
    exporter: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def recovered(_command: str) -> None:
        raise AssertionError("it must not")

    monkeypatch.setattr("zfstune.changes.recovery.if_needed", recovered)
    host = busy()
    assert exporter(host, "--once", "--source", "kstat")[0] == 0


def test_once_prints_the_metrics(exporter: Run) -> None:
    status, out, err = exporter(busy(), "--once", "--views", "fsync,txg,arc")
    assert status == 0 and "view fsync: 1 of 2 probes attached" in err
    scrape = Scrape(out)
    total = "zfstune_fsync_duration_seconds_count"
    assert scrape.get(total, pool="tank", dataset="tank/db") == 3
    assert scrape.get("zfstune_trace_budget_ratio") == 0.01


def test_once_says_why_there_is_nothing(exporter: Run) -> None:
    host = busy()
    host.check_list = [NO_ZFS]
    for words in (["--once"], ["--once", "--source", "kstat"]):
        status, out, err = exporter(host, *words)
        assert (status, out) == (3, "") and len(err.splitlines()) == 2
        assert "ZFS not loaded" in err
    host.check_list = []
    host.sessions["fsync"] = NoPrivilege("cannot attach: not permitted", "run as root")
    status, out, err = exporter(host, "--once", "--views", "fsync")
    assert (status, out) == (3, "")
    assert err.endswith("zfstune: error: cannot attach: not permitted\nhint: run as root\n")


def test_without_privilege_it_names_the_way_out(exporter: Run) -> None:
    host = busy()
    host.check_list = [NO_RIGHT]
    status, _out, err = exporter(host)
    assert status == 3 and len(err.splitlines()) == 2
    assert err.endswith("run as root; or add --source kstat, for what needs no privilege\n")
    assert "--source kstat" not in exporter(host, "--source", "bpf")[2]
    assert exporter(host, "--source", "kstat", "--once")[0] == 0
    # these do without
    assert exporter(host, "--views", "txg,arc", "--once")[0] == 0


def test_patterns_choose_the_datasets(exporter: Run) -> None:
    host = busy()
    host.sessions["fsync"] = FakeSession(
        [[counts(objset=68, stages={"flush": [MS]}), counts(objset=70, stages={"flush": [MS]})]]
    )
    words = ("--once", "--views", "fsync", "--datasets", "tank/h*,x", "--datasets", "y")
    found = Scrape(exporter(host, *words)[1]).of("zfstune_fsync_duration_seconds_count")
    assert found == {("tank/home", "tank"): 1, ("<others>", "tank"): 1}


def test_it_serves_until_it_is_asked_to_end(
    exporter: Run, ticks: list[Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[str] = []
    served: list[Any] = []
    from zfstune.exporter import server

    real = server.serve

    def serve(*given: Any) -> Any:
        served.append(real(*given))
        return served[-1]

    def scrape() -> None:
        url = f"http://127.0.0.1:{served[0].port}/metrics"
        with urllib.request.urlopen(url, timeout=30) as answer:
            found.append(answer.read().decode())

    monkeypatch.setattr(server, "serve", serve)
    ticks += [scrape, scrape]
    words = ("--listen", "127.0.0.1:0", "--no-record", "--views", "fsync")
    status, _out, err = exporter(busy(), *words)
    assert status == 0
    assert f"serving http on 127.0.0.1, port {served[0].port}: /metrics" in err
    for text in found:
        assert Scrape(text).get("zfstune_exporter_errors_total", what="timeout") == 0
        total = "zfstune_fsync_duration_seconds_count"
        assert Scrape(text).get(total, pool="tank", dataset="tank/db") == 3
    with contextlib.closing(socket.socket()) as end, pytest.raises(OSError):
        end.connect(("127.0.0.1", served[0].port))


def test_a_file_is_written_each_interval(
    exporter: Run, ticks: list[Callable[[], None]], tmp_path: Path
) -> None:
    path = tmp_path / "zfstune.prom"
    seen: list[bool] = []

    def look() -> None:
        seen.append(path.exists())
        path.unlink(missing_ok=True)

    ticks += [look] * 41
    words = ("--textfile", str(path), "--no-record", "--views", "fsync", "--interval", "10s")
    assert exporter(busy(), *words)[0] == 0
    # at once, and each tenth second
    assert [i for i, there in enumerate(seen) if there] == [0, 10, 20, 30, 40]
    assert not path.exists()


def test_a_file_on_zfs_is_refused(exporter: Run, tmp_path: Path) -> None:
    host = busy()
    host.devices[disk.dev_of(tmp_path)] = "rpool/var"
    status, _out, err = exporter(host, "--textfile", str(tmp_path / "x.prom"), "--no-record")
    assert status == 3 and len(err.splitlines()) == 2
    assert "it is on ZFS (rpool/var)" in err
    # nothing is attached
    assert host.options is None


@pytest.mark.parametrize("words", [["--no-record", "--views", "fsync"], ["--source", "kstat"]])
def test_without_a_recorder_it_says_that_there_is_no_dump(
    exporter: Run,
    ticks: list[Callable[[], None]],
    words: list[str],
) -> None:
    """`systemctl kill -s SIGUSR1` is documented; by itself the signal ends a process."""
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        ticks += [lambda: signal.raise_signal(signal.SIGUSR1), *[lambda: None] * 3]
        status, _out, err = exporter(busy(), "--listen", "127.0.0.1:0", *words)
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert (status, ticks) == (0, [])
    said = "zfstune: no incident file for SIGUSR1: this exporter does not record (--record)\n"
    assert err.count(said) == 1


def test_a_recorder_that_fails_does_not_end_it(
    exporter: Run,
    ticks: list[Callable[[], None]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    def fail(_recorder: Recorder, _now: int) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(Recorder, "tick", fail)
    ticks += [lambda: None] * 3
    words = ("--listen", "127.0.0.1:0", "--views", "fsync", "--dump-dir", str(tmp_path / "dumps"))
    status, _out, err = exporter(busy(), *words)
    assert status == 0
    assert err.count("recorder: ValueError: a bug") == 1
    assert (
        f"recording the last 6 h 0 m in 8.00M of memory; incidents go to {tmp_path / 'dumps'}; "
        "see `zfstune record status`\n"
    ) in err


def test_the_recorder_ends_while_no_scrape_asks_its_host(
    exporter: Run,
    ticks: list[Callable[[], None]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    held: list[bool] = []

    def look(lock: Any) -> None:
        free = lock.acquire(blocking=False)
        if free:
            lock.release()
        held.append(not free)

    def close(recorder: Recorder) -> None:
        lock = recorder._rows.__self__.lock  # type: ignore[attr-defined]
        other = threading.Thread(target=look, args=(lock,))
        other.start()
        other.join()
        real(recorder)

    real = Recorder.close
    monkeypatch.setattr(Recorder, "tick", lambda _recorder, _now: None)
    monkeypatch.setattr(Recorder, "close", close)
    words = ("--listen", "127.0.0.1:0", "--views", "fsync", "--dump-dir", str(tmp_path / "dumps"))
    assert exporter(busy(), *words)[0] == 0
    assert ticks == [] and held == [True]


def test_the_metric_and_the_record_agree_on_who_wrote_a_parameter(
    exporter: Run,
    ticks: list[Callable[[], None]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    watch, begun, texts = QueueWatch(), list[int](), list[str]()
    path, name = tmp_path / "zfstune.prom", "zfs_dirty_data_max"
    host = busy()

    def begin(_parameters: FakeParameters, names: list[str]) -> QueueWatch:
        begun.append(len(names))
        return watch

    def write() -> None:
        host.values[name] = 5 << 30
        watch.changes.append(Change(name, 1, "zfstune"))

    monkeypatch.setattr(FakeParameters, "watch", begin)
    monkeypatch.setattr("zfstune.record.memory.lock", lambda: "")
    ticks += [write, lambda: None, lambda: None, lambda: texts.append(path.read_text())]
    words = ("--textfile", str(path), "--interval", "1s", "--dump-dir", str(tmp_path / "dumps"))
    assert exporter(host, "--views", "fsync", *words)[0] == 0
    assert len(begun) == 1
    metric = "zfstune_parameter_writes_total"
    assert Scrape(texts[0]).get(metric, name=name, by="other") == 1
    assert Scrape(texts[0]).get(metric, name=name, by="zfstune") == 0
    (change,) = all_of(incident(tmp_path / "dumps" / SAVED), "parameter_change")
    assert (change["name"], change["new"], change["by"]) == (name, 5 << 30, "other")


def test_the_port_is_tried_before_anything_is_attached(exporter: Run) -> None:
    host = busy()
    with contextlib.closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        status, _out, err = exporter(host, "--listen", f"127.0.0.1:{port}", "--no-record")
    assert status == 3 and "the port is in use" in err
    assert host.options is None


def test_a_signal_ends_it_cleanly(tmp_path: Path) -> None:
    """The real process, with what this host has of ZFS."""
    path = tmp_path / "notify"
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as manager:
        manager.bind(str(path))
        manager.settimeout(60)
        env = os.environ | {
            "PYTHONPATH": os.pathsep.join(map(str, SOURCES)),
            "NOTIFY_SOCKET": str(path),
            "ZFSTUNE_RUN_DIR": str(tmp_path / "run"),
        }
        words = ("exporter", "--source", "kstat", "--listen", "127.0.0.1:0", "--no-record")
        process = subprocess.Popen(
            [sys.executable, "-m", "zfstune", *words],
            env=env,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        try:
            assert manager.recv(100) == b"READY=1"
            assert manager.recv(100) == b"WATCHDOG=1"
            assert b"2 views count" in manager.recv(1000)
            process.send_signal(signal.SIGTERM)
            _out, err = process.communicate(timeout=60)
            assert manager.recv(100) == b"STOPPING=1"
        finally:
            process.kill()
            process.wait()
    assert process.returncode == 0
    assert "Traceback" not in err and "serving http on 127.0.0.1" in err


def test_a_manager_that_does_not_read_does_not_stop_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "notify"
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as manager:
        manager.bind(str(path))
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        service = Service()
        assert "NOTIFY_SOCKET" not in os.environ
        for i in range(10_000):
            service.tick(f"status {i}\nREADY=1")
        assert manager.recv(100) == b"WATCHDOG=1"
        assert manager.recv(100) == b"STATUS=status 0?READY=1"


@pytest.mark.parametrize("address", ["", "/nonexistent/socket", "nonsense", "@nobody", "@"])
def test_without_a_manager_nothing_is_said(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    service = Service()
    service.ready()
    service.tick("x")
    service.stopping()


def test_help_has_examples() -> None:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), pytest.raises(SystemExit):
        cli.build_parser("exporter").parse_args(["exporter", "-h"])
    text = out.getvalue()
    assert "examples:\n  sudo zfstune exporter" in text and "exit status:" in text
    assert max(map(len, text.splitlines())) < 100
