"""The command line: one line for each error, help for a person, a cheap start."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.errors import ONE_ERROR, REFUSED
from support.fake_host import FakeHost, FakeSession
from support.paths import ROOT
from support.samples import arc

from zfstrace.errors import NoPrivilege
from zfstrace.types import Check
from zfstune import __version__, cli
from zfstune import host as host_module
from zfstune.errors import NotPossible, UsageError

SOURCES = [ROOT / path for path in ("tracers", "tuner", "platform/linux", "platform/freebsd")]


def zfstune(*words: str, flags: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return python(*flags, "-m", "zfstune", *words)


def python(*words: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, SOURCES)), "PYTHONUTF8": "1"}
    return subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        env=env,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("", "no command given"),
        ("-v", "no option -v\nhint: see `zfstune -h`"),
        ("--jsno doctor", "no option --jsno\nhint: see"),
        ("doctor --jsno", "unrecognized arguments: --jsno\nhint: see `zfstune doctor -h`"),
        ("trcae", "did you mean trace?"),
        ("xyz", "doctor, trace"),
        ("trace fsnyc", "did you mean fsync?"),
        ("trace tank", "choose from: fsync, slow, txg, throttle, device, arc"),
        ("trace --pool tank/db", "is a dataset, not a pool"),
        ("trace --interval 2", "--interval: '2' has no unit"),
        ("trace --interval 5s txg", "`trace txg` has no --interval\nhint: leave it out"),
        ("trace --pool tank arc", "`trace arc` has no --pool\nhint: leave it out"),
        ("trace txg --source dtrace", "--source: invalid choice"),
        ("trace txg --interval 1s", "--interval"),
        ("trace txg tank/db", "is a dataset, not a pool"),
        ("trace throttle --pid 0", "1 or more"),
        ("trace device --dataset tank/db", "--dataset"),
        ("trace arc tank", "unrecognized arguments: tank"),
        ("trace slow", "--over is missing"),
        ("trace slow --over ten", "'ten' is not a time\nhint: write it like 500us"),
        ("trace slow --over 10", "write it like 10ms"),
        ("trace slow --over 0ms", "more than 0"),
        ("trace slow --over=-5ms", "not a time"),
        ("trace slow --over 5ms --count 0", "1 or more"),
        ("trace fsync --interval 0s", "--interval: '0s' is zero"),
        ("trace fsync --duration 5parsecs", "--duration: '5parsecs' is not a time"),
        ("trace fsync --duration", "--duration"),
        ("trace fsync --pid x", "--pid: 'x' is not a number"),
        ("trace fsync --pid -4", "--pid"),
        ("trace fsync tank/db", "write --dataset tank/db"),
        ("trace fsync tank --dataset rpool/db", "not in pool 'tank'"),
        ("trace fsync --dataset tank/db@now", "is a snapshot"),
        ("trace fsync a b", "unrecognized arguments: b"),
        ("trace fsync --jsno", "--jsno"),
        ("doctor --fix", "--fix"),
        ("diagnose tank/db", "a diagnosis is for a whole pool\nhint: write tank"),
        ("diagnose tank --duration 5", "--duration: '5' has no unit"),
        ("diagnose tank --dataset tank/db", "--dataset"),
        ("diagnose --from /nowhere/x", "cannot read /nowhere/x"),
        ("flame tank", "choose from: diff, convert"),
        ("flame --on-cpu --wakeup", "--wakeup: not allowed with"),
        ("flame --pid 1 --txg-sync", "--txg-sync: not allowed with"),
        ("flame --pool tank/db", "is a dataset, not a pool\nhint: give tank\n"),
        ("flame --duration 0s", "more than 0"),
        ("flame diff a -o x.svg", "AFTER is missing"),
        ("flame diff a b", "-o/--output is missing"),
        ("flame convert a -o x.svg --unit h", "--unit: invalid choice"),
        ("params set nonsense", "'nonsense' sets nothing"),
        ("params set =5", "'=5' sets nothing"),
        ("params set zfs_txg_timeout=", "cannot set zfs_txg_timeout: '' is not a time"),
        ("params set zfs_txg_timout=5", "does not know it\nhint: did you mean zfs_txg_timeout"),
        ("params set zfs_txg_timeout=5 vfs.zfs.txg.timeout=6", "given twice"),
        ("params set zil_nocacheflush=1 --force", "not even with --force"),
        ("params set zfs_dirty_data_max_max=1G", "only when the module is loaded"),
        ("params get x", "no parameter 'x'"),
        ("params get tank/db", "no parameter 'tank/db'"),
        ("params explain zfs_txg_timeout=5", "did you mean zfs_txg_timeout"),
        ("params get --value --json zfs_txg_timeout", "--json: not allowed with"),
        ("params --json get --value zfs_txg_timeout", "--value: not allowed with --json"),
        ("params --changed explain zfs_txg_timeout", "--changed is an option of"),
        ("params --all set zfs_txg_timeout=5", "--all is an option of"),
        ("params --all list --changed", "--changed: not allowed with --all"),
        ("tune tank --observe --out a --resume b", "--resume: not allowed with"),
    ],
)
def test_usage_errors_are_one_line(
    command: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(command.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.fullmatch(ONE_ERROR, captured.err)
    assert hint in captured.err


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parser and all below it."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from parsers(below)


def test_words_of_a_list_stand_on_both_sides_of_options(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lists = {
        parser.prog: (action.dest, parser.get_default("anywhere"))
        for parser in parsers(cli.build_parser())
        for action in parser._actions
        if not action.option_strings and action.nargs in ("+", "*")
    }
    assert len(lists) == 5
    assert all(name == anywhere for name, anywhere in lists.values()), lists
    words = ["zfs_txg_timeout", "--json", "zil_nocacheflush"]
    assert cli.main(["params", "explain", *words]) == 0
    explained = json.loads(capsys.readouterr().out)["parameters"]
    assert [row["name"] for row in explained] == [words[0], words[2]]


@pytest.mark.parametrize(
    "words",
    [
        ["tune", "tank", "postgresql://me:secret word@db/x"],
        ["tune", "tank", "--stoarge=postgresql://me:secret@db/x"],
        ["tune", "--budget", "postgresql://me:secret@db/x"],
        ["tune", "postgresql://me:secret@db/x"],
        ["--storage=postgresql://me:secret@db/x"],
    ],
)
def test_errors_have_no_passwords(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 2
    err = capsys.readouterr().err
    assert "secret" not in err
    assert "postgresql://me:***@db/x" in err


@pytest.mark.parametrize(
    ("ignored", "status", "stdout"),
    [(False, -signal.SIGINT, ""), (True, 0, f"zfstune {__version__}\n")],
)
def test_ctrl_c_while_it_loads_is_status_130(ignored: bool, status: int, stdout: str) -> None:
    """Ctrl-C comes when the command line is about to be imported."""
    program = f"""\
import signal, sys

class CtrlC:
    def find_spec(name, *_):
        if name == "zfstune.cli":
            signal.raise_signal(signal.SIGINT)

if {ignored}:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.meta_path.insert(0, CtrlC)
from zfstune.__main__ import main
sys.exit(main())
"""
    done = python("-c", program, "--version")
    assert (done.returncode, done.stdout, done.stderr) == (status, stdout, "")


def test_ctrl_c_after_it_is_loaded_is_status_130() -> None:
    """From then on Ctrl-C is Python's again, and the commands' to handle."""
    program = """\
import signal, sys
from zfstune.__main__ import main
from zfstune.advise import command
command.run = lambda args: signal.raise_signal(signal.SIGINT)
sys.exit(main())
"""
    done = python("-c", program, "advise", "tank")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_usage_error_of_the_process_prints_no_escape_codes() -> None:
    done = zfstune("trace", "slow", "--over", "1\n0\x1b[31m")
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(ONE_ERROR, done.stderr)
    assert "\x1b" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("doctor",),
        ("trace",),
        ("trace", "fsync"),
        ("trace", "slow"),
        ("trace", "txg"),
        ("trace", "throttle"),
        ("trace", "device"),
        ("trace", "arc"),
        ("trace", "read"),
        ("check",),
        ("flame",),
        ("flame", "diff"),
        ("flame", "convert"),
        ("params",),
        ("params", "list"),
        ("params", "get"),
        ("params", "explain"),
        ("params", "set"),
        ("tune",),
        ("status",),
        ("revert",),
        ("keep",),
        ("recover",),
        ("report",),
        ("bench",),
    ],
)
def test_help_ends_in_examples(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main([*words, "-h"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert "examples:\n" in text
    assert "exit status:\n" in text
    assert max(map(len, text.splitlines())) < 100


TRACE = {"zfstune.term", "zfstune.term.argtypes", "zfstune.term.units"}
TRACE |= {"zfstune.trace", "zfstune.trace.args"}


@pytest.mark.parametrize(
    ("words", "more"), [(("--version",), set()), (("trace", "fsync", "-h"), TRACE)]
)
def test_the_start_is_cheap(words: Sequence[str], more: set[str]) -> None:
    done = python("-X", "importtime", str(ROOT / "bin/zfstune"), *words)
    assert done.returncode == 0
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    ours = {name for name in loaded if name.startswith(("zfstune", "zfstrace", "zfs_"))}
    errors = {"zfstune.errors", "zfstrace", "zfstrace.errors"}
    assert ours <= {"zfstune", "zfstune.__main__", "zfstune.cli"} | errors | more
    assert not loaded & {"ctypes", "json", "dataclasses", "typing", "asyncio", "numpy"} - site()


def test_version_has_three_numbers() -> None:
    assert re.fullmatch(r"zfstune \d+\.\d+\.\d+\n", zfstune("--version").stdout)


def subcommands(parser: argparse.ArgumentParser) -> set[str]:
    (found,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    return set(found.choices)


@pytest.mark.parametrize("package", cli.COMMANDS)
def test_a_command_is_made_by_its_package_alone(package: str) -> None:
    for name in cli.COMMANDS[package]:
        parser = cli.build_parser(name)
        assert subcommands(parser) == set(cli.COMMANDS[package])
        assert parser.format_usage() == cli.build_parser().format_usage()


@pytest.mark.parametrize("first", ["", "-h", "--", "fsync"])
def test_an_unknown_command_loads_all_commands(first: str) -> None:
    names = {name for names in cli.COMMANDS.values() for name in names}
    assert subcommands(cli.build_parser(first)) == names


def site() -> set[str]:
    """What Python itself loads here before any program (a .pth file may load a lot)."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", ""], capture_output=True, text=True, check=True
    )
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}


@pytest.mark.parametrize("word", ["doctor", "-h", "--version"])
def test_closed_stdout_is_no_error(word: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    env = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, SOURCES))}
    done = subprocess.run(
        [sys.executable, "-m", "zfstune", word],
        stdout=writer,
        stderr=subprocess.PIPE,
        env=env,
        text=True,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("word", ["doctor", "-h", "--version"])
def test_a_full_disk_is_one_error(word: str) -> None:
    """Python would try again at exit, complain, and end with status 120."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, SOURCES))}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "zfstune", word],
            stdout=full,
            stderr=subprocess.PIPE,
            env=env,
            text=True,
            check=False,
        )
    assert done.returncode == 3
    assert done.stderr == "zfstune: error: cannot go on: No space left on device\n"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    host = FakeHost()
    monkeypatch.setattr("zfstune.trace.live.open_host", lambda: host)
    return host


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("trace fsync tnak", "did you mean tank?"),
        ("trace fsync xyzzy", "imported pools: idle, tank"),
        ("trace fsync --dataset tank/bd", "did you mean tank/db"),
        ("trace fsync --dataset zzz/qqq", "no dataset 'zzz/qqq'"),
        ("trace fsync --pid 12345", "there is no process 12345"),
    ],
)
def test_unknown_names_are_refused_with_a_guess(
    command: str, hint: str, fake: FakeHost, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(command.split()) == 2
    err = capsys.readouterr().err
    assert hint in err
    assert re.fullmatch(ONE_ERROR, err)


@pytest.mark.parametrize(
    ("check", "hint"),
    [
        (
            Check("ZFS", "zfs", "not loaded", "blocking", "nothing", "run `modprobe zfs`"),
            "modprobe",
        ),
        (Check("privileges", "privilege", "no", "blocking", "x", "CAP_BPF"), "CAP_BPF"),
        (Check("kernel BTF", "kernel", "absent", "blocking", "x", "y"), "BTF absent"),
        (Check("lib", "library", "absent", "blocking", "not built", "run `make`"), "run `make`"),
    ],
)
def test_what_this_host_cannot_do_says_why(
    check: Check,
    hint: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    host = FakeHost(checks=[check])
    monkeypatch.setattr("zfstune.trace.live.open_host", lambda: host)
    assert cli.main(["trace", "fsync", "tank"]) == 3
    err = capsys.readouterr().err
    assert hint in err
    assert re.fullmatch(REFUSED, err)


@pytest.mark.parametrize("command", ["trace txg", "trace arc", "trace"])
def test_kstats_need_no_privilege(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lack = Check("privileges", "privilege", "no", "blocking", "x", "CAP_BPF")
    host = FakeHost(FakeSession([arc()], probes=()), checks=[lack])
    host.sessions = dict.fromkeys(("fsync", "throttle", "device", "txg", "arc"), NoPrivilege("no"))
    monkeypatch.setattr("zfstune.trace.live.open_host", lambda: host)
    source = ["--source", "kstat"] if command != "trace" else []
    assert cli.main([*command.split(), "--duration", "10ms", *source]) == 0


def test_options_may_stand_before_the_subcommand() -> None:
    args = cli.build_parser().parse_args(
        ["trace", "--duration", "5s", "--json", "--pool", "tank", "txg"]
    )
    assert (args.run, args.duration, args.json, args.pool) == ("trace.txg", 5 * 10**9, True, "tank")
    args = cli.build_parser().parse_args(["trace", "--json", "fsync", "--interval", "2s"])
    assert (args.run, args.duration, args.interval) == ("trace.fsync", None, 2 * 10**9)


def test_no_zfs_comes_before_wrong_names_before_privilege() -> None:
    # a wrong name is reported before a lack of privilege, no ZFS before both
    lack = Check("privileges", "privilege", "no", "blocking", "x", "y")
    no_zfs = Check("ZFS", "zfs", "no", "blocking", "x", "y")
    from zfstrace.types import FsyncOptions
    from zfstune.preflight import prepare

    with pytest.raises(UsageError):
        prepare(FakeHost(checks=[lack]), FsyncOptions(pool="nope"))
    with pytest.raises(NotPossible):
        prepare(FakeHost(checks=[no_zfs, lack]), FsyncOptions(pool="nope"))


def test_other_systems_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "plan9")
    with pytest.raises(NotPossible, match="plan9 is not supported"):
        host_module.open_host()


CLOSED = ("<&-", ">&-", "2>&-", "<&- >&- 2>&-")


def with_closed(how: str, tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """How it ends when the shell has closed some of the descriptors 0 to 2."""
    places = {f"ZFSTUNE_{name}_DIR": str(tmp_path / name) for name in ("STATE", "RUN")}
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {how}', "sh", sys.executable, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=os.environ | places | {"PYTHONPATH": os.pathsep.join(map(str, SOURCES))},
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("how", CLOSED[1:])
@pytest.mark.parametrize("command", ["recover", "revert", "status", "doctor", "trcae"])
def test_closed_descriptors_change_no_status(command: str, how: str, tmp_path: Path) -> None:
    """`recover >&-` had restored all, and ended as if it could not."""
    words = ("-m", "zfstune", *command.split())
    expected, done = with_closed("", tmp_path, *words), with_closed(how, tmp_path, *words)
    assert done.returncode == expected.returncode
    # the options of one are not in the other
    assert done.stdout == ("" if ">&-" in how.split() else expected.stdout)
    assert done.stderr == ("" if "2>&-" in how else expected.stderr)


@pytest.mark.parametrize("how", CLOSED)
def test_no_file_gets_the_number_of_a_closed_descriptor(how: str, tmp_path: Path) -> None:
    """Nor does a program that it starts find one closed."""
    code = (
        "import os, subprocess, sys; from zfstune import __main__ as m; m.open_standard(); "
        "p = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT); assert p > 2, p; "
        "[os.fstat(fd) for fd in range(3)]; print('x', flush=True); sys.stdin.buffer.read(0); "
        "print('y', file=sys.stderr, flush=True); "
        "subprocess.run(['sh', '-c', 'true <&0 >&1 2>&2'], check=True)"
    )
    assert with_closed(how, tmp_path, "-c", code, str(tmp_path / "file")).returncode == 0
    assert (tmp_path / "file").read_bytes() == b""


def test_no_page_runs_it_with_modules_of_others() -> None:
    """Without -I, PYTHONPATH and the user's own packages count, as root."""
    texts = [ROOT / "README.md", *(ROOT / "docs").rglob("*.[m1]*"), *(ROOT / "platform").rglob("*")]
    runs = re.compile(r"python3?(?:\.\d+)?((?: -\S+)*) \S*bin/zfstune\b")
    found = [
        (path.name, match[0])
        for path in texts
        if path.is_file() and path.suffix not in (".pyc", ".svg")
        for match in runs.finditer(path.read_text(errors="replace"))
    ]
    assert found
    assert [one for one in found if " -I " not in one[1]] == []
