"""Scenario: a session of `zfstune tune --arc` where the cache is too small for what is read at
random, beside writers that fsync; then both sizes, each held, to see what is true. One fio reads
all the time, and notes how long every read took."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

from labkit import OUT, PARAMETERS, Json, finish, kstat, make_pool, progress, run, sh

MIB = 1 << 20
DATA, SMALL = 192 * MIB, 112 * MIB
# Sides of two minutes, the shortest: such a cache is full after half a minute.
BUDGET, SIDE = "45m", "2m"
# How long a size settles, and is then measured; in turns.
SETTLE_S, MEASURE_S, TURNS = 60, 60, 3
# no directory beside the reader's absolute file name: fio would put one below the other
FIO = "fio --fallocate=none --time_based --thread "
WRITERS = (
    "--name=wal --directory=/tank/log --rw=write --bs=8k --size=16M --numjobs=2 --fsync=1 "
    "--rate_iops=5 --runtime=86400 --output=/dev/null"
)
LOG = "/tmp/reads"
READER = (
    f"--name=reader --filename=/tank/data/file --rw=randread --bs=16k --size={DATA} "
    f"--runtime=86400 --write_lat_log={LOG} --disable_slat=1 --disable_clat=1 --output=/dev/null"
)


def arc_max(size: int | None = None) -> int:
    path = PARAMETERS / "zfs_arc_max"
    if size:
        path.write_text(str(size))
    return int(path.read_text())


def prepare() -> None:
    make_pool()
    sh("zfs create -o recordsize=16k tank/data; zfs create tank/log")
    # a quarter of the cache at most, or the ARC holds writers up
    (PARAMETERS / "zfs_dirty_data_max").write_text(str(24 * MIB))
    arc_max(SMALL)
    with Path("/tank/data/file").open("wb") as file, Path("/dev/urandom").open("rb") as random:
        for _ in range(DATA // MIB):
            file.write(random.read(MIB))
    sh("zpool sync")


def session(results: Json) -> None:
    progress("a session")
    out = "/tmp/tune-arc"
    command = ["zfstune", "tune", "tank", "--arc", "--observe", "--yes", "--json", "--out", out]
    plan = run([*command, "--dry-run"])
    results["plan"] = {**plan, "arc_max": arc_max()}
    done = run([*command, "--budget", BUDGET, "--block", SIDE, "--seed", "1"], timeout=3000)
    results["session"] = {
        "status": done["status"],
        "stderr": done["stderr"],
        "session": json.loads(done["stdout"]) if done["stdout"] else None,
        "arc_max": arc_max(),
    }
    sh(f"cp -r {out} {OUT}", check=False)
    revert = run(["zfstune", "revert"])
    results["revert"] = {**revert, "arc_max": arc_max()}


def truth(results: Json) -> dict[str, list[tuple[float, float]]]:
    """Holds each size, in turns; from when to when it was held, by the clock of time.monotonic().
    The ARC's own counts of the time are in the results."""
    found = results["session"]["session"] or {}
    forecast = found.get("forecast") or {}
    held: dict[str, list[tuple[float, float]]] = {"small": [], "large": []}
    results["arcstats"] = {"small": [], "large": []}
    for turn in range(TURNS if forecast else 0):
        for name, size in (("small", SMALL), ("large", forecast["size"])):
            progress(f"{name}, turn {turn + 1}")
            arc_max(size)
            time.sleep(SETTLE_S)
            begin, before = time.monotonic(), kstat("arcstats")
            time.sleep(MEASURE_S)
            after = kstat("arcstats")
            held[name].append((begin, time.monotonic()))
            results["arcstats"][name].append({one: after[one] - before[one] for one in after})
    return held


def means(start: float, spans: list[tuple[float, float]]) -> list[float]:
    """fio's mean read in ns in each span; its log has the ms since the start and the ns."""
    sums = [[0, 0] for _ in spans]
    with Path(f"{LOG}_lat.1.log").open() as log:
        for line in log:
            when, took, *_ = line.split(",")
            at = start + int(when) / 1000
            for one, (begin, end) in zip(sums, spans, strict=True):
                if begin <= at < end:
                    one[0] += int(took)
                    one[1] += 1
    return [total / count for total, count in sums]


def main() -> None:
    results: Json = {}
    prepare()
    writers = subprocess.Popen(f"exec {FIO} {WRITERS}", shell=True)
    start = time.monotonic()
    reader = subprocess.Popen(f"exec {FIO} {READER}", shell=True)
    time.sleep(2)
    session(results)
    held = truth(results)
    for load in (reader, writers):
        load.terminate()
        load.wait()
    results["truth"] = {name: means(start, spans) for name, spans in held.items()}
    finish(results)


if __name__ == "__main__":
    main()
