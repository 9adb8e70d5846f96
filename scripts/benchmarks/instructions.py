"""What a trace adds to an fsync, in instructions: runs tests/lab/guest/cost.py in a guest whose
emulator counts them, and prints a table.

usage: instructions.py [--flavour F] [--top N] [--record FILE] [--peers] [MODE ...]

Instructions of tracing are those of functions that only tracers call, and the difference to the
untraced mode for the few that the rest of the kernel calls too, such as rcu_read_lock(). The
difference of all instructions is not used where the kernel has other work beside: how its threads
take turns differs by more than a trace costs.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from benchmarks.tracing import PACKAGES, TELLS  # noqa: E402
from zfslab import debian  # noqa: E402

# One CPU, on which nothing else takes turns with the load
MACHINE = ("--cpus", "1", "--memory", "2G")
USER = "[user]"
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
    what was executed meanwhile."""

    dataset: str
    name: str
    commits: int
    all: float
    tracing: float
    functions: dict[str, float]


def read(counts: Path, out: Path) -> list[Mode]:
    """What a run left in the directories of --instructions and --out. Its first mode is the one
    without a trace."""
    results = json.loads((out / "results.json").read_text())
    marks = dict(_pair(line) for line in (counts / "marks").read_text().splitlines())
    wanted = {row["mark"] for row in results["modes"]}
    blocks: dict[int, Counter[int]] = {mark: Counter() for mark in wanted}
    with (counts / "blocks").open() as file:
        for line in file:
            mark, address, executed = line.split()
            if int(mark) in wanted:
                blocks[int(mark)][int(address, 16)] += int(executed)
    found: list[Mode] = []
    untraced: dict[str, Mode] = {}
    for row in results["modes"]:
        mark, dataset, n = row["mark"], row["dataset"], results["fsyncs"]
        functions = {
            name: executed / n
            for name, executed in by_function(blocks[mark], out / f"symbols-{mark}").items()
        }
        tracing = sum(executed for name, executed in functions.items() if TRACING.match(name))
        mode = Mode(dataset, row["mode"], row["commits"], marks[mark] / n, tracing, functions)
        base = untraced.setdefault(dataset, mode)
        found.append(
            Mode(dataset, mode.name, mode.commits, mode.all, tracing - base.tracing, functions)
        )
    return found


def by_function(blocks: Counter[int], kallsyms: Path) -> Counter[str]:
    """Instructions by the function of their address."""
    lines = (line.split() for line in kallsyms.read_text().splitlines())
    symbols = sorted((int(address, 16), name) for address, _kind, name, *_ in lines)
    starts = [address for address, _name in symbols]
    found: Counter[str] = Counter()
    for address, executed in blocks.items():
        at = bisect.bisect_right(starts, address) - 1
        found[symbols[at][1] if address >= _KERNEL and at >= 0 else USER] += executed
    return found


def table(modes: list[Mode]) -> str:
    """A table of what each mode adds, on each dataset."""
    datasets = list(dict.fromkeys(mode.dataset for mode in modes))
    lines = [f"| | {' | '.join(datasets)} |", f"|---|{'---|' * len(datasets)}"]
    for name in dict.fromkeys(mode.name for mode in modes):
        ours = {mode.dataset: mode for mode in modes if mode.name == name}
        first = next(iter(modes))
        values = [
            f"{ours[one].all if name == first.name else ours[one].tracing:,.0f}" for one in datasets
        ]
        lines.append(f"| {name} | {' | '.join(values)} |")
    return "\n".join(lines)


def top(modes: list[Mode], count: int) -> str:
    """The functions of which each mode executes the most more than the first."""
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
    return "\n".join(lines)


def record(modes: list[Mode], out: Path) -> Json:
    """What tests/lab/test_cost.py compares with: the versions, and what each mode adds."""
    results = json.loads((out / "results.json").read_text())
    tracing = {f"{one.dataset}, {one.name}": round(one.tracing, 1) for one in modes}
    return {"kernel": results["uname"], "zfs": results["zfs"], "tracing": tracing}


def run(flavour: str, wanted: list[str], directory: Path, share: Path | None = None) -> list[Mode]:
    """Runs the modes, all if `wanted` is empty, in a guest. Raises SystemExit if that fails."""
    counts, out = directory / "counts", directory / "out"
    command = [str(ROOT / "scripts/lab"), "run", "--flavour", flavour, *MACHINE]
    command += ["--share", str(share)] if share else []
    command += ["--instructions", str(counts), "--out", str(out), "--"]
    command += ["python3", "/zfstune/tests/lab/guest/cost.py", *wanted]
    if subprocess.run(command, check=False).returncode:
        raise SystemExit("instructions: the guest failed")
    return read(counts, out)


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
    parser.add_argument("--peers", action="store_true", help="other tools beside ours")
    parser.add_argument("modes", nargs="*", metavar="MODE", help="default: all")
    given = parser.parse_args()
    wanted, share = given.modes, None
    if given.peers:
        peers = [name for name in TELLS if not name.startswith("zfstune")]
        wanted = ["plain", "commit", "fsync", "off-cpu", *(wanted or peers)]
        share = debian.fetched("peers", given.flavour, *PACKAGES)
    with tempfile.TemporaryDirectory(prefix="instructions-") as directory:
        modes = run(given.flavour, wanted, Path(directory), share)
        if given.record:
            text = json.dumps(record(modes, Path(directory) / "out"), indent=1)
            given.record.write_text(text + "\n")
    print(table(modes))
    if given.top:
        print(top(modes, given.top))
    return 0


if __name__ == "__main__":
    sys.exit(main())
