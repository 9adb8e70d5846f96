"""Scenario: all views at once, under load, for as many seconds as the argument says: what
is lost, and the tracer's memory and CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from labkit import Json, finish, make_pool

OUTPUT = Path("/tmp/endurance.jsonl")


def endurance(results: Json, seconds: int) -> None:
    load = subprocess.Popen(
        "exec fio --name=load --directory=/tank --rw=write --bs=8k --size=16M --fsync=1 "
        "--numjobs=2 --thread --time_based --runtime=36000 --output=/dev/null",
        shell=True,
    )
    with OUTPUT.open("w") as out:
        tracer = subprocess.Popen(
            ["zfstune", "trace", "--interval", "1s", "--json", "--duration", f"{seconds}s"],
            stdout=out,
            stderr=subprocess.DEVNULL,
        )
    status = Path(f"/proc/{tracer.pid}/status")
    rss: list[int] = []
    cpu = 0.0
    while tracer.poll() is None:
        text = status.read_text() if status.exists() else ""
        if "VmRSS" in text and OUTPUT.stat().st_size:
            rss.append(int(text.split("VmRSS:")[1].split()[0]))
            ticks = Path(f"/proc/{tracer.pid}/stat").read_text().rsplit(")", 1)[1].split()
            cpu = (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK")
        time.sleep(1)
    load.kill()
    load.wait()
    lines = OUTPUT.read_text().splitlines()
    results |= {
        "seconds": seconds,
        "status": tracer.returncode,
        "rss_kib": rss,
        "cpu_seconds": cpu,
        "lost": max(json.loads(line).get("lost", 0) for line in lines),
        "lines": len(lines),
    }


def main() -> None:
    results: Json = {}
    make_pool()
    endurance(results, int(sys.argv[1]))
    finish(results)


main()
