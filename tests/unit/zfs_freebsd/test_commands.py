"""The command line in a root directory of FreeBSD's shape, on a stand-in for sysctl(3)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from support.freebsd import standin
from support.freebsd.machine import Machine
from support.freebsd.standin import ROOT

TIMEOUT = "vfs/zfs/txg/timeout"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    if os.geteuid() != 0:
        pytest.skip("parameters are set by root only")
    return Machine(tmp_path)


def test_version_and_help_are_printed(machine: Machine) -> None:
    assert "zfstune" in machine.run("--version")
    assert "usage" in machine.run("-h")


def test_params_list_has_the_values_of_sysctl(machine: Machine) -> None:
    machine.table.put(TIMEOUT, 9)
    found = json.loads(machine.run("params", "list", "--all", "--json"))
    rows = {row["name"]: row for row in found["parameters"]}
    assert found["version"] == standin.VERSION
    assert rows["zfs_txg_timeout"]["value"] == 9
    assert rows["zfs_txg_timeout"]["changed"]
    assert rows["zfs_txg_timeout"]["freebsd"] == "vfs.zfs.txg.timeout"
    # 0 stands for the limit in force
    assert (rows["zfs_arc_max"]["value"], rows["zfs_arc_max"]["in_force"]) == (0, 60 << 30)
    assert "zfs_arc_shrinker_limit" not in rows
    assert [line for line in machine.run("params").splitlines() if "zfs_txg_timeout" in line]


def test_params_takes_and_shows_names_of_freebsd(machine: Machine) -> None:
    assert (
        machine.run("params", "get", "vfs.zfs.dirty_data_max") == "zfs_dirty_data_max=4294967296\n"
    )
    assert "vfs.zfs.dirty_data_max on FreeBSD" in machine.run(
        "params", "explain", "zfs_dirty_data_max"
    )


def test_set_status_keep_and_revert_agree(machine: Machine) -> None:
    machine.run("params", "set", "zfs_txg_timeout=9s", "vfs.zfs.arc.max=16G")
    assert machine.table.read(TIMEOUT) == 9
    assert machine.table.read("kstat/zfs/misc/arcstats/c_max") == 16 << 30
    assert "zfs_txg_timeout" in machine.run("status")
    (machine.root / "etc/sysctl.conf").write_text("kern.ipc.maxsockbuf=1\nvfs.zfs.txg.timeout=3\n")
    said = machine.run("keep")
    assert f"{machine.root}/etc/sysctl.conf: vfs.zfs.txg.timeout=9" in said
    assert machine.file("etc/sysctl.conf") == [
        "kern.ipc.maxsockbuf=1",
        "#zfstune-aside# vfs.zfs.txg.timeout=3",
        f"vfs.zfs.arc.max={16 << 30}  # zfstune keep",
        "vfs.zfs.txg.timeout=9  # zfstune keep",
    ]
    assert "sysctl vfs.zfs.txg.timeout=5" in machine.run("revert", "--print")
    machine.run("revert")
    assert machine.table.read(TIMEOUT) == 5
    assert machine.table.read("vfs/zfs/arc/max") == 0
    assert machine.table.read("kstat/zfs/misc/arcstats/c_max") == 60 << 30
    machine.run("keep", "--remove")
    assert machine.file("etc/sysctl.conf") == ["kern.ipc.maxsockbuf=1", "vfs.zfs.txg.timeout=3"]


def test_keep_print_changes_nothing(machine: Machine) -> None:
    machine.run("params", "set", "zfs_txg_timeout=9s")
    assert machine.run("keep", "--print").splitlines() == [
        f"# {machine.root}/etc/sysctl.conf",
        "vfs.zfs.txg.timeout=9  # zfstune keep",
    ]
    assert not (machine.root / "etc/sysctl.conf").exists()


def test_values_of_another_program_are_left(machine: Machine) -> None:
    machine.run("params", "set", "zfs_txg_timeout=9s")
    machine.table.put(TIMEOUT, 7)
    assert "was set to 7" in machine.run("revert")
    assert machine.table.read(TIMEOUT) == 7


def test_a_reboot_is_noticed(machine: Machine) -> None:
    machine.run("params", "set", "zfs_txg_timeout=9s")
    machine.table.add("kern/boot_id", "opaque", "00" * 16).write()
    assert "reloaded" in machine.run("revert")
    assert machine.table.read(TIMEOUT) == 5


def test_illegal_values_and_a_missing_module_are_refused(machine: Machine) -> None:
    assert "dirty_data_max" in machine.run("params", "set", "zfs_dirty_data_max=1M", status=2)
    assert "loader.conf" in machine.run("params", "set", "zfs_dirty_data_max_max=1G", status=2)
    machine.table.remove("vfs/zfs").write()
    assert "run `kldload zfs`" in machine.run("params", "set", "zfs_txg_timeout=9", status=3)
    assert "run `kldload zfs`" in machine.run("params", status=3)


def test_without_privilege_set_says_what_to_do(machine: Machine) -> None:
    machine.environment["SYSCTL_STANDIN_USER"] = "1"
    said = machine.run("params", "set", "zfs_txg_timeout=9s", status=4)
    assert "no permission to write vfs.zfs.txg.timeout" in said
    machine.table.add("security/jail/jailed", "int", 1).write()
    said = machine.run("params", "set", "zfs_txg_timeout=9s", status=3)
    assert "no permission\nhint: run as root outside jails" in said


def test_a_limit_that_the_kernel_refuses_is_undone(machine: Machine) -> None:
    # the guard believes arcstats; here the kernel does not
    machine.table.add("hw/physmem", "ulong", 8 << 30).write()
    said = machine.run("params", "set", "zfs_arc_max=16G", status=4)
    assert "the kernel refuses it for vfs.zfs.arc.max: it must be between" in said
    assert machine.table.read("vfs/zfs/arc/max") == 0


def test_doctor_knows_kstats_and_scripts(machine: Machine) -> None:
    found = json.loads(machine.run("doctor", "--json", status=3))
    checks = {check["name"]: check for check in found["checks"]}
    assert checks["ZFS"]["value"] == standin.VERSION
    assert checks["kstat tank/txgs"]["status"] == "ok"
    assert checks["privileges"]["status"] == "ok"
    assert {tool["runner"] for tool in found["tools"]} == {"dtrace"}
    assert "D scripts" in machine.run("doctor", status=3)


def test_traces_need_dtrace_or_kstats(machine: Machine) -> None:
    said = machine.run("trace", "fsync", "--duration", "1s", status=3)
    assert "cannot trace: dtrace is not installed: traces are D scripts" in said
    options = ("--source", "kstat", "--duration", "1s", "--json")
    line = json.loads(machine.run("trace", "arc", *options).splitlines()[0])
    assert line["target_max"] == 60 << 30
    machine.run("trace", "txg", *options)


def test_tune_dry_run_plans_and_changes_nothing(machine: Machine) -> None:
    pytest.importorskip("optuna")
    said = machine.run("tune", "tank", "--observe", "--dry-run", packages=True)
    assert "zfs_dirty_data_max" in said
    assert machine.table.read(TIMEOUT) == 5


SESSION = """
    import sys
    sys.path.insert(0, {tests!r})
    from support.freebsd.run import become_freebsd
    become_freebsd({root!r}, {library!r})
    from zfstune.host import open_host
    from zfstune.changes.session import ChangeSession
    import time
    with ChangeSession(open_host(), "tune", ["zfs_txg_timeout"], still_s=0) as session:
        session.apply({{"zfs_txg_timeout": 8}})
        print(session.supervisor.pid, flush=True)
        time.sleep(60)
"""


def test_the_supervisor_restores(machine: Machine) -> None:
    code = textwrap.dedent(SESSION).format(
        tests=str(ROOT / "tests"), root=str(machine.root), library=str(machine.libc)
    )
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", code],
        env=machine.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    supervisor = int(process.stdout.readline())
    assert machine.table.read(TIMEOUT) == 8
    assert machine.file("table.protected") == [str(supervisor)]
    process.send_signal(signal.SIGKILL)
    # stderr closes when the supervisor has ended, too
    _out, err = process.communicate(timeout=60)
    assert machine.table.read(TIMEOUT) == 5, err
    assert "died unexpectedly" in err
    with pytest.raises(ProcessLookupError):
        for _ in range(100):
            os.kill(supervisor, 0)
            time.sleep(0.05)


def test_the_next_command_restores_when_both_are_killed(machine: Machine) -> None:
    code = textwrap.dedent(SESSION).format(
        tests=str(ROOT / "tests"), root=str(machine.root), library=str(machine.libc)
    )
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", code],
        env=machine.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    os.kill(int(process.stdout.readline()), signal.SIGKILL)
    process.kill()
    process.communicate(timeout=60)
    assert machine.table.read(TIMEOUT) == 8
    assert "was killed; restoring" in machine.run("status")
    assert machine.table.read(TIMEOUT) == 5


OVERRIDDEN = """
    import sys
    sys.path.insert(0, {tests!r})
    from support.freebsd.run import become_freebsd
    become_freebsd({root!r}, {library!r})
    from zfstune.host import open_host
    from zfstune.changes.session import ChangeSession
    import time
    with ChangeSession(open_host(), "tune", ["zfs_txg_timeout"], still_s=0) as session:
        session.apply({{"zfs_txg_timeout": 8}})
        print("begun", flush=True)
        while not session.overrides():
            time.sleep(0.02)
"""
# What dtrace prints, from a file that grows.
DTRACE = """\
#!/bin/sh
echo '{{"schema":1,"type":"trace_begin","tool":"sysctlwrite"}}'
exec tail -n +1 -f {root}/lines
"""


def test_a_session_names_who_set_a_parameter(machine: Machine) -> None:
    program = machine.root / "bin/dtrace"
    program.parent.mkdir()
    program.write_text(DTRACE.format(root=machine.root))
    program.chmod(0o755)
    machine.environment["PATH"] = f"{program.parent}:{machine.environment['PATH']}"
    (machine.root / "dev/dtrace").mkdir()
    (machine.root / "dev/dtrace/dtrace").touch()
    (machine.root / "lines").touch()
    code = textwrap.dedent(OVERRIDDEN).format(
        tests=str(ROOT / "tests"), root=str(machine.root), library=str(machine.libc)
    )
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", code],
        env=machine.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    assert process.stdout.readline() == "begun\n"
    machine.table.put(TIMEOUT, 9)
    write = {"type": "sysctl_write", "pid": 4711, "comm": "sysctl", "name": "vfs.zfs.txg.timeout"}
    (machine.root / "lines").write_text(json.dumps(write) + "\n")
    _out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "sysctl" in err
    assert "4711" in err
    assert "left as it is" in err
    assert machine.table.read(TIMEOUT) == 9


AROUND = """
    import sys
    sys.path.insert(0, {tests!r})
    from support.freebsd.run import become_freebsd
    become_freebsd({root!r}, {library!r})
    from pathlib import Path
    from zfstune.tune import production; from zfstune.tune import workload
    print(len(list(production._processes(Path("/")))), production._uptime_s(Path("/")))
    production.signs("box")
    load = workload.Workload("sleep 60", None)
    load.check()
    load.close()
    print(load._process.returncode)
"""


def test_the_load_and_signs_of_production_work(machine: Machine) -> None:
    code = textwrap.dedent(AROUND).format(
        tests=str(ROOT / "tests"), root=str(machine.root), library=str(machine.libc)
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], env=machine.environment, capture_output=True, text=True
    )
    assert not done.stderr
    processes, uptime_s, returncode = done.stdout.split()
    # by ps(1), and by the clock
    assert int(processes) > 1
    assert float(uptime_s) > 0
    assert int(returncode) == -signal.SIGTERM


def test_directories_are_below_var(machine: Machine) -> None:
    code = (
        "import sys; sys.platform = 'freebsd15'; from zfstune.changes import paths; "
        "print(paths.state_directory(), paths.run_directory())"
    )
    machine.environment.pop("ZFSTUNE_STATE_DIR")
    machine.environment.pop("ZFSTUNE_RUN_DIR")
    said = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env=machine.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.split() == ["/var/db/zfstune", "/var/run/zfstune"]
