"""What the scenarios of `zfstune diagnose` share: programs that write, a pool, and the runs."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from labkit import Json, make_pool, progress, sh, sync_writes

WRITER = """
import os, sys
path, size, between = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
import time
fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
i = 0
while True:
    left = size
    while left > 0:
        n = min(left, 131072)
        os.pwrite(fd, os.urandom(4096) * (n // 4096), (i % 64) * size + size - left)
        left -= n
    os.fsync(fd)
    i += 1
    time.sleep(between)
"""
MAPPER = """
import mmap, os, sys
size = int(sys.argv[2])
with open(sys.argv[1], "r+b") as f, mmap.mmap(f.fileno(), size) as m:
    value = 0
    while True:
        value = (value + 1) % 256
        for offset in range(0, size, mmap.PAGESIZE):
            m[offset] = value
        os.fsync(f.fileno())
"""

CROWD = """
import os, sys, threading, time
between = float(sys.argv[3])
def work(path):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    i = 0
    while True:
        os.pwrite(fd, bytes(8192), i % 512 * 8192)
        os.fsync(fd)
        i += 1
        if between:
            time.sleep(between)
for n in range(int(sys.argv[2])):
    threading.Thread(target=work, args=(f"{sys.argv[1]}/{n}",)).start()
"""
BULK = """
import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT, 0o600)
i = 0
while True:
    os.pwrite(fd, bytes(1 << 20), i % 300 << 20)
    i += 1
"""


def python(script: str, *words: object) -> list[str]:
    return ["python3", "-c", script, *map(str, words)]


def writer(path: str, size: int = 8192, between: float = 0.0) -> list[str]:
    """Writes size bytes and fsyncs, again and again."""
    return python(WRITER, path, size, between)


def crowd(directory: str, threads: int, between: float = 0.0) -> list[str]:
    """Threads that each write 8 kB and fsync, again and again, with a pause of `between` s."""
    return python(CROWD, directory, threads, between)


def bulk(path: str) -> list[str]:
    """Writes as fast as it may, without an fsync."""
    return python(BULK, path)


@contextlib.contextmanager
def pool(disk: str, log: str = "", options: str = "") -> Iterator[None]:
    """tank with the datasets db, whose log exists already, and bulk."""
    make_pool(disk=disk)
    try:
        if log:
            sh(f"zpool add -f tank log {log}")
        sh(f"zfs create {options} tank/db; zfs create tank/bulk")
        sync_writes("/tank/db/warm", 10)
        sh("zpool sync tank")
        yield
    finally:
        sh("sync; zpool destroy -f tank")


@contextlib.contextmanager
def loaded(*commands: Sequence[str], nice: Sequence[str] = ()) -> Iterator[None]:
    """Programs in the background, for the time of the body and a moment before."""
    running = [subprocess.Popen([*nice, *c], stdout=subprocess.DEVNULL) for c in commands]
    time.sleep(3)
    try:
        for one, command in zip(running, commands, strict=True):
            if one.poll() is not None:
                raise RuntimeError(f"{command} has ended with status {one.returncode}")
        yield
    finally:
        for one in running:
            one.kill()
            one.wait()


class Runs:
    """The runs so far. first is what may be found first, among what must be found as well."""

    def __init__(self) -> None:
        self.found: list[Json] = []

    def diagnose(
        self,
        scenario: str,
        numbers: Json,
        first: Sequence[str],
        among: Sequence[str] = (),
        meanwhile: Callable[[], None] = lambda: None,
        seconds: int = 20,
        prefix: Sequence[str] = (),
    ) -> None:
        """Watches tank; meanwhile is done once the tracer is attached. prefix is the command, if
        any, that runs zfstune."""
        progress(f"{scenario} {numbers}")
        run: Json = {"scenario": scenario, "numbers": numbers, "first": list(first)}
        found = self.watch(meanwhile, seconds, prefix)
        self.found.append(run | {"among": list(among)} | found)

    def watch(self, meanwhile: Callable[[], None], seconds: int, prefix: Sequence[str]) -> Json:
        """What somebody sees who asks now. Raises RuntimeError."""
        errors = Path("/tmp/diagnose.err")
        command = [*prefix, "zfstune", "diagnose", "tank", "--duration", f"{seconds}s", "--json"]
        with errors.open("w") as err:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=err, text=True)
        deadline = time.monotonic() + 300
        while True:
            ended = process.poll() is not None
            if "tracing" in errors.read_text():
                break
            if ended or time.monotonic() > deadline:
                raise RuntimeError(f"no diagnosis: {errors.read_text()}")
            time.sleep(0.1)
        meanwhile()
        out, _ = process.communicate(timeout=600)
        return said(process.returncode, out, errors.read_text())


def said(status: int, out: str, err: str) -> Json:
    """What `zfstune diagnose --json` says of tank."""
    lines = [json.loads(line) for line in out.splitlines()]
    diagnosis = next((line for line in lines if line["pool"] == "tank"), None)
    if diagnosis:
        progress(f"  {diagnosis['verdict']}: {[c['id'] for c in diagnosis['causes']]}")
    return {"status": status, "diagnosis": diagnosis, "stderr": err}
