"""Measures what the one-file tools cost; runs in the guest (`make bench-tools`) and prints a table.

usage: tools.py [TOOL...]

While fio runs, all kprobes of the kernel are disarmed and armed in turn: that is faster than
reattaching, so the machine's speed has less time to drift. ZFS's own count of commits gives the
rate. Both rates include the cost of tracepoints (fsyncoffcpu.bt, lock contention).
"""

from __future__ import annotations

import json
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/lab/guest"))

from labkit import commits, make_pool, sh

TRACERS = Path(__file__).resolve().parents[2] / "tracers"
ARMED = Path("/sys/kernel/debug/kprobes/enabled")
STATS = Path("/proc/sys/kernel/bpf_stats_enabled")
PAIRS = 10
# slow commits only: otherwise the printing would be measured
ARGUMENTS = {"zilslower.bt": ["1000"], "zilslower.py": ["1000"]}
HEAD = "| tool | 1 job: fsync/s on / off | ratio | 8 jobs: on / off | ratio | BPF per fsync |"


def load(jobs: int) -> subprocess.Popen[bytes]:
    """fio, which runs until interrupted."""
    command = (
        "fio --name=bench --directory=/tank/db --rw=write --bs=8k --size=16M --fallocate=none "
        f"--fsync=1 --thread --time_based --runtime=3600 --numjobs={jobs}"
    )
    process = subprocess.Popen(command.split(), stdout=subprocess.DEVNULL)
    time.sleep(2)
    return process


def rate(seconds: float) -> float:
    before, start = commits(), time.monotonic()
    time.sleep(seconds)
    return (commits() - before) / (time.monotonic() - start)


def armed(on: bool, seconds: float) -> float:
    ARMED.write_text("1" if on else "0")
    time.sleep(0.15)
    return rate(seconds)


def programs() -> dict[int, tuple[int, int]]:
    """Runs and ns of the BPF programs in the kernel, by id."""
    found = json.loads(sh("bpftool -j prog show") or "[]")
    return {p["id"]: (p.get("run_cnt", 0), p.get("run_time_ns", 0)) for p in found}


def start(name: str) -> subprocess.Popen[bytes]:
    """The attached tool: it has printed "Tracing" and loaded no program for three seconds."""
    path = TRACERS / ("bcc" if name.endswith(".py") else "bpftrace") / name
    out = Path("/tmp/tool.out")
    with out.open("w") as file:
        process = subprocess.Popen([str(path), *ARGUMENTS.get(name, [])], stdout=file)
    count, since = 0, time.monotonic()
    while "Tracing" not in out.read_text() or time.monotonic() < since + 3:
        if process.poll() is not None:
            raise RuntimeError(f"{name} exited: {out.read_text()}")
        time.sleep(0.2)
        if len(programs()) != count:
            count, since = len(programs()), time.monotonic()
    return process


def ratio(jobs: int) -> list[str]:
    """Two cells of a row: the rates, and the median and range of the ratios."""
    fio = load(jobs)
    pairs = []
    for _ in range(PAIRS):
        before, on, after = armed(False, 0.6), armed(True, 1.2), armed(False, 0.6)
        pairs.append((on, (before + after) / 2))
    ARMED.write_text("1")
    fio.send_signal(signal.SIGINT)
    fio.wait()
    ratios = [on / off for on, off in pairs if off]
    rates = [statistics.median(column) for column in zip(*pairs, strict=True)]
    return [
        f"{rates[0]:.0f} / {rates[1]:.0f}",
        f"{statistics.median(ratios):.2f} ({min(ratios):.2f} - {max(ratios):.2f})",
    ]


def bpf_per_fsync() -> str:
    fio = load(1)
    STATS.write_text("1")
    before, n = programs(), commits()
    time.sleep(3)
    after, n = programs(), commits() - n
    STATS.write_text("0")
    fio.send_signal(signal.SIGINT)
    fio.wait()
    runs, ns = (sum(after[i][k] - before.get(i, (0, 0))[k] for i in after) for k in (0, 1))
    return f"{ns / n / 1000:.1f} us in {runs / n:.1f} calls"


def main() -> None:
    paths = [*TRACERS.glob("bpftrace/*.bt"), *TRACERS.glob("bcc/*.py")]
    names = sys.argv[1:] or sorted(path.name for path in paths)
    make_pool()
    sh("zfs create tank/db")
    print(HEAD + "\n|---|---|---|---|---|---|", flush=True)
    for name in names:
        tool = start(name)
        cells = [name, *ratio(1), *ratio(8), bpf_per_fsync()]
        tool.send_signal(signal.SIGINT)
        tool.wait(120)
        print(f"| {' | '.join(cells)} |", flush=True)


main()
