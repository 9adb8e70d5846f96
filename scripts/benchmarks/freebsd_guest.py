"""The part of `make bench-freebsd` in the guest: how long D scripts take to attach, alone and all
at once, and the rates of fsyncs, reads or writes without and with each, in turn. Writes
/out/bench.json.

Every measurement under a tracer comes between two without; the ratio to their mean is what counts,
because the machine's speed drifts.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Json = dict[str, Any]
OUT = Path("/out")
SCRIPTS = Path("/zfstune/tracers/dtrace/freebsd")
JOBS = (1, 8)
# A disk without delays, and one for each kind; the host's page has their --disk options.
DISKS = {"none": 2, "read-delay": 3, "write-delay": 4, "flush-delay": 5}
DIOCGFLUSH = 0x20006487  # sys/sys/disk.h
VIEWS = tuple(f"{name}-json.d" for name in ("zilevent", "txgstate", "zfsthrottle", "zfsdevice"))
ALL = (*VIEWS, "arcstate-json.d")
READ = ("zfsread-json.d",)
# By name: the scripts, and the operation (of LOADS) that they time.
RUNS: dict[str, tuple[tuple[str, ...], str]] = {
    **{name: ((name,), "fsync") for name in (*ALL, "fsyncstack.d")},
    "the first five at once": (ALL, "fsync"),
    "zfsread-json.d, reads": (READ, "read"),
    "zfsread-json.d, writes": (READ, "write"),
}
REQUESTS: dict[str, Callable[[int, int], object]] = {
    "read": lambda fd, offset: os.pread(fd, 4096, offset),
    "write": lambda fd, offset: os.pwrite(fd, bytes(4096), offset),
    "flush": lambda fd, _: fcntl.ioctl(fd, DIOCGFLUSH),
}
# What a process does again and again, at 2048 offsets in turn: its file stays in memory.
LOADS = {
    "fsync": "os.pwrite(fd, bytes(8192), offset); os.fsync(fd)",
    "read": "os.pread(fd, 4096, offset)",
    "write": "os.pwrite(fd, bytes(4096), offset)",
}
LOAD = """
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
for i in range(1 << 40):
    offset = i % 2048 * 8192
"""


def sh(command: str) -> str:
    return subprocess.run(command, shell=True, check=True, capture_output=True, text=True).stdout


def calls(operation: str) -> int:
    """How many ZFS has counted."""
    if operation == "fsync":
        return int(sh("sysctl -n kstat.zfs.misc.zil.zil_commit_count"))
    lines = sh("sysctl kstat.zfs.tank.dataset").splitlines()
    return sum(int(line.split()[1]) for line in lines if f".{operation}s: " in line)


def files(jobs: int) -> list[str]:
    return [f"/tank/db/{job}" for job in range(jobs)]


@contextlib.contextmanager
def load(operation: str, jobs: int) -> Iterator[None]:
    program = f"{LOAD}    {LOADS[operation]}\n"
    running = [subprocess.Popen([sys.executable, "-c", program, file]) for file in files(jobs)]
    time.sleep(1)
    try:
        yield
    finally:
        for one in running:
            one.kill()
            one.wait()


def rates(operation: str, seconds: float) -> dict[int, float]:
    """Calls per second, by number of jobs."""
    found = {}
    for jobs in JOBS:
        with load(operation, jobs):
            before, start = calls(operation), time.monotonic()
            time.sleep(seconds)
            found[jobs] = (calls(operation) - before) / (time.monotonic() - start)
    return found


class Tracers:
    """Scripts, started at once; attached when the constructor returns."""

    def __init__(self, scripts: tuple[str, ...]) -> None:
        self._running: list[subprocess.Popen[bytes]] = []
        files = [Path(f"/tmp/{script}.out") for script in scripts]
        start = time.monotonic()
        for script, file in zip(scripts, files, strict=True):
            with file.open("wb") as out:
                command = ["dtrace", "-xnolibs", "-Zs", str(SCRIPTS / script)]
                self._running.append(subprocess.Popen(command, stdout=out))
        # the first line is of the clause for BEGIN, which is enabled last
        while not all(file.stat().st_size for file in files):
            if any(one.poll() is not None for one in self._running):
                raise RuntimeError(f"{scripts} did not attach")
            time.sleep(0.02)
        self.seconds = time.monotonic() - start

    def stop(self) -> None:
        for one in self._running:
            one.send_signal(signal.SIGINT)
        for one in self._running:
            one.wait(120)


def one_round(runs: Json, seconds: float) -> None:
    """Measures none, A, none, B, none, ... each with every number of jobs."""
    last: dict[str, dict[int, float]] = {}
    for name, (scripts, operation) in RUNS.items():
        before = last.get(operation) or rates(operation, seconds)
        tracers = Tracers(scripts)
        traced = rates(operation, seconds)
        tracers.stop()
        after = last[operation] = rates(operation, seconds)
        entry = runs.setdefault(name, {"attach_s": [], "pairs": []})
        entry["attach_s"].append(tracers.seconds)
        entry["pairs"] += [
            {"jobs": jobs, "none": [before[jobs], after[jobs]], "traced": traced[jobs]}
            for jobs in JOBS
        ]


def delays() -> dict[str, dict[str, list[float]]]:
    """By disk and request, ms of 40 single requests of 4 KiB on the raw device."""
    found = {}
    for name, number in DISKS.items():
        fd = os.open(f"/dev/vtbd{number}", os.O_RDWR)
        found[name] = {kind: [timed(kind, fd, i) for i in range(40)] for kind in REQUESTS}
        os.close(fd)
    return found


def timed(kind: str, fd: int, i: int) -> float:
    start = time.monotonic()
    REQUESTS[kind](fd, i * 4096)
    return (time.monotonic() - start) * 1000


def main() -> None:
    rounds, seconds = int(sys.argv[1]), float(sys.argv[2])
    sh("zpool create -o ashift=12 -O compression=off -O atime=off tank /dev/vtbd1")
    sh("zfs create tank/db; kldload -n dtraceall")
    results: Json = {
        "release": os.uname().release,
        "zfs": sh("sysctl -n vfs.zfs.version.module").strip(),
        "cpus": os.cpu_count(),
        "cpu": sh("sysctl -n hw.model").strip(),
        "delays": delays(),
        "runs": {},
    }
    for file in files(max(JOBS)):
        sh(f"dd if=/dev/zero of={file} bs=1m count=16")
    rates("fsync", 3)
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        one_round(results["runs"], seconds)
        (OUT / "bench.json").write_text(json.dumps(results))


main()
