#!/usr/bin/env python3
"""Measures in the lab what D scripts cost on FreeBSD, and how long they take to attach; writes
docs/measurements/freebsd.md.

usage: scripts/benchmarks/freebsd.py [--rounds N] [--seconds S] [FLAVOUR]
"""

import argparse
import datetime
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from zfslab.script import run_lab

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/measurements/freebsd.md"
CPUS = (1, 2)
DELAYS = {"none": "", "read-delay": "2ms", "write-delay": "5ms", "flush-delay": "20ms"}
Json = dict[str, Any]

HEAD = """\
# What tracing costs on FreeBSD

Written by `make bench-freebsd` on {date}, in a guest of the lab with 4 GiB ({cpu}),
on a host that did little else; run it to have the numbers of your machine.

*attached*: seconds from the start of `dtrace -xnolibs -Zs SCRIPT` to its first line, of several
scripts to the last one's; median and largest of {rounds}. *Per s*: one or eight processes write
8 kB and call fsync, or read or write 4 kB of a file in memory, for {seconds:g} s at a time. Each
measurement under a tracer comes between two without; a ratio is the traced rate divided by the mean
of those two. The tables show the median of {rounds} ratios, the smallest and the largest.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("flavour", metavar="FLAVOUR", nargs="?", default="freebsd-15")
    parser.add_argument("--rounds", type=int, default=5, help="rounds per script (at least 5)")
    parser.add_argument("--seconds", type=float, default=3, help="length of a measurement")
    args = parser.parse_args()
    if args.rounds < 5 or args.seconds <= 0:
        parser.error("use at least 5 rounds of more than 0 seconds")
    results = [measure(cpus, args) for cpus in CPUS]
    text = HEAD.format(
        date=datetime.date.today().isoformat(),
        cpu=results[0]["cpu"],
        seconds=args.seconds,
        rounds=args.rounds,
    )
    text += "".join(map(section, results)) + disks(results[-1]["delays"])
    PAGE.write_text(text, encoding="utf-8")
    print(PAGE.read_text())
    return 0


def measure(cpus: int, args: argparse.Namespace) -> Json:
    """All rounds in one boot. Exits if the run fails."""
    with tempfile.TemporaryDirectory() as out:
        machine: tuple[str, ...] = (
            "--flavour",
            args.flavour,
            "--cpus",
            str(cpus),
            "--disk",
            "size=4G",
        )
        for name, time in DELAYS.items():
            machine += ("--disk", "size=64M" + (f",{name}={time}" if time else ""))
        program = ("python3", "/zfstune/scripts/benchmarks/freebsd_guest.py")
        numbers = (str(args.rounds), str(args.seconds))
        if run_lab(*machine, "--timeout", "3600s", "--out", out, "--", *program, *numbers):
            sys.exit(f"bench: error: the run with {cpus} CPUs failed\nhint: see above")
        found: Json = json.loads((Path(out) / "bench.json").read_text())
    return found


def disks(found: Json) -> str:
    lines = [
        "\n## Disks with delays\n",
        "40 single requests of 4 KiB on the raw device, shortest and median, in ms; with 2 CPUs.\n",
        "| disk | read | write | flush |",
        "|---|---:|---:|---:|",
    ]
    for name, requests in found.items():
        cells = [f"{min(times):.1f}, {statistics.median(times):.1f}" for times in requests.values()]
        disk = f"`{name}={DELAYS[name]}`" if DELAYS[name] else "without"
        lines.append(f"| {disk} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def section(result: Json) -> str:
    lines = [
        f"\n## FreeBSD {result['release']}, ZFS {result['zfs']}, CPUs: {result['cpus']}\n",
        "| script | attached, s | per s, 1 job | ratio | per s, 8 jobs | ratio |",
        "|---|---|---:|---|---:|---|",
    ]
    for name, run in result["runs"].items():
        attach = run["attach_s"]
        cells = [f"{statistics.median(attach):.1f} ({max(attach):.1f})"]
        for jobs in (1, 8):
            pairs = [pair for pair in run["pairs"] if pair["jobs"] == jobs]
            ratios = [pair["traced"] / statistics.mean(pair["none"]) for pair in pairs]
            rate = statistics.median(pair["traced"] for pair in pairs)
            spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
            cells += [f"{rate:.0f}", f"{statistics.median(ratios):.2f} ({spread})"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
