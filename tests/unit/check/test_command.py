"""`zfstune check` through the command line, on a fake host."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from support.fake_host import FakeHost, FakeSession, FakeStop
from support.paths import ROOT
from support.samples import ARC, arc, counts, ios, txg_row, vdev, waits

from zfstrace.errors import NoPrivilege
from zfstrace.types import Check, Losses
from zfstune import cli
from zfstune.check import command
from zfstune.check.metrics import METRICS, Seen
from zfstune.term.units import MS, SECOND

DATUM = re.compile(
    r"'([^'=|]+)'=(U|-?[0-9]+(?:\.[0-9]+)?)(s|%|B|c)?((?:;[@~:0-9.]*){0,2}(?:;[0-9.]*){0,2})"
)
Run = Callable[..., tuple[int, str]]


class Host(FakeHost):
    """Its kstats advance by a step each time that they are read."""

    step = 0

    def kstat(self, name: str) -> dict[str, int]:
        self.step += 1
        return {n: v * self.step if n in _COUNTERS else v for n, v in super().kstat(name).items()}


_COUNTERS = {"zil_commit_count", "dmu_tx_dirty_delay", "demand_data_hits", "demand_data_misses"}


def busy(**given: Any) -> Host:
    """tank with 100 fsyncs of 30 ms in its flush, 3 waits of writers, txgs and a cache."""
    host = Host(checks=given.get("checks", ()))
    many = counts(objset=68, stages={"flush": [30 * MS] * 100, "log_write": [10 * MS] * 100})
    disk = vdev(1, flush=ios([30 * MS] * 100), sync_write=ios([10 * MS] * 100))
    host.sessions = {
        "fsync": FakeSession([[], [many]], losses=Losses(start=2, unfinished=1)),
        "throttle": FakeSession([[], [waits(dirty_hard=[50 * MS] * 3)]]),
        "device": FakeSession([[], [disk]]),
        "arc": FakeSession([arc(1), arc(1), arc(2, waits=[MS] * 10)]),
        "arc kstat": FakeSession([arc(1, None), arc(2, None)]),
    }
    host.kstats = {
        "zil": {"zil_commit_count": 100},
        "dmu_tx": {"dmu_tx_dirty_delay": 50, "dmu_tx_dirty_over_max": 0},
        "arcstats": dict(ARC),
    }
    host.txgs = [
        *(txg_row(n, sync_ns=n * 10 * MS, dirty_bytes=n << 20) for n in range(1, 100)),
        txg_row(100, sync_ns=9 * SECOND, dirty_bytes=2 << 30),
        txg_row(101, "S"),
    ]
    return host


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """check(host, words): status and stdout; nothing may be on stderr."""

    def run(host: FakeHost, *words: str) -> tuple[int, str]:
        class Stop(FakeStop):
            def __init__(self, _out: object) -> None:
                super().__init__()

            def __enter__(self) -> FakeStop:
                return self

            def __exit__(self, *_: object) -> None:
                pass

        monkeypatch.setattr(command, "open_host", lambda: host)
        monkeypatch.setattr(command, "Stop", Stop)
        status = cli.main(["check", *words])
        out, err = capsys.readouterr()
        assert err == ""
        assert out.count("\n") == 1
        return status, out.rstrip("\n")

    return run


def perfdata(out: str) -> dict[str, tuple[str, str, list[str]]]:
    """By label: value, unit, and warn, crit, min, max."""
    text, bar, data = out.partition(" | ")
    assert "|" not in text
    assert not bar or " ".join(match[0] for match in DATUM.finditer(data)) == data
    return {m[1]: (m[2], m[3] or "", m[4].split(";")[1:]) for m in DATUM.finditer(data)}


def test_a_limit_that_is_exceeded_is_the_status_and_comes_first(check: Run) -> None:
    given = "--warn=fsync.p99=20ms,lost=5", "--crit=fsync.p99=35ms", "--show=fsync.rate"
    status, out = check(busy(), "tank", *given)
    assert status == 2
    assert out.startswith("ZFSTUNE CRITICAL - tank: fsync.p99 40.")
    assert "(limit 35.0 ms), lost 2, fsync.rate 20.0/s |" in out
    found = perfdata(out)
    assert list(found) == ["fsync.p99", "lost", "fsync.rate"]
    assert float(found["fsync.p99"][0]) == pytest.approx(0.04, rel=0.04)
    assert found["fsync.p99"][1:] == ("s", ["0.02", "0.035", "0"])
    assert found["lost"] == ("2", "", ["5", "", "0"])
    assert found["fsync.rate"] == ("20", "", ["", "", "0"])


@pytest.mark.parametrize(
    ("limits", "status"),
    [
        (["--warn", "fsync.p99=1s", "--crit", "fsync.p99=2s"], 0),
        (["--warn", "fsync.p99=20ms", "--crit", "fsync.p99=2s"], 1),
        (["--crit", "fsync.p99=20ms"], 2),
        (["--warn", "stage.flush=70%"], 1),
        (["--warn", "stage.flush=80%"], 0),
        (["--warn", "arc.hit=99.5:"], 1),
        (["--warn", "arc.hit=90%:"], 0),
        (["--warn", "txg.sync.max=8s"], 1),
        (["--warn", "txg.sync.p99=8s"], 0),
        (["--warn", "txg.dirty=40%"], 1),
        (["--crit", "throttle.waits=0.5/s"], 2),
        (["--warn", "device.flush.p99=20ms"], 1),
        (["--warn", "arc.waits=1/s", "--crit", "arc.waits=3/s"], 1),
        ([], 0),
    ],
)
def test_status(check: Run, limits: list[str], status: int) -> None:
    assert check(busy(), "tank", *limits)[0] == status


def test_each_metric_can_be_shown(check: Run) -> None:
    status, out = check(busy(), "tank", "--show", ",".join(METRICS))
    found = perfdata(out)
    assert list(found) == list(METRICS)
    # of the module's counters, this one is not in the kstat of the fake host
    assert {name for name, (value, *_) in found.items() if value == "U"} == {"zil.fallbacks"}
    assert status == 3
    values = {name: float(value) for name, (value, *_) in found.items() if value != "U"}
    assert values["stage.flush"] == pytest.approx(75)
    assert values["throttle.time"] == pytest.approx(3)
    assert values["throttle.max"] == pytest.approx(0.05, rel=0.04)
    assert values["zil.commits"] == pytest.approx(60)  # (4 - 1) * 100 in 5 s
    assert values["throttle.delays"] == pytest.approx(30)
    assert values["txg.sync.p50"] == pytest.approx(0.5)
    assert values["txg.sync.max"] == 9
    assert values["txg.dirty"] == 50
    assert values["arc.size"] == 4 << 30
    assert values["fsync.unfinished"] == 1


def test_each_commit_that_waited_for_a_txg_is_a_fallback() -> None:
    names = ("error", "stall", "suspend", "crash")
    zil = {f"zil_commit_{name}_count": 5 for name in names} | {"zil_commit_count": 100}
    assert METRICS["zil.fallbacks"].value(Seen("tank", 5 * SECOND, zil=zil)) == 4


NO_ROOT = Check("privilege", "privilege", "not root", "blocking", "no BPF programs", "use sudo")


def test_kstats_need_no_privilege_and_the_rest_is_unknown(check: Run) -> None:
    host = busy(checks=[NO_ROOT])
    given = "--warn", "txg.sync.p99=20s,arc.hit=50%:,zil.commits=1000"
    status, out = check(host, "tank", *given)
    assert (status, "UNKNOWN" in out) == (0, False)
    assert host.options is None  # no trace was opened
    status, out = check(busy(checks=[NO_ROOT]), "tank", *given, "--show", "fsync.p99,fsync.max")
    assert status == 3
    assert out.startswith("ZFSTUNE UNKNOWN - tank: fsync.p99 fsync.max cannot trace: ")
    assert "not root" in out
    assert "use sudo" in out
    assert perfdata(out)["fsync.p99"][0] == "U"
    # what is exceeded is worse than what is unknown
    status, _ = check(busy(checks=[NO_ROOT]), "tank", "--warn", "txg.sync.max=1s,fsync.p99=1s")
    assert status == 1
    status, out = check(busy(checks=[NO_ROOT]), "tank", "--show", "arc.waits")
    assert (status, perfdata(out)["arc.waits"][0]) == (3, "U")


def test_metrics_that_are_known_at_once_do_not_wait(
    check: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zfstune.trace.live.loop", None)
    assert check(busy(), "tank", "--warn", "txg.sync.p50=1s,arc.size=1T")[0] == 0


def test_a_trace_that_cannot_be_opened_is_unknown(check: Run) -> None:
    host = busy()
    host.sessions["fsync"] = NoPrivilege("cannot trace: no privilege | 'x'", "use sudo")
    status, out = check(host, "tank", "--crit", "fsync.p99=1s")
    assert status == 3
    assert out.startswith("ZFSTUNE UNKNOWN - tank: fsync.p99 cannot trace: no privilege / 'x'; use")


@pytest.mark.parametrize(("unfinished", "status"), [(0, 0), (3, 3)])
def test_an_idle_pool_is_ok_unless_something_hangs(
    check: Run, unfinished: int, status: int
) -> None:
    host = busy()
    host.sessions["fsync"] = FakeSession([[], []], losses=Losses(unfinished=unfinished))
    got, out = check(host, "tank", "--warn", "fsync.p99=20ms,stage.flush=50%")
    assert got == status
    assert perfdata(out)["fsync.p99"][0] == "U"
    assert ("3 on this host hang" if unfinished else "fsync.p99 stage.flush idle") in out


def test_a_suspended_pool_is_critical_at_once(check: Run) -> None:
    host = busy()
    host.state = "SUSPENDED"
    status, out = check(host, "tank", "--warn", "fsync.p99=20ms")
    assert (status, host.options) == (2, None)
    assert out == "ZFSTUNE CRITICAL - tank: the pool is SUSPENDED: writes do not end"


def test_a_pool_that_is_suspended_meanwhile_is_critical(check: Run) -> None:
    class Suspended(Host):
        def tick(self) -> None:
            if self.options:
                self.state = "SUSPENDED"

    host = busy()
    host.__class__ = Suspended
    status, out = check(host, "tank", "--warn", "fsync.p99=1s")
    assert status == 2
    assert out.startswith("ZFSTUNE CRITICAL - tank: fsync.p99 40.")
    assert ", pool is SUSPENDED |" in out


def test_a_degraded_pool_is_named(check: Run) -> None:
    host = busy()
    host.state = "DEGRADED"
    status, out = check(host, "tank")
    assert status == 0
    assert ", pool is DEGRADED |" in out


def test_zfs_that_is_unloaded_meanwhile_is_unknown(check: Run) -> None:
    class Gone(Host):
        def tick(self) -> None:
            if self.options:
                self.unloaded = True

    host = busy()
    host.__class__ = Gone
    status, out = check(host, "tank")
    assert (status, out) == (3, "ZFSTUNE UNKNOWN - tank: ZFS was unloaded meanwhile")


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["tnak"],
        ["tank/db"],
        ["tank", "--warn", "x=1"],
        ["tank", "--warn"],
        ["tank", "--show", "fsync"],
        ["tank", "--duration", "0s"],
        ["tank", "--nope"],
        ["ta|nk"],
    ],
    ids=" ".join,
)
def test_usage_errors_are_unknown_and_one_line_on_stdout(check: Run, words: list[str]) -> None:
    status, out = check(busy(), *words)
    assert status == 3
    assert out.startswith("ZFSTUNE UNKNOWN - ")
    assert "|" not in out


def test_json_says_the_same(check: Run) -> None:
    words = ["tank", "--json", "--warn", "fsync.p99=20ms", "--show", "arc.hit,zil.fallbacks"]
    status, out = check(busy(), *words)
    found = json.loads(out)
    assert status == 1
    assert (found["type"], found["pool"], found["status"]) == ("check", "tank", "WARNING")
    first, second, third = found["metrics"]
    assert first["value"] == pytest.approx(0.04, rel=0.04)
    assert (first["unit"], first["warn"], first["crit"]) == ("s", "0.02", None)
    assert (second["value"], second["status"]) == (pytest.approx(99), "OK")
    assert (third["value"], third["why"]) == (None, "not known here")
    status, out = check(busy(), "tnak", "--json")
    assert (status, json.loads(out)["status"]) == (3, "UNKNOWN")


HANGS = """
import sys, time
sys.path[:0] = {path!r}
from support.fake_host import FakeHost
from zfstune import cli
from zfstune.check import command

class Host(FakeHost):
    def pool_state(self, pool):
        time.sleep(60)

command.open_host = Host
sys.exit(cli.main(["check", "tank", "--timeout", "200ms", *sys.argv[1:]]))
"""


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_a_host_that_does_not_answer_is_unknown(words: Sequence[str]) -> None:
    folders = ("tests", "tracers", "tuner", "platform/linux", "platform/freebsd")
    program = HANGS.format(path=[str(ROOT / folder) for folder in folders])
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True,
        text=True,
        timeout=50,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 3
    assert "no answer within 0.2 s" in done.stdout
    assert done.stderr == ""


def test_the_list_has_each_metric(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(METRICS)
    assert max(map(len, lines)) < 100
