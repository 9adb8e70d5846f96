"""Scenario: `zfstune trace fsync --light` at load, while datasets come and go, a pool is exported
and imported, a CPU goes and comes, and the module is loaded again: what it counts, and the memory
that it takes.

weeks.py SECONDS
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from labkit import (
    Json,
    Tracer,
    busy,
    commits,
    finish,
    make_pool,
    programs,
    progress,
    sh,
    sync_writes,
)

# Windows come often, so that those of the estimates, the last 60, are there after twenty minutes
LIGHT = ("fsync", "--light", "--every", "20s", "--window", "2s", "--interval", "20s")
CYCLE_S = 20
CPU = Path("/sys/devices/system/cpu/cpu1/online")
# Datasets that come and go, and those that are new at the end, for which there are places
DATASETS, NEW = 8, 16
# Logs that were closed, each by a commit of ZFS itself
closed = 0
done: Counter[str] = Counter()


def mounted(pool: str) -> int:
    """How many datasets of a pool have an open log."""
    return sh("zfs list -H -o mounted -r " + pool).split().count("yes")


def datasets(cycle: int) -> None:
    """One goes, if it is there, and comes."""
    global closed
    name = f"tank/{cycle // len(TURNS) % DATASETS}"
    if Path("/", name).is_mount():
        sh(f"zfs unmount {name}")
        closed += 1
        time.sleep(5)  # until its place is free
        sh(f"zfs mount {name}")
    else:
        sh(f"zfs create {name}")
    # for so long, and a window sees it
    for _ in range(CYCLE_S):
        sync_writes(f"/{name}/file", 2)
        time.sleep(1)


def cpu(_: int) -> None:
    if CPU.exists():
        CPU.write_text("0")
        time.sleep(3)
        CPU.write_text("1")


def pools(_: int) -> None:
    global closed
    sync_writes("/side/file", 23)
    closed += mounted("side")
    sh("zpool export side; zpool import side")
    sync_writes("/side/file", 23)


def nothing(_: int) -> None:
    """As it is most of the time."""


TURNS: tuple[Callable[[int], None], ...] = (datasets, cpu, pools, nothing)


def sample(process: subprocess.Popen[bytes], began: float) -> Json:
    proc = Path(f"/proc/{process.pid}")
    status = (proc / "status").read_text()
    return {
        "seconds": time.monotonic() - began,
        "rss_kib": int(status.split("VmRSS:")[1].split()[0]),
        "files": sum(1 for _ in (proc / "fd").iterdir()),
        "maps": sum(one["bytes_memlock"] for one in json.loads(sh("bpftool -j map show"))),
    }


def load(
    seconds: float, cycles: itertools.count[int], process: subprocess.Popen[bytes], began: float
) -> list[Json]:
    """Writes for so long, and samples the trace."""
    samples, end = [], time.monotonic() + seconds
    with busy("/tank/db"):
        while time.monotonic() < end:
            cycle = next(cycles)
            turn = TURNS[cycle % len(TURNS)]
            turn(cycle)
            done[turn.__name__] += 1
            time.sleep(CYCLE_S)
            samples.append(sample(process, began))
    return samples


def unknown(process: subprocess.Popen[bytes], began: float) -> Json:
    """Datasets that the trace has not seen before, for so long that a window sees them, and its
    memory before and after."""
    global closed
    before = sample(process, began)
    names = [f"tank/new{i}" for i in range(NEW)]
    for name in names:
        sh(f"zfs create {name}")
    until = time.monotonic() + 2 * CYCLE_S
    while time.monotonic() < until:
        for name in names:
            sync_writes(f"/{name}/file", 2)
        time.sleep(0.5)
    for name in names:
        sh(f"zfs destroy {name}")
        closed += 1
    time.sleep(CYCLE_S)
    return {"datasets": NEW, "before": before, "after": sample(process, began)}


def reload(tracer: Tracer) -> int:
    """Loads the module again, and returns what it had counted."""
    global closed
    progress("the module, again")
    closed += mounted("tank") + mounted("side")
    sh("zpool export -a")
    counted = commits()
    for _ in range(100):
        sh("modprobe -r zfs", check=False)
        if not Path("/sys/module/zfs").exists():
            break
        time.sleep(0.1)
    sh("modprobe zfs; zpool import -a")
    until = time.monotonic() + 120
    while "attached again" not in tracer.stderr.read_text() and time.monotonic() < until:
        time.sleep(0.1)
    done["reload"] += 1
    return counted


def main() -> None:
    seconds, cycles = float(sys.argv[1]), itertools.count()
    make_pool()
    sh("zfs create tank/db")
    make_pool("side", "/dev/vdc")
    # nothing commits while it begins or ends, so that both counts are of the same
    tracer = Tracer(*LIGHT)
    before, began = commits(), time.monotonic()
    progress("the first quarter")
    load(seconds / 4, cycles, tracer.process, began)
    counted = reload(tracer) - before
    progress("the rest")
    reloaded = time.monotonic() - began
    samples = load(seconds * 3 / 4, cycles, tracer.process, began)
    progress("new datasets")
    new = unknown(tracer.process, began)
    counted += commits()
    rows = tracer.rows()
    finish(
        {
            "status": tracer.process.returncode,
            "stderr": tracer.stderr.read_text(),
            "rows": rows,
            "kstat": counted,
            "closed": closed,
            "done": dict(done),
            "reloaded": reloaded,
            "samples": samples,
            "new": new,
            "programs_left": programs(),
        }
    )


main()
