"""The part of `make bench` in the guest: what a write and its fsync take of the CPUs, without a
tracer and under several. Writes /out/bench.json.

usage: tracing_guest.py ROUNDS WIDTH REGEX

The CPU time of all threads counts, the tracer's own included: what it takes from everybody else,
however long a disk is waited for. Every measurement under a tracer comes between two without; the
ratio to their mean is what counts, because the machine's speed drifts. A tool has at most ROUNDS of
them, or fewer when the intervals of all its loads are at most WIDTH wide.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tuner"))

from zfstune.experiment import statistics

Json = dict[str, Any]
OUT = Path("/out")
# Packages of peers that the image lacks
SHARE = Path("/share")
SCHEDSTAT = Path("/proc/schedstat")
KPROBES = Path("/sys/kernel/debug/kprobes/list")
BPF_STATS = Path("/proc/sys/kernel/bpf_stats_enabled")
BLOCK = b"x" * 8192
CONFIDENCE = 0.95
D_SCRIPTS = Path("/zfstune/tracers/dtrace/linux")
# Fewer pairs have no narrow interval
FEWEST = 8


@dataclass(frozen=True)
class Load:
    """Processes that write 8 kB and call fsync, so often each, on a dataset."""

    dataset: str
    jobs: int
    fsyncs: int


# About a second each, emulated. One pool is in memory, one on a disk of the lab
LOADS = {
    "1 job": Load("ram/db", 1, 800),
    "8 jobs": Load("ram/db", 8, 150),
    "disk": Load("disk/db", 1, 500),
    "sync=disabled": Load("ram/off", 1, 5000),
}
# Every view alone, all views together, stacks, and what stays on for weeks
OURS = {
    "zfstune trace fsync": "zfstune trace fsync",
    "zfstune trace fsync --no-fentry": "zfstune trace fsync --no-fentry",
    "zfstune trace fsync --json": "zfstune trace fsync --interval 1s --json",
    "zfstune trace fsync --light": "zfstune trace fsync --light",
    "zfstune trace txg": "zfstune trace txg",
    "zfstune trace throttle": "zfstune trace throttle",
    "zfstune trace device": "zfstune trace device",
    "zfstune trace arc": "zfstune trace arc",
    "zfstune trace (all five)": "zfstune trace --interval 2s",
    "zfstune flame --off-cpu": "zfstune flame --off-cpu --duration 1h -o /tmp/bench.folded",
    "zfstune flame --wakeup": "zfstune flame --wakeup --duration 1h -o /tmp/bench.folded",
    "zfstune exporter --no-record": "zfstune exporter --no-record",
    "zfstune exporter": "zfstune exporter",
}
# What each of them says when it has attached
ATTACHED = re.compile(r"; Ctrl-C to end|: /metrics$", re.MULTILINE)


def sh(command: str) -> str:
    return subprocess.run(command, shell=True, check=True, capture_output=True, text=True).stdout


def cpu_ns() -> int:
    """How long threads have run, on all CPUs: the seventh number of each
    (Documentation/scheduler/sched-stats.rst), without those that run now."""
    lines = (line.split() for line in SCHEDSTAT.read_text().splitlines())
    return sum(int(fields[7]) for fields in lines if re.fullmatch(r"cpu\d+", fields[0]))


def cpu_per_fsync(load: Load) -> float:
    """CPU time of a write and its fsync, in ns."""
    start = cpu_ns()
    children = [child(f"/{load.dataset}/file{i}", load.fsyncs) for i in range(load.jobs)]
    failed = [pid for pid in children if os.waitpid(pid, 0)[1]]
    if failed:
        raise RuntimeError(f"{len(failed)} of {load.jobs} jobs on {load.dataset} failed")
    return (cpu_ns() - start) / (load.jobs * load.fsyncs)


def child(path: str, fsyncs: int) -> int:
    """A process that writes to the file and fsyncs it; its ID."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        for _ in range(fsyncs):
            os.pwrite(fd, BLOCK, 0)
            os.fsync(fd)
        status = 0
    finally:
        os._exit(status)


def every_load() -> dict[str, float]:
    sh("zpool sync")  # log blocks stay until then, and here no txg ends by itself
    return {name: cpu_per_fsync(load) for name, load in LOADS.items()}


def install_packages() -> None:
    if any(SHARE.glob("*.deb")):
        sh(f"DEBIAN_FRONTEND=noninteractive dpkg -i --force-unsafe-io {SHARE}/*.deb")


def symbol() -> str:
    """The function that the one-liner times, which every commit calls."""
    return "zil_commit_flags" if " zil_commit_flags\t" in sh("cat /proc/kallsyms") else "zil_commit"


class Tool:
    """A tracer that runs until stop(). ready tells whether it has attached. Raises RuntimeError if
    it does not attach."""

    def __init__(self, command: list[str], ready: Ready) -> None:
        self.out = Path("/tmp/tool.out")
        start = time.monotonic()
        with self.out.open("w") as out:
            self.process = subprocess.Popen(
                command,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        while not ready(self):
            if self.process.poll() is not None or time.monotonic() > start + 180:
                self.process.kill()
                raise RuntimeError(f"{command[0]} did not attach: {self.said()[-500:]}")
            time.sleep(0.02)
        self.attach_seconds = time.monotonic() - start

    def said(self) -> str:
        return self.out.read_text()

    def own_seconds(self) -> float:
        """CPU time of the process so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> str:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(120)
        return self.said()


# Whether a tool has attached
Ready = Callable[[Tool], bool]


def says(pattern: re.Pattern[str] | str) -> Ready:
    return lambda tool: re.search(pattern, tool.said()) is not None


def kprobes_on(*symbols: str) -> Ready:
    """Attached if each symbol has a probe at its entry and one at its return."""

    def ready(_: Tool) -> bool:
        lines = KPROBES.read_text().splitlines()
        return all(
            {"k", "r"} <= {line.split()[1] for line in lines if f" {name}+" in line}
            for name in symbols
        )

    return ready


def loaded(program: str) -> Ready:
    """Attached if there is a BPF program of this name, for tools that say nothing."""
    return lambda _: any(one.get("name") == program for one in programs())


def has_perf_events(tool: Tool) -> bool:
    """The same for perf, which may have no program."""
    files = Path(f"/proc/{tool.process.pid}/fd").iterdir()
    return any("perf_event" in str(file.readlink()) for file in files)


def tools(only: str) -> dict[str, Callable[[], Tool]]:
    """Those that are here, by name; only is a regular expression."""
    commands = {name: (command.split(), says(ATTACHED)) for name, command in OURS.items()}
    return {
        name: partial(Tool, command, ready)
        for name, (command, ready) in (commands | peers()).items()
        if re.search(only, name) and shutil.which(command[0])
    }


def peers() -> dict[str, tuple[list[str], Ready]]:
    """Their commands, and what tells that they have attached."""
    f = symbol()
    one_liner = (
        f"kprobe:{f} {{ @s[tid] = nsecs; }} "
        f"kretprobe:{f} /@s[tid]/ {{ @ns = hist(nsecs - @s[tid]); delete(@s[tid]); }}"
    )
    return {
        "bpftrace one-liner": (["bpftrace", "-e", one_liner], kprobes_on(f)),
        "bcc zfsdist": (["zfsdist-bpfcc"], kprobes_on("zpl_fsync")),
        "bcc offcputime": (["offcputime-bpfcc"], says("Hit Ctrl-C to end")),
        "libbpf-tools funclatency": (["funclatency-libbpf", f], loaded("dummy_kretprobe")),
        "libbpf-tools offcputime": (["offcputime-libbpf"], loaded("sched_switch")),
        "perf trace": (["perf", "trace", "-a", "-s", "-e", "fsync"], has_perf_events),
        "zilcommit.d": (
            ["dtrace", "-Zs", str(D_SCRIPTS / "zilcommit.d")],
            says("Hit Ctrl-C to end"),
        ),
    }


def lost(output: str) -> int | None:
    """Events that a tool says it has lost; None if it says nothing of them."""
    found = re.findall(r"\blost\W{1,3}(\d+)", output, re.IGNORECASE)
    return max(map(int, found)) if found else None


def measure(start: Callable[[], Tool], rounds: int, width: float) -> Json:
    """none, the tool, none, the tool, ..., none, each with every load."""
    entry: Json = {
        "attach_seconds": [],
        "own": [],
        "lost": [],
        "loads": {name: [] for name in LOADS},
    }
    before = every_load()
    for _ in range(rounds):
        tool = start()
        entry["attach_seconds"].append(tool.attach_seconds)
        own, begin = tool.own_seconds(), time.monotonic()
        traced = every_load()
        entry["own"].append((tool.own_seconds() - own) / (time.monotonic() - begin))
        entry["lost"].append(lost(tool.stop()))
        after = every_load()
        for name, pairs in entry["loads"].items():
            pairs.append({"none": (before[name] + after[name]) / 2, "traced": traced[name]})
        before = after
        if all(narrow(pairs, width) for pairs in entry["loads"].values()):
            break
    return entry


def narrow(pairs: list[Json], width: float) -> bool:
    low, high = interval(pairs)
    return len(pairs) >= FEWEST and high - low <= width


def interval(pairs: list[Json]) -> tuple[float, float]:
    """Of the ratio, by signed ranks."""
    low, high = statistics.interval(log_ratios(pairs), CONFIDENCE)
    return math.exp(low), math.exp(high)


def log_ratios(pairs: list[Json]) -> list[float]:
    return [math.log(pair["traced"] / pair["none"]) for pair in pairs]


def programs_per_fsync(start: Callable[[], Tool]) -> dict[str, dict[str, Json]]:
    """The runs of each program and the time in it for an fsync of each load, as the kernel counts
    (bpf_stats): some run in other threads, and only if these meet."""
    BPF_STATS.write_text("1")
    tool = start()
    found = {}
    for name, load in LOADS.items():
        before = programs()
        cpu_per_fsync(load)
        found[name] = per_fsync(before, programs(), load.jobs * load.fsyncs)
    tool.stop()
    BPF_STATS.write_text("0")
    return found


def programs() -> list[Json]:
    found: list[Json] = json.loads(sh("bpftool -j prog show"))
    return found


def per_fsync(before: list[Json], after: list[Json], fsyncs: int) -> dict[str, Json]:
    """Time in and runs of each program that ran, per fsync; bpftool omits both for one that never
    did."""
    earlier = {p["id"]: p for p in before}
    found: dict[str, Json] = {}
    for one in after:
        more = {
            name: (one.get(key, 0) - earlier.get(one["id"], {}).get(key, 0)) / fsyncs
            for name, key in (("ns", "run_time_ns"), ("runs", "run_cnt"))
        }
        if more["runs"]:
            found[one.get("name", "?")] = more
    return found


def main() -> None:
    rounds, width, only = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
    install_packages()
    sh("modprobe brd rd_nr=1 rd_size=1048576")
    for pool, disk in (("ram", "/dev/ram0"), ("disk", "/dev/vdb")):
        sh(f"zpool create -o ashift=12 -O compression=off -O atime=off {pool} {disk}")
        sh(f"zfs create -o recordsize=8k {pool}/db")
    sh("zfs create -o recordsize=8k -o sync=disabled ram/off")
    # the sync of a txg would fall into some measurements, and not into others
    Path("/sys/module/zfs/parameters/zfs_txg_timeout").write_text("3600")
    every_load()
    results: Json = {
        "kernel": os.uname().release,
        "zfs": Path("/sys/module/zfs/version").read_text().strip(),
        "cpus": os.cpu_count(),
        "btf": Path("/sys/kernel/btf/zfs").exists(),
        "loads": {name: vars(load) for name, load in LOADS.items()},
        "tools": {},
    }
    match = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    results["cpu"] = match[1] if match else "unknown"
    for name, start in tools(only).items():
        print(f"bench: {name}", file=sys.stderr, flush=True)
        try:
            results["tools"][name] = measure(start, rounds, width)
            results["tools"][name]["programs"] = programs_per_fsync(start)
        except RuntimeError as error:
            results["tools"][name] = {"error": " ".join(str(error).split())[:200]}
    (OUT / "bench.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main()
