#!/usr/bin/env python3
"""Compares searches on the write path simulator; writes docs/measurements/search.md.

usage: scripts/benchmarks/search.py [--seeds N] [--trials N] [--searches NAME,...]
       scripts/benchmarks/search.py --lab [--seeds N] [--trials N]

Each search has the same trials as a session of `zfstune tune` (A B B A in blocks of 20 s), in the
lab's scenario: a bulk writer and a log writer on a disk of 30 MiB/s. With --lab, the trials run in
the lab, about two minutes each, and the page is docs/measurements/search-lab.md.
"""

import argparse
import datetime
import functools
import json
import math
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / part) for part in ("scripts", "tuner", "tracers", "tests")]

from support.simulator.device import Device  # noqa: E402
from support.simulator.write_path import DEFAULTS, WritePath  # noqa: E402

from zfslab.script import run_lab  # noqa: E402
from zfstune.experiment import model  # noqa: E402
from zfstune.experiment.search import Exhausted, Searcher  # noqa: E402
from zfstune.experiment.space import Space  # noqa: E402
from zfstune.tunables import catalogue, guard  # noqa: E402

PAGE = ROOT / "docs/measurements/search.md"
SEARCHED = catalogue.default_set()
FACTS = guard.Facts(4 << 30, 128 << 20, 3 << 30)
BLOCK, SETTLE = 20.0, 10.0
GOAL = 0.9
# as in a session: a candidate is given up if its first pair is this much worse ...
HOPELESS = math.log(1.3)
# ... and is not taken if it costs more throughput than this (scored as by phases.Tuning)
LEAST_THROUGHPUT, PENALTY = math.log(0.95), 1.0
LEAST_NOISE = 0.01
REALLY_LEAST = math.log(0.94)
# runs for the real effect of a candidate
TRUTH_SEEDS, TRUTH_SECONDS = range(1000, 1008), 100.0

HEAD = """\
# How fast a search finds better values

Written by `make bench-search{options}` on {date}. Only the last column, the time of
the search itself per trial, depends on the machine:
{cores} cores of {cpu}, Python {python}.

On the simulator of the write path (`tests/support/simulator`; [search.md](../search.md) compares it
with the lab): one bulk writer and one log writer on a disk of 30 MiB/s, {knobs} parameters, the
objective p99 of fsync, at most 5 % less throughput. A trial is A B B A, four blocks of {block:g} s
with {settle:g} s to settle after each change; a trial with a hopeless first pair ends there.

A search gets there when its best candidate so far, by the noisy scores that it sees, really has
{goal:.0%} of the best known gain of log p99. The real effect of a candidate is determined by
{truth} simulated minutes; a real loss of more than 6 % of the throughput counts as no gain. {seeds}
seeds, {trials} trials each; median, smallest and largest; a run that does not get there counts as
longer than any.
"""

LAB_PAGE = ROOT / "docs/measurements/search-lab.md"
LAB_DISK = "size=8G,write-bps=30M,write-iops=600"
LAB_HEAD = """\
# How fast a search finds better values on a real pool

Written by `make bench-search-lab SEARCH="--seeds {seeds} --trials {trials}"` on {date}:
{cores} cores of {cpu}, trixie in the lab (emulated where there is no KVM), a disk of 30 MB/s, one
bulk writer and three log writers (`scripts/benchmarks/search_guest.py`). {trials} trials each, of
four blocks of 8 s (A B B A) and the waits between them.

A search gets there when one of its trials has {goal:.0%} of the best score of any trial: the log
ratio of p99, reduced for throughput below -5 % as far as noise allows. Trials are noisy: this shows
when a candidate was first worth a proof. The best one showed p99 {best:+.0%}, by

    {values}

| search | trials | time | got there | best shown (median) |
|---|---|---|---|---|
"""

TABLE = """
## {title}

Best known: p99 {best:.0%} lower, by

    {best_values}

| search | trials | simulated time | got there | gain after 1 / 5 / 10 / {trials} | own time |
|---|---|---|---|---|---|
"""

# disturbances by the disk's host
HOSTS = {
    "On an undisturbed machine (0.1 stalls of 0.1 s per second)": Device(stalls_per_s=0.1),
    "On a disturbed machine (0.5 stalls of 0.1 s per second)": Device(stalls_per_s=0.5),
}


Values = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Way:
    """A search: its name in the table, its sampler, and whether the model goes first."""

    name: str
    sampler: str
    modelled: bool = False


WAYS = (
    Way("model + local", "local", modelled=True),
    Way("model + TPE", "tpe", modelled=True),
    Way("local alone", "local"),
    Way("TPE alone", "tpe"),
    Way("random", "random"),
    Way("grid", "grid"),
)


@dataclass(frozen=True)
class Step:
    """After a trial: simulated seconds since the start, and the best values so far by score."""

    seconds: float
    best: Values


@dataclass(frozen=True)
class Run:
    steps: list[Step]
    own_seconds: float


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--lab", action="store_true", help="on a real pool in a virtual machine")
    parser.add_argument("--seeds", type=int, help="runs per search (default: 27, with --lab 3)")
    parser.add_argument("--trials", type=int, help="trials per run (default: 30, with --lab 8)")
    parser.add_argument("--searches", help="names of searches to compare (default: all)")
    args = parser.parse_args()
    ways = [way for way in WAYS if way.name in (args.searches or way.name).split(",")]
    args.seeds = args.seeds or (3 if args.lab else 27)
    args.trials = args.trials or (8 if args.lab else 30)
    if args.lab:
        return lab(args.seeds, args.trials)
    if args.seeds < 3 or args.trials < 10:
        parser.error("use at least 3 seeds and 10 trials: fewer show nothing")
    text = head(args.seeds, args.trials)
    for title, device in HOSTS.items():
        runs: dict[str, list[Run]] = {}
        with ProcessPoolExecutor() as pool:
            for way in ways:
                print(f"bench: {title}: {way.name}", file=sys.stderr)
                one = functools.partial(search, way, device, trials=args.trials)
                runs[way.name] = list(pool.map(one, range(args.seeds)))
            known = {step.best for each in runs.values() for run in each for step in run.steps}
            true = functools.partial(truth, device)
            truths = dict(zip(known, pool.map(true, known), strict=True))
        found = table(title, runs, truths, args.trials)
        print(found, flush=True)
        text += found
    PAGE.write_text(text, encoding="utf-8")
    return 0


def lab(seeds: int, trials: int) -> int:
    """The same on a real pool, where the measured scores tell whether the goal is reached. Returns
    the exit status."""
    with tempfile.TemporaryDirectory() as out:
        limit = f"{600 + seeds * trials * 4 * 240}s"
        machine = ("--flavour", "trixie", "--disk", LAB_DISK, "--out", out, "--timeout", limit)
        program = ("python3", "/zfstune/scripts/benchmarks/search_guest.py", str(trials))
        status = run_lab(*machine, "--", *program, *map(str, range(1, seeds + 1)))
        found = Path(out) / "searches.json"
        if not found.exists():
            return status or 1
        runs = json.loads(found.read_text())
    text = lab_page(runs, seeds, trials)
    LAB_PAGE.write_text(text, encoding="utf-8")
    print(text)
    return status


def lab_page(runs: list[Any], seeds: int, trials: int) -> str:
    steps = [step for run in runs for step in run["steps"] if step["score"] is not None]
    best = min(steps, key=lambda step: step["score"])
    text = LAB_HEAD.format(
        date=datetime.date.today().isoformat(),
        cores=os.cpu_count(),
        cpu=host_cpu(),
        seeds=seeds,
        trials=trials,
        goal=GOAL,
        best=best["change"],
        values="\n    ".join(f"{name}={value}" for name, value in best["values"].items()),
    )
    for name in dict.fromkeys(run["name"] for run in runs):
        each = [run["steps"] for run in runs if run["name"] == name]
        reached = [lab_reached(one, GOAL * best["score"]) for one in each]
        count = spread([number for number, _ in reached], trials, "{:.0f}")
        last = max(one[-1]["seconds"] for one in each) / 60
        minutes = spread([seconds / 60 for _, seconds in reached], last, "{:.0f} min")
        got = sum(math.isfinite(number) for number, _ in reached)
        gains = statistics.median(
            min((step["change"] for step in one if (step["score"] or 0.0) < 0), default=0.0)
            for one in each
        )
        text += f"| {name} | {count} | {minutes} | {got} of {len(each)} | {gains:+.0%} |\n"
    return text + lab_trials(runs)


def lab_trials(runs: list[Any]) -> str:
    """The result of each trial, so that the page can be judged without its raw data."""
    text = "\nEach trial, p99 against the values in force; * missed the limit of throughput:\n\n"
    text += "| search | seed | trials |\n|---|---|---|\n"
    for run in runs:
        shown = (
            "-" if step["change"] is None else f"{step['change']:+.0%}{' *' * bool(step['note'])}"
            for step in run["steps"]
        )
        text += f"| {run['name']} | {run['seed']} | {', '.join(shown)} |\n"
    return text


def lab_reached(steps: list[Any], goal: float) -> tuple[float, float]:
    for number, step in enumerate(steps, 1):
        if step["score"] is not None and step["score"] <= goal:
            return number, step["seconds"]
    return math.inf, math.inf


def search(way: Way, device: Device, seed: int, trials: int) -> Run:
    """A session: the baseline, then one trial after the other."""
    path = WritePath(device=device, seed=seed)
    path.run(SETTLE)
    baseline = [path.run(BLOCK) for _ in range(8)]
    pairs = zip(baseline[::2], baseline[1::2], strict=True)
    squares = [ratio("write.throughput", a, b) ** 2 for a, b in pairs]
    noise = max(LEAST_NOISE, 2 * math.sqrt(statistics.fmean(squares) / 2))
    space = Space(SEARCHED, DEFAULTS, FACTS, slog=False)
    first = model.candidates(measured(baseline), DEFAULTS, FACTS, SEARCHED) if way.modelled else []
    own = time.perf_counter()
    searcher = Searcher(space, DEFAULTS, FACTS, first=first, sampler=way.sampler, seed=seed)
    own, steps = time.perf_counter() - own, list[Step]()
    while len(steps) < trials:
        before = time.perf_counter()
        try:
            candidate = searcher.ask()
        except Exhausted:
            break
        own += time.perf_counter() - before
        score = trial(path, candidate.values, noise)
        before = time.perf_counter()
        searcher.tell(candidate, score)
        best = searcher.best()
        own += time.perf_counter() - before
        # a candidate that looks worse than the baseline is not taken
        values = best[0].values if best and best[1] < 0 else {}
        steps.append(Step(path.now, tuple(sorted(values.items()))))
    return Run(steps, own)


def measured(blocks: Sequence[dict[str, float]]) -> model.Measured:
    def median(name: str) -> float:
        return statistics.median(block.get(name, 0.0) for block in blocks)

    return model.Measured(
        bandwidth=median("txg.bandwidth"),
        sync_ns=round(median("txg.sync")),
        dirty_bytes=round(median("txg.dirty")),
        fsync_p50_ns=round(median("fsync.p50")),
        fsync_p99_ns=round(median("fsync.p99")),
    )


def trial(path: WritePath, values: dict[str, int], noise: float) -> float:
    """The score by A B B A: the mean log ratio, raised for lost throughput as far as it exceeds
    noise."""
    candidate = {**DEFAULTS, **values}
    before = path.run(BLOCK)
    inner = path.block(candidate, BLOCK, SETTLE)
    ratios = [ratio("fsync.p99", before, inner)]
    throughput = [ratio("write.throughput", before, inner)]
    if ratios[0] < HOPELESS:
        inner = path.run(BLOCK)
        after = path.block(DEFAULTS, BLOCK, SETTLE)
        ratios.append(ratio("fsync.p99", after, inner))
        throughput.append(ratio("write.throughput", after, inner))
    else:
        path.block(DEFAULTS, 1.0, SETTLE)
    missed = max(0.0, LEAST_THROUGHPUT - statistics.fmean(throughput))
    sure = min(1.0, missed / noise)
    return (1 - sure) * statistics.fmean(ratios) + sure * (PENALTY + min(missed, 1.0))


def ratio(name: str, a: dict[str, float], b: dict[str, float]) -> float:
    """log(B/A); a block without an fsync counts as bad."""
    if not a.get(name) or not b.get(name):
        return PENALTY
    return math.log(b[name] / a[name])


@functools.cache
def truth(device: Device, values: Values) -> float:
    """The real log ratio of p99 to the baseline, negative for a gain; 0 if it costs too much
    throughput."""
    if not values:
        return 0.0
    pairs = [(truth_of(device, (), s), truth_of(device, values, s)) for s in TRUTH_SEEDS]
    if statistics.fmean(ratio("write.throughput", a, b) for a, b in pairs) < REALLY_LEAST:
        return 0.0
    return statistics.fmean(ratio("fsync.p99", a, b) for a, b in pairs)


@functools.cache
def truth_of(device: Device, values: Values, seed: int) -> dict[str, float]:
    path = WritePath(device=device, parameters=dict(values), seed=seed)
    return path.block(dict(values), TRUTH_SECONDS, SETTLE)


def head(seeds: int, trials: int) -> str:
    words = " ".join(f"'{word}'" if " " in word else word for word in sys.argv[1:])
    return HEAD.format(
        options=f' SEARCH="{words}"' if words else "",
        date=datetime.date.today().isoformat(),
        cores=os.cpu_count(),
        cpu=host_cpu(),
        python=platform.python_version(),
        knobs=len(Space(SEARCHED, DEFAULTS, FACTS, slog=False).knobs),
        block=BLOCK,
        settle=SETTLE,
        goal=GOAL,
        truth=round(len(TRUTH_SEEDS) * TRUTH_SECONDS / 60),
        seeds=seeds,
        trials=trials,
    )


def table(title: str, runs: dict[str, list[Run]], truths: dict[Values, float], trials: int) -> str:
    true = truths.__getitem__
    best = min(truths, key=true)
    text = TABLE.format(
        title=title,
        trials=trials,
        best=1 - math.exp(true(best)),
        best_values="\n    ".join(f"{name}={value}" for name, value in best),
    )
    for name, each in runs.items():
        reached = [when(run, true, GOAL * true(best)) for run in each]
        count = spread([number for number, _ in reached], trials, "{:.0f}")
        last = max(run.steps[-1].seconds for run in each) / 60
        minutes = spread([seconds / 60 for _, seconds in reached], last, "{:.0f} min")
        got = sum(math.isfinite(number) for number, _ in reached)
        gains = " / ".join(f"{gain(each, true, after):.0%}" for after in (1, 5, 10, trials))
        own = statistics.median(run.own_seconds / len(run.steps) for run in each)
        text += f"| {name} | {count} | {minutes} | {got} of {len(each)} | {gains} "
        text += f"| {own * 1e3:.0f} ms |\n"
    return text


def when(run: Run, true: Callable[[Values], float], goal: float) -> tuple[float, float]:
    """Trials and simulated seconds until the best so far really has the gain; inf if never."""
    for number, step in enumerate(run.steps, 1):
        if true(step.best) <= goal:
            return number, step.seconds
    return math.inf, math.inf


def gain(runs: Sequence[Run], true: Callable[[Values], float], after: int) -> float:
    """The median real gain in p99 of the best values after that many trials."""
    bests = (run.steps[min(after, len(run.steps)) - 1].best for run in runs)
    return 1 - math.exp(statistics.median(true(best) for best in bests))


def spread(values: Sequence[float], most: float, form: str) -> str:
    def show(value: float) -> str:
        return form.format(value) if math.isfinite(value) else f"> {form.format(most)}"

    return f"**{show(statistics.median(values))}** ({show(min(values))} - {show(max(values))})"


def host_cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "an unknown CPU"


if __name__ == "__main__":
    sys.exit(main())
