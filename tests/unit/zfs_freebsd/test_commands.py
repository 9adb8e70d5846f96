"""The command line in a root directory of FreeBSD's shape, on a stand-in for sysctl(3)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from support.freebsd.machine import Machine
from support.freebsd.standin import ROOT

TIMEOUT = "vfs/zfs/txg/timeout"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    if os.geteuid() != 0:
        pytest.skip("parameters are set by root only")
    return Machine(tmp_path)


def test_a_limit_that_the_kernel_refuses_is_undone(machine: Machine) -> None:
    # the guard believes arcstats; here the kernel does not
    machine.table.add("hw/physmem", "ulong", 8 << 30).write()
    said = machine.run("params", "set", "zfs_arc_max=16G", status=4)
    assert "the kernel refuses it for vfs.zfs.arc.max: it must be between" in said
    assert machine.table.read("vfs/zfs/arc/max") == 0


def test_tune_dry_run_plans_and_changes_nothing(machine: Machine) -> None:
    said = machine.run("tune", "tank", "--observe", "--dry-run")
    assert "zfs_dirty_data_max" in said
    assert machine.table.read(TIMEOUT) == 5


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
