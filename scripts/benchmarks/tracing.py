#!/usr/bin/env python3
"""Measures in the lab what tracing costs, against its peers; writes docs/measurements/tracing.md.

usage: scripts/benchmarks/tracing.py [--rounds N] [--minutes M] [--tools PART] [--resume]
                                     [--data DIR] [FLAVOUR...]

All of it takes about five hours for a flavour, and may be had in parts: each round is kept in
build/tracing/FLAVOUR.jsonl as it ends, and the page is of all that is there. Without --resume the
tools that are asked for begin anew, others stay.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import re
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / part) for part in ("scripts", "tuner", "tracers")]

from benchmarks import instructions  # noqa: E402
from benchmarks.loads import LOADS  # noqa: E402
from benchmarks.modes import MODES  # noqa: E402
from benchmarks.tracing_guest import (  # noqa: E402
    ALWAYS,
    CYCLE_S,
    JSON,
    LIGHT,
    OFF_CPU,
    RESULT,
    SUMMARY,
    TOOLS,
    WINDOWS,
    peers,
)
from zfslab.script import run_lab  # noqa: E402
from zfstune.experiment.statistics import interval, location  # noqa: E402

PAGE = ROOT / "docs/measurements/tracing.md"
DATA = ROOT / "build/tracing"
LIMIT = "72000s"
CONFIDENCE = 0.95
# Fewer rounds have no narrow interval
FEWEST = 8
# How long the windows of a light trace are, and how often they come, unless told otherwise
WINDOW_S, EVERY_S = 2.0, 60.0
# The most CPU time that each may add: with the module's BTF, and without
GOALS = {
    "fsync": (0.015, 0.05),
    LIGHT: (0.01, 0.01),
    "all views": (0.05, 0.05),
    "off-cpu": (0.10, 0.10),
}
GOAL_LOADS = ("1 job", "8 jobs")
# of `SUMMARY`
ATTACHED_S = 1.2
# of one CPU, by `JSON`
OWN = 0.04
# Ours in the table of peers
COMPARED = (SUMMARY, ALWAYS, OFF_CPU)
# What cost.py has on a pool in memory, and with sync=disabled
COUNTED = {"tank/db": "with a commit", "8 jobs": "of eight jobs", "tank/off": "`sync=disabled`"}
Json = dict[str, Any]

INSTRUCTIONS = "instructions"
# What can be asked for; the counts of instructions are of modes and peers, in a guest of their own
PARTS: dict[str, list[str]] = {
    "modes": [name for name in TOOLS if name in MODES],
    "commands": [name for name in TOOLS if name.startswith("zfstune ")],
    "peers": peers(),
    INSTRUCTIONS: [],
}

HEAD = """\
# What tracing costs

Written by `make bench-tracing`; run it to have the numbers of your machine. A guest has one CPU and
4 GiB.

What a tracer adds to the CPU time of a write of 8 kB and its fsync: that of all threads but for its
own process. Loads are of one or eight processes on a pool in memory, one on a disk, and one with
`sync=disabled`, where next to nothing is left but the way into ZFS and back. A measurement is the
median of pieces of a tenth of a second or less, whose time is taken in relation to a loop before
and after each that no tracer touches: what others do on the machine's cores makes both slower. A
round has each load under a tracer, between two measurements without; tracers take turns. The tables
show the change and its interval of {confidence:.0%} (signed ranks), of at least {few} rounds. A
goal is met if the whole interval is within it, and missed if all of it is above; otherwise it is
not resolved.

First come modes, which are tracers without a command around them: attached, and left alone. Two
attachments of the same programs differ by more than two measurements under one, so these have many.
Then commands: "itself" is the CPU time of the tracer's process, as a share of one CPU, which is for
seconds and not for fsyncs; "lost" are the events that a tracer says it lost in all rounds, of those
that say so. Against peers, "distributions" are those that a tracer has of an fsync or commit and
its parts, and "each costs" is what it adds, divided by their number.

A light trace has the programs of `commit`, and in a window those of `fsync` as well: the line
`{light}` has one window of {window:.0f} s in each {every:.0f} s. Its command is measured with none,
and with one in each {cycle:.0f} s, so with what it takes to attach the window's probes and to
detach them; {cycle:.0f}/{every:.0f} of the difference are what windows add to its own time.

Runs of programs and the time in them are the kernel's counts (bpf_stats, which adds some itself),
without its way into them. Instructions and calls of helpers are exact, of an emulator that counts
them; what the kernel's compiler puts in place of a call, such as an array's look-up, is no call.

[performance.md](../performance.md) says what these numbers mean.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("flavours", metavar="FLAVOUR", nargs="*", default=["trixie", "bookworm"])
    parser.add_argument("--rounds", type=int, default=40, help="of each tool, at most")
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="in each guest; 0 only writes the page"
    )
    parser.add_argument(
        "--tools",
        default="",
        metavar="PART",
        help=f"one of {', '.join(PARTS)}, or tools by regular expression",
    )
    parser.add_argument("--resume", action="store_true", help="keep what is there of them")
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR", help="where that is")
    args = parser.parse_args()
    if args.rounds < FEWEST or args.minutes < 0:
        parser.error(f"use at least {FEWEST} rounds, and no minutes below 0")
    if not asked(args.tools) and args.tools != INSTRUCTIONS:
        parser.error(f"no tool has a name like {args.tools}")
    for flavour in args.flavours if args.minutes else ():
        status = measure(flavour, args) if asked(args.tools) else 0
        if status:
            print(f"bench: {flavour}: go on with --resume", file=sys.stderr)
            return status
        if args.tools in ("", INSTRUCTIONS):
            count(flavour, args)
    found = "".join(section(args.data, flavour) for flavour in flavours_in(args.data))
    if not found:
        parser.error(f"{args.data} has no measurements")
    PAGE.write_text(HEAD.format_map(WORDS) + found, encoding="utf-8")
    print(PAGE.read_text(encoding="utf-8"))
    return 0


WORDS = {
    "confidence": CONFIDENCE,
    "few": FEWEST,
    "cycle": CYCLE_S,
    "window": WINDOW_S,
    "every": EVERY_S,
    "light": LIGHT,
}


def asked(tools: str) -> list[str]:
    """The tools of a part, or those with such a name."""
    return PARTS.get(tools, [name for name in TOOLS if re.search(tools, name)])


# ---- measuring


def rounds_file(directory: Path, flavour: str) -> Path:
    return directory / f"{flavour}.jsonl"


def counts_file(directory: Path, flavour: str) -> Path:
    return directory / f"{flavour}-{INSTRUCTIONS}.json"


def flavours_in(directory: Path) -> list[str]:
    """Those that have been measured."""
    stems = (file.stem for file in directory.glob("*.json*"))
    return sorted({stem.removesuffix(f"-{INSTRUCTIONS}") for stem in stems}, reverse=True)


def kept(file: Path) -> list[Json]:
    """What was found, line by line, but for a line that the end of a run has cut short."""
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def measure(flavour: str, args: argparse.Namespace) -> int:
    """Measures the tools that are asked for in one guest, until they have their rounds, the time is
    over, or Ctrl-C ends it. Returns the exit status."""
    names, file = asked(args.tools), rounds_file(args.data, flavour)
    lines = [one for one in kept(file) if args.resume or one["tool"] not in names]
    store(file, "".join(f"{json.dumps(one)}\n" for one in lines))
    machine = lines[-1]["machine"] if lines else {}
    had = of_machine(lines, machine)
    wanted: Json = {
        "tools": {name: len(had[name].rounds) if name in had else 0 for name in names},
        "machine": machine,
        "host": f"{os.cpu_count()} cores of {host_cpu()}",
        "rounds": args.rounds,
        "minutes": args.minutes,
    }
    if min(wanted["tools"].values()) >= args.rounds:
        return 0
    today = datetime.date.today().isoformat()

    def said(line: str) -> None:
        if not line.startswith(RESULT):
            print(line, end="", flush=True)
        elif line.endswith("\n"):  # else the guest has died meanwhile
            found = {**json.loads(line[len(RESULT) :]), "date": today}
            with file.open("a", encoding="utf-8") as out:
                out.write(f"{json.dumps(found)}\n")

    options = ("--flavour", flavour, "--cpus", "1", "--disk", "size=4G", "--timeout", LIMIT)
    share = instructions.shared(flavour) if {*names} & {*peers()} else []
    program = ("python3", "/zfstune/scripts/benchmarks/tracing_guest.py", json.dumps(wanted))
    return run_lab(*options, *share, "--", *program, line=said)


def store(file: Path, text: str) -> None:
    """Whole at any moment."""
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_suffix(".new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(file)


def count(flavour: str, args: argparse.Namespace) -> None:
    """Counts instructions and calls of helpers. Raises SystemExit if the guest fails."""
    file = counts_file(args.data, flavour)
    if args.resume and file.exists():
        return
    with tempfile.TemporaryDirectory(prefix="instructions-") as directory:
        modes = instructions.run(flavour, [], Path(directory), peers=True)
        found: Json = {"of": instructions.versions(Path(directory) / "out"), "modes": {}}
    for one in modes:
        numbers = {"all": one.all, "tracing": one.tracing, "calls": one.calls}
        found["modes"].setdefault(one.name, {})[one.dataset] = numbers
    store(file, json.dumps(found))


# ---- what it comes to


@dataclass
class Measured:
    """What was found of a tool on one machine. error is why it has no more rounds, "" if it may
    have."""

    rounds: list[Json] = field(default_factory=list)
    programs: Json = field(default_factory=dict)
    error: str = ""

    def each(self, name: str) -> list[Any]:
        """A number of each round."""
        return [one[name] for one in self.rounds]

    def pairs(self, load: str) -> list[Json]:
        """CPU times of an fsync without the tool and under it."""
        return [one["loads"][load] for one in self.rounds]


def of_machine(lines: Sequence[Json], machine: Json) -> dict[str, Measured]:
    """What was found on a machine, by tool, in the order of TOOLS."""
    found = {name: Measured() for name in TOOLS}
    there = set()
    for line in lines:
        name = line["tool"]
        if line["machine"] != machine or name not in found:  # one that is no longer a tool
            continue
        there.add(name)
        found[name].error = line.get("error", "")
        found[name].programs = line.get("programs", found[name].programs)
        if "loads" in line:
            found[name].rounds.append(line)
    return {name: tool for name, tool in found.items() if name in there}


@dataclass(frozen=True)
class Estimate:
    """A location by signed ranks, and its interval."""

    best: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate:
        return cls(location(values), *interval(values, CONFIDENCE))

    def text(self, form: str) -> str:
        return f"**{self.best:{form}}** ({self.low:{form}} to {self.high:{form}})"

    def met(self, goal: float, form: str) -> str:
        """Whether a goal, which is the most that it may be, is met."""
        within, above = self.high <= goal, self.low > goal
        state = "within" if within else "above" if above else "not resolved against"
        return f"{state} the goal of {goal:{form}}"


def change(pairs: Sequence[Json]) -> Estimate:
    """What a tool adds, as a share."""
    ratio = Estimate.of([math.log(pair["traced"] / pair["none"]) for pair in pairs])
    return Estimate(*map(math.expm1, (ratio.best, ratio.low, ratio.high)))


def with_windows(without: Estimate, during: Estimate) -> Estimate:
    """What a light trace adds, from what it does without a window and in one."""
    share = WINDOW_S / EVERY_S
    pairs = zip(astuple(without), astuple(during), strict=True)
    return Estimate(*((1 - share) * one + share * other for one, other in pairs))


def changes(tools: dict[str, Measured]) -> dict[str, dict[str, Estimate]]:
    """By tool and load, of those that were measured often enough, and of a light trace."""
    found = {
        name: {load: change(tool.pairs(load)) for load in LOADS}
        for name, tool in tools.items()
        if len(tool.rounds) >= FEWEST
    }
    if "commit" in found and "fsync" in found:
        found[LIGHT] = {
            load: with_windows(one, found["fsync"][load]) for load, one in found["commit"].items()
        }
    return found


# ---- the page


def section(directory: Path, flavour: str) -> str:
    """What was found on a flavour, by machine: a newer kernel or ZFS is another."""
    lines = kept(rounds_file(directory, flavour))
    file = counts_file(directory, flavour)
    counts: Json = json.loads(file.read_text()) if file.exists() else {}
    machines: list[Json] = []
    for line in lines:
        if line["machine"] not in machines:
            machines.append(line["machine"])
    return "".join(of_one(flavour, machine, lines, counts) for machine in machines) + "".join(
        f"{line}\n" for line in counted(flavour, counts)
    )


def of_one(flavour: str, machine: Json, lines: Sequence[Json], counts: Json) -> str:
    tools = of_machine(lines, machine)
    added = changes(tools)
    versions = {name: machine[name] for name in ("kernel", "zfs")}
    modes = counts["modes"] if counts.get("of") == versions else {}
    dates = sorted({line["date"] for line in lines if line["machine"] == machine})
    emulated = "QEMU" in machine["cpu"] or "TCG" in machine["cpu"]
    found = [
        f"\n## {flavour}: kernel {machine['kernel']}, ZFS {machine['zfs']}\n",
        f"Measured {' to '.join(dict.fromkeys((dates[0], dates[-1])))} on {machine['host']}, "
        f"QEMU with {'software emulation (TCG)' if emulated else 'KVM'}.\n",
        *costs(tools, added),
        "",
        *verdicts(tools, added, btf=machine["btf"]),
        *compared(tools, added, modes),
        *programs(tools),
    ]
    return "\n".join(found) + "\n"


def host_cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "an unknown CPU"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def costs(tools: dict[str, Measured], added: dict[str, dict[str, Estimate]]) -> list[str]:
    """What each tool adds, by load; why, where that is not known."""
    rows = [["none", "", *(untraced(tools, load) for load in LOADS), "-", "-", "-"]]
    for name, tool in tools.items():
        cells = [tool.error or "too few rounds", *[""] * (len(LOADS) + 2)]
        if name in added:
            own, *rest = of_itself(tool)
            cells = [*shares(added[name]), "-" if name in MODES else own, *rest]
        rows.append([name, str(len(tool.rounds)), *cells])
    if LIGHT in added:
        rows.append([LIGHT, "", *shares(added[LIGHT]), *windows_included(tools)])
    lines = table(["tracer", "rounds", *LOADS, "itself", "attached after", "lost"], rows)
    for name, tool in tools.items():
        if name in added and tool.error:
            lines += ["", f"{name}, after {len(tool.rounds)} rounds: {tool.error}."]
    return lines


def shares(loads: dict[str, Estimate]) -> list[str]:
    return [one.text("+.1%") for one in loads.values()]


def of_itself(tool: Measured) -> list[str]:
    """Its own CPU time, when it had attached, and what it lost."""
    after = statistics.median(tool.each("attach_seconds"))
    lost = [number for number in tool.each("lost") if number is not None]
    return [f"{own_share(tool):.1%}", f"{after:.2f} s", str(sum(lost)) if lost else "-"]


def windows_included(tools: dict[str, Measured]) -> list[str]:
    """A light trace's own CPU time, if its command was measured with windows and without."""
    if not all(name in tools and tools[name].rounds for name in (ALWAYS, WINDOWS)):
        return ["", "", ""]
    always, windows = own_share(tools[ALWAYS]), own_share(tools[WINDOWS])
    return [f"{always + CYCLE_S / EVERY_S * (windows - always):.1%}", "", ""]


def own_share(tool: Measured) -> float:
    return float(statistics.median(tool.each("own")))


def untraced(tools: dict[str, Measured], load: str) -> str:
    every = untraced_us(tools, load)
    return "-" if math.isnan(every) else f"{every:,.0f} us"


def untraced_us(tools: dict[str, Measured], load: str) -> float:
    """The median CPU time of a write and fsync without a tracer; nan if there is none."""
    every = [pair["none"] for tool in tools.values() for pair in tool.pairs(load)]
    return statistics.median(every) / 1000 if every else math.nan


def verdicts(
    tools: dict[str, Measured], added: dict[str, dict[str, Estimate]], *, btf: bool
) -> list[str]:
    """A line on each goal."""
    lines = []
    for name, goals in GOALS.items():
        goal = goals[0 if btf else 1]
        for load in GOAL_LOADS if name in added else ():
            more = added[name][load]
            lines.append(f"* {name}, {load}: {more.text('+.1%')}, {more.met(goal, '.1%')}.")
    for name, key, what, form, goal in (
        (SUMMARY, "attach_seconds", "seconds to attach", ".2f", ATTACHED_S),
        (JSON, "own", "of a CPU for itself", ".1%", OWN),
    ):
        if name in added:
            found = Estimate.of(tools[name].each(key))
            lines.append(f"* {name}, {what}: {found.text(form)}, {found.met(goal, form)}.")
    return lines


def compared(
    tools: dict[str, Measured], added: dict[str, dict[str, Estimate]], modes: Json
) -> list[str]:
    """Ours and peers: what each tells, and what for."""
    rows = []
    for name in (*COMPARED, *peers()):
        if name not in tools:
            continue
        mode = TOOLS[name].mode or name
        of = modes.get(mode, {}).get("tank/db")
        cells = [tools[name].error or "too few rounds", "", ""]
        costs = {}
        if name in added:
            more = added.get(mode, added[name])["1 job"]
            cells = [more.text("+.1%"), *of_itself(tools[name])[1:]]
            costs["{:.1f} us"] = more.best * untraced_us(tools, "1 job")
        if of:
            costs["{:,.0f} instructions"] = of["tracing"]
        number = f"{of['tracing']:,.0f}" if of else "-"
        told = [str(TOOLS[name].distributions or "-"), each(costs, TOOLS[name].distributions)]
        rows.append([name, TOOLS[name].tells, cells[0], number, *told, *cells[1:]])
    if not rows:
        return []
    head = ["tracer", "tells", "CPU per commit", "instructions", "distributions", "each costs"]
    return ["", "### Against peers\n", *table([*head, "attached after", "lost"], rows)]


def each(costs: dict[str, float], count: int) -> str:
    """What a distribution costs, of so many; costs are of all, by their form."""
    return ", ".join(form.format(cost / count) for form, cost in costs.items() if count) or "-"


def counted(flavour: str, counts: Json) -> list[str]:
    """Instructions of an fsync, and calls of helpers."""
    if not counts:
        return []
    untraced = next(iter(counts["modes"]))
    rows = []
    for name, datasets in counts["modes"].items():
        form = "{all:,.0f}" if name == untraced else "{tracing:,.0f}, {calls:.1f}"
        cells = [form.format(**datasets[one]) if one in datasets else "-" for one in COUNTED]
        rows.append([name, *cells])
    of = f"kernel {counts['of']['kernel']}, ZFS {counts['of']['zfs']}"
    text = (
        "Of a write and its fsync on one CPU and a pool in memory, untraced "
        f"(`{untraced}`), and what each mode of `tests/lab/guest/cost.py` adds; {of}:\n"
    )
    title = f"### {flavour}: instructions, and calls of helpers\n"
    return ["", title, text, *table(["", *COUNTED.values()], rows)]


def programs(tools: dict[str, Measured]) -> list[str]:
    """How often the programs of each tool run for an fsync, and how long; of ours each."""
    rows = []
    for name, tool in tools.items():
        found = tool.programs
        if not found:
            continue
        rows.append([f"**{name}**", "", *(ran(list(load.values())) for load in found.values())])
        each = dict.fromkeys(one for load in found.values() for one in load)
        for one in each if name.startswith("zfstune") else ():
            cells = [ran([load[one]] if one in load else []) for load in found.values()]
            rows.append(["", one, *cells])
    if not rows:
        return []
    text = "Runs, and time, for an fsync; a line with a tracer is the sum of its programs.\n"
    return ["", "### Programs\n", text, *table(["tracer", "program", *LOADS], rows)]


def ran(programs: Sequence[Json]) -> str:
    runs, ns = (sum(one[key] for one in programs) for key in ("runs", "ns"))
    return f"{runs:.2f}, {ns / 1000:.2f} us" if programs else "-"


if __name__ == "__main__":
    sys.exit(main())
