"""Scenario: a session of `zfstune tune --arc` where the cache is too small for what is read at
random, beside writers that fsync; then both sizes, each held, to see what is true."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

from labkit import OUT, PARAMETERS, Json, finish, make_pool, progress, run, sh

MIB = 1 << 20
DATA, SMALL = 192 * MIB, 112 * MIB
# Sides of two minutes, the shortest: such a cache is full after half a minute.
BUDGET, SIDE = "36m", "2m"
# How long a size settles, and is then measured; in turns.
SETTLE_S, MEASURE_S, TURNS = 60, 60, 3
FIO = "fio --directory=/tank/data --fallocate=none --time_based --thread "
WRITERS = (
    "--name=wal --directory=/tank/log --rw=write --bs=8k --size=16M --numjobs=2 --fsync=1 "
    "--rate_iops=5 --runtime=86400 --output=/dev/null"
)
READER = f"--name=reader --filename=/tank/data/file --rw=randread --bs=16k --size={DATA} "


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
    reader = subprocess.Popen(f"exec {FIO} {READER} --runtime=86400 --output=/dev/null", shell=True)
    out = "/tmp/tune-arc"
    command = ["zfstune", "tune", "tank", "--arc", "--observe", "--yes", "--json", "--out", out]
    plan = run([*command, "--dry-run"])
    results["plan"] = {**plan, "arc_max": arc_max()}
    done = run([*command, "--budget", BUDGET, "--block", SIDE, "--seed", "1"], timeout=2400)
    reader.terminate()
    reader.wait()
    results["session"] = {
        "status": done["status"],
        "stderr": done["stderr"],
        "session": json.loads(done["stdout"]) if done["stdout"] else None,
        "arc_max": arc_max(),
    }
    sh(f"cp -r {out} {OUT}", check=False)
    revert = run(["zfstune", "revert"])
    results["revert"] = {**revert, "arc_max": arc_max()}


def truth(results: Json) -> None:
    """The mean read in ns under each size, by fio, in turns."""
    found = results["session"]["session"] or {}
    forecast = found.get("forecast") or {}
    if not forecast:
        return
    held: dict[str, list[float]] = {"small": [], "large": []}
    for turn in range(TURNS):
        for name, size in (("small", SMALL), ("large", forecast["size"])):
            progress(f"{name}, turn {turn + 1}")
            arc_max(size)
            times = f"--ramp_time={SETTLE_S} --runtime={MEASURE_S} --output-format=json"
            said = json.loads(sh(f"{FIO} {READER} {times}"))
            held[name].append(said["jobs"][0]["read"]["lat_ns"]["mean"])
    results["truth"] = held


def main() -> None:
    results: Json = {}
    prepare()
    writers = subprocess.Popen(f"exec {FIO} {WRITERS}", shell=True)
    time.sleep(2)
    session(results)
    truth(results)
    writers.terminate()
    writers.wait()
    finish(results)


if __name__ == "__main__":
    main()
