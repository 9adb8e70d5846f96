"""What the scenarios in the guest share: pools, loads, and the tracer as a user runs it.

Runs inside the virtual machine with the system's Python, so standard library only.
A scenario collects facts in a dict and leaves it in /out/results.json; the tests on
the host judge it.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from attaching import abilities

FREEBSD = sys.platform.startswith("freebsd")
DISK = "/dev/vtbd1" if FREEBSD else "/dev/vdb"  # the first of the lab's
OUT = Path("/out")
KSTAT = Path("/proc/spl/kstat/zfs")
PARAMETERS = Path("/sys/module/zfs/parameters")
_PT_LOAD = 1
# A session that sets a value, and holds it until it is killed
SESSION = """
import sys, time
from zfstune.changes.session import ChangeSession
from zfstune.host import open_host
session = ChangeSession(open_host(), "session of a test", ["zfs_delay_scale"])
with session:
    session.apply({"zfs_delay_scale": 600000})
    print(session.supervisor.pid, flush=True)
    while session.alive():
        session.overrides()
        time.sleep(0.2)
"""
Json = dict[str, Any]


def sh(command: str, check: bool = True) -> str:
    """The output of a shell command; stderr too when it fails."""
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise RuntimeError(f"{command}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def make_pool(name: str = "tank", disk: str = DISK, extra: str = "") -> None:
    sh(f"zpool create -f -o ashift=12 -O compression=off -O atime=off {extra} '{name}' {disk}")


def kstat(name: str) -> dict[str, int]:
    """The numbers of a named kstat, e.g. "zil"; on Linux also of a pool's, "tank/iostats"."""
    values = {}
    if FREEBSD:
        for line in sh(f"sysctl kstat.zfs.misc.{name}").splitlines():
            full, _, value = line.partition(": ")
            if value.isdigit():
                values[full.rpartition(".")[2]] = int(value)
        return values
    for line in (KSTAT / name).read_text().splitlines()[2:]:
        fields = line.split()
        if len(fields) == 3 and fields[2].isdigit():
            values[fields[0]] = int(fields[2])
    return values


def kernel_ints(names: Sequence[str]) -> dict[str, int]:
    """Variables (int) of the zfs module, those that are there, by /proc/kcore."""
    found = {}
    with Path("/proc/kcore").open("rb", buffering=0) as core:
        for name, offset in _offsets(tuple(names), Path("/sys/module/zfs").stat().st_ino):
            core.seek(offset)
            (found[name],) = struct.unpack("<i", core.read(4))
    return found


@cache
def _offsets(names: tuple[str, ...], _module: int) -> list[tuple[str, int]]:
    """Where they are in /proc/kcore: an ELF file of what is mapped. It takes seconds when emulated,
    so once for each time that the module was loaded."""
    lines = sh("grep -w zfs /proc/kallsyms").splitlines()
    found = {name: int(address, 16) for address, _kind, name, *_ in map(str.split, lines)}
    with Path("/proc/kcore").open("rb") as core:
        header = core.read(64)
        (table,) = struct.unpack_from("<Q", header, 32)
        size, count = struct.unpack_from("<HH", header, 54)
        core.seek(table)
        segments = [struct.unpack_from("<IIQQQQQ", core.read(size)) for _ in range(count)]
    return [
        (name, offset + found[name] - start)
        for name in names
        for kind, _flags, offset, start, _physical, _file, length in segments
        if name in found and kind == _PT_LOAD and start <= found[name] < start + length
    ]


def txg_rows(pool: str) -> list[Json]:
    """The finished rows of a pool's txgs kstat."""
    sysctl, file = f"sysctl -n kstat.zfs.{pool}.txgs", f"cat {KSTAT / pool}/txgs"
    lines = sh(sysctl if FREEBSD else file).strip().splitlines()
    names = lines[0].split()
    rows = [dict(zip(names, line.split(), strict=True)) for line in lines[1:]]
    return [
        {n: int(v) for n, v in row.items() if v.isdigit()} for row in rows if row["state"] == "C"
    ]


@contextmanager
def parameters(**values: int) -> Iterator[None]:
    """Module parameters, by their names on Linux, for the time of the body."""
    before = {name: parameter(name) for name in values}
    try:
        for name, value in values.items():
            set_parameter(name, str(value))
        time.sleep(1.5)  # until a tracer has read them: it does every second
        yield
    finally:
        for name, text in before.items():
            set_parameter(name, text)


def parameter(name: str) -> str:
    sysctl = f"sysctl -n vfs.zfs.{name.removeprefix('zfs_')}"
    return sh(sysctl if FREEBSD else f"cat {PARAMETERS / name}").strip()


def set_parameter(name: str, text: str) -> None:
    if FREEBSD:
        sh(f"sysctl vfs.zfs.{name.removeprefix('zfs_')}={text}")
    else:
        (PARAMETERS / name).write_text(text)


def values() -> dict[str, str]:
    """All parameters that can be written."""
    files = (path for path in PARAMETERS.iterdir() if path.stat().st_mode & 0o200)
    return {path.name: path.read_text().strip() for path in sorted(files)}


def commits() -> int:
    """Calls of zil_commit_impl since the module was loaded, as ZFS counts them."""
    return kstat("zil")["zil_commit_count"]


def fio(directory: str, *options: str, name: str = "job", size: str = "64M") -> Json:
    """Runs fio, returns its JSON."""
    out = Path(f"/tmp/fio-{name}-{time.monotonic_ns()}.json")
    sh(
        f"fio --name={name} --directory={directory} --rw=write --bs=8k --size={size} "
        f"--fallocate=none --output-format=json --output={out} {' '.join(options)}"
    )
    text = out.read_text()
    result: Json = json.loads(text[text.index("{") :])
    return result


def sync_writes(path: str, n: int) -> None:
    """Writes 8 kB n times, with an fsync after each."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    for i in range(n):
        os.pwrite(fd, b"x" * 8192, i * 8192)
        os.fsync(fd)
    os.close(fd)


@contextmanager
def busy(directory: str) -> Iterator[None]:
    """Two writers with an fsync after each write, until the end of the body."""
    load = subprocess.Popen(
        f"exec fio --name=busy --directory={directory} --rw=write --bs=8k --size=16M --fsync=1 "
        "--fallocate=none --thread --numjobs=2 --time_based --runtime=3600 --output=/dev/null",
        shell=True,
    )
    try:
        yield
    finally:
        load.terminate()
        load.wait()


def until_loading(process: subprocess.Popen[str]) -> None:
    """Waits until zfstune loads: Python's handler of SIGINT is gone then. If that moment is missed,
    waits until zfstune has its own handlers. An earlier SIGINT ends Python itself, with a traceback
    that no program can prevent."""
    python, until = False, time.monotonic() + 60
    while process.poll() is None and time.monotonic() < until:
        status = Path(f"/proc/{process.pid}/status").read_text()
        caught = int(next(x for x in status.splitlines() if x.startswith("SigCgt")).split()[1], 16)
        interrupt, terminate = (caught >> n - 1 & 1 for n in (signal.SIGINT, signal.SIGTERM))
        if terminate or (python and not interrupt):
            return
        python = python or bool(interrupt)
        time.sleep(0.002)
    raise RuntimeError(f"zfstune was not seen to load, status {process.returncode}")


def end_bpftrace(process: subprocess.Popen[Any]) -> None:
    """Ctrl-C, and again: bpftrace before 0.19 forgets a signal that comes while it handles an
    event (its poll_perf_events() looks at none but an interrupted wait)."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        process.wait(60)


class Tracer:
    """`zfstune trace ...`, started and attached when the constructor returns."""

    def __init__(
        self, *args: str, json_lines: bool = True, command: Sequence[str] = ("zfstune",)
    ) -> None:
        self.json_lines = json_lines
        command = [*command, "trace", *args, *(["--json"] if json_lines else [])]
        self.stdout = Path(f"/tmp/tracer-{time.monotonic_ns()}.out")
        self.stderr = self.stdout.with_suffix(".err")
        self.started = time.monotonic()
        with self.stdout.open("w") as out, self.stderr.open("w") as err:
            self.process = subprocess.Popen(command, stdout=out, stderr=err)
        while "tracing" not in self.stderr.read_text():
            if self.process.poll() is not None or time.monotonic() > self.started + 300:
                raise RuntimeError(f"{command} did not attach: {self.stderr.read_text()}")
            time.sleep(0.05)
        self.attach_seconds = time.monotonic() - self.started

    def stop(self, signum: int = signal.SIGINT) -> str:
        """Ends the tracer and returns its output."""
        self.process.send_signal(signum)
        self.process.wait(120)
        return self.stdout.read_text()

    def rows(self, signum: int = signal.SIGINT) -> list[Json]:
        """Ends it and returns its JSON lines."""
        return [json.loads(line) for line in self.stop(signum).splitlines()]


@contextmanager
def traced(results: Json, key: str, *args: str) -> Iterator[Tracer]:
    """Traces the body with JSON output into results[key]: rows, status, stderr and the
    change of zil_commit_count meanwhile."""
    tracer = Tracer(*args)
    before = commits()
    try:
        yield tracer
    finally:
        kstat_commits = commits() - before
        rows = tracer.rows()
        results[key] = {
            "rows": rows,
            "status": tracer.process.returncode,
            "stderr": tracer.stderr.read_text(),
            "kstat_commits": kstat_commits,
        }


def programs() -> list[str]:
    """Names of the BPF programs in the kernel that are ours. Freed ones linger for a
    moment (RCU), so it looks for up to ten seconds until there are none."""
    names: list[str] = []
    for _ in range(100):
        progs = json.loads(sh("bpftool -j prog show") or "[]")
        names = [
            p.get("name", "")
            for p in progs
            if p.get("name", "").startswith(("fentry_", "kprobe_", "tp_", "perf_sample"))
        ]
        if not names:
            break
        time.sleep(0.1)
    return names


@contextmanager
def suspended_pool(disk: str) -> Iterator[str]:
    """A pool whose only disk fails, by name; its state. Afterwards the disk works again, since
    a pool that stays so would keep the guest from ending."""
    name = "frail"
    sectors = int(sh(f"blockdev --getsz {disk}"))
    sh(f"dmsetup create {name} --table '0 {sectors} linear {disk} 0'; udevadm settle")
    sh(f"zpool create -f -o ashift=12 -o failmode=wait {name} /dev/mapper/{name}")
    turn(name, f"0 {sectors} error")
    sh(f"(dd if=/dev/zero of=/{name}/x bs=1M count=64; sync) >/dev/null 2>&1 &")
    state, until = KSTAT / name / "state", time.monotonic() + 60
    while state.read_text().strip() != "SUSPENDED" and time.monotonic() < until:
        time.sleep(0.5)
    try:
        yield state.read_text().strip()
    finally:
        turn(name, f"0 {sectors} linear {disk} 0")
        sh(f"zpool clear {name}", check=False)


def turn(name: str, table: str) -> None:
    """Another table for a device of device mapper; what waits for the old one gets the new one."""
    sh(
        f"dmsetup suspend --nolockfs --noflush {name}; dmsetup load {name} --table '{table}'; "
        f"dmsetup resume {name}"
    )


def run(command: Sequence[str], timeout: float = 120, **kwargs: Any) -> Json:
    """Status and output of a command, for the tests to judge."""
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=timeout, **kwargs
    )
    return {"status": done.returncode, "stdout": done.stdout, "stderr": done.stderr}


def finish(results: Json) -> None:
    """Leaves the results for the host, and what they are of."""
    results["uname"] = os.uname().release
    results["host"] = {} if FREEBSD else abilities()
    version = "sysctl -n vfs.zfs.version.module" if FREEBSD else "cat /sys/module/zfs/version"
    results["zfs"] = sh(version).strip()
    (OUT / "results.json").write_text(json.dumps(results))


def whole(results: Json, *keys: str) -> bool:
    """Whether these are wanted among the results; not in a sample, of which the last argument is
    "few", and whose tests of them are skipped."""
    if sys.argv[-1] != "few":
        return True
    results.setdefault("left_out", []).extend(keys)
    return False


def progress(text: str) -> None:
    print(f"[{time.monotonic():7.1f}] {text}", file=sys.stderr, flush=True)
