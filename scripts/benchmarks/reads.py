"""Measures what tracing reads costs; runs in the guest (`make bench-reads`) and prints a table.

usage: reads.py [PAIRS [SECONDS]]

fio reads or writes 4 kB at a time in a file that is in memory: the shortest operations, of which
tracing takes the largest share. Each rate under a trace comes between two without, because the
machine's speed drifts; the ratio to their mean is what counts. The time in the programs is the
kernel's own count (bpf_stats), without its way into them.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/lab/guest"))

from labkit import Tracer, fio, make_pool, sh

STATS = Path("/proc/sys/kernel/bpf_stats_enabled")
LOADS = {"reads": "randread", "writes": "randwrite"}
BTF = Path("/sys/kernel/btf/zfs").exists()
# the arguments, and numbers of jobs
WAYS: dict[str, tuple[tuple[str, ...], tuple[int, ...]]] = {
    "fentry" if BTF else "kprobe": ((), (1, 2)),
    **({"kprobe": (("--no-fentry",), (1,))} if BTF else {}),
}
HEAD = "| | probes | jobs | off, per s | on, per s | on / off, median | range | BPF per call |"


def rate(kind: str, jobs: int, seconds: float) -> float:
    """Operations per second of all jobs."""
    options = f"--rw={LOADS[kind]} --bs=4k --numjobs={jobs} --thread --group_reporting"
    options += f" --time_based --runtime={seconds} --overwrite=1 --filename=/tank/db/file"
    job = fio("/", *options.split(), name="bench", size="16M")["jobs"][0]
    total: float = job["read" if kind == "reads" else "write"]["iops"]
    return total


def traced(way: Sequence[str], kind: str, jobs: int, seconds: float) -> float:
    """The rate under a trace."""
    tracer = Tracer("read", "tank", *way)
    found = rate(kind, jobs, seconds)
    tracer.stop()
    return found


def run_ns() -> tuple[int, int]:
    """Runs of the programs that every operation passes, and the time of all."""
    programs = json.loads(sh("bpftool -j prog show"))
    ours = [p for p in programs if p.get("name", "").startswith(("fentry_", "kprobe_"))]
    calls = [p.get("run_cnt", 0) for p in ours if "_return" in p["name"]]
    return sum(calls), sum(p.get("run_time_ns", 0) for p in ours)


def per_call(way: Sequence[str], kind: str, seconds: float) -> float:
    """The time in programs for one operation, in ns."""
    STATS.write_text("1")
    tracer = Tracer("read", "tank", *way)
    calls, ns = run_ns()
    rate(kind, 1, seconds)
    more_calls, more_ns = run_ns()
    tracer.stop()
    STATS.write_text("0")
    return (more_ns - ns) / max(1, more_calls - calls)


def main() -> None:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 2
    make_pool()
    sh("zfs create -o recordsize=8k tank/db")
    sh("dd if=/dev/urandom of=/tank/db/file bs=1M count=16; zpool sync tank")
    version = Path("/sys/module/zfs/version").read_text().strip()
    print(f"kernel {os.uname().release}, ZFS {version}, {os.cpu_count()} CPUs; {pairs} pairs of")
    print(f"{seconds:g} s\n\n{HEAD}\n{'|---' * 8}|")
    for kind in LOADS:
        for name, (way, numbers) in WAYS.items():
            for jobs in numbers:
                off = [rate(kind, jobs, seconds)]
                on, ratios = [], []
                for _ in range(pairs):
                    on.append(traced(way, kind, jobs, seconds))
                    off.append(rate(kind, jobs, seconds))
                    ratios.append(2 * on[-1] / (off[-1] + off[-2]))
                ns = per_call(way, kind, seconds) if jobs == 1 else None
                middle = statistics.median
                print(
                    f"| {kind} | {name} | {jobs} | {middle(off):,.0f} | {middle(on):,.0f} | "
                    f"{middle(ratios):.2f} | {min(ratios):.2f} to {max(ratios):.2f} | "
                    f"{'' if ns is None else f'{ns:,.0f} ns'} |",
                    flush=True,
                )


main()
