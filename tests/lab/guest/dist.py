"""Scenario: the one file alone, on a system without a compiler, bpftrace, libbpf, further packages
of Python and this checkout; from file systems that refuse; under faults. /share has the files.

dist.py few: without a session of `tune`, and where fewer things are refused.

The pool is on /dev/mapper/vdb-delay, whose flushes are slow.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from labkit import (
    SESSION,
    Json,
    Tracer,
    busy,
    finish,
    make_pool,
    progress,
    run,
    sh,
    sync_writes,
    values,
    whole,
)
from uses import changed, everything, traced

FILE = Path("/root/zfstune.pyz")
PATH = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"
# What a minimal system has not, though the lab's has it
ABSENT = (
    "/usr/bin/*gcc* /usr/bin/cc /usr/bin/c++* /usr/bin/cpp* /usr/bin/*g++* /usr/bin/make "
    "/usr/bin/as /usr/bin/*-ld* /usr/bin/*clang* /usr/bin/llc* /usr/bin/pip* /usr/sbin/*-bpfcc "
    "/usr/bin/bpftrace /usr/sbin/bpftool /usr/lib/*/libbpf* /usr/lib/*/libelf* /usr/lib/*/libbcc* "
    "/usr/local/bin/* /usr/lib/python3*/*-packages/* /usr/local/lib/python3*"
)


def command(file: Path = FILE) -> list[str]:
    """How it is run: with nothing in the environment but PATH."""
    return ["env", "-i", "-C", "/", PATH, "python3", str(file)]


def shared(machine: str) -> Path:
    return next(Path("/share").glob(f"*-{machine}.pyz"))


def mounted(where: str, options: str) -> Path:
    """A copy on a tmpfs that is mounted so."""
    place = Path(where)
    place.mkdir()
    sh(f"mount -t tmpfs -o size=4m none {where}")
    shutil.copy(FILE, place / FILE.name)
    sh(f"mount -o remount,{options} {where}")
    return place / FILE.name


def on_file_system(results: Json, key: str, options: str) -> None:
    """One that is mounted so."""
    progress(key)
    file = mounted(f"/mnt/{key}", options)
    results[key] = {
        "trace": traced(command(file), "tank"),
        "doctor": run([*command(file), "doctor", "--json"]),
    }


def refusing(results: Json) -> None:
    """A kernel that runs no memory files as programs, and a full /tmp."""
    progress("memfd_noexec")
    sysctl = Path("/proc/sys/vm/memfd_noexec")  # Linux 6.3
    if sysctl.exists():
        sysctl.write_text("2")
        results["memfd_noexec"] = {"trace": traced(command(), "tank")}
        sysctl.write_text("0")
    progress("full /tmp")
    sh("mount -t tmpfs -o size=64k none /tmp; dd if=/dev/zero of=/tmp/fill bs=4k || true")
    picture = ["flame", "--pool", "tank", "--duration", "2s", "-o", "/tmp/flame.svg"]
    with busy("/tank"):
        results["full"] = {
            "doctor": run([*command(), "doctor", "--json"]),
            "flame": run([*command(), *picture]),
            "left": sorted(path.name for path in Path("/tmp").iterdir()),
        }
    sh("umount /tmp")


def bad_files(results: Json) -> None:
    """A file of another machine, and one whose copy did not end."""
    progress("bad files")
    results["other_machine"] = run([*command(shared("aarch64")), "trace", "fsync", "tank"])
    cut = Path("/root/cut.pyz")
    for size in (5000, 500_000):
        cut.write_bytes(FILE.read_bytes()[:size])
        results[f"cut_{size}"] = run([*command(cut), "trace", "fsync", "tank"])


def replaced(results: Json) -> None:
    """The file is written anew, in place and with something else, while it runs."""
    progress("replaced while it runs")
    held = Path("/root/held.pyz")
    shutil.copy(FILE, held)
    before = values()
    tracer = Tracer("fsync", "tank", command=command(held))
    # as its __main__.py does, but for the command
    begin = "import runpy, sys; sys.argv[0] = sys.argv[1]; sys.argv[1:] = ['--version']\n"
    begin += "try: runpy.run_path(sys.argv[0], run_name='__main__')\nexcept SystemExit: pass\n"
    process = subprocess.Popen(
        ["python3", "-I", "-c", begin + SESSION, str(held)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    version = process.stdout.readline().strip()
    supervisor = int(process.stdout.readline())
    held.write_bytes(b"#!/bin/false\n" + FILE.read_bytes()[:300_000])
    sync_writes("/tank/file", 31)
    results["replaced"] = {
        "version": version,
        "in_force": changed(before),
        "alive": process.poll() is None,
        "rows": tracer.rows(signal.SIGINT),
        "stderr": tracer.stderr.read_text(),
        "status": tracer.process.returncode,
    }
    process.kill()
    process.wait(60)
    until = time.monotonic() + 60
    while Path(f"/proc/{supervisor}").exists() and time.monotonic() < until:
        time.sleep(0.1)
    results["replaced"]["after"] = changed(before)


def beside_another(results: Json) -> None:
    """Two versions at once: the lab's own is that of a checkout."""
    progress("beside a checkout")
    before = values()
    ours, theirs = Tracer("fsync", "tank", command=command()), Tracer("fsync", "tank")
    sync_writes("/tank/file", 41)
    rows = {"file": ours.rows(), "checkout": theirs.rows()}
    set_ = run([*command(), "params", "set", "zfs_txg_timeout=7"])
    status = run(["zfstune", "status", "--json"])
    results["beside"] = {
        "rows": rows,
        "set": set_,
        "status": status,
        "in_force": changed(before),
        "revert": run(["zfstune", "revert"]),
        "after": changed(before),
    }


def main() -> None:
    results: Json = {"machine": sh("uname -m").strip()}
    make_pool("tank", "/dev/mapper/vdb-delay")
    shutil.copy(shared(results["machine"]), FILE)
    before = values()
    beside_another(results)
    os.chdir("/")
    sh("umount -l /zfstune")
    sh(f"rm -rf {ABSENT}", check=False)
    results["absent"] = sh("ls -d /zfstune/* $(which gcc cc make bpftrace pip3) || true").split()
    results["imports"] = run(["python3", "-I", "-c", "import numpy"])["status"]
    results["everything"] = everything(command(), "tank", tune=whole(results, "tune"))
    on_file_system(results, "noexec", "noexec")
    if whole(results, "read_only", "memfd_noexec", "full"):
        on_file_system(results, "read_only", "ro,noexec")
        refusing(results)
    bad_files(results)
    replaced(results)
    results["left"] = sh("find / -xdev -newer /root/zfstune.pyz -name '*zfstune*' -type f").split()
    results["changed"] = changed(before)
    finish(results)


main()
