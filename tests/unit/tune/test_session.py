"""What is in force during a session and after it, whatever ends it. The phases are fakes
(experiment/test_phases.py tests them), the rest is real but for the kernel."""

from __future__ import annotations

import argparse
import errno
import io
import json
import os
import signal
import stat
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.fake_module import DEFAULTS, ModuleHost
from support.samples import txg_row

from zfstrace.types import Json
from zfstune import cli
from zfstune.errors import CommandError, NotPossible, RestoredError
from zfstune.experiment import statistics
from zfstune.experiment.blocks import Block
from zfstune.experiment.found import Found, Outcome
from zfstune.experiment.model import Candidate
from zfstune.experiment.runner import Abort, Experiment, Record, Stopped
from zfstune.experiment.storage import StorageLost
from zfstune.term.signals import Stop
from zfstune.term.units import SECOND
from zfstune.tunables import guard
from zfstune.tune import command as tune
from zfstune.tune import flame, plan
from zfstune.tune import request as tune_request
from zfstune.tune import session as tune_session
from zfstune.tune.workload import Workload

PCT, TIMEOUT = "zfs_commit_timeout_pct", "zfs_txg_timeout"
BETTER = statistics.Verdict("better", -0.5, -0.6, -0.4, 0.01, 6)
Phases = Callable[[Experiment, Found], object]


class Session:
    """A session on a fake module; phases is what happens between its first and last block."""

    def __init__(self, root: Path, host: ModuleHost, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.host, self._patch = root, host, monkeypatch
        self.out = root / "out"
        self.out.mkdir()
        self.args = self._parsed("--observe")
        self.setup = plan.Setup.of(tune_request.parse_request(self.args), host, "tank")

    def _parsed(self, *load: str) -> argparse.Namespace:
        words = ["tune", "tank", "--yes", "--out", str(self.out), *load]
        return cli.build_parser().parse_args(words)

    def workload(self, command: str) -> None:
        self.args = self._parsed("--workload", command)

    def run(self, phases: Phases) -> Json:
        class Made:
            def __init__(self, experiment: Experiment, found: Found) -> None:
                self.run = lambda: phases(experiment, found)

        self._patch.setattr(
            tune_session.TuningRun, "_tuning", lambda _self, e, _reads, f: Made(e, f)
        )
        with Stop(sys.stderr) as stop:
            return tune_session.TuningRun.begin(self.args, self.setup, stop).run()

    def wins(self, experiment: Experiment, found: Found) -> None:
        """Phases that prove another value."""
        experiment.apply(self.setup.baseline() | {PCT: 3})
        found.outcome = Outcome(BETTER, Candidate({PCT: 3}, "model", {}), (), (), {}, None, 0.0)

    def now(self, name: str = PCT) -> int | None:
        return self.host.params.read(name)


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    host = ModuleHost(tmp_path)
    host.txgs = [txg_row(1)]
    monkeypatch.setenv("ZFSTUNE_STATE_DIR", str(host.where.state))
    monkeypatch.setenv("ZFSTUNE_RUN_DIR", str(host.where.run))
    monkeypatch.setattr(tune_session.TuningRun, "_warm_up", lambda _self, _watch: None)
    monkeypatch.setattr(flame, "record", lambda *_: None)
    monkeypatch.setattr("zfstrace.zpool.status.scanning", lambda _pool: None)
    return Session(tmp_path, host, monkeypatch)


def test_a_proved_gain_stays_with_its_undo_in_safe_order(session: Session) -> None:
    found = session.run(session.wins)
    assert (found["state"], found["in_force"], found["restored"]) == ("finished", True, True)
    assert session.now() == 3
    assert found["undo_shell"] == [f"echo 10 > {session.host.params.root / PCT}"]


def test_nothing_stays_without_a_verdict(session: Session) -> None:
    found = session.run(lambda experiment, _: experiment.apply({PCT: 3}))
    assert not found["in_force"]
    assert found["undo_shell"] == []
    assert session.host.now() == DEFAULTS


def test_values_changed_after_the_plan_end_the_session(session: Session) -> None:
    """While the question is open, or another session ends."""
    session.host.params.put(TIMEOUT, 15)
    with pytest.raises(NotPossible, match="zfs_txg_timeout has just been changed from 5 to 15"):
        session.run(session.wins)
    assert session.host.now() == DEFAULTS | {TIMEOUT: 15}


def test_values_are_back_before_the_load_is_waited_for(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    real = Workload.close

    def close(load: Workload) -> None:
        seen.append(session.now())
        real(load)

    monkeypatch.setattr(Workload, "close", close)
    session.workload("sleep 100")

    def phases(experiment: Experiment, _found: Found) -> None:
        experiment.apply({PCT: 3})
        raise Abort("pool tank is SUSPENDED")

    found = session.run(phases)
    assert (found["state"], found["note"]) == ("failed", "pool tank is SUSPENDED")
    assert seen == [10]


def test_values_are_back_before_the_study_is_told(session: Session) -> None:
    seen = []

    def tell() -> None:
        seen.append(session.now())
        raise StorageLost("the study's storage failed")

    def phases(experiment: Experiment, found: Found) -> None:
        experiment.apply({PCT: 3})
        found.later.append(tell)
        raise Abort("pool tank is SUSPENDED")

    assert session.run(phases)["note"] == "pool tank is SUSPENDED"
    assert seen == [10]


def test_neither_ctrl_z_nor_the_terminal_stops_a_session() -> None:
    def handlers() -> list[object]:
        return [signal.getsignal(number) for number in (signal.SIGTSTP, signal.SIGTTOU)]

    before = handlers()
    with tune_session.not_suspended():
        assert handlers() == [signal.SIG_IGN] * 2
    assert handlers() == before


def test_ctrl_c_in_the_last_flame_graph_restores(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def record(
        _host: object, _pool: str, path: Path, _seconds: int, second: Callable[[], None]
    ) -> None:
        if path.stem == "after":
            os.kill(os.getpid(), signal.SIGINT)
        second()

    monkeypatch.setattr(flame, "record", record)
    found = session.run(session.wins)
    assert (found["state"], found["in_force"]) == ("stopped", False)
    assert found["note"] == "stopped by a signal"
    assert session.host.now() == DEFAULTS


def test_a_session_that_nobody_reads_says_so(session: Session) -> None:
    """As in `zfstune tune ... 2>&1 | head`."""

    def phases(experiment: Experiment, _found: Found) -> None:
        experiment.stop.reader_gone = True
        raise Stopped

    found = session.run(phases)
    assert (found["state"], found["note"]) == ("stopped", "stopped as nobody reads its messages")


def test_the_length_of_a_block_is_that_of_the_blocks(session: Session) -> None:
    """The session makes them longer where the load needs that."""

    def phases(experiment: Experiment, _found: Found) -> None:
        experiment.plan = replace(experiment.plan, seconds=20.0)

    assert session.run(phases)["block_s"] == 20


def test_the_traces_do_what_is_due(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks: list[int] = []
    monkeypatch.setattr(session.host, "tick", lambda: ticks.append(1))

    def phases(experiment: Experiment, _found: Found) -> None:
        for _ in range(3):
            experiment.watch(None, True)

    session.run(phases)
    assert len(ticks) == 3


@pytest.mark.parametrize(("budget_s", "seconds"), [(60, 5), (350, 5), (480, 8), (7200, 10)])
def test_a_recording_takes_a_part_of_the_budget(budget_s: int, seconds: int) -> None:
    assert flame.seconds_of(budget_s * SECOND) == seconds


def test_stacks_are_recorded_for_so_long(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[tuple[str, int]] = []

    def record(
        _host: object, _pool: str, path: Path, seconds: int, _second: Callable[[], None]
    ) -> None:
        found.append((path.stem, seconds))

    monkeypatch.setattr(flame, "seconds_of", lambda _budget_ns: 7)
    monkeypatch.setattr(flame, "record", record)
    session.run(session.wins)
    assert found == [("before", 7), ("after", 7)]


def test_a_later_refusal_of_the_guard_ends_the_session(session: Session) -> None:
    def phases(experiment: Experiment, _found: Found) -> None:
        experiment.apply({PCT: 3})
        experiment.records.append(Record(1, "aa", None, "A", 0.0, 0.0, Block(1.0, 5, {})))
        experiment.apply({PCT: 1000})

    found = session.run(phases)
    assert found["state"] == "failed"
    assert found["note"].startswith("cannot set zfs_commit_timeout_pct to 1000")
    assert session.host.now() == DEFAULTS


def test_a_first_refusal_of_the_guard_begins_nothing(session: Session) -> None:
    with pytest.raises(guard.Refused):
        session.run(lambda experiment, _: experiment.apply({PCT: 1000}))
    assert session.host.now() == DEFAULTS


def finished(session: Session, **more: object) -> Json:
    return session.run(session.wins) | more


def test_no_room_for_the_results_does_not_hide_what_is_in_force(
    session: Session, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = finished(session)

    def full(*_args: object, **_kwargs: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (session.out / "session.json").write_text("of before")
    monkeypatch.setattr(os, "fsync", full)
    assert tune.finish(session.args, session.setup.request, found) == 0
    out, err = capsys.readouterr()
    assert "zfstune revert" in out
    assert "cannot write the report: [Errno 28] No space left on device" in err
    assert (session.out / "session.json").read_text() == "of before"


def test_results_are_private_and_replace_links(session: Session) -> None:
    """They contain the command line, and a link may belong to another user."""
    found = finished(session)
    secret = session.root / "secret"
    secret.write_text("root's")
    for name in ("session.json", "report.html"):
        (session.out / name).symlink_to(secret)
    assert tune.finish(session.args, session.setup.request, found) == 0
    assert secret.read_text() == "root's"
    for name in ("session.json", "report.html"):
        status = (session.out / name).lstat()
        assert stat.S_ISREG(status.st_mode)
        assert stat.S_IMODE(status.st_mode) == 0o600


@pytest.mark.parametrize("number", [errno.EPIPE, errno.ENOSPC])
def test_a_closed_stdout_does_not_lose_the_results(
    number: int, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Gone(io.StringIO):
        def write(self, _text: str) -> int:
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr("os.dup2", lambda *_: None)
    found = session.run(lambda _experiment, _found: None)
    monkeypatch.setattr("sys.stdout", Gone())
    assert tune.finish(session.args, session.setup.request, found) == 1
    assert (session.out / "session.json").exists()


def test_the_status_depends_on_what_is_in_force(session: Session) -> None:
    request = session.setup.request
    failed = finished(session, state="failed", note="n", in_force=False)
    with pytest.raises(RestoredError):
        tune.finish(session.args, request, failed)
    with pytest.raises(CommandError) as caught:
        tune.finish(session.args, request, failed | {"restored": False})
    assert caught.value.status == 1


def test_the_json_has_no_infinity(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    session.args.json = True
    found = finished(session, noise={"effect": float("inf")})
    tune.finish(session.args, session.setup.request, found)
    text = (session.out / tune.FILE).read_text()
    assert json.loads(text)["noise"] == {"effect": None}
    assert "Infinity" not in capsys.readouterr().out + text


def test_a_state_directory_on_the_tuned_pool_is_reported(session: Session) -> None:
    device = session.out.stat().st_dev
    session.host.devices[os.major(device), os.minor(device)] = "tank/var"
    notes = session.setup.notes()
    assert len(notes) == 2
    assert "will be on tank/var, in the measured pool" in notes[0]
    session.host.devices[os.major(device), os.minor(device)] = "idle/var"
    assert session.setup.notes() == []
