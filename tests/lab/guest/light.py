"""Scenario: `zfstune trace fsync --light` on a machine that could have many CPUs: what it counts,
what it estimates beside a trace of everything, what it keeps, and the memory of the kernel that it
takes."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
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
    traced,
)

WINDOWS = ("--every", "8s", "--window", "2s")


def exact(results: Json) -> None:
    """Fsyncs in and between windows."""
    progress("counts")
    with traced(results, "exact", "fsync", "tank", "--light", *WINDOWS):
        for turn in range(7):
            sync_writes(f"/tank/db/{turn}", 149)
        sync_writes("/tank/off/file", 97)


def estimates(results: Json) -> None:
    progress("estimates")
    with busy("/tank/db"):
        light = Tracer("fsync", "tank", "--light", *WINDOWS)
        taken: Counter[str] = Counter()
        for one in json.loads(sh("bpftool -j map show")):  # names recur: there are two tracers
            taken[one["name"]] += one["bytes_memlock"]
        whole = Tracer("fsync", "tank", "--duration", "100s")
        whole.process.wait(300)
        results["estimates"] = {"whole": whole.rows(), "light": light.rows()}
    results["maps"] = taken


def kept(results: Json) -> None:
    """On a disk whose flushes take 40 ms each commit is slow."""
    progress("windows with a cause")
    with busy("/slow"):
        tracer = Tracer("fsync", "slow", "--light", *WINDOWS, "--over", "30ms", "--duration", "30s")
        tracer.process.wait(300)
        results["kept"] = {"rows": tracer.rows(), "stderr": tracer.stderr.read_text()}


def refused(results: Json) -> None:
    command = ["zfstune", "trace", "fsync", "--every", "10s"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    results["refused"] = {"status": done.returncode, "stderr": done.stderr}


def main() -> None:
    results: Json = {"possible": Path("/sys/devices/system/cpu/possible").read_text().strip()}
    make_pool()
    sh("zfs create tank/db; zfs create -o sync=disabled tank/off")
    make_pool("slow", "/dev/mapper/vdc-delay")
    sync_writes("/tank/db/warm", 3)
    refused(results)
    exact(results)
    estimates(results)
    kept(results)
    results["commits"] = commits()
    results["programs_left"] = programs()
    finish(results)


main()
