"""The part of `make bench-search-lab` in the guest: trials of searches on a real pool, with a bulk
writer and three log writers on a slow disk.

usage: search_guest.py TRIALS SEED... (TRIALS for each search and seed)

Writes /out/searches.json.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from zfs_linux.host import LinuxHost
from zfstrace.types import FsyncOptions, Json
from zfstune.changes.session import ChangeSession
from zfstune.changes.state_dir import Places
from zfstune.experiment import model
from zfstune.experiment.blocks import BlockMeter
from zfstune.experiment.guardrails import Guardrails
from zfstune.experiment.model import measured
from zfstune.experiment.objective import Limit, Objective
from zfstune.experiment.phases import Found, Task, Tuning
from zfstune.experiment.runner import Abort, BlockPlan, Experiment, Record
from zfstune.experiment.search import Exhausted, Searcher
from zfstune.experiment.space import Space
from zfstune.term.progress import Progress
from zfstune.term.signals import Stop
from zfstune.term.units import SECOND
from zfstune.tunables import catalogue, guard

POOL = "tank"
LOAD = (
    "exec fio --output=/dev/null --directory=/tank --fallocate=none --time_based --runtime=86400 "
    "--name=bulk --rw=write --bs=1M --size=1500M "
    "--name=wal --rw=write --bs=8k --size=64M --numjobs=3 --fsync=1"
)
OBJECTIVE, LIMITS = "fsync.p99", ("write.throughput>=-5%",)
PLAN = BlockPlan(seconds=8, min_fsyncs=20)
# name, sampler, whether the model goes first
WAYS = (
    ("model + local", "local", True),
    ("model + TPE", "tpe", True),
    ("local alone", "local", False),
    ("TPE alone", "tpe", False),
    ("random", "random", False),
    ("grid", "grid", False),
)


def trials(host: LinuxHost, way: tuple[str, str, bool], seed: int, most: int, stop: Stop) -> Json:
    """One search on the loaded pool, after which parameters have their previous values."""
    name, sampler, modelled = way
    params = host.parameters()
    current = {n: v for n in params.names() if (v := params.read(n)) is not None}
    facts = guard.facts(host)
    space = Space(catalogue.default_set(), current, facts, slog=False)
    progress = Progress(sys.stderr, stop.now() + 86400 * SECOND)
    progress.line(f"{name}, seed {seed}")
    baseline = {n: current[n] for n in space.parameters()}
    steps: list[Json] = []
    where = Places(Path("/tmp/bench-state"), Path("/tmp/bench-run"))
    with ChangeSession(host, "bench", list(baseline), progress.line, where) as session:
        fsyncs = host.open_fsync_trace(FsyncOptions(pool=POOL))
        watch = Guardrails(host, POOL, stop.now, None)

        def intact() -> None:
            if not session.alive():  # also tells the supervisor that we are alive
                raise Abort("the supervising process was killed or stopped")

        watch.checks.append(intact)
        experiment = Experiment(
            host,
            POOL,
            BlockMeter(host, POOL, fsyncs),
            PLAN,
            session.apply,
            watch,
            stop,
            progress,
            stop.now(),
        )
        task = Task(
            Objective.parse(OBJECTIVE),
            [Limit.parse(text) for text in LIMITS],
            0.05,
            seed,
            stop.now() + 600 * SECOND,  # as many blocks of noise as in a session of ten minutes
            0.0,
            True,
        )
        found = Found()

        def look(records: Sequence[Record]) -> Searcher:
            known = measured(records, False, 1)
            first = (
                model.candidates(known, current, facts, catalogue.default_set()) if modelled else ()
            )
            return Searcher(space, current, facts, first=first, sampler=sampler, seed=seed)

        tuning = Tuning(task, experiment, baseline, look, lambda _best: (), progress, found)
        tuning.noise()
        start = experiment.now_s()
        searcher = look(experiment.records)
        while len(steps) < most:
            try:
                candidate = searcher.ask()
            except Exhausted:
                break
            trial = tuning.trial(len(steps) + 1, candidate)
            if trial.score is None:
                searcher.fail(candidate, trial.note or "")
            else:
                searcher.tell(candidate, trial.score)
            steps.append(
                {
                    "seconds": experiment.now_s() - start,
                    "score": trial.score,
                    "change": trial.change,
                    "note": trial.note,
                    "values": candidate.values,
                }
            )
        fsyncs.close()
    return {"name": name, "seed": seed, "noise": found.aa, "steps": steps}


def main() -> None:
    most, seeds = int(sys.argv[1]), [int(word) for word in sys.argv[2:]]
    subprocess.run(
        "zpool create -O compression=off -O atime=off tank /dev/vdb", shell=True, check=True
    )
    load = subprocess.Popen(LOAD, shell=True)
    time.sleep(20)
    runs: list[Json] = []
    with Stop(sys.stderr) as stop:
        for seed in seeds:
            for way in WAYS:
                runs.append(trials(LinuxHost(), way, seed, most, stop))
                Path("/out/searches.json").write_text(json.dumps(runs, indent=1))
    load.kill()
    os.sync()


main()
