#!/usr/bin/env python3
"""Compares searches on a real pool in the lab; writes docs/measurements/search-lab.md.

usage: scripts/benchmarks/search_lab.py [--seeds N] [--budget T] [--block T]

Each search has sessions of `zfstune tune` of the same time, on two loads: one that fills the disk,
and one that does not.
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

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / part) for part in ("scripts", "tuner", "tracers")]

from zfslab.script import run_lab  # noqa: E402

PAGE = ROOT / "docs/measurements/search-lab.md"
DISK = "size=8G,write-bps=30M,write-iops=600"
LIMIT = "72000s"

HEAD = """\
# What a session finds on a real pool, by its search

Written by `make bench-search-lab SEARCH="--seeds {seeds} --budget {budget} --block {block}"` on
{date}: {cores} cores, trixie in the lab (emulated where there is no KVM), a
disk of 30 MB/s, eight log writers and a bulk writer (`scripts/benchmarks/search_guest.py`). *full*:
the bulk writer takes what it gets; *paced*: 14 MiB/s, half of the disk's bandwidth, and each log
writer fsyncs four times a second. Each search has sessions of {budget} in turns, objective p99 of
fsync, default limits. The change is that of the session's own proof, on fresh blocks.

| load | search | proved | change of p99, each seed | minutes until it was proved |
|---|---|---|---|---|
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3, help="sessions per search (default 3)")
    parser.add_argument("--budget", default="12m", help="of each (default 12m)")
    parser.add_argument("--block", default="8s", help="length of a block (default 8s)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as out:
        machine = ("--flavour", "trixie", "--disk", DISK, "--out", out, "--timeout", LIMIT)
        program = ("python3", "/zfstune/scripts/benchmarks/search_guest.py")
        seeds = map(str, range(1, args.seeds + 1))
        status = run_lab(*machine, "--", *program, args.budget, args.block, *seeds)
        found = Path(out) / "searches.json"
        if not found.exists():
            return status or 1
        runs = json.loads(found.read_text())
    text = page(runs, args)
    PAGE.write_text(text, encoding="utf-8")
    print(text)
    return status


def page(runs: list[Any], args: argparse.Namespace) -> str:
    text = HEAD.format(
        date=datetime.date.today().isoformat(),
        cores=os.cpu_count(),
        seeds=args.seeds,
        budget=args.budget,
        block=args.block,
    )
    for scene, way in dict.fromkeys((run["scene"], run["way"]) for run in runs):
        each = [run["session"] for run in runs if (run["scene"], run["way"]) == (scene, way)]
        proved = [one for one in each if one and one["in_force"]]
        shown = [f"{one['verdict']['change']:+.0%}" if one in proved else "-" for one in each]
        minutes = [end_s(one) / 60 for one in proved]
        middle = f"{statistics.median(minutes):.1f}" if minutes else "-"
        count = f"{len(proved)} of {len(each)}"
        text += f"| {scene} | {way} | {count} | {', '.join(shown)} | {middle} |\n"
    return text + values(runs)


def end_s(session: Any) -> float:
    """When the proof ended."""
    blocks = [one for one in session["blocks"] if one["phase"] == "confirm"]
    return float(blocks[-1]["start_s"] + blocks[-1]["seconds"])


def values(runs: list[Any]) -> str:
    """What was in force at the end, so that the page can be judged without its raw data."""
    text = (
        "\nThe values that were proved:\n\n| load | search | seed | values |\n|---|---|---|---|\n"
    )
    for run in runs:
        one = run["session"]
        if one and one["in_force"]:
            said = ", ".join(f"{name} {value}" for name, value in one["winner"].items())
            text += f"| {run['scene']} | {run['way']} | {run['seed']} | {said} |\n"
    return text


if __name__ == "__main__":
    sys.exit(main())
