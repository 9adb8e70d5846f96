"""The part of `make bench` in the guest: fsync/s of fio without a tracer and under several, in
turn, for several rounds. Writes /out/bench.json.

Every measurement under a tracer comes between two without; the ratio to their mean is what counts,
because the machine's speed drifts.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Json = dict[str, Any]
OUT = Path("/out")
ZIL = Path("/proc/spl/kstat/zfs/zil")
KPROBES = Path("/sys/kernel/debug/kprobes/list")
JOBS = (1, 8)
# Every view alone, all views together, and stacks.
OURS = {
    "zfstune trace fsync": "zfstune trace fsync tank",
    "zfstune trace txg": "zfstune trace txg tank",
    "zfstune trace throttle": "zfstune trace throttle tank",
    "zfstune trace device": "zfstune trace device tank",
    "zfstune trace arc": "zfstune trace arc",
    "zfstune trace (all five)": "zfstune trace --pool tank --interval 2s",
    "zfstune flame --off-cpu": "zfstune flame --off-cpu --duration 1h -o /tmp/bench.folded",
    "zfstune flame --wakeup": "zfstune flame --wakeup --duration 1h -o /tmp/bench.folded",
}


def sh(command: str) -> str:
    return subprocess.run(command, shell=True, check=True, capture_output=True, text=True).stdout


def fio_rate(jobs: int, seconds: float) -> float:
    """fsync/s of fio, with an fsync after each 8 kB write."""
    out = Path("/tmp/fio.json")
    sh(
        f"fio --name=bench --directory=/tank/db --rw=write --bs=8k --size=16M --fallocate=none "
        f"--fsync=1 --numjobs={jobs} --thread --group_reporting --time_based "
        f"--runtime={seconds} --output-format=json --output={out}"
    )
    text = out.read_text()
    job = json.loads(text[text.index("{") :])["jobs"][0]
    rate: float = job["sync"]["lat_ns"]["N"] / (job["job_runtime"] / jobs / 1000)
    return rate


def symbol() -> str:
    """The function that the one-liner times, which every commit calls."""
    return "zil_commit_flags" if " zil_commit_flags\t" in sh("cat /proc/kallsyms") else "zil_commit"


class Tool:
    """A tracer that runs until stop(). ready tells from its output whether it has attached. Raises
    RuntimeError if it does not attach."""

    def __init__(self, command: list[str], ready: Callable[[str], bool]) -> None:
        self.out = Path("/tmp/tool.out")
        start = time.monotonic()
        with self.out.open("w") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        while not ready(self.out.read_text()):
            if self.process.poll() is not None or time.monotonic() > start + 180:
                self.process.kill()
                raise RuntimeError(f"{command[0]} did not attach: {self.out.read_text()[-500:]}")
            time.sleep(0.02)
        self.attach_seconds = time.monotonic() - start

    def stop(self) -> str:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(120)
        return self.out.read_text()


def kprobes_on(*symbols: str) -> Callable[[str], bool]:
    """Attached if each symbol has a probe at its entry and one at its return."""

    def ready(_: str) -> bool:
        lines = KPROBES.read_text().splitlines()
        return all(
            {"k", "r"} <= {line.split()[1] for line in lines if f" {name}+" in line}
            for name in symbols
        )

    return ready


def tools(only: str) -> dict[str, Callable[[], Tool]]:
    """Tools by name; only is a regular expression."""
    found = peers() | {name: ours(command) for name, command in OURS.items()}
    return {name: start for name, start in found.items() if re.search(only, name)}


def peers() -> dict[str, Callable[[], Tool]]:
    f = symbol()
    one_liner = (
        f"kprobe:{f} {{ @s[tid] = nsecs; }} "
        f"kretprobe:{f} /@s[tid]/ {{ @ns = hist(nsecs - @s[tid]); delete(@s[tid]); }}"
    )
    found: dict[str, Callable[[], Tool]] = {
        "bpftrace one-liner": lambda: Tool(["bpftrace", "-e", one_liner], kprobes_on(f)),
    }
    if shutil.which("zfsdist-bpfcc"):
        found["bcc zfsdist"] = lambda: Tool(["zfsdist-bpfcc"], kprobes_on("zpl_fsync"))
    return found


def ours(command: str) -> Callable[[], Tool]:
    return lambda: Tool(command.split(), lambda text: "; Ctrl-C to end" in text)


def one_round(results: Json, seconds: float) -> None:
    """Measures none, A, none, B, none, ... each with every number of jobs."""
    before = {jobs: fio_rate(jobs, seconds) for jobs in JOBS}
    for name, start in tools(results["only"]).items():
        entry = results["tools"].setdefault(name, {"attach_seconds": [], "pairs": []})
        if "error" in entry:
            continue
        try:
            tool = start()
        except RuntimeError as error:
            entry["error"] = " ".join(str(error).split())[:200]
            continue
        entry["attach_seconds"].append(tool.attach_seconds)
        rates = {jobs: fio_rate(jobs, seconds) for jobs in JOBS}
        tool.stop()
        after = {jobs: fio_rate(jobs, seconds) for jobs in JOBS}
        for jobs in JOBS:
            entry["pairs"].append(
                {"jobs": jobs, "none": [before[jobs], after[jobs]], "traced": rates[jobs]}
            )
        before = after


def run_time(results: Json, seconds: float) -> None:
    """The time in the programs per ZIL commit, by the kernel (bpf_stats), with every number of
    jobs: some run in other threads, and only if these meet."""
    stats = Path("/proc/sys/kernel/bpf_stats_enabled")
    for name, start in tools(results["only"]).items():
        entry = results["tools"][name]
        if "error" in entry:
            continue
        stats.write_text("1")
        tool = start()
        for jobs in JOBS:
            before, done = programs(), commits()
            fio_rate(jobs, seconds)
            entry.setdefault("bpf", []).append(
                {"jobs": jobs, **per_fsync(before, programs(), commits() - done)}
            )
        tool.stop()
        stats.write_text("0")


def commits() -> int:
    """The number of commits so far, by ZFS; each fsync of the load is one."""
    (line,) = (x for x in ZIL.read_text().splitlines() if x.startswith("zil_commit_count "))
    return int(line.split()[2])


def programs() -> list[Json]:
    found: list[Json] = json.loads(sh("bpftool -j prog show"))
    return found


def per_fsync(before: list[Json], after: list[Json], fsyncs: int) -> Json:
    """Time in and calls of all programs, per fsync; bpftool omits both for programs that never
    ran."""
    earlier = {p["id"]: p for p in before}

    def change(key: str) -> int:
        return sum(p.get(key, 0) - earlier.get(p["id"], {}).get(key, 0) for p in after)

    return {"ns": change("run_time_ns") / fsyncs, "calls": change("run_cnt") / fsyncs}


def main() -> None:
    rounds, seconds, only = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
    sh("zpool create -o ashift=12 -O compression=off -O atime=off tank /dev/vdb")
    sh("zfs create tank/db")
    fio_rate(8, 3)
    results: Json = {
        "kernel": os.uname().release,
        "zfs": Path("/sys/module/zfs/version").read_text().strip(),
        "cpus": os.cpu_count(),
        "bpftrace": sh("bpftrace --version").strip(),
        "rounds": rounds,
        "seconds": seconds,
        "only": only,
        "tools": {},
    }
    match = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    results["cpu"] = match[1] if match else "unknown"
    for i in range(rounds):
        print(f"bench: round {i + 1} of {rounds}", file=sys.stderr, flush=True)
        one_round(results, seconds)
    run_time(results, seconds)
    (OUT / "bench.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main()
