"""scripts/freebsd-check on the stand-ins for sysctl(3) and dtrace(1): it passes on a healthy host,
and fails on any defect."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.freebsd import standin
from support.freebsd.standin import ROOT, Table

from freebsd import check
from freebsd.host import Host
from freebsd.items import ITEMS
from zfs_freebsd.dtrace import probes

CHECK = ROOT / "tests/support/freebsd/check.py"
DTRACE = ROOT / "tests/support/freebsd/dtrace_standin.py"
LAUNCHER = ROOT / "scripts/freebsd-check"
FOLDERS = ("tracers", "tuner", "platform/freebsd")
COUNTS = ("count, script", "count, command")
TIMEOUT = "vfs/zfs/txg/timeout"
ZPOOL = """\
  pool: secretname
 state: ONLINE
config:

\tNAME          STATE     READ WRITE CKSUM
\tsecretname    ONLINE       0     0     0
\t  mirror-0    ONLINE       0     0     0
\t    ada0p4    ONLINE       0     0     0
\t    ada1p4    ONLINE       0     0     0
\tlogs
\t  nda0        ONLINE       0     0     0

errors: No known data errors
"""
SYSCTL = """\
#!{python} -S
import os, sys
table = dict(
    (words[0].replace("/", "."), words[3])
    for words in (line.split("\\t") for line in open(os.environ["SYSCTL_STANDIN_TABLE"]))
    if len(words) > 3
)
for name in sys.argv[2:]:
    if name in table:
        print(f"{{name}}={{table[name].strip()}}")
"""


class Bench:
    """A root directory of FreeBSD's shape, with stand-ins on the PATH."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for directory in ("etc", "boot/loader.conf.d", "dev/dtrace", "var/run", "bin", "set", "ds"):
            (root / directory).mkdir(parents=True)
        (root / "dev/dtrace/dtrace").touch()
        self.table = Table(root / "table").host()
        # an open txg that is as old as a txg is here
        rows = (standin.RECORDED / "txgs").read_text().splitlines()
        *closed, last = rows
        words = last.split()
        words[1] = str(time.monotonic_ns() - 1_000_000_000)
        text = "\n" + "\n".join([*closed, " ".join(words)]) + "\n"
        self.table.add("kstat/zfs/tank/txgs", "string", text, "s").write()
        self.program("sysctl", SYSCTL.format(python=sys.executable))
        self.program("zpool", f"#!/bin/sh\ncat <<'E'\n{ZPOOL}E\n")
        self.program("mount", f"#!/bin/sh\nprintf 'tank/db\\t{root}/ds\\tzfs\\trw 0 0\\n'\n")
        self.program("freebsd-version", "#!/bin/sh\necho 14.2-RELEASE; echo 14.2-RELEASE-p1\n")
        (root / "bin/dtrace").symlink_to(DTRACE)
        self.environment = {
            "PATH": f"{root}/bin:{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(str(ROOT / folder) for folder in FOLDERS),
            "SYSCTL_STANDIN_TABLE": str(self.table.path),
            "DTRACE_STANDIN": str(root / "set"),
            "ZFSTUNE_STATE_DIR": str(root / "var/db/zfstune"),
            "ZFSTUNE_RUN_DIR": str(root / "var/run/zfstune"),
        }

    def program(self, name: str, text: str) -> None:
        path = self.root / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def set(self, name: str, *words: str) -> None:
        (self.root / "set" / name).write_text("\n".join(words))

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-B", "-S", str(CHECK), str(self.root), str(standin.build()), *words],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, status: int = 0) -> tuple[str, str]:
        process = self.start(*words)
        out, err = process.communicate(timeout=300)
        assert "Traceback" not in err
        assert process.returncode == status, out + err
        return out, err

    def items(self, *words: str, status: int = 0) -> dict[str, dict[str, Any]]:
        found = json.loads(self.run(*words, "--json", status=status)[0])
        return {item["item"]: item for item in found["items"]}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    if os.geteuid() != 0:
        pytest.skip("the check is made for root")
    return Bench(tmp_path)


def verdicts(items: dict[str, dict[str, Any]], verdict: str) -> set[str]:
    return {name for name, item in items.items() if item["verdict"] == verdict}


def files(root: Path) -> set[str]:
    return {str(path) for path in root.rglob("*") if path.name != "table.lock"}


def test_a_healthy_host_passes_and_nothing_is_changed(bench: Bench) -> None:
    before, table = files(bench.root), bench.table.path.read_text()
    out, _ = bench.run()
    assert (files(bench.root), bench.table.path.read_text()) == (before, table)
    lines = out.splitlines()
    assert not [line for line in lines if line.startswith("FAIL")]
    skipped = [line.split("  ")[1].strip() for line in lines if line.startswith("SKIP  ")]
    assert skipped == ["count, script", "count, command", "write"]
    for name in (ROOT / "tracers/dtrace/freebsd").glob("*.d"):
        assert [line for line in lines if line.startswith(f"PASS  {name.name} ")]


def test_the_text_for_an_issue_has_no_names(bench: Bench) -> None:
    bench.table.add("kstat/zfs/tank/txgs", "string", "", "s").write()
    out, _ = bench.run("--only", "zfs", "--only", "doctor")
    text = out.partition("For an issue:\n")[2]
    assert "14.2-RELEASE 14.2-RELEASE-p1" in text
    assert standin.VERSION in text
    assert "pool 1: 1 mirror, 3 disk, 1 logs" in text
    assert "kstat pool1/...: absent" in text
    for private in ("tank", "secretname", "ada0p4", os.uname().nodename, str(bench.root)):
        assert private not in text


def test_a_host_without_a_name_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(nodename=""))
    host: Any = SimpleNamespace(directory=None, kstats=SimpleNamespace(pools=lambda: ["tank"]))
    assert check.without_names("PASS  zfs: tank, 2 disks", host) == "PASS  zfs: pool1, 2 disks"


def test_counts_and_the_write_pass(bench: Bench) -> None:
    bench.set("watch", str(bench.root / "ds"))
    only = [word for name in (*COUNTS, "write") for word in ("--only", name)]
    items = bench.items("--dir", str(bench.root / "ds"), "--write", *only)
    assert set(items) == {*COUNTS, "write"}
    assert not verdicts(items, "FAIL") | verdicts(items, "SKIP")
    assert items["count, script"]["said"] == ("40 fsyncs: 40 by zilevent-json.d, 40 by kstat zil")
    assert items["count, command"]["said"] == "40 fsyncs: 40 by `zfstune trace fsync`"
    assert items["write"]["said"] == "vfs.zfs.txg.timeout: 5, 6, 5"
    assert bench.table.read(TIMEOUT) == 5
    assert list((bench.root / "ds").iterdir()) == []


def test_each_defect_fails_its_item(bench: Bench) -> None:
    bench.table.add("vfs/zfs/dirty_data_max", "string", "much", "wt").write()
    bench.set("missing", "fbt:kernel:_cv_wait:entry", "fbt:zfs:zil_commit_impl:return")
    bench.set("broken", "zilslower.d")
    bench.set("faulty", "zfsdevice-json.d")
    wrong = ("parameters", "doctor", "probes", "zilslower.d", "zfsdevice-json.d", "zfsflush.d")
    items = bench.items(*(word for name in wrong for word in ("--only", name)), status=1)
    failed = verdicts(items, "FAIL")
    assert {"parameters", "doctor", "probes", "zilslower.d", "zfsdevice-json.d"} == failed
    assert "not an integer" in "".join(items["parameters"]["more"])
    assert "the kernel has no fbt:kernel:_cv_wait:entry" in "".join(items["probes"]["more"])
    # one of the alternatives is enough, but it is reported
    assert "fbt:zfs:zil_commit_impl:return" in items["probes"]["more"]
    assert "syntax error" in "".join(items["zilslower.d"]["more"])
    assert items["zfsdevice-json.d"]["said"] == "it ran into faults"


@pytest.mark.parametrize("errors", [0, 1])
def test_the_faults_of_a_script_are_in_its_last_line(bench: Bench, errors: int) -> None:
    """zfsread-json.d also counts the errors of read(2), and no state before the last is final."""
    begin, end = bench.root / "begin", bench.root / "end"
    begin.write_text(
        '{"type":"trace_begin"}\n'
        f'{{"type":"read_rest","errors":{0 if errors else 3}}}\n'
        '{"type":"trace_state","errors":0}\n'
    )
    end.write_text(f'{{"type":"trace_end","errors":{errors}}}\n')
    (bench.root / "bin/dtrace").unlink()
    bench.program(
        "dtrace",
        f"#!/bin/sh\ntrap 'cat {end}; exit 0' INT\ncat {begin}\nwhile :; do sleep 0.05; done\n",
    )
    item = bench.items("--only", "zfsread-json.d", status=errors)["zfsread-json.d"]
    assert item["verdict"] == ("FAIL" if errors else "PASS"), item


def test_a_line_may_come_in_two_reads(bench: Bench) -> None:
    begin, end = bench.root / "begin", bench.root / "end"
    begin.write_text('{"type":"trace_begin"}\n{"type":"com')
    last = '{"type":"trace_end","count":0,"lost":0,"bypassed":0,"never_fired":[null]}'
    end.write_text(f'mit"}}\n{last}\n')
    (bench.root / "bin/dtrace").unlink()
    bench.program(
        "dtrace",
        f"#!/bin/sh\ntrap 'cat {end}; exit 0' INT\ncat {begin}\nwhile :; do sleep 0.05; done\n",
    )
    items = bench.items("--dir", str(bench.root / "ds"), "--only", "count, script", status=1)
    assert "0 by zilevent-json.d, 0 by kstat zil" in items["count, script"]["said"]


def test_dtrace_need_not_be_in_the_path(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """sudo and cron(8) may leave its directory out."""
    for name in ("SYSCTL_STANDIN_TABLE", "DTRACE_STANDIN"):
        monkeypatch.setenv(name, bench.environment[name])
    monkeypatch.setattr(probes, "program", lambda: str(DTRACE))
    host = Host(root=bench.root, libc=str(standin.build()), run_s=0.1)
    items = dict(ITEMS)
    for name in ("dtrace", "zilcommit.d"):
        result = check.try_item(name, items[name], host)
        assert result.verdict == "PASS", result


def test_a_value_that_sysctl_8_reads_differently_fails(bench: Bench) -> None:
    bench.program("sysctl", '#!/bin/sh\nshift\nfor n; do echo "$n=77"; done\n')
    item = bench.items("--only", "parameters", status=1)["parameters"]
    assert item["verdict"] == "FAIL"
    assert "read as 5, sysctl(8) says 77" in "".join(item["more"])


def test_a_sysctl_8_that_prints_nothing_fails(bench: Bench) -> None:
    bench.program("sysctl", "#!/bin/sh\nexit 1\n")
    item = bench.items("--only", "parameters", status=1)["parameters"]
    assert item["more"][0].startswith("`sysctl -e` prints none of ")
    assert "sysctl(8) says" not in "".join(item["more"])


def test_commits_that_no_script_sees_fail(bench: Bench) -> None:
    """No file appears in the directory that the stand-in watches, so it sees none."""
    bench.set("watch", str(bench.root / "etc"))
    directory = str(bench.root / "ds")
    items = bench.items("--dir", directory, "--only", "count, script", status=1)
    assert "0 by kstat zil; is it a dataset with sync=disabled?" in items["count, script"]["said"]


def test_without_dtrace_or_zfs_items_fail_or_are_skipped(bench: Bench) -> None:
    (bench.root / "dev/dtrace/dtrace").unlink()
    items = bench.items(status=1)
    assert verdicts(items, "FAIL") == {"dtrace"}
    assert "run `kldload dtraceall`" in items["dtrace"]["said"]
    # not the same for each probe
    assert len(items["doctor"]["more"]) < 5
    assert "zilcommit.d" in verdicts(items, "SKIP")
    bench.table.remove("vfs/zfs").remove("kstat").write()
    items = bench.items(status=1)
    assert "zfs" in verdicts(items, "FAIL")
    assert {"parameters", "kstats", "txgs", "write"} <= verdicts(items, "SKIP")


def test_the_write_leaves_values_that_are_set(bench: Bench) -> None:
    run = [sys.executable, "-S", str(ROOT / "tests/support/freebsd/run.py"), str(bench.root)]
    subprocess.run(
        [*run, str(standin.build()), "params", "set", "zfs_txg_timeout=9s"],
        env=bench.environment,
        check=True,
        capture_output=True,
    )
    items = bench.items("--write", "--only", "write")
    assert items["write"]["verdict"] == "SKIP"
    assert bench.table.read(TIMEOUT) == 9


def test_an_unchanged_boot_id_fails(bench: Bench) -> None:
    only = ("--only", "boot id")
    before = bench.items(*only)["boot id"]["said"].partition(";")[0]
    item = bench.items("--earlier-boot", before, *only, status=1)["boot id"]
    assert (item["verdict"], before in item["said"]) == ("FAIL", True)
    bench.table.add("kern/boot_id", "opaque", "00" * 16).write()
    assert bench.items("--earlier-boot", before, *only)["boot id"]["verdict"] == "PASS"


def test_a_full_device_is_reported(bench: Bench) -> None:
    argv = [sys.executable, "-B", "-S", str(CHECK), str(bench.root), str(standin.build())]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [*argv, "--only", "python"],
            env=bench.environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert ended.returncode == 1
    assert ended.stderr == "freebsd-check: error: cannot go on: No space left on device\n"


def test_a_closed_stdout_ends_it(bench: Bench) -> None:
    process = bench.start("--only", "python", "--only", "zilcommit.d")
    assert process.stdout
    assert process.stderr
    assert process.stdout.readline().startswith("PASS  python")
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(60) == 1
    process.stderr.close()


def test_details_are_below_their_line(bench: Bench) -> None:
    (bench.root / "dev/dtrace/dtrace").unlink()
    lines = bench.run("--only", "dtrace", "--only", "probes", status=1)[0].splitlines()
    assert [line[:4] for line in lines[:2]] == ["FAIL", "SKIP"]


def test_ctrl_c_ends_it_and_its_scripts(bench: Bench) -> None:
    bench.set("stubborn", "zilcommit.d")
    process = bench.start("--only", "zfs", "--only", "zilcommit.d")
    assert process.stdout
    assert process.stdout.readline().startswith("PASS  zfs")
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    _out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.splitlines()[-1] == "freebsd-check: interrupted"
    assert "Traceback" not in err
    mine = f"{bench.root}/bin/dtrace"
    for directory in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert mine not in directory.read_text()
        except OSError:
            continue  # it has ended


def test_help_and_usage_errors_follow_the_conventions(tmp_path: Path) -> None:
    said = subprocess.run([str(LAUNCHER), "--help"], capture_output=True, text=True, check=True)
    assert "examples:" in said.stdout
    wrong = subprocess.run(
        [str(LAUNCHER), "--dir", str(tmp_path / "none")], capture_output=True, text=True
    )
    assert wrong.returncode == 2
    assert "is not a directory\nhint: create it" in wrong.stderr
    here = subprocess.run([str(LAUNCHER)], capture_output=True, text=True)
    assert here.returncode == 3
    assert re.fullmatch(r"freebsd-check: error: .*, not FreeBSD\nhint: run it .*\n", here.stderr)


def test_the_launcher_needs_python_3_9(tmp_path: Path) -> None:
    for tool in ("dirname", "realpath"):
        (tmp_path / tool).symlink_to(f"/usr/bin/{tool}")
    environment = {"PATH": str(tmp_path)}
    said = subprocess.run(
        ["/bin/sh", str(LAUNCHER)], env=environment, capture_output=True, text=True
    )
    assert said.returncode == 3
    needed = "freebsd-check: error: Python 3.9 or newer is needed: "
    hint = "hint: run `pkg install python3`\n"
    assert said.stderr == f"{needed}python3 is not installed\n{hint}"
    (tmp_path / "python3").write_text("#!/bin/sh\necho 3.8\n")
    (tmp_path / "python3").chmod(0o755)
    said = subprocess.run(
        ["/bin/sh", str(LAUNCHER)], env=environment, capture_output=True, text=True
    )
    assert said.returncode == 3
    assert said.stderr == f"{needed}python3 is 3.8\n{hint}"
    (tmp_path / "python3.12").write_text('#!/bin/sh\n[ "$1" = -c ] && echo 3.12 || echo "$@"\n')
    (tmp_path / "python3.12").chmod(0o755)
    said = subprocess.run(
        ["/bin/sh", str(LAUNCHER), "--json"], env=environment, capture_output=True, text=True
    )
    assert said.stdout == f"-B {ROOT}/scripts/freebsd/check.py --json\n"
