"""Scenario: many datasets on a machine that could have many CPUs, datasets that come and go in a
trace with room for few, and a CPU that comes later.

slots.py [MANY TURNS]
"""

from __future__ import annotations

import ctypes
import json
import os
import time
from pathlib import Path

from labkit import Json, Tracer, commits, finish, make_pool, progress, sh, sync_writes
from zfstrace.bpf.fsync import FsyncTrace

MANY, TURNS = 100, 200  # in use at once, one after the other
FEW = 8  # slots
CPUS = Path("/sys/devices/system/cpu")


class Slot(ctypes.Structure):
    """struct slot of tracers/bpf/fsync.h"""

    _fields_ = (
        ("objset", ctypes.c_uint64),
        ("dev", ctypes.c_uint32),
        ("used", ctypes.c_uint32),
        ("gone", ctypes.c_uint32),
        ("life", ctypes.c_uint32),
        ("pool", ctypes.c_char * 256),
    )


def available() -> int:
    """Bytes of memory that are to be had."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")) << 10


def make_datasets() -> dict[int, str]:
    progress(f"{TURNS} datasets")
    sh("zfs create -o canmount=noauto tank/d")
    for i in range(TURNS):
        # every eighth without a log: known by its superblock only
        sh(f"zfs create -o canmount=noauto -o sync={'disabled' if i % 8 == 7 else 'standard'} "
           f"-o mountpoint=/mnt/d{i} tank/d/{i}")  # fmt: skip
    rows = sh("zfs list -Hpr -o objsetid,name tank/d").splitlines()
    return {int(row.split("\t")[0]): row.split("\t")[1] for row in rows}


def many(results: Json) -> None:
    progress(f"{MANY} datasets in use")
    for i in range(MANY):
        sh(f"zfs mount tank/d/{i}")
        sync_writes(f"/mnt/d{i}/warm", 1)
    before = available()
    tracer = Tracer("fsync", "tank")
    took = before - available()
    maps = json.loads(sh("bpftool -j map show"))
    counted = commits()
    for i in range(MANY):
        os.sched_setaffinity(0, {i % 2})
        sync_writes(f"/mnt/d{i}/many", 3)
    os.sched_setaffinity(0, {0, 1})
    counted = commits() - counted
    results["many"] = {
        "datasets": MANY,
        "possible": (CPUS / "possible").read_text(),
        "took": took,
        "maps": {m["name"]: m["bytes_memlock"] for m in maps},
        "rows": tracer.rows(),
        "kstat_commits": counted,
        "status": tracer.process.returncode,
    }
    for i in range(MANY):
        sh(f"umount /mnt/d{i}")


def turns(results: Json, names: dict[int, str]) -> None:
    progress(f"{TURNS} datasets in turns, room for {FEW}")
    wrote: dict[str, int] = {}
    with FsyncTrace(pool="tank", max_datasets=FEW) as trace:
        slots = trace.table("slots", Slot)

        def settle(most: int) -> None:
            """Waits until this many slots are in use; a fast machine takes them faster than they
            come back."""
            until = time.monotonic() + 120
            while sum(slot.used for slot in slots) > most and time.monotonic() < until:
                time.sleep(0.2)
                trace.tidy()

        for i in [*range(TURNS), 0]:
            # two free ones: a dataset that never committed is known by its superblock, and by its
            # log only when it is unmounted
            settle(FEW - 2)
            sh(f"zfs mount tank/d/{i}")
            sync_writes(f"/mnt/d{i}/turn", 1 + i % 3)
            sh(f"umount /mnt/d{i}")
            wrote[f"tank/d/{i}"] = wrote.get(f"tank/d/{i}", 0) + 1 + i % 3
            if i % 50 == 49:
                progress(f"{i + 1} of {TURNS}")
        settle(0)
        trace.refresh()
        found: dict[str, int] = {}
        for d in trace.datasets():
            name = names.get(d.objset, "rest" if d.rest else "unknown")
            found[name] = found.get(name, 0) + d.kinds[0]
        results["turns"] = {
            "datasets_in_turns": TURNS,
            "wrote": wrote,
            "found": found,
            "datasets": len(trace.datasets()),
            "in_use": sum(slot.used for slot in slots),
            "lost": trace.losses().to_json(),
        }


def late_cpu(results: Json) -> None:
    progress("a CPU that comes later")
    sh("zfs create tank/late")
    sync_writes("/tank/late/warm", 1)
    (CPUS / "cpu1/online").write_text("0")
    with FsyncTrace(pool="tank") as trace:
        sync_writes("/tank/late/one", 11)
        (CPUS / "cpu1/online").write_text("1")
        os.sched_setaffinity(0, {1})
        sync_writes("/tank/late/two", 13)
        os.sched_setaffinity(0, {0, 1})
        trace.refresh()
        results["late_cpu"] = {
            "counts": [d.kinds[0] for d in trace.datasets() if not d.rest],
            "lost": trace.losses().to_json(),
        }


def main() -> None:
    results: Json = {}
    make_pool()
    names = make_datasets()
    many(results)
    turns(results, names)
    late_cpu(results)
    finish(results)


main()
