#!/usr/bin/env python3
"""Measures drawing a large flame graph against its peers; writes docs/measurements/flame.md.

usage: scripts/benchmarks/flame.py [--rounds N]

flamegraph.pl is taken from PATH or FLAMEGRAPH_PL; inferno is taken from PATH, or built in build/ if
cargo is installed. The page names missing peers.
"""

import argparse
import datetime
import os
import platform
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/measurements/flame.md"
INFERNO = ROOT / "build/inferno"
STACKS, DEPTH, NAMES = 100_000, 40, 3000
GOAL_SECONDS, GOAL_MB = 2.0, 500

HEAD = """\
# What drawing a flame graph costs

Written by `make bench-flame` on {date}; run it to have the numbers of your machine.
Host: {cores} cores of {cpu}, Python {python}.

The input is folded text of {stacks:,} distinct stacks, each {depth} frames deep, {size:.0f} MB; the
output is SVG. Each tool ran {rounds} times, alternating with the others. Time is that of the whole
process, from start to end, CPU the part of it on a CPU; the ratio is that time divided by
ours in the same round; median, smallest and largest. Load at the end: {load:.1f}.

| tool | time | CPU | peak memory | SVG | time / ours |
|---|---|---|---|---|---|
"""


class BenchError(Exception):
    """Printed as `bench: error: WHAT` and `hint: WHAT TO DO`."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass
class Tool:
    """A command that draws, to stdout or, if it names {out}, to that file."""

    name: str
    command: list[str]
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    peak_mb: float = 0.0
    svg_mb: float = 0.0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="runs of each tool (at least 3)")
    args = parser.parse_args()
    if args.rounds < 3:
        parser.error("--rounds must be at least 3")
    try:
        tools, absent = find_tools()
        with tempfile.TemporaryDirectory() as directory:
            source = Path(directory) / "in.folded"
            write_stacks(source)
            size = source.stat().st_size / 1e6
            for _ in range(args.rounds):
                for tool in tools:
                    measure(tool, source, Path(directory) / "out.svg")
    except BenchError as error:
        print(f"bench: error: {error}\nhint: {error.hint}", file=sys.stderr)
        return 3
    PAGE.write_text(page(tools, absent, size, args.rounds), encoding="utf-8")
    print(PAGE.read_text(encoding="utf-8"))
    return 0


def write_stacks(path: Path) -> None:
    """Writes distinct stacks; each begins like the previous one, as in a real program."""
    chance = random.Random(20140625)
    names = [f"kernel_function_{i}{'' if i % 3 else ' [zfs]'}" for i in range(NAMES)]
    # Not the stacks themselves: the memory of this process would count as its children's peak.
    seen: set[int] = set()
    frames = chance.choices(names, k=DEPTH)
    with path.open("w", encoding="utf-8") as file:
        while len(seen) < STACKS:
            kept = int(chance.triangular(3, DEPTH, 36))
            frames = frames[:kept] + chance.choices(names, k=DEPTH - kept)
            stack = ";".join(frames)
            if hash(stack) not in seen:
                seen.add(hash(stack))
                file.write(f"{stack} {chance.randrange(1, 5_000_000)}\n")


def find_tools() -> tuple[list[Tool], list[str]]:
    """Ours and the peers, and a sentence on each missing one."""
    ours = [sys.executable, str(ROOT / "bin/zfstune"), "flame", "convert", "{in}", "-o", "{out}"]
    tools, absent = [Tool("zfstune flame convert", ours)], []
    perl = os.environ.get("FLAMEGRAPH_PL") or shutil.which("flamegraph.pl")
    if perl:
        tools.append(Tool("flamegraph.pl", ["perl", perl, "{in}"]))
    else:
        absent.append("flamegraph.pl was not found: put it on PATH, or its path in FLAMEGRAPH_PL.")
    inferno = find_inferno()
    if inferno:
        tools.append(Tool("inferno-flamegraph", [inferno, "{in}"]))
    else:
        absent.append("inferno was not found: install cargo, or inferno-flamegraph on PATH.")
    return tools, absent


def find_inferno() -> str | None:
    built = INFERNO / "bin/inferno-flamegraph"
    found = shutil.which("inferno-flamegraph") or (str(built) if built.exists() else None)
    if found or not shutil.which("cargo"):
        return found
    print("bench: building inferno, which takes some minutes", file=sys.stderr)
    command = ["cargo", "install", "--quiet", "--root", str(INFERNO), "inferno"]
    done = subprocess.run(command, check=False)
    return str(built) if done.returncode == 0 else None


def measure(tool: Tool, source: Path, out: Path) -> None:
    """One run. Raises BenchError if the tool fails."""
    command = [part.format(**{"in": source, "out": out}) for part in tool.command]
    out.unlink(missing_ok=True)
    with out.open("wb") as file:
        start = time.monotonic()
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.DEVNULL)
        # not wait(): the peak memory of this child alone
        _, status, usage = os.wait4(process.pid, 0)
        tool.seconds.append(time.monotonic() - start)
    tool.cpu_seconds.append(usage.ru_utime + usage.ru_stime)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode or b"</svg>" not in out.read_bytes()[-100:]:
        raise BenchError(f"{tool.name} drew nothing", f"run it by hand: {' '.join(command)}")
    tool.peak_mb = max(tool.peak_mb, peak_mb(usage))
    tool.svg_mb = out.stat().st_size / 1e6


def peak_mb(usage: resource.struct_rusage) -> float:
    """From KiB, in which Linux counts."""
    return usage.ru_maxrss * 1024 / 1e6


def page(tools: list[Tool], absent: list[str], size: float, rounds: int) -> str:
    ours = tools[0]
    text = HEAD.format(
        date=datetime.date.today().isoformat(),
        cores=os.cpu_count(),
        cpu=host_cpu(),
        python=platform.python_version(),
        stacks=STACKS,
        depth=DEPTH,
        size=size,
        rounds=rounds,
        load=os.getloadavg()[0],
    )
    for tool in tools:
        ratio = [its / our for its, our in zip(tool.seconds, ours.seconds, strict=True)]
        through = "1" if tool is ours else spread(ratio)
        seconds = spread(tool.seconds, " s")
        cpu = statistics.median(tool.cpu_seconds)
        text += f"| {tool.name} | {seconds} | {cpu:.2f} s | {tool.peak_mb:.0f} MB "
        text += f"| {tool.svg_mb:.1f} MB | {through} |\n"
    text += "".join(f"\n{sentence}\n" for sentence in absent)
    median = statistics.median(ours.seconds)
    return (
        f"{text}\n* At most {GOAL_SECONDS:g} s: {median:.2f} s, {met(median <= GOAL_SECONDS)}.\n"
        f"* At most {GOAL_MB} MB: {ours.peak_mb:.0f} MB, {met(ours.peak_mb <= GOAL_MB)}.\n"
    )


def spread(values: list[float], unit: str = "") -> str:
    middle = statistics.median(values)
    return f"**{middle:.2f}{unit}** ({min(values):.2f} - {max(values):.2f})"


def met(reached: bool) -> str:
    return "met" if reached else "missed"


def host_cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "an unknown CPU"


if __name__ == "__main__":
    sys.exit(main())
