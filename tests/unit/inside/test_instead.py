"""What answers a question where a trace is impossible: only what works here, the best first."""

from __future__ import annotations

import io
import itertools
import json
import re
import shutil
from pathlib import Path

import pytest
from support.fake_host import FakeHost
from support.paths import ROOT

from zfstrace.types import Check, Tool, TraceOptions
from zfstune import cli
from zfstune.check.metrics import METRICS
from zfstune.diagnose import command as diagnose
from zfstune.errors import NotPossible
from zfstune.inside import collect, instead
from zfstune.inside.instead import GIVES, QUESTIONS, Instead
from zfstune.preflight import prepare
from zfstune.trace import doctor, live

LIBRARY = Check("libzfstrace", "library", "absent", "blocking", "cannot trace: no library", "make")
BTF = Check("kernel BTF", "kernel", "absent", "blocking", "no BPF", "another kernel")
PRIVILEGE = Check("privileges", "privilege", "insufficient", "blocking", "no BPF", "be root")
ZFS = Check("ZFS", "zfs", "not loaded", "blocking", "nothing to trace", "modprobe zfs")
RUNNERS = {"bpftrace": ".bt", "bcc": ".py", "dtrace": ".d"}


class Host(FakeHost):
    """A host that has some programs, and cannot trace."""

    def __init__(self, *programs: str, lack: Check = LIBRARY) -> None:
        super().__init__(checks=[lack])
        self.programs = programs

    def tools(self) -> list[Tool]:
        return [
            Tool(name, runner, "" if runner in self.programs else f"{runner} is not installed")
            for name in GIVES
            for runner, suffix in RUNNERS.items()
            if name.endswith(suffix)
        ]


@pytest.fixture(autouse=True)
def no_zpool(monkeypatch: pytest.MonkeyPatch) -> None:
    which = shutil.which
    monkeypatch.setattr("shutil.which", lambda name: None if name == "zpool" else which(name))


def commands(host: FakeHost, question: str, pool: str | None = "tank") -> list[str]:
    return [way.command for way in Instead(host, host.checks(), pool).ways(question)]


def programs() -> list[tuple[str, ...]]:
    return [c for n in range(4) for c in itertools.combinations(RUNNERS, n)]


@pytest.mark.parametrize("there", programs(), ids="+".join)
@pytest.mark.parametrize("question", QUESTIONS)
def test_only_tools_with_their_program_are_offered_in_the_order_of_the_table(
    there: tuple[str, ...], question: str
) -> None:
    suffixes = tuple(RUNNERS[program] for program in there)
    expected = [
        GIVES[name]
        for name in QUESTIONS[question]
        if name.endswith(suffixes) or name.startswith("{zfstune}")
    ]
    assert [way.gives for way in Instead(Host(*there), [LIBRARY]).ways(question)] == expected


@pytest.mark.parametrize(
    ("there", "best"),
    [
        (("bpftrace", "bcc", "dtrace"), "tracers/dtrace/linux/zilcommit.d"),
        (("bpftrace", "bcc"), "tracers/bpftrace/zilcommit.bt"),
        (("bcc",), "tracers/bcc/zildist.py"),
    ],
)
def test_the_best_for_fsyncs_is_a_file_of_the_checkout(there: tuple[str, ...], best: str) -> None:
    assert commands(Host(*there), "fsync")[0] == str(ROOT / best)


def test_with_kstats_alone_they_are_named_with_what_they_lack() -> None:
    (way,) = Instead(Host(), [BTF], "tank").ways("fsync")
    assert way.command == "zfstune check tank --show zil.commits,txg.sync.p99"
    assert "no time of any fsync" in way.gives
    assert commands(Host(), "flame") == []


def test_zpool_iostat_is_the_best_for_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/sbin/{name}")
    assert commands(Host("bpftrace"), "device")[0] == "zpool iostat -vl tank 1"


def test_what_forbids_bpf_forbids_every_tracer() -> None:
    """Lockdown, a container, no root: kstats are left. Without ZFS nothing is."""
    host = Host(*RUNNERS, lack=PRIVILEGE)
    assert not [c for c in commands(host, "diagnose") if "tracers/" in c]
    assert commands(host, "txg") == ["zfstune trace txg tank --source kstat"]
    for question in QUESTIONS:
        assert commands(Host(*RUNNERS, lack=ZFS), question) == []


def test_without_a_pool_only_what_needs_none_is_offered() -> None:
    host = Host()
    assert commands(host, "txg", None) == ["zfstune trace txg idle --source kstat"]
    host.pools = lambda: []  # type: ignore[method-assign]
    assert commands(host, "txg", None) == []
    assert commands(host, "arc", None) == ["zfstune trace arc --source kstat"]


def test_the_one_file_copies_its_tools_out_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zfstrace.packaged.archive", lambda package: "/mnt/a b/zfstune.pyz")
    monkeypatch.setattr("sys.argv", ["/mnt/a b/zfstune.pyz", "trace"])
    monkeypatch.setattr("sys.executable", "")
    monkeypatch.setattr(instead, "_CHECKOUT", Path("/mnt/a b"))
    monkeypatch.setattr(instead, "_SBIN", ())
    first, *_, last = commands(Host("bpftrace"), "fsync")
    run = "python3 '/mnt/a b/zfstune.pyz'"
    assert first == f"{run} tools extract /root/tools zilcommit.bt && /root/tools/zilcommit.bt"
    assert last.startswith(f"{run} check tank ")


@pytest.mark.parametrize(
    ("file", "python", "called"),
    [
        ("zfstune.pyz", "bin/python3", "python3 zfstune.pyz"),
        ("./a b.pyz", "bin/python3", "python3 './a b.pyz'"),
        ("zfstune.pyz", "opt/python3.11", "{tmp}/opt/python3.11 zfstune.pyz"),
        ("bin/zfstune", "", "zfstune"),
        ("{tmp}/bin/zfstune", "", "zfstune"),
        ("checkout/bin/zfstune", "", "checkout/bin/zfstune"),
        ("{tmp}/checkout/bin/zfstune", "", "{tmp}/checkout/bin/zfstune"),
        ("bin/python3", "", "zfstune"),
    ],
)
def test_commands_call_zfstune_as_it_was_called(
    file: str, python: str, called: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("bin/zfstune", "bin/python3", "opt/python3.11", "checkout/bin/zfstune"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
        path.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr("zfstrace.packaged.archive", lambda package: file if python else "")
    monkeypatch.setattr("sys.executable", f"{tmp_path}/{python}")
    monkeypatch.setattr("sys.argv", [file.format(tmp=tmp_path), "trace"])
    (command,) = commands(Host(), "txg")
    assert command == f"{called.format(tmp=tmp_path)} trace txg tank --source kstat"


def test_an_installed_tool_is_named_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instead, "_CHECKOUT", tmp_path)
    monkeypatch.setattr(instead, "_SBIN", (str(tmp_path),))
    (tmp_path / "zilslower.bt").write_text("")
    assert commands(Host("bpftrace"), "slow")[0] == f"{tmp_path}/zilslower.bt 10"


def test_the_table_is_about_tools_commands_and_metrics_that_exist() -> None:
    names = {tool["name"] for tool in collect.tools(ROOT)}
    for question, ways in QUESTIONS.items():
        assert set(ways) <= set(GIVES), question
    for name in GIVES:
        if " " not in name:
            assert name in names
            continue
        assert name in {way for ways in QUESTIONS.values() for way in ways}
        if name.startswith("{zfstune}"):
            words = name.format(zfstune="zfstune", pool="tank").split()[1:]
            cli.build_parser().parse_args(words)
        shown = re.search(r"--show (\S+)", name)
        for metric in shown[1].split(",") if shown else ():
            assert METRICS[metric].source == "kstat"


def test_a_refused_trace_ends_in_what_works(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("zfstune.changes.recovery.if_needed", lambda name: None)
    monkeypatch.setattr(live, "open_host", lambda: Host("bpftrace"))
    monkeypatch.setattr(diagnose, "open_host", lambda: Host("bpftrace"))
    for words, best in (
        (["trace", "slow", "--over", "10ms"], "zilslower.bt 10"),
        (["diagnose", "tank"], "zilcommit.bt"),
    ):
        assert cli.main(words) == 3
        out, err = capsys.readouterr()
        assert out == ""
        error, hint, title, first, *_ = err.splitlines()
        assert error == "zfstune: error: cannot trace: no library"
        assert (hint, title) == ("hint: make", instead.TITLE)
        assert first == f"  {ROOT}/tracers/bpftrace/{best}"


def test_a_refusal_without_a_question_has_no_more() -> None:
    with pytest.raises(NotPossible) as caught:
        prepare(Host("bpftrace"), TraceOptions())
    assert caught.value.more == ()


def test_doctor_answers_each_question_where_nothing_can_be_traced() -> None:
    out = io.StringIO()
    assert doctor.examine(Host("bpftrace"), out, as_json=True) == 3
    found = json.loads(out.getvalue())["instead"]
    assert list(found) == list(QUESTIONS)
    assert found["txg"][0]["command"] == "zfstune trace txg idle --source kstat"
    out = io.StringIO()
    doctor.examine(Host("bpftrace"), out, as_json=False)
    lines = out.getvalue().splitlines()
    at = lines.index("  in place of `zfstune trace fsync`")
    assert lines[at + 1].endswith("tracers/bpftrace/zilcommit.bt")
    assert lines[-1].endswith("tracing is not possible here")
    # what works needs nothing in its place
    out = io.StringIO()
    doctor.examine(FakeHost(), out, as_json=True)
    assert json.loads(out.getvalue())["instead"] == {}


def test_words_after_a_tool_are_for_those_that_need_them() -> None:
    """zilslower.bt does nothing without its limit."""
    usages = {
        path.name: found[1]
        for path in ROOT.glob("tracers/bpftrace/*.bt")
        for found in re.finditer(r"USAGE: \S+ ?(.*)", path.read_text())
    }
    needing = {name for name, usage in usages.items() if usage and not usage.startswith("[")}
    assert needing <= set(instead._WORDS)
