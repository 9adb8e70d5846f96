"""Every command with hostile names wherever another user may choose them: of processes, vdevs,
disks and files, in the contents of files, and on the command line itself."""

from __future__ import annotations

import functools
import importlib
import io
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import fake_advise, fake_programs, sample_session
from support.fake_host import FakeCost, FakeSession
from support.fake_module import ModuleHost
from support.hostile import EVIL, raw
from support.samples import (
    arc,
    counts,
    ios,
    read_state,
    reads,
    scratch_disk,
    slow_event,
    txg,
    vdev,
    waits,
)

from zfstrace.cost import CostCounts, ProgramCost
from zfstrace.types import Check, Losses, Probe, ProbeSurvey, Tool
from zfstune import cli
from zfstune.changes.journal import Journal
from zfstune.changes.records import Original, Override
from zfstune.changes.session import set_values
from zfstune.check.metrics import METRICS
from zfstune.term.table import Style
from zfstune.term.units import MS
from zfstune.tune import production
from zfstune.tune import text as tune_view

LONG = EVIL * 300
PROBE = Probe(EVIL, EVIL, "missing", False, EVIL, LONG)
SHORT = ["--duration", "10ms"]
TUNE = ["tune", "tank", "--dry-run", "--workload"]
COMMANDS: list[list[str]] = [
    *(["trace", *name, *SHORT] for name in ([], ["fsync"], ["txg"], ["throttle"], ["device"])),
    *(["trace", name, "--source", "kstat", *SHORT] for name in ("txg", "arc")),
    ["trace", "arc", *SHORT],
    ["trace", "read", *SHORT],
    ["trace", "read", "--source", "kstat", *SHORT],
    ["trace", "read", "--dataset", "tank/tnak"],
    ["trace", "slow", "--over", "1ms", *SHORT],
    ["trace", "slow", "--over", "1ms", "--timeline", f"{EVIL}.json", *SHORT],
    ["trace", "slow", "--over", "1ms", "--timeline", "t.json", *SHORT],
    ["trace", "--json", *SHORT],
    ["trace", "fsync", "--histogram", *SHORT],
    ["trace", "fsync", "--pid", "77"],
    ["trace", "fsync", "tnak"],
    ["trace", "fsync", "--dataset", "tank/tnak"],
    ["doctor"],
    ["doctor", "--cost", *SHORT],
    ["diagnose", "--duration", "1s"],
    ["check", "tank", "--duration", "1s", "--show", ",".join(METRICS)],
    ["check", "tank", "--duration", "1s", "--json"],
    ["diagnose", "--duration", "1s", "--json"],
    ["exporter", "--once", "--views", "fsync,txg,throttle,arc,device,read"],
    ["record", "run", "--dump-dir", EVIL, "--duration", "1s"],
    ["record", "dump", "--dump-dir", EVIL],
    ["record", "status", "--dump-dir", EVIL],
    ["record", "anonymise", "stacks", "-o", f"{EVIL}/x"],
    *([name, "--from", "stacks", "--at", EVIL] for name in ("diagnose", "trace", "report")),
    ["params"],
    ["params", "list", "--all"],
    ["params", "explain", "zfs_dirty_data_max"],
    ["status"],
    ["status", "--json"],
    ["revert", "--print"],
    ["revert"],
    ["recover"],
    ["recover", "--forget"],
    ["keep"],
    ["keep", "--print"],
    ["keep", "--remove"],
    ["report", "session"],
    ["report", "session", "-o", "-"],
    ["report", "session", "-o", f"{EVIL}/x"],
    [*TUNE, EVIL, "--out", EVIL, "--study", LONG],
    [*TUNE, "x", "--storage", EVIL],
    ["flame", "convert", "stacks", "-o", "-"],
    ["flame", "convert", "stacks", "-o", f"{EVIL}.svg"],
    ["flame", "diff", "stacks", "stacks", "-o", f"{EVIL}.svg"],
    ["bench", EVIL, "--test", "fdatasync", "--duration", "100ms"],
    ["bench", "--matrix", "reports-2014", "--disk", "/dev/sdx", "--yes"],
    ["bench", "--matrix", "reports-2014", "--disk", EVIL, "--force-erase", EVIL],
    ["advise", "--config", "config", "--for", "postgresql"],
    ["tools", "list"],
    ["tools", "extract", EVIL],
    ["tools", "extract", f"{EVIL}/{EVIL}"],
    ["tools", "extract", "tools", EVIL],
    ["licences"],
]
# the error for a word that makes no sense
ODD: list[list[str]] = [
    [],
    *([name] for name in ("trace", "status", "report", "bench", "advise", "diagnose", "keep")),
    *(["trace", name] for name in ("fsync", "txg", "throttle", "device", "arc", "read", "slow")),
    *(["params", name] for name in ("get", "explain", "set", "list")),
    ["diagnose", "--from"],
    *(["exporter", f"--{name}"] for name in ("listen", "textfile", "views", "budget", "trigger")),
    *(["record", "run", f"--{name}"] for name in ("trigger", "views", "budget")),
    *(["record", "dump", f"--{name}"] for name in ("at", "last")),
    *(["check", *more] for more in ([], ["tank", "--warn"], ["tank", "--show"])),
    ["keep", "--remove"],
    *(["tools"], ["tools", "extract", "tools", "--system"], ["licences"]),
    *(["flame", *more] for more in (["-o"], ["convert"], ["diff", "stacks"], ["--pool"])),
    *(["bench", "data", f"--{name}"] for name in ("test", "with", "html", "raw", "jobs")),
    *(["bench", "--matrix"], ["bench", "--matrix", "reports-2014", "--rows"]),
    *(["advise", f"--{name}"] for name in ("config", "for")),
    *([*TUNE, "x", f"--{name}"] for name in ("as", "objective", "limit", "parameters", "resume")),
    *([*TUNE, "x", f"--{name}"] for name in ("sampler", "block", "max-latency", "seed")),
]
COMMANDS += [[*words, name] for words in ODD for name in (EVIL, f"--{EVIL}", LONG)]
COMMANDS += [["params", what, f"zfs_txg_timeout={EVIL}"] for what in ("set", "explain")]
OPEN = [
    *("host", "params.command", "changes.keep", "changes.revert", "changes.status"),
    *("trace.live", "trace.doctor", "diagnose.command", "flame.command", "tune.command"),
    *("bench.command", "bench.matrix.command", "trace.cost", "check.command", "exporter.command"),
]


class HostileHost(ModuleHost):
    """Names of pools and datasets too, although the kernel allows none of these."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.names = {("tank", 68): EVIL, (EVIL, 68): LONG}
        self.vdevs = {1: EVIL, 2: LONG}
        self.state = EVIL
        self.scratches = {
            "/dev/sdx": scratch_disk(model=EVIL, data=(EVIL,), in_use=EVIL),
            EVIL: replace(scratch_disk(model=LONG, data=(EVIL,)), path=EVIL),
        }
        fsyncs = [counts(pool, 68, stages={"flush": [90 * MS] * 200}) for pool in ("tank", EVIL)]
        busy = [waits(pool, comm=EVIL, dirty_hard=[90 * MS] * 9) for pool in ("tank", EVIL)]
        disks = [vdev(1, pool, flush=ios([90 * MS] * 200)) for pool in ("tank", EVIL)]
        session = functools.partial(FakeSession, losses=Losses(1, 2, 3, 4), probes=(PROBE,))
        self.sessions = {
            "fsync": session([[], fsyncs], [slow_event(comm=EVIL, flush=93)] * 100),
            "throttle": session([[], busy]),
            "device": session([[], disks]),
        }
        for source in ("", " kstat"):
            txgs = [txg(5), txg(6, EVIL, reason=EVIL, source=EVIL)]
            self.sessions[f"txg{source}"] = session(events=txgs)
            read = [
                reads(pool, 68, hit=[MS] * 9, miss=[MS], write=[MS], errors=1, held=1, held_ns=MS)
                for pool in ("tank", EVIL)
            ]
            self.sessions[f"read{source}"] = session([read_state(), read_state(*read)])
            self.sessions[f"arc{source}"] = session([arc(1), arc(2, waits=[90 * MS] * 9)])

        programs = (ProgramCost(EVIL, EVIL, EVIL, 3, 3), ProgramCost(EVIL, LONG, "kprobe"))
        self.cost = FakeCost(CostCounts(1, 1, programs, {EVIL: LONG}))

    def pools(self) -> list[str]:
        return ["tank", EVIL]

    def checks(self) -> list[Check]:
        return [Check(EVIL, "kernel", EVIL, "missing", EVIL, LONG)]

    def survey(self) -> ProbeSurvey:
        return ProbeSurvey((PROBE,), "btf")

    def tools(self) -> list[Tool]:
        return [Tool("zildist.py", "bcc", EVIL)]

    def version(self) -> str:
        return f"2.3.9-{EVIL}"

    def process_error(self, pid: int) -> str | None:
        return EVIL


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HostileHost:
    found = HostileHost(tmp_path)
    for name in OPEN:
        monkeypatch.setattr(importlib.import_module(f"zfstune.{name}"), "open_host", lambda: found)
    # the recorder imports it when it is called
    monkeypatch.setattr("zfstune.host.open_host", lambda: found)
    # of the tests
    monkeypatch.setattr("zfstune.record.memory.lock", lambda: "")
    monkeypatch.setattr(production, "signs", lambda: [EVIL])
    monkeypatch.setattr("sys.stdin", io.StringIO())
    monkeypatch.setenv("ZFSTUNE_STATE_DIR", str(found.where.state))
    monkeypatch.setenv("ZFSTUNE_RUN_DIR", str(found.where.run))
    fake_programs.fio(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    for directory in ("data", EVIL, "etc/modprobe.d"):
        Path(directory).mkdir(parents=True)
    number = Path("data").stat().st_dev
    found.devices = {(os.major(number), os.minor(number)): EVIL}
    strange = b"options zfs zfs_\x1b]0;x\x07=3 zfs_txg_timeout=9\n# \xff\x1b[2J\n"
    for name in ("zfstune.conf", f"{EVIL.replace('/', '')}.conf"):
        Path("etc/modprobe.d", name).write_bytes(strange)
    Path("stacks").write_bytes(b"a\x1b[2J;b\xff 3\nno\x1b[2J count\n\x9b;\r 4\n")
    Path("config").write_bytes(b"fsync = 'a\x1b[2J'\nwal_\x1b]0;x\x07=1\ninclude 'x\x1b[2J'\n")
    Path("session").mkdir()
    session = json.dumps(hostile(sample_session.session()))
    Path("session/session.json").write_text(session)
    return found


def hostile(session: Any) -> Any:
    """With a hostile name in each text that a program or a person supplies."""
    texts = {"pool", "command", "note", "why", "reason", "comm", "workload", "dataset"}
    if isinstance(session, dict):
        named = {name: EVIL for name in texts & session.keys() if isinstance(session[name], str)}
        return {name: hostile(value) for name, value in session.items()} | named
    return [hostile(one) for one in session] if isinstance(session, list) else session


def journal(host: HostileHost, *, killed: bool) -> None:
    """The journal of a session that met another writer, or of one that was killed."""
    wanted = {"zfs_commit_timeout_pct": 4, "zfs_delay_scale": 600000}
    set_values(host, wanted, EVIL, lambda _text: None, where=host.where)
    if killed:
        found = Journal(host.where, write=True)
        given = {"zfs_txg_timeout": Original(5), "zfs_delay_scale": Original(600000)}
        found.begin("session", "boot:1", LONG, given)
        found.intend("zfs_txg_timeout", 5, 11)
        host.params.put("zfs_txg_timeout", 11)
        host.params.put("zfs_delay_scale", 700000)
        found.override(Override("zfs_delay_scale", 700000, 77, EVIL))
        found.close()
    (host.where.state / f"journal.damaged{EVIL}").write_bytes(b"")


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: ascii(" ".join(words))[:60])
def test_no_name_reaches_the_output_raw(
    words: list[str],
    host: HostileHost,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if words[0] in ("status", "revert", "recover", "keep"):
        journal(host, killed=words[0] != "keep")
    if words[0] == "status" or "--print" in words:
        # they would print nothing
        monkeypatch.setattr("zfstune.changes.recovery.if_needed", lambda _who: None)
    try:
        cli.main(words)
    except SystemExit as left:
        assert left.code in (0, 2)
    clean(*capsys.readouterr())


@pytest.mark.parametrize("as_json", [False, True])
def test_no_name_reaches_the_advice_raw(as_json: bool) -> None:
    tools = fake_advise.Tools({"tank": {"sync": "disabled"}, f"tank/{EVIL}": {"logbias": EVIL}})
    if as_json:
        clean(json.dumps(fake_advise.run(tools)[1]))
    else:
        clean(fake_advise.text(tools))


def test_no_name_reaches_the_result_of_a_session_raw() -> None:
    clean("\n".join(tune_view.table(hostile(sample_session.session()), Style())))


def clean(*texts: str) -> None:
    for text in texts:
        assert not raw(text)
        assert "Traceback" not in text
        # a line break in a name makes no new line
        assert not any(line.startswith(("b\r", "b?", "b<")) for line in text.splitlines())


def leaves(parser: Any, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    found = [a.choices for a in parser._actions if isinstance(a.choices, dict)]
    for choices in found:
        for name, below in choices.items():
            yield from leaves(below, (*before, name))
    if not found:
        yield before


def test_every_command_is_tried() -> None:
    there = {tuple(words[:2]) for words in COMMANDS} | {tuple(words[:1]) for words in COMMANDS}
    assert set(leaves(cli.build_parser())) <= there
