"""The part of `make bench-search-lab` in the guest: sessions of `zfstune tune` by some searches on
one load.

usage: search_guest.py SCENE BUDGET BLOCK [WAY SEED]...

Prints what each session has found in a line, RESULT and JSON, as soon as it has ended.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

RESULT = "search-result: "
FIO = (
    "exec fio --output=/dev/null --fallocate=none --time_based --runtime=86400 --thread "
    "--name=bulk --directory=/tank/bulk --rw=write --bs=1M --size=1500M {bulk} "
    "--name=wal --directory=/tank/db --rw=write --bs=8k --size=64M --numjobs=8 --fsync=1 {wal}"
)


@dataclass(frozen=True)
class Way:
    """A search: its sampler, and whether the model's candidates go first."""

    sampler: str
    modelled: bool = False


WAYS = {
    "model + TPE": Way("tpe", modelled=True),
    "model + local": Way("local", modelled=True),
    "TPE alone": Way("tpe"),
    "random": Way("random"),
}


@dataclass(frozen=True)
class Scene:
    """A load, what the page says about it, the memory of its guest, and the names of the searches
    that are compared on it."""

    load: str
    about: str
    memory: str
    ways: tuple[str, ...]


SCENES = {
    # With little memory txgs are short, and so are the waits for them
    "full": Scene(
        FIO.format(bulk="", wal=""),
        "The bulk writer takes what it gets, so the disk is full.",
        "1G",
        ("model + local", "TPE alone", "random"),
    ),
    # What helps is a zfs_dirty_data_max of 16 to 32 MiB, far below the default of this memory
    "paced": Scene(
        FIO.format(bulk="--rate=14m", wal="--rate_iops=4"),
        "The bulk writer writes 14 MiB/s, half of what the disk can do, and each log writer\n"
        "fsyncs four times a second.",
        "4G",
        ("model + TPE", "TPE alone", "random"),
    ),
    # Of an early version, which ended with nothing here in 15 minutes
    "scattered": Scene(
        FIO.format(bulk="--rw=randwrite --bs=64k", wal=""),
        "The bulk writer takes what it gets, in writes of 64 KiB at random places.",
        "2G",
        ("model + local",),
    ),
}
# The command has no option for it, since nobody wants it
WITHOUT_MODEL = "from zfstune.experiment import model; model.candidates = lambda *_: []; "
RUN = "import sys; from zfstune.cli import main; sys.exit(main(sys.argv[1:]))"


def session(scene: str, name: str, seed: str, time_and_block: list[str]) -> Any:
    """What a session found, None without one; all parameters are as before afterwards."""
    print(f"search: {scene}, {name}, seed {seed}", flush=True)
    way = WAYS[name]
    load = subprocess.Popen(SCENES[scene].load, shell=True)
    time.sleep(20)
    program = RUN if way.modelled else WITHOUT_MODEL + RUN
    out = f"/tmp/{way.sampler}-{way.modelled:d}-{seed}"
    try:
        done = subprocess.run(
            [
                *(sys.executable, "-c", program, "tune", "tank", "--observe", "--staging", "--yes"),
                *("--sampler", way.sampler, "--seed", seed, "--out", out, "--no-flame", "--json"),
                *time_and_block,
            ],
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        load.terminate()
        load.wait()
    subprocess.run(["zfstune", "revert"], check=False)
    return json.loads(done.stdout) if done.stdout else None


def main() -> None:
    scene, budget, block, *rest = sys.argv[1:]
    subprocess.run(
        "zpool create -O compression=off -O atime=off tank /dev/vdb && "
        # with 128k, faster fsyncs would take bandwidth from the bulk writer: see demo_guest.sh
        "zfs create tank/bulk && zfs create -o recordsize=8k tank/db",
        shell=True,
        check=True,
    )
    for way, seed in zip(rest[::2], rest[1::2], strict=True):
        found = session(scene, way, seed, ["--budget", budget, "--block", block])
        run = {"scene": scene, "way": way, "seed": int(seed), "budget": budget, "block": block}
        print(RESULT + json.dumps(run | {"session": found}), flush=True)


if __name__ == "__main__":
    main()
