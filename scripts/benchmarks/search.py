#!/usr/bin/env python3
"""Compares searches on simulated machines and loads; writes docs/measurements/search.md.

usage: scripts/benchmarks/search.py [--seeds N] [--minutes M] [--scenes NAME,...]
                                    [--searches NAME,...] [--resume]

Each search has whole sessions of `zfstune tune`, with noise, race, proofs and soak, whose blocks
are simulated (tests/support/simulator). They are judged by what they leave in force, and by what
that does in truth, which many more simulated minutes tell. What each session has found is in
build/search.jsonl as soon as it has ended; --resume is for sessions of the same code.
"""

import argparse
import datetime
import functools
import itertools
import json
import math
import os
import platform
import signal
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / part) for part in ("scripts", "tuner", "tracers", "tests")]

from support.simulator import scenes, session  # noqa: E402
from support.simulator.write_path import DEFAULTS  # noqa: E402

from zfstune.errors import NotPossible  # noqa: E402

PAGE = ROOT / "docs/measurements/search.md"
DATA = ROOT / "build/search.jsonl"
# a loss of throughput beyond the limit of 5 %, and the error of the truth
REALLY_LEAST = math.log(0.94)
# by which the longest write and fsync may grow
REALLY_LONGER_NS = 1e9
# runs for the truth of values
TRUTH_SEEDS, TRUTH_S, SETTLE_S = range(1000, 1004), 60.0, 10.0

HEAD = """\
# What a session finds, by its search

Written by `make bench-search{options}` on {date}. Only the time that a
search takes itself depends on the machine: {cores} cores of {cpu}, Python {python}.

Whole sessions of {minutes:.0f} minutes on simulated machines and loads (`tests/support/simulator`;
[search.md](../search.md) compares the simulator with the lab), {seeds} seeds each, objective p99 of
fsync, default limits. A cell is the mean regret: the log of the p99 that the values in force at the
end really have, against the best that is known of any search; 0.1 is a p99 10 % higher than it
could be. No gain are values that really cost more than 6 % of the throughput, and those that move
the wait from fsync(2) into the write(2) before it: under which the longest of both together takes a
second more. The truth of values is determined by {truth:.0f} simulated minutes.

"""

_IGNORED = (signal.SIGINT, signal.SIG_IGN)

SECTIONS = {
    "Scenes that the search was written with": scenes.SEEN,
    "Scenes added afterwards": scenes.UNSEEN,
}

Values = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Way:
    """A search: its name in the table, its sampler, and whether the model's candidates go first."""

    name: str
    sampler: str
    modelled: bool = False


# A search, a scene and a seed
Job = tuple[Way, str, int]

WAYS = (
    Way("model + local", "local", modelled=True),
    Way("model + TPE", "tpe", modelled=True),
    Way("local alone", "local"),
    Way("TPE alone", "tpe"),
    Way("random", "random"),
)


@dataclass(frozen=True)
class Run:
    """A session: the values in force at its end, the seconds until they were proved (None without
    a proof), and all of its seconds, simulated and own."""

    values: Values
    proved_s: float | None
    seconds: float
    own_s: float

    def __post_init__(self) -> None:
        # JSON has lists
        object.__setattr__(self, "values", tuple((name, value) for name, value in self.values))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=8, help="sessions per search (default: 8)")
    parser.add_argument("--minutes", type=float, default=60.0, help="budget (default: 60)")
    parser.add_argument("--scenes", help="names of scenes (default: all)")
    parser.add_argument("--searches", help="names of searches to compare (default: all)")
    parser.add_argument("--resume", action="store_true", help="keep the sessions that are there")
    args = parser.parse_args()
    if not args.resume:
        DATA.unlink(missing_ok=True)
    ways = [way for way in WAYS if way.name in (args.searches or way.name).split(",")]
    text = head(args.seeds, args.minutes)
    # Ctrl-C is for this process, which lets the others end what they have begun
    with ProcessPoolExecutor(initializer=signal.signal, initargs=_IGNORED) as pool:
        for title, every in SECTIONS.items():
            names = [name for name in every if name in (args.scenes or name).split(",")]
            if not names:
                continue
            jobs = list(itertools.product(ways, names, range(args.seeds)))
            runs = dict(zip(jobs, sessions(pool, jobs, args.minutes), strict=True))
            known = sorted({(name, runs[way, name, seed].values) for way, name, seed in jobs})
            known += [(name, values) for name in names for values in singles()]
            truths = dict(zip(known, pool.map(truth, *zip(*known, strict=True)), strict=True))
            found = f"## {title}\n\n{table(names, ways, runs, truths)}\n"
            print(found, flush=True)
            text += found
    if not args.scenes and not args.searches:
        PAGE.write_text(text, encoding="utf-8")
    return 0


def sessions(pool: ProcessPoolExecutor, jobs: Sequence[Job], minutes: float) -> list[Run]:
    """What each of them finds; those that are recorded do not run again."""
    lines = DATA.read_text(encoding="utf-8").splitlines() if DATA.exists() else []
    there = {key: Run(**found) for key, found in map(json.loads, lines)}
    todo = [job for job in jobs if key_of(job, minutes) not in there]
    DATA.parent.mkdir(exist_ok=True)
    with DATA.open("a", encoding="utf-8") as file:
        one = functools.partial(run, minutes=minutes)
        done = pool.map(one, *zip(*todo, strict=True)) if todo else ()
        for job, found in zip(todo, done, strict=True):
            key = key_of(job, minutes)
            there[key] = found
            print(json.dumps([key, asdict(found)]), file=file, flush=True)
    return [there[key_of(job, minutes)] for job in jobs]


def key_of(job: Job, minutes: float) -> str:
    way, name, seed = job
    return f"{way.name}, {name}, {seed}, {minutes:g}"


def run(way: Way, name: str, seed: int, *, minutes: float) -> Run:
    begin = time.perf_counter()
    try:
        found, experiment = session.tune(
            scene(name),
            seed,
            budget_s=60 * minutes,
            sampler=way.sampler,
            modelled=way.modelled,
        )
    except NotPossible:
        return Run((), None, 0.0, time.perf_counter() - begin)
    winner = found.winner.values if found.accepted and found.winner else {}
    proved_s = found.first_s if found.accepted else None
    own = time.perf_counter() - begin
    return Run(tuple(sorted(winner.items())), proved_s, experiment.now_s(), own)


def scene(name: str) -> scenes.Scene:
    return {**scenes.SEEN, **scenes.UNSEEN}[name]


def singles() -> Iterable[Values]:
    """Each lever alone, so that the best that is known does not depend on the searches alone."""
    for depth in (1, 2, 3, 5):
        yield (
            ("zfs_vdev_async_write_max_active", depth),
            ("zfs_vdev_async_write_min_active", 1),
        )
    for mib in (16, 32, 64, 128):
        yield (("zfs_dirty_data_max", mib << 20), ("zfs_wrlog_data_max", mib << 21))


@dataclass(frozen=True)
class Truth:
    """What values really do, against the baseline: the log ratios of p99 and of the throughput, and
    by how much longer the longest write and fsync is, in ns."""

    p99: float = 0.0
    throughput: float = 0.0
    longer_ns: float = 0.0


def truth(name: str, values: Values) -> Truth:
    pairs = [(truth_of(name, (), seed), truth_of(name, values, seed)) for seed in TRUTH_SEEDS]
    before, after = (max(one[k].get("commit.max", 0.0) for one in pairs) for k in (0, 1))
    return Truth(
        statistics.fmean(ratio("fsync.p99", a, b) for a, b in pairs),
        statistics.fmean(ratio("write.throughput", a, b) for a, b in pairs),
        after - before,
    )


@functools.cache
def truth_of(name: str, values: Values, seed: int) -> dict[str, float]:
    path = scene(name).path(seed)
    return path.block({**DEFAULTS, **dict(values)}, TRUTH_S, SETTLE_S)


def ratio(name: str, a: dict[str, float], b: dict[str, float]) -> float:
    """log(B/A); of a metric that both lack 0."""
    if not a.get(name) and not b.get(name):
        return 0.0
    return math.log(b[name] / a[name]) if a.get(name) and b.get(name) else math.inf


Truths = dict[tuple[str, Values], Truth]
Runs = dict[tuple[Way, str, int], Run]


def gain(truths: Truths, name: str, values: Values) -> float:
    """The real log ratio of p99, negative for a gain; 0 if it costs too much for one."""
    found = truths[name, values] if values else Truth()
    fair = found.throughput >= REALLY_LEAST and found.longer_ns <= REALLY_LONGER_NS
    return found.p99 if fair else 0.0


def table(names: Sequence[str], ways: Sequence[Way], runs: Runs, truths: Truths) -> str:
    best = {
        name: min([0.0, *(gain(truths, name, values) for one, values in truths if one == name)])
        for name in names
    }
    rows = [
        ["search", *names, "mean", "worst p99", "throughput lost", "proved", "first proof", "own"],
        ["---"] * (len(names) + 7),
        ["(best known p99)", *(f"{math.expm1(best[name]):+.0%}" for name in names), *[""] * 6],
    ]
    for way in ways:
        each = {
            name: [r for (w, n, _), r in runs.items() if (w, n) == (way, name)] for name in names
        }
        gains = {name: [gain(truths, name, r.values) for r in each[name]] for name in names}
        regrets = [statistics.fmean(gains[name]) - best[name] for name in names]
        every = [(name, r) for name in names for r in each[name]]
        losses = [truths[name, r.values].throughput for name, r in every if r.values]
        worst = max(truths[name, r.values].p99 if r.values else 0.0 for name, r in every)
        proved = [r.proved_s for _, r in every if r.proved_s is not None]
        rows.append(
            [
                way.name,
                *(f"{regret:.2f}" for regret in regrets),
                f"**{statistics.fmean(regrets):.2f}**",
                f"{math.expm1(worst):+.0%}",
                f"{sum(loss < REALLY_LEAST for loss in losses)} of {len(every)}",
                f"{len(proved)} of {len(every)}",
                f"{statistics.median(proved) / 60:.1f} min" if proved else "",
                f"{statistics.median(r.own_s for _, r in every):.1f} s",
            ]
        )
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def head(seeds: int, minutes: float) -> str:
    words = " ".join(
        f"'{word}'" if " " in word else word for word in sys.argv[1:] if word != "--resume"
    )
    return HEAD.format(
        options=f' SEARCH="{words}"' if words else "",
        date=datetime.date.today().isoformat(),
        cores=os.cpu_count(),
        cpu=host_cpu(),
        python=platform.python_version(),
        minutes=minutes,
        truth=len(TRUTH_SEEDS) * TRUTH_S / 60,
        seeds=seeds,
    )


def host_cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "an unknown CPU"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("\nbench: interrupted; SEARCH=--resume goes on")
