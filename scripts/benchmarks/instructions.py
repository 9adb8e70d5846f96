"""What a trace adds to an fsync, in instructions and in calls of helpers by its programs: runs
tests/lab/guest/cost.py in a guest whose emulator counts them, and prints a table.

usage: instructions.py [--flavour F] [--top N] [--record FILE] [--peers] [MODE ...]

Instructions of tracing are those of functions that only tracers call, and the difference to the
untraced mode for the few that the rest of the kernel calls too, such as rcu_read_lock(). The
difference of all instructions is not used where the kernel has other work beside: how its threads
take turns differs by more than a trace costs.

Calls of helpers are the calls of the kernel in the machine code of BPF programs. What the kernel's
compiler puts in place of a call, such as an array's look-up, is none.
"""

from __future__ import annotations

import argparse
import bisect
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from zfslab import debian  # noqa: E402

# One CPU, on which nothing else takes turns with the load
MACHINE = ("--cpus", "1", "--memory", "2G")
# Peers attach slowly where one CPU after the other is emulated
LIMIT = "14400s"
# Of peers, what the image lacks
PACKAGES = ("libbpf-tools", "linux-perf")
USER = "[user]"
PROGRAM = "bpf_prog_"
# What a commit waits in: a large part of what `trace fsync` adds is at waits
WAIT = "__cv_wait"
_KERNEL = 1 << 63
Json = dict[str, Any]

# Functions of the kernel that run for a tracer: dispatch, helpers, maps, walks of stacks
TRACING = re.compile(
    r"_*(bpf|ftrace|kprobe|kretprobe|aggr_|get_kprobe|rethook|arch_rethook|trace_call_bpf|perf_"
    r"|ring_buffer|syscall_trace|htab|array_map|percpu_array|lookup_nulls_elem|lookup_elem_raw|task_storage"
    r"|migrate_|rcu_read_|ktime_get_mono_fast_ns|copy_from_kernel_nofault|stack_trace|unwind|orc_"
    r"|get_perf_callchain|get_callchain|perf_callchain|in_entry_stack|get_stack_info"
    r"|in_task_stack|arch_stack_walk|in_sched_functions)"
)


@dataclass(frozen=True)
class Mode:
    """Instructions of an fsync in one mode, on one dataset. `tracing` is what tracing adds; `all`
    what was executed meanwhile, by `functions`; `helpers` is how often programs called each.
    `waits` says how often a thread waited: a commit does not if its log block is written before."""

    dataset: str
    name: str
    commits: int
    all: float
    tracing: float
    functions: dict[str, float]
    helpers: dict[str, float]
    waits: float

    @property
    def calls(self) -> float:
        """Of all helpers."""
        return sum(self.helpers.values())


class Symbols:
    """The functions of a file like /proc/kallsyms."""

    def __init__(self, kallsyms: Path) -> None:
        lines = (line.split() for line in kallsyms.read_text().splitlines())
        self._symbols = sorted((int(address, 16), name) for address, _kind, name, *_ in lines)
        self._starts = [address for address, _name in self._symbols]

    def addresses(self, name: str) -> set[int]:
        """Where functions of a name begin."""
        return {address for address, of in self._symbols if of == name}

    def name(self, address: int) -> str:
        """The function that an address is in."""
        at = bisect.bisect_right(self._starts, address) - 1
        return self._symbols[at][1] if address >= _KERNEL and at >= 0 else USER


def read(counts: Path, out: Path) -> list[Mode]:
    """What a run left in the directories of --instructions and --out. Its first mode is the one
    without a trace."""
    results = json.loads((out / "results.json").read_text())
    marks = dict(_pair(line) for line in (counts / "marks").read_text().splitlines())
    wanted = {row["mark"] for row in results["modes"]}
    blocks: dict[int, Counter[int]] = {mark: Counter() for mark in wanted}
    calls: dict[int, Counter[tuple[int, int]]] = {mark: Counter() for mark in wanted}
    with (counts / "blocks").open() as file:
        for line in file:
            mark, address, executed, times, called = line.split()
            if int(mark) in wanted:
                blocks[int(mark)][int(address, 16)] += int(executed)
                calls[int(mark)][int(address, 16), int(called, 16)] += int(times)
    found: list[Mode] = []
    untraced: dict[str, Mode] = {}
    for row in results["modes"]:
        mark, dataset, n = row["mark"], row["dataset"], results["fsyncs"]
        symbols = Symbols(out / f"symbols-{mark}")
        functions = _each(by_function(blocks[mark], symbols), n)
        helpers = _each(by_helper(calls[mark], symbols), n)
        tracing = sum(executed for name, executed in functions.items() if TRACING.match(name))
        begin = symbols.addresses(WAIT)
        waits = sum(times for (at, _), times in calls[mark].items() if at in begin) / n
        mode = Mode(
            dataset,
            row["mode"],
            row["commits"],
            marks[mark] / n,
            tracing,
            functions,
            helpers,
            waits,
        )
        base = untraced.setdefault(dataset, mode)
        found.append(replace(mode, tracing=tracing - base.tracing))
    return found


def by_function(blocks: Counter[int], symbols: Symbols) -> Counter[str]:
    """Instructions by the function of their address."""
    found: Counter[str] = Counter()
    for address, executed in blocks.items():
        found[symbols.name(address)] += executed
    return found


def by_helper(calls: Counter[tuple[int, int]], symbols: Symbols) -> Counter[str]:
    """How often BPF programs called each function of the kernel: of all calls, by their own address
    and that of the function, 0 for none."""
    found: Counter[str] = Counter()
    for (address, called), times in calls.items():
        if called and symbols.name(address).startswith(PROGRAM):
            helper = symbols.name(called)
            if not helper.startswith(PROGRAM):  # a part of the program
                found[helper] += times
    return found


def _each(sums: Counter[str], n: int) -> dict[str, float]:
    return {name: number / n for name, number in sums.items()}


def table(modes: list[Mode], absent: Mapping[str, str]) -> str:
    """A table of what each mode adds on each dataset: instructions, calls of helpers."""
    datasets = list(dict.fromkeys(mode.dataset for mode in modes))
    lines = [f"| | {' | '.join(datasets)} |", f"|---|{'---|' * len(datasets)}"]
    for name in dict.fromkeys(mode.name for mode in modes):
        ours = {mode.dataset: mode for mode in modes if mode.name == name}
        cells = [
            f"{one.all:,.0f}" if name == modes[0].name else f"{one.tracing:,.0f}, {one.calls:.1f}"
            for one in (ours[dataset] for dataset in datasets)
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += [f"| {name} | {why} |{' |' * (len(datasets) - 1)}" for name, why in absent.items()]
    return "\n".join(lines)


def top(modes: list[Mode], count: int) -> str:
    """The functions of which each mode executes the most more than the first, and the helpers that
    its programs call."""
    lines = []
    untraced: dict[str, Mode] = {}
    for mode in modes:
        base = untraced.setdefault(mode.dataset, mode)
        if base is mode:
            continue
        more = Counter(mode.functions)
        more.subtract(base.functions)
        lines.append(f"{mode.dataset}, {mode.name}:")
        lines += [f"  {executed:8.1f} {name}" for name, executed in more.most_common(count)]
        for name, calls in Counter(mode.helpers).most_common(count):
            lines.append(f"  {calls:8.1f} calls of {name}")
    return "\n".join(lines)


def record(modes: list[Mode], out: Path) -> Json:
    """What tests/lab/test_cost.py compares with: the versions, and what each mode adds."""
    names = {f"{one.dataset}, {one.name}": one for one in modes}
    return {
        **versions(out),
        "tracing": {name: round(one.tracing, 1) for name, one in names.items()},
        "calls": {name: round(one.calls, 1) for name, one in names.items()},
        "waits": {name: round(one.waits, 2) for name, one in names.items()},
    }


def versions(out: Path) -> Json:
    """What the guest ran."""
    results = json.loads((out / "results.json").read_text())
    return {"kernel": results["uname"], "zfs": results["zfs"]}


def absent(out: Path) -> dict[str, str]:
    """The peers that were not counted, and why."""
    found: dict[str, str] = json.loads((out / "results.json").read_text())["absent"]
    return found


def run(flavour: str, wanted: list[str], directory: Path, *, peers: bool = False) -> list[Mode]:
    """Runs the modes, all of ours if `wanted` is empty, and peers, in a guest; its results are in
    the folder "out" of `directory`. Raises SystemExit if that fails."""
    counts, out = directory / "counts", directory / "out"
    command = [str(ROOT / "scripts/lab"), "run", "--flavour", flavour, *MACHINE]
    command += ["--timeout", LIMIT]
    if peers:
        wanted = ["--peers", *wanted]
        command += shared(flavour)
    command += ["--instructions", str(counts), "--out", str(out), "--"]
    command += ["python3", "/zfstune/tests/lab/guest/cost.py", *wanted]
    if subprocess.run(command, check=False).returncode:
        raise SystemExit("instructions: the guest failed")
    return read(counts, out)


def shared(flavour: str) -> list[str]:
    """Arguments of scripts/lab for the packages of peers; none where they cannot be fetched."""
    if debian.missing():
        print(f"bench: {debian.missing()}: some peers are left out", file=sys.stderr)
        return []
    return ["--share", str(debian.fetched("peers", flavour, *PACKAGES))]


def _pair(line: str) -> tuple[int, int]:
    mark, executed = line.split()
    return int(mark), int(executed)


def main() -> int:
    parser = argparse.ArgumentParser(prog="instructions.py", description=__doc__.split("\n\n")[0])
    parser.add_argument("--flavour", default="trixie", help="of the lab (default: trixie)")
    parser.add_argument("--top", type=int, default=0, help="show so many functions of each mode")
    parser.add_argument(
        "--record", type=Path, metavar="FILE", help="write what tests compare with to FILE"
    )
    parser.add_argument("--peers", action="store_true", help="other tools as well")
    parser.add_argument("modes", nargs="*", metavar="MODE", help="default: all")
    given = parser.parse_args()
    if given.record and (given.modes or given.peers):
        parser.error("--record is of all our modes: leave out MODE and --peers")
    with tempfile.TemporaryDirectory(prefix="instructions-") as directory:
        out = Path(directory) / "out"
        modes = run(given.flavour, given.modes, Path(directory), peers=given.peers)
        if given.record:
            given.record.write_text(json.dumps(record(modes, out), indent=1) + "\n")
        print(table(modes, absent(out)))
    if given.top:
        print(top(modes, given.top))
    return 0


if __name__ == "__main__":
    sys.exit(main())
