"""Scenario: each one-file tool (bpftrace, bcc) beside known numbers of fsyncs, and ZFS's own
kstats of the same time; tools.py few: one of each kind, as compiling them takes minutes."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from threading import Event, Thread

from labkit import (
    Json,
    commits,
    end_bpftrace,
    finish,
    fio,
    make_pool,
    progress,
    run,
    sh,
    sync_writes,
    whole,
)

TRACERS = Path("/zfstune/tracers")
DIRTY_MAX = Path("/sys/module/zfs/parameters/zfs_dirty_data_max")
TXGS = Path("/proc/spl/kstat/zfs/slow/txgs")
# Not of each kind the first
MORE = (
    *("zilslower.bt", "zfsflush.bt", "fsyncoffcpu.bt", "txgstate.bt", "zfsthrottle.bt"),
    *("zilslower.py", "busy zilcommit.bt", "busy zildist.py", "busy zilslower.bt"),
)
ASSIGN = Path("/proc/spl/kstat/zfs/tank/dmu_tx_assign")


def program_count() -> int:
    return len(json.loads(sh("bpftool -j prog show") or "[]"))


class Tool:
    """A tool that runs; attached when the constructor returns."""

    def __init__(self, name: str, *args: str) -> None:
        progress(" ".join((name, *args)))
        path = TRACERS / ("bcc" if name.endswith(".py") else "bpftrace") / name
        self.out = Path(f"/tmp/tool-{time.monotonic_ns()}.out")
        self.err = self.out.with_suffix(".err")
        start = time.monotonic()
        with self.out.open("w") as out, self.err.open("w") as err:
            self.process = subprocess.Popen([str(path), *args], stdout=out, stderr=err)
        # It says "Tracing" before bpftrace has attached all; no program comes after that.
        count, since = program_count(), start
        while "Tracing" not in self.out.read_text() or time.monotonic() < since + 5:
            if self.process.poll() is not None or time.monotonic() > start + 200:
                raise RuntimeError(f"{name} did not attach: {self.err.read_text()}")
            time.sleep(0.2)
            if program_count() != count:
                count, since = program_count(), time.monotonic()
        self.attach_seconds = since - start
        self.before = commits()

    def stop(self) -> Json:
        kstat_commits = commits() - self.before
        time.sleep(0.5)
        end_bpftrace(self.process)
        return {
            "status": self.process.returncode,
            "stdout": self.out.read_text(),
            "stderr": self.err.read_text(),
            "kstat_commits": kstat_commits,
            "attach_seconds": self.attach_seconds,
        }


def many_threads(threads: int, each: int) -> None:
    """More than the kernel has return probes for by default."""
    workers = [
        Thread(target=sync_writes, args=(f"/tank/db/thread{i}", each)) for i in range(threads)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def zilcommit(results: Json) -> None:
    """Two writers at once; only one is asked for."""
    tool = Tool("zilcommit.bt", str(os.getpid()))
    script = "import labkit; labkit.sync_writes('/tank/db/other', 97)"
    other = subprocess.Popen(["python3", "-c", script], cwd=Path(__file__).parent)
    sync_writes("/tank/db/mine", 211)
    other.wait()
    results["zilcommit.bt"] = tool.stop()


def slow(results: Json, name: str, *args: str) -> None:
    """23 fsyncs on the pool whose disk takes 40 ms for each flush."""
    tool = Tool(name, *args)
    sync_writes("/slow/file", 23)
    results[name] = tool.stop()


def txgstate(results: Json) -> None:
    tool = Tool("txgstate.bt", "slow")
    for i in range(13):
        Path(f"/slow/txg{i}").write_bytes(bytes(1 << 20))
        sh("zpool sync tank slow")
    rows = [line.split() for line in TXGS.read_text().splitlines()[1:]]
    results["txgstate.bt"] = tool.stop() | {"kstat": rows}


def zfsthrottle(results: Json) -> None:
    before = DIRTY_MAX.read_text()
    tool = Tool("zfsthrottle.bt", "tank")
    ASSIGN.write_text("0")
    DIRTY_MAX.write_text(str(16 << 20))
    sh("dd if=/dev/zero of=/tank/db/bulk bs=1M count=200 conv=fsync")
    waits = assign_waits()
    DIRTY_MAX.write_text(before)
    results["zfsthrottle.bt"] = tool.stop() | {"kstat_waits": waits}


def assign_waits() -> int:
    """All waits in the histogram of dmu_tx_assign; its names contain a space ("1024 ns")."""
    lines = [line.split() for line in ASSIGN.read_text().splitlines()[2:]]
    return sum(int(fields[-1]) for fields in lines)


def threads(results: Json, name: str, *args: str) -> None:
    tool = Tool(name, *args)
    many_threads(24, 11)
    profile = Path("/sys/kernel/tracing/kprobe_profile").read_text()
    results[name] = tool.stop() | {"profile": profile}


def busy(results: Json, name: str, *args: str) -> None:
    """A thread commits all the time, also while the tool attaches and detaches."""
    done = Event()

    def work() -> None:
        while not done.is_set():
            sync_writes("/tank/db/busy", 50)

    worker = Thread(target=work)
    worker.start()
    tool = Tool(name, *args)
    time.sleep(3)
    results[f"busy {name}"] = tool.stop()
    done.set()
    worker.join()


def bad_input(results: Json) -> None:
    path = str(TRACERS / "bcc")
    results["bad"] = {
        "not a number": run([f"{path}/zilslower.py", "fast"]),
        "negative": run([f"{path}/zilslower.py", "-1"]),
        "interval": run([f"{path}/zildist.py", "0"]),
        "not root": run(["setpriv", "--reuid=65534", f"{path}/zildist.py"]),
        "no bcc": run(["python3", "-I", "-S", f"{path}/zilslower.py"]),
        "no threshold": run([str(TRACERS / "bpftrace/zilslower.bt")]),
    }


def main() -> None:
    results: Json = {}
    make_pool()
    sh("zfs create tank/db")
    make_pool("slow", "/dev/mapper/vdc-delay")
    for directory in ("/tank/db", "/slow"):
        fio(directory, "--fsync=1", "--number_ios=3", name="warm")  # creates the log
    sync_writes("/slow/file", 1)
    zilcommit(results)
    threads(results, "zildist.py", "1")
    if whole(results, *MORE):
        slow(results, "zilslower.bt", "30")
        slow(results, "zfsflush.bt")
        slow(results, "fsyncoffcpu.bt")
        txgstate(results)
        zfsthrottle(results)
        threads(results, "zilslower.py", "0")
        for name in ("zilcommit.bt", "zildist.py"):
            busy(results, name)
        busy(results, "zilslower.bt", "0")
    bad_input(results)
    results["kprobes_left"] = Path("/sys/kernel/debug/kprobes/list").read_text()
    finish(results)


main()
