#!/usr/bin/env python3
"""Measures in the lab what tracing costs, against its peers; writes docs/measurements/tracing.md.

usage: scripts/benchmarks/tracing.py [--rounds N] [--width W] [--tools REGEX] [FLAVOUR...]
"""

import argparse
import datetime
import json
import math
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / part) for part in ("scripts", "tuner")]

from benchmarks.tracing_guest import CONFIDENCE, FEWEST, interval, log_ratios  # noqa: E402
from zfslab import debian  # noqa: E402
from zfslab.script import run_lab  # noqa: E402
from zfstune.experiment.statistics import location  # noqa: E402

PAGE = ROOT / "docs/measurements/tracing.md"
SUMMARY = "zfstune trace fsync"
JSON = "zfstune trace fsync --json"
LIGHT = "zfstune trace fsync --light"
EXPORTER = "zfstune exporter"
# The most CPU time that each may add, by tool: with the module's BTF, and without
GOALS = {
    SUMMARY: (0.015, 0.05),
    LIGHT: (0.01, 0.01),
    EXPORTER: (0.01, 0.01),
    "zfstune trace (all five)": (0.05, 0.05),
    "zfstune flame --off-cpu": (0.10, 0.10),
}
# of `SUMMARY`
ATTACHED_S = 1.2
# of one CPU, by `JSON`
OWN = 0.04
# Of peers, what the image lacks
PACKAGES = ("libbpf-tools", "linux-perf")
TELLS = {
    SUMMARY: "quantiles of fsyncs by dataset, what called them, and eleven stages of each",
    LIGHT: "quantiles of commits and log blocks by dataset; stages estimated",
    "zfstune trace (all five)": "the same for txgs, the throttle, disks and the ARC as well",
    "zfstune flame --off-cpu": "stacks of what sleeps, and for how long, of one pool",
    "zfstune flame --wakeup": "the same, and who wakes it",
    f"{EXPORTER} --no-record": "the light trace, txgs and the ARC, as metrics",
    EXPORTER: "the same, and the last hours of it in memory",
    "bpftrace one-liner": "a histogram of commits",
    "bcc zfsdist": "histograms of reads, writes, opens and fsyncs",
    "bcc offcputime": "stacks of all that sleeps, and for how long",
    "libbpf-tools funclatency": "a histogram of commits (`fsdist` knows no ZFS)",
    "libbpf-tools offcputime": "stacks of all that sleeps, and for how long",
    "perf trace": "count, mean and largest of fsync(2), by thread",
    "zilcommit.d": "histograms and sums of nine stages (our script for DTrace)",
}
Json = dict[str, Any]

HEAD = """\
# What tracing costs

Written by `make bench-tracing{options}` on {date}; run it to have the numbers of your machine.
Host: {cores} cores of {cpu}, QEMU with {accel}; a guest with 2 CPUs and 4 GiB.

What a tracer adds to the CPU time of a write of 8 kB and its fsync: that of all threads, of the
tracer's own process, too. Loads are of one or eight processes on a pool in memory, one on a disk,
and one with `sync=disabled`, where next to nothing is left but the way into ZFS and back. Each
measurement under a tracer comes between two without; the tables show the change and its interval of
{confidence:.0%} (signed ranks), of {few} to {rounds} pairs.

"Itself" is the tracer's process, as a share of one CPU; "lost" are the events that a tracer says it
lost in all rounds, of those that say so. The runs of programs and the time in them are the kernel's
counts (bpf_stats, which adds some itself), without the way into them. What each tells:

{tells}

[performance.md](../performance.md) says what these numbers mean.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("flavours", metavar="FLAVOUR", nargs="*", default=["trixie", "bookworm"])
    parser.add_argument("--rounds", type=int, default=40, help="pairs of each tool, at most")
    parser.add_argument(
        "--width", type=float, default=0.01, help="of an interval that is narrow enough"
    )
    parser.add_argument("--tools", default="", help="only these, by regular expression")
    args = parser.parse_args()
    if args.rounds < FEWEST or args.width < 0:
        parser.error(f"use at least {FEWEST} rounds, and a width of at least 0")
    runs = {flavour: measure(flavour, args) for flavour in args.flavours}
    PAGE.write_text(page(runs, args), encoding="utf-8")
    print(PAGE.read_text())
    return 0


def measure(flavour: str, args: argparse.Namespace) -> Json:
    """All tools in one boot. Exits if the run fails."""
    with tempfile.TemporaryDirectory() as out:
        machine = ["--flavour", flavour, "--disk", "size=4G", "--timeout", "20000s", "--out", out]
        if debian.missing():
            print(f"bench: {debian.missing()}: some peers are left out", file=sys.stderr)
        else:
            machine += ["--share", str(debian.fetched("peers", flavour, *PACKAGES))]
        program = ("python3", "/zfstune/scripts/benchmarks/tracing_guest.py")
        words = (str(args.rounds), str(args.width), args.tools)
        if run_lab(*machine, "--", *program, *words):
            sys.exit(f"bench: error: the run on {flavour} failed\nhint: see above")
        found: Json = json.loads((Path(out) / "bench.json").read_text())
    return found


def page(runs: dict[str, Json], args: argparse.Namespace) -> str:
    first = next(iter(runs.values()))
    accelerated = "QEMU" not in first["cpu"] and "TCG" not in first["cpu"]
    words = " ".join(sys.argv[1:])
    text = HEAD.format(
        options=f' BENCH="{words}"' if words else "",
        date=datetime.date.today().isoformat(),
        cores=os.cpu_count(),
        cpu=host_cpu(),
        accel="KVM" if accelerated else "software emulation (TCG)",
        confidence=CONFIDENCE,
        tells=tells(runs),
        few=FEWEST,
        rounds=args.rounds,
    )
    return text + "".join(section(flavour, run) for flavour, run in runs.items())


def tells(runs: dict[str, Json]) -> str:
    there = {name for run in runs.values() for name in run["tools"]}
    rows = [f"| {name} | {text} |" for name, text in TELLS.items() if name in there]
    return "\n".join(["| tracer | tells |", "|---|---|", *rows])


def host_cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "an unknown CPU"


def section(flavour: str, run: Json) -> str:
    loads = list(run["loads"])
    lines = [
        f"\n## {flavour}: kernel {run['kernel']}, ZFS {run['zfs']}\n",
        f"| tracer | {' | '.join(loads)} | itself | attached after | lost |",
        f"|---|{'---|' * len(loads)}---|---|---|",
        f"| none | {' | '.join(untraced(run, load) for load in loads)} | - | - | - |",
    ]
    for name, tool in run["tools"].items():
        if "error" in tool:
            lines.append(f"| {name} | did not attach: {tool['error']} |{' |' * (len(loads) + 2)}")
            continue
        cells = [added(tool["loads"][load]) for load in loads]
        cells.append(f"{statistics.median(tool['own']):.1%}")
        cells.append(f"{statistics.median(tool['attach_seconds']):.2f} s")
        lost = [number for number in tool["lost"] if number is not None]
        cells.append(str(sum(lost)) if lost else "-")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", *verdicts(run), "", *programs(run)]) + "\n"


def untraced(run: Json, load: str) -> str:
    """The median CPU time of a write and fsync without a tracer."""
    tools = [tool for tool in run["tools"].values() if "error" not in tool]
    every = [pair["none"] for tool in tools for pair in tool["loads"][load]]
    return f"{statistics.median(every) / 1000:,.0f} us" if every else "-"


def change(pairs: list[Json]) -> float:
    return math.exp(location(log_ratios(pairs))) - 1


def added(pairs: list[Json]) -> str:
    low, high = interval(pairs)
    return f"**{change(pairs):+.1%}** ({low - 1:+.1%} to {high - 1:+.1%})"


def verdicts(run: Json) -> list[str]:
    """A line on each goal."""
    there = {name: tool for name, tool in run["tools"].items() if "error" not in tool}
    lines = []
    for name, goals in GOALS.items():
        goal = goals[0 if run["btf"] else 1]
        for load in ("1 job", "8 jobs") if name in there else ():
            more = change(there[name]["loads"][load])
            lines.append(f"* {name}, {load}: {more:+.1%}, {met(more, goal, '.1%')}.")
    if SUMMARY in there:
        after = statistics.median(there[SUMMARY]["attach_seconds"])
        lines.append(f"* {SUMMARY}: attached after {after:.2f} s, {met(after, ATTACHED_S, '.1f')}.")
    if JSON in there:
        own = statistics.median(there[JSON]["own"])
        lines.append(f"* {JSON}: takes {own:.1%} of a CPU itself, {met(own, OWN, '.0%')}.")
    return lines


def met(value: float, goal: float, form: str) -> str:
    return f"{'within' if value <= goal else 'above'} the goal of {goal:{form}}"


def programs(run: Json) -> list[str]:
    """The programs of a summary, by load: how often they run, and how long."""
    found = run["tools"].get(SUMMARY, {}).get("programs", {})
    if not found:
        return []
    names = dict.fromkeys(name for load in found.values() for name in load)
    lines = [
        f"The programs of `{SUMMARY}`, runs and time for an fsync:\n",
        f"| program | {' | '.join(found)} |",
        f"|---|{'---|' * len(found)}",
    ]
    for name in names:
        cells = [cell([load[name]] if name in load else []) for load in found.values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    cells = [cell(list(load.values())) for load in found.values()]
    return [*lines, f"| all | {' | '.join(cells)} |"]


def cell(ran: list[Json]) -> str:
    runs, ns = (sum(one[key] for one in ran) for key in ("runs", "ns"))
    return f"{runs:.2f}, {ns / 1000:.2f} us" if ran else "-"


if __name__ == "__main__":
    sys.exit(main())
