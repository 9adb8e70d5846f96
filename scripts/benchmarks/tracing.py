#!/usr/bin/env python3
"""Measures in the lab what tracing costs, against its peers; writes docs/measurements/tracing.md.

usage: scripts/benchmarks/tracing.py [--rounds N] [--seconds S] [--tools REGEX] [FLAVOUR...]
"""

import argparse
import datetime
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from zfslab.script import run_lab

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/measurements/tracing.md"
GOAL = 0.98
# Largest loss of throughput, with one job.
GOALS = {"zfstune trace (all five)": 0.05, "zfstune flame --off-cpu": 0.10}
Json = dict[str, Any]

HEAD = """\
# What tracing costs

Written by `make bench` on {date}; run it to have the numbers of your machine.
Host: {cores} cores of {cpu}, QEMU with {accel}; a guest with 2 CPUs and 4 GiB.

fio writes 8 kB and calls fsync, for {seconds:g} s at a time. Each measurement under a tracer comes
between two without; a ratio is the traced rate divided by the mean of those two, and the tables
show the median of {rounds} ratios, the smallest and the largest.

The one-liner is a kprobe and a kretprobe on `zil_commit` with a histogram: one number where
`zfstune trace fsync` has eleven stages per dataset. bcc's `zfsdist` times four operations of
the file system. "BPF per fsync" is the time in the programs per commit, by the counts of the
kernel (bpf_stats, which adds some itself) and of ZFS, without the time the kernel needs to reach
them.

[performance.md](../performance.md) says what these numbers mean.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("flavours", metavar="FLAVOUR", nargs="*", default=["trixie", "bookworm"])
    parser.add_argument("--rounds", type=int, default=5, help="rounds per tool (at least 5)")
    parser.add_argument("--seconds", type=float, default=3, help="length of a measurement")
    parser.add_argument("--tools", default="", help="only these, by regular expression")
    args = parser.parse_args()
    if args.rounds < 5 or args.seconds <= 0:
        parser.error("use at least 5 rounds of more than 0 seconds")
    runs = {flavour: measure(flavour, args) for flavour in args.flavours}
    PAGE.write_text(page(runs, args), encoding="utf-8")
    print(PAGE.read_text())
    return 0


def measure(flavour: str, args: argparse.Namespace) -> Json:
    """All rounds in one boot. Exits if the run fails."""
    with tempfile.TemporaryDirectory() as out:
        machine = ("--flavour", flavour, "--disk", "size=4G", "--timeout", "3600s", "--out", out)
        program = ("python3", "/zfstune/scripts/benchmarks/tracing_guest.py")
        if run_lab(*machine, "--", *program, str(args.rounds), str(args.seconds), args.tools):
            sys.exit(f"bench: error: the run on {flavour} failed\nhint: see above")
        found: Json = json.loads((Path(out) / "bench.json").read_text())
    return found


def page(runs: dict[str, Json], args: argparse.Namespace) -> str:
    first = next(iter(runs.values()))
    accelerated = "QEMU" not in first["cpu"] and "TCG" not in first["cpu"]
    text = HEAD.format(
        date=datetime.date.today().isoformat(),
        cores=os.cpu_count(),
        cpu=host_cpu(),
        accel="KVM" if accelerated else "software emulation (TCG)",
        seconds=args.seconds,
        rounds=args.rounds,
    )
    for flavour, run in runs.items():
        text += section(flavour, run)
    return text


def host_cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "an unknown CPU"


def section(flavour: str, run: Json) -> str:
    lines = [
        f"\n## {flavour}: kernel {run['kernel']}, ZFS {run['zfs']}\n",
        "| tracer | fsync/s, 1 job | ratio | fsync/s, 8 jobs | ratio | BPF per fsync, 1 job | "
        "8 jobs | attached after |",
        "|---|---|---|---|---|---|---|---|",
    ]
    none = [f"{statistics.median(rates(run, jobs)):.0f}" for jobs in (1, 8)]
    lines.append(f"| none | {none[0]} | 1 | {none[1]} | 1 | - | - | - |")
    for name, tool in run["tools"].items():
        if "error" in tool:
            lines.append(f"| {name} | did not attach: {tool['error']} | | | | | | |")
            continue
        cells = []
        for jobs in (1, 8):
            traced = [p["traced"] for p in tool["pairs"] if p["jobs"] == jobs]
            ratio = ratios(tool, jobs)
            cells.append(f"{statistics.median(traced):.0f}")
            cells.append(
                f"**{statistics.median(ratio):.3f}** ({min(ratio):.3f} - {max(ratio):.3f})"
            )
        cells += [f"{one['ns'] / 1000:.1f} us in {one['calls']:.1f} calls" for one in tool["bpf"]]
        attach = f"{statistics.median(tool['attach_seconds']):.2f} s"
        lines.append(f"| {name} | {' | '.join(cells)} | {attach} |")
    return "\n".join(lines) + "\n\n" + verdict(run) + "\n"


def rates(run: Json, jobs: int) -> list[float]:
    """The rates without a tracer."""
    tools = [t for t in run["tools"].values() if "error" not in t]
    return [rate for t in tools for p in t["pairs"] if p["jobs"] == jobs for rate in p["none"]]


def ratios(tool: Json, jobs: int) -> list[float]:
    pairs = [p for p in tool["pairs"] if p["jobs"] == jobs]
    return [p["traced"] / statistics.mean(p["none"]) for p in pairs]


def verdict(run: Json) -> str:
    """Lines on the goals: the largest loss, and against the one-liner, loss and time to attach."""
    lines = []
    for name, goal in GOALS.items():
        if name not in run["tools"]:
            continue
        lost = 1 - statistics.median(ratios(run["tools"][name], 1))
        met = "met" if lost <= goal else f"missed by {(lost - goal) * 100:.1f} points"
        lines.append(f"* {name}: at most {goal:.0%} lost, 1 job: {lost:.1%} lost, {met}.")
    if not {"zfstune trace fsync", "bpftrace one-liner"} <= set(run["tools"]):
        return "\n".join(lines)
    ours, peer = run["tools"]["zfstune trace fsync"], run["tools"]["bpftrace one-liner"]
    for jobs in (1, 8):
        ratio = statistics.median(ratios(ours, jobs))
        name = f"{jobs} job{'s' if jobs > 1 else ''}"
        met = "met" if ratio >= GOAL else f"missed by {(GOAL - ratio) * 100:.1f} points"
        lines.append(f"* At most 2 % of throughput lost, {name}: {(1 - ratio):.1%} lost, {met}.")
        if "error" not in peer:
            other = statistics.median(ratios(peer, jobs))
            met = "met" if ratio >= other else f"missed by {(other - ratio) * 100:.1f} points"
            lines.append(
                f"* Not more than the one-liner, {name}: {(1 - other):.1%} lost there, {met}."
            )
    if "error" not in peer:
        a, b = (statistics.median(t["attach_seconds"]) for t in (ours, peer))
        met = "met" if a < b else "missed"
        lines.append(f"* Attached sooner than the one-liner: {a:.2f} s against {b:.2f} s, {met}.")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
