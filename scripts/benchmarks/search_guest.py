"""The part of `make bench-search-lab` in the guest: sessions of `zfstune tune` by each search, on a
disk that the load fills and on one that it does not.

usage: search_guest.py BUDGET BLOCK SEED...

Writes /out/searches.json.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

FIO = (
    "exec fio --output=/dev/null --directory=/tank --fallocate=none --time_based --runtime=86400 "
    "--thread --name=bulk --rw=write --bs=1M --size=1500M {bulk} "
    "--name=wal --rw=write --bs=8k --size=64M --numjobs=8 --fsync=1 {wal}"
)
SCENES = {
    "full": FIO.format(bulk="", wal=""),
    # half of the disk's bandwidth; each writer fsyncs a few times a second
    "paced": FIO.format(bulk="--rate=14m", wal="--rate_iops=4"),
}
# name, sampler, whether the model goes first
WAYS = (
    ("model + TPE", "tpe", True),
    ("model + local", "local", True),
    ("TPE alone", "tpe", False),
    ("random", "random", False),
)
# The command has no option for it, since nobody wants it
WITHOUT_MODEL = "from zfstune.experiment import model; model.candidates = lambda *_: []; "
RUN = "import sys; from zfstune.cli import main; sys.exit(main(sys.argv[1:]))"


def session(scene: str, way: tuple[str, str, bool], seed: int, time_and_block: list[str]) -> Any:
    """What a session found; all parameters are as before afterwards."""
    name, sampler, modelled = way
    print(f"search: {scene}, {name}, seed {seed}", flush=True)
    load = subprocess.Popen(SCENES[scene], shell=True)
    time.sleep(20)
    program = RUN if modelled else WITHOUT_MODEL + RUN
    out = f"/tmp/{scene}-{sampler}-{modelled:d}-{seed}"
    try:
        done = subprocess.run(
            [
                *(sys.executable, "-c", program, "tune", "tank", "--observe", "--staging", "--yes"),
                *("--sampler", sampler, "--seed", str(seed), "--out", out, "--no-flame", "--json"),
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
    found = json.loads(done.stdout) if done.stdout else None
    return {"scene": scene, "way": name, "seed": seed, "session": found}


def main() -> None:
    budget, block, *seeds = sys.argv[1:]
    subprocess.run(
        "zpool create -O compression=off -O atime=off tank /dev/vdb", shell=True, check=True
    )
    runs = []
    for seed in seeds:
        for scene in SCENES:
            for way in WAYS:
                runs.append(session(scene, way, int(seed), ["--budget", budget, "--block", block]))
                Path("/out/searches.json").write_text(json.dumps(runs))


main()
