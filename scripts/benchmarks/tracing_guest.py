"""The part of `make bench-tracing` in the guest: what a write and its fsync take of the CPUs,
without a tracer and under several.

usage: tracing_guest.py JSON

JSON has the rounds that each tool is to have, those that it has had on which machine, the minutes
that all may take, and the host. Prints each round as it ends, in a line of RESULT and JSON; a tool
that fails or hangs costs only itself.

Every measurement under a tracer comes between two without. The time of its own process is for
seconds, not for fsyncs, and has a number of its own. Tools take turns: the time ends with as many
rounds of each, and it alone ends them. To stop at a narrow interval would favour those that are
narrow by chance.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))

from benchmarks.loads import LOADS, Reference, cpu_per_fsync, jobs, pieces, sh
from benchmarks.modes import MODES, attached

Json = dict[str, Any]
RESULT = "tracing-result: "
# Packages of peers that the image lacks
SHARE = Path("/share")
KPROBES = Path("/sys/kernel/debug/kprobes/list")
BPF_STATS = Path("/proc/sys/kernel/bpf_stats_enabled")
# A round takes a minute at most; what takes longer than this hangs
ROUND_S = 240
ATTACH_S = 180
END_S = 60
# Stands in commands for the function that every commit calls
COMMIT = "ZIL_COMMIT"


@cache
def commit_function() -> str:
    return "zil_commit_flags" if " zil_commit_flags\t" in sh("cat /proc/kallsyms") else "zil_commit"


# ---- tools


@dataclass(frozen=True)
class Tool:
    """A tracer: its command, what shows that it has attached, and what it tells, if that is to be
    compared: in words, and how many distributions (histograms) it has of an fsync. Each measurement
    lasts for cycle_s at least, in which everything that it does comes once. mode is what it
    attaches, of MODES; without a command it is that alone."""

    command: str
    ready: Ready
    tells: str = ""
    distributions: int = 0
    cycle_s: float = 0
    mode: str = ""

    def words(self) -> list[str]:
        """Raises RuntimeError if there is no such program."""
        words = shlex.split(self.command)
        if not shutil.which(words[0]):
            raise RuntimeError("not there")
        return [word.replace(COMMIT, commit_function()) for word in words]


class Running:
    """A tool that has attached. Raises RuntimeError if it does not."""

    def __init__(self, tool: Tool) -> None:
        self.tool, words, self.out = tool, tool.words(), Path("/tmp/tool.out")
        start = time.monotonic()
        with self.out.open("w") as out:
            self.process = subprocess.Popen(
                words,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        try:
            while True:
                over = self.process.poll() is not None or time.monotonic() > start + ATTACH_S
                if tool.ready(self):
                    break
                if over:
                    raise RuntimeError(f"did not attach: {self.said()[-500:]}")
                time.sleep(0.02)
        except BaseException:
            self.kill()
            raise
        self.attach_seconds = time.monotonic() - start

    def said(self) -> str:
        return self.out.read_text(errors="replace")

    def own_ns(self) -> int:
        """CPU time of the process so far. Raises RuntimeError if it has ended."""
        self.check()
        return time.clock_gettime_ns(process_clock(self.process.pid))

    def check(self) -> None:
        """Raises RuntimeError if it has ended."""
        if self.process.poll() is not None:
            raise RuntimeError(f"ended by itself: {self.said()[-500:]}")

    def stop(self) -> None:
        """Ctrl-C, and again: bpftrace before 0.19 forgets one that comes while it handles an event.
        Raises RuntimeError if it has ended before, or does not."""
        self.check()
        for _ in range(2):
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(END_S)
                return
            except subprocess.TimeoutExpired:
                continue
        raise RuntimeError("did not end")

    def kill(self) -> None:
        self.process.kill()
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            print(f"bench: process {self.process.pid} stays", file=sys.stderr, flush=True)


def process_clock(pid: int) -> int:
    """The clock of a process's CPU time: clock_getcpuclockid(3), which Python lacks; the kernel's
    MAKE_PROCESS_CPUCLOCK(), include/linux/posix-timers_types.h."""
    return (~pid << 3) | 2


# Whether a tool has attached
Ready = Callable[[Running], bool]


@dataclass(frozen=True)
class Alone:
    """Tracers that this process has attached, and leaves alone."""

    tool: Tool
    attach_seconds: float

    def own_ns(self) -> int:
        return 0

    def said(self) -> str:
        return ""


@contextmanager
def running(tool: Tool) -> Iterator[Running | Alone]:
    """A tool while the body runs. Raises RuntimeError if it does not attach, or does not end."""
    if not tool.command:
        start = time.monotonic()
        with attached(tool.mode):
            yield Alone(tool, time.monotonic() - start)
        return
    one = Running(tool)
    try:
        yield one
        one.stop()
    finally:
        one.kill()


def says(pattern: re.Pattern[str] | str) -> Ready:
    return lambda tool: re.search(pattern, tool.said()) is not None


def kprobes_on(function: str) -> Ready:
    """Attached if the function has a probe at its entry and one at its return."""

    def ready(_: Running) -> bool:
        name = function.replace(COMMIT, commit_function())
        lines = KPROBES.read_text().splitlines()
        return {"k", "r"} <= {line.split()[1] for line in lines if f" {name}+" in line}

    return ready


def linked(program: str) -> Ready:
    """Attached if a BPF program of this name has a link, for tools that say nothing."""

    def ready(_: Running) -> bool:
        ids = {one["id"] for one in programs() if one.get("name") == program}
        return any(one.get("prog_id") in ids for one in json.loads(sh("bpftool -j link show")))

    return ready


def has_perf_events(tool: Running) -> bool:
    """The same for perf, which may have no program."""
    files = Path(f"/proc/{tool.process.pid}/fd")
    with suppress(OSError):  # of one that it has just closed
        return any("perf_event" in str(file.readlink()) for file in files.iterdir())
    return False


# What `zfstune trace` and `zfstune exporter` say when they have attached
ATTACHED = re.compile(r"; Ctrl-C to end|: /metrics$", re.MULTILINE)
OURS = says(ATTACHED)
STACKS = "stacks of all that sleeps, and for how long"
SUMMARY = "zfstune trace fsync"
JSON = f"{SUMMARY} --json"
# Its parts: what is always attached, and windows that come as often as they may. One in a minute
# comes in few measurements, which an interval of ranks would pass over
LIGHT = f"{SUMMARY} --light"
ALWAYS, WINDOWS, CYCLE_S = f"{LIGHT}: no window", f"{LIGHT}: 2 s of 8 s", 8.0
ALL = "zfstune trace (all five)"
OFF_CPU = "zfstune flame --off-cpu"
EXPORTER = "zfstune exporter"
UNRECORDED = f"{EXPORTER} --no-record"

TOOLS = {
    **{name: Tool("", lambda _: True, mode=name) for name in MODES if name != "plain"},
    SUMMARY: Tool(
        SUMMARY,
        OURS,
        "quantiles of fsyncs by dataset, what called them, and eleven stages of each",
        12,
        mode="fsync",
    ),
    f"{SUMMARY} --no-fentry": Tool(f"{SUMMARY} --no-fentry", OURS, mode="fsync, kprobes"),
    JSON: Tool(f"{SUMMARY} --interval 1s --json", OURS),
    ALWAYS: Tool(
        f"{LIGHT} --every 24h",
        OURS,
        "quantiles of commits by dataset, and of the writes and flushes of log blocks",
        3,
        mode="commit",
    ),
    WINDOWS: Tool(f"{LIGHT} --every 8s --window 2s", OURS, cycle_s=CYCLE_S),
    "zfstune trace txg": Tool("zfstune trace txg", OURS),
    "zfstune trace throttle": Tool("zfstune trace throttle", OURS),
    "zfstune trace device": Tool("zfstune trace device", OURS),
    "zfstune trace arc": Tool("zfstune trace arc", OURS),
    ALL: Tool("zfstune trace --interval 2s", OURS, mode="all views"),
    OFF_CPU: Tool(
        "zfstune flame --off-cpu --duration 1h -o /tmp/bench.folded",
        OURS,
        "stacks of fsyncs that sleep, by stage, and for how long",
        mode="off-cpu",
    ),
    "zfstune flame --wakeup": Tool(
        "zfstune flame --wakeup --duration 1h -o /tmp/bench.folded", OURS
    ),
    UNRECORDED: Tool(UNRECORDED, OURS),
    EXPORTER: Tool(EXPORTER, OURS),
    "bpftrace one-liner": Tool(
        f"bpftrace -e 'kprobe:{COMMIT} {{ @s[tid] = nsecs; }} "
        f"kretprobe:{COMMIT} /@s[tid]/ {{ @ns = hist(nsecs - @s[tid]); delete(@s[tid]); }}'",
        kprobes_on(COMMIT),
        "a histogram of commits",
        1,
    ),
    "bcc zfsdist": Tool(
        "zfsdist-bpfcc",
        kprobes_on("zpl_fsync"),
        "histograms of reads, writes, opens and fsyncs",
        1,
    ),
    "bcc offcputime": Tool("offcputime-bpfcc", says("Hit Ctrl-C to end"), STACKS),
    "libbpf-tools funclatency": Tool(
        f"funclatency-libbpf {COMMIT}",
        linked("dummy_kretprobe"),
        "a histogram of commits (`fsdist` knows no ZFS)",
        1,
    ),
    "libbpf-tools offcputime": Tool("offcputime-libbpf", linked("sched_switch"), STACKS),
    "perf trace": Tool(
        "perf trace -a -s -e fsync",
        has_perf_events,
        "count, mean and largest of fsync(2), by thread",
    ),
    "zilcommit.d": Tool(
        "dtrace -Zs /zfstune/tracers/dtrace/linux/zilcommit.d",
        says("Hit Ctrl-C to end"),
        "histograms and sums of nine stages (our script for DTrace)",
        9,
    ),
}


def peers() -> list[str]:
    return [name for name in TOOLS if name not in MODES and not name.startswith("zfstune")]


def install_packages() -> None:
    if any(SHARE.glob("*.deb")):
        sh(f"DEBIAN_FRONTEND=noninteractive dpkg -i --force-unsafe-io {SHARE}/*.deb")


# ---- measurements


def every_load(reference: Reference, tool: Running | Alone | None = None) -> dict[str, float]:
    how = (tool.own_ns, tool.tool.cycle_s) if tool else ()
    return {name: cpu_per_fsync(load, reference, *how) for name, load in LOADS.items()}


def lost(output: str) -> int | None:
    """Events that a tool says it has lost; None if it says nothing of them."""
    found = re.findall(r"\blost\W{1,3}(\d+)", output, re.IGNORECASE)
    return max(map(int, found)) if found else None


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """Raises RuntimeError in a body that takes longer."""

    def late(*_: object) -> None:
        raise RuntimeError(f"took longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def measure(left: dict[str, int], most: int, end: float, reference: Reference) -> Iterator[Json]:
    """What is found of each tool: how often its programs run, unless it has had rounds; then a
    round, each time of the one that has had the fewest, until all have had `most`, or
    time.monotonic() is `end`. `left` has the rounds of each, until it fails, and is kept so."""
    for name in [name for name, rounds in left.items() if not rounds]:
        found = attempt(partial(programs_of, TOOLS[name]))
        if "error" in found:
            del left[name]
        yield {"tool": name, **found}
    before, last = dict[str, float](), ""
    while left and min(left.values()) < most and time.monotonic() < end:
        name = min(left, key=left.__getitem__)
        # no two rounds of a tool have a measurement in common, so that they are independent
        found = attempt(partial(one_round, TOOLS[name], reference, {} if name == last else before))
        before, last = found.pop("after", {}), name
        left[name] += 1
        if "error" in found:
            del left[name]
        yield {"tool": name, **found}


def attempt(what: Callable[[], Json]) -> Json:
    """What it returns, or its error."""
    try:
        with within(ROUND_S):
            return what()
    except Exception as error:  # whatever it is, others are measured
        return {"error": " ".join(str(error).replace("|", "/").split())[:200] or repr(error)}


def one_round(tool: Tool, reference: Reference, before: dict[str, float]) -> Json:
    """A tool between two measurements without it, of which the first may have been made before."""
    before = before or every_load(reference)
    with running(tool) as one:
        own, begin = one.own_ns(), time.monotonic_ns()
        traced = every_load(reference, one)
        own_share = (one.own_ns() - own) / (time.monotonic_ns() - begin)
    after = every_load(reference)
    return {
        "attach_seconds": one.attach_seconds,
        "own": own_share,
        "lost": lost(one.said()),
        "loads": {
            name: {"none": (before[name] + after[name]) / 2, "traced": traced[name]}
            for name in LOADS
        },
        "after": after,
    }


@contextmanager
def counting() -> Iterator[None]:
    """The kernel counts the runs of programs, and the time in them."""
    BPF_STATS.write_text("1")
    try:
        yield
    finally:
        BPF_STATS.write_text("0")


def programs_of(tool: Tool) -> Json:
    """The runs of each program and the time in it for an fsync of each load, as the kernel counts
    (bpf_stats): some run in other threads, and only if these meet."""
    found = {}
    with counting(), running(tool):
        for name, load in LOADS.items():
            before, end = programs(), time.monotonic() + tool.cycle_s
            for n, one in enumerate(pieces(load), 1):
                one()
                if n >= load.pieces and time.monotonic() >= end:
                    break
            found[name] = per_fsync(before, programs(), n * load.jobs * load.fsyncs)
    return {"programs": found}


def programs() -> list[Json]:
    found: list[Json] = json.loads(sh("bpftool -j prog show"))
    return found


def per_fsync(before: list[Json], after: list[Json], fsyncs: int) -> dict[str, Json]:
    """Time in and runs of each program that ran, per fsync; bpftool omits both for one that never
    did."""
    earlier = {p["id"]: p for p in before}
    found: dict[str, Json] = {}
    for one in after:
        more = {
            name: (one.get(key, 0) - earlier.get(one["id"], {}).get(key, 0)) / fsyncs
            for name, key in (("ns", "run_time_ns"), ("runs", "run_cnt"))
        }
        if more["runs"]:
            # the kernel shortens names, so two may have the same
            sums = found.setdefault(one.get("name", "?"), {"ns": 0.0, "runs": 0.0})
            for name, number in more.items():
                sums[name] += number
    return found


def machine() -> Json:
    """What the numbers are of."""
    match = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return {
        "kernel": os.uname().release,
        "zfs": Path("/sys/module/zfs/version").read_text().strip(),
        "btf": Path("/sys/kernel/btf/zfs").exists(),
        "cpu": match[1] if match else "unknown",
    }


def prepare() -> None:
    """Makes the pools, and writes their files."""
    install_packages()
    sh("modprobe brd rd_nr=1 rd_size=1048576")
    for pool, disk in (("ram", "/dev/ram0"), ("disk", "/dev/vdb")):
        sh(f"zpool create -o ashift=12 -O compression=off -O atime=off {pool} {disk}")
        sh(f"zfs create -o recordsize=8k {pool}/db")
    sh("zfs create -o recordsize=8k -o sync=disabled ram/off")
    # the sync of a txg would fall into some measurements, and not into others
    Path("/sys/module/zfs/parameters/zfs_txg_timeout").write_text("3600")
    for load in LOADS.values():
        jobs(load)()


def main() -> None:
    asked = json.loads(sys.argv[1])
    end = time.monotonic() + 60 * asked["minutes"]
    here = {**machine(), "host": asked["host"]}
    done: dict[str, int] = asked["tools"]
    if here != asked["machine"]:
        done = dict.fromkeys(done, 0)
    prepare()
    for found in measure(done, asked["rounds"], end, Reference()):
        shown = found.get("error") or f"{done[found['tool']]} rounds"
        print(f"bench: {found['tool']}: {shown}", file=sys.stderr, flush=True)
        print(RESULT + json.dumps({**found, "machine": here}), flush=True)


if __name__ == "__main__":
    main()
