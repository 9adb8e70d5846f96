#!/usr/bin/env python3
"""Compares searches on a real pool in the lab; writes docs/measurements/search-lab-SCENE.md.

usage: scripts/benchmarks/search_lab.py [--seeds N] [--budget T] [--block T]
                                        [--scene NAME] [--resume]

Each search has sessions of `zfstune tune` of the same time, on some loads (`SCENES` of
search_guest.py), each in a guest of its own. It takes hours. What each session has found is in
build/search-lab/SCENE/searches.json as soon as it has ended, and the page is written when all have.
With --scene there is only one load.
"""

import argparse
import json
import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / part) for part in ("scripts", "tuner", "tracers")]

from benchmarks.search_guest import RESULT, SCENES, WAYS  # noqa: E402
from zfslab.script import run_lab  # noqa: E402

PAGES = ROOT / "docs/measurements"
DATA = ROOT / "build/search-lab"
# where the lab has it from
OPTUNA = ROOT / ".venv/guest/optuna"
DISK = "size=8G,write-bps=30M,write-iops=600"
LIMIT = "72000s"

Run = dict[str, Any]

HEAD = """\
# What a session finds on a real pool, by its search: the load "{scene}"

Written by `make bench-search-lab SEARCH="--scene {scene} --seeds {seeds} {time_and_block}"`
on {date}: {cores} cores, trixie in the lab (emulated where there is no KVM) with {memory} GiB, a
disk of 30 MB/s, eight log writers and a bulk writer (`scripts/benchmarks/search_guest.py`).
{load}
Each search has sessions of {budget} in turns, objective p99 of fsync, default limits. The change is
that of the session's own proof, on fresh blocks; in brackets where the gain or the limits were not
shown beyond doubt.{optuna}

| search | proved | change of p99, each seed | minutes until it was proved |
|---|---|---|---|
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3, help="sessions per search (default 3)")
    parser.add_argument("--budget", default="10m", help="of each (default 10m)")
    parser.add_argument("--block", default="8s", help="length of a block (default 8s)")
    parser.add_argument("--scene", choices=SCENES, help="only this load")
    parser.add_argument("--resume", action="store_true", help="keep the sessions that are there")
    args = parser.parse_args()
    for scene in [args.scene] if args.scene else SCENES:
        status, runs = measure(scene, args)
        if status:
            return status
        text = page(scene, runs, args)
        (PAGES / f"search-lab-{scene}.md").write_text(text, encoding="utf-8")
        print(text)
    return 0


def measure(scene: str, args: argparse.Namespace) -> tuple[int, list[Run]]:
    """The sessions on a load; those that are not there yet in one guest, until one of them or
    Ctrl-C ends it. The first is the exit status."""
    file = DATA / scene / "searches.json"
    runs: list[Run] = json.loads(file.read_text()) if args.resume and file.exists() else []
    todo = missing(scene, runs, args)

    def said(line: str) -> None:
        if not line.startswith(RESULT):
            print(line, end="", flush=True)
            return
        runs.append(json.loads(line[len(RESULT) :]))
        file.parent.mkdir(parents=True, exist_ok=True)
        # whole at any moment
        fresh = file.with_suffix(".new")
        fresh.write_text(json.dumps(runs))
        fresh.replace(file)

    status = 0
    if todo:
        print(f"search: {scene}: {len(todo)} sessions of {args.budget}", flush=True)
        machine = ("--flavour", "trixie", "--disk", DISK, "--memory", SCENES[scene].memory)
        program = ("python3", "/zfstune/scripts/benchmarks/search_guest.py", scene)
        words = [word for way, seed in todo for word in (way, str(seed))]
        time_and_block = (args.budget, args.block)
        status = run_lab(
            *machine, "--timeout", LIMIT, "--", *program, *time_and_block, *words, line=said
        )
    left = len(missing(scene, runs, args))
    if left:
        print(f"search: {scene}: {left} sessions are missing; go on with --resume", file=sys.stderr)
    return status or int(left > 0), [run for run in runs if asked(run, args)]


def missing(scene: str, runs: Sequence[Run], args: argparse.Namespace) -> list[tuple[str, int]]:
    """The searches and seeds of the sessions that are not among the runs, in turns."""
    there = {(run["way"], run["seed"]) for run in runs if asked(run, args)}
    every = [(way, seed) for seed in range(1, args.seeds + 1) for way in ways(scene)]
    return [one for one in every if one not in there]


def asked(run: Run, args: argparse.Namespace) -> bool:
    """Whether this is one of the sessions that were asked for."""
    same = (run["budget"], run["block"]) == (args.budget, args.block)
    return same and run["seed"] <= args.seeds and run["way"] in ways(run["scene"])


def ways(scene: str) -> list[str]:
    """The searches that the guest can do."""
    return [way for way in SCENES[scene].ways if WAYS[way].sampler != "tpe" or OPTUNA.exists()]


def page(scene: str, runs: Sequence[Run], args: argparse.Namespace) -> str:
    # of the sessions: the page may be written again later
    ended = [run["session"]["ended"] for run in runs if run["session"]]
    left_out = "" if OPTUNA.exists() else " Without TPE: there was no optuna in the guest."
    text = HEAD.format(
        date=max(ended)[:10] if ended else "a day without a session",
        cores=os.cpu_count(),
        scene=scene,
        load=SCENES[scene].about,
        memory=SCENES[scene].memory[:-1],
        seeds=args.seeds,
        budget=args.budget,
        time_and_block=f"--budget {args.budget} --block {args.block}",
        optuna=left_out,
    )
    for way in ways(scene):
        text += row(way, [run["session"] for run in runs if run["way"] == way])
    return text + values(runs) + reasons(runs)


def row(way: str, each: Sequence[Any]) -> str:
    """A search, of its sessions."""
    proved = [one for one in each if one and one["in_force"]]
    shown = [change(one) for one in each]
    minutes = [end_s(one) / 60 for one in proved]
    middle = f"{statistics.median(minutes):.1f}" if minutes else "-"
    count = f"{len(proved)} of {len(each)}"
    return f"| {way} | {count} | {', '.join(shown)} | {middle} |\n"


def change(session: Any) -> str:
    """That of the last proof, in brackets if it was not proved."""
    if not (session and session["verdict"]):
        return "-"
    text = f"{session['verdict']['change']:+.0%}"
    return text if session["in_force"] else f"({text})"


def end_s(session: Any) -> float:
    """When the proof ended."""
    blocks = [one for one in session["blocks"] if one["phase"] == "confirm"]
    return float(blocks[-1]["start_s"] + blocks[-1]["seconds"])


def values(runs: Sequence[Run]) -> str:
    """What was in force at the end, so that the page can be judged without its raw data."""
    text = "\nThe values that were proved:\n\n| search | seed | values |\n|---|---|---|\n"
    for run in runs:
        one = run["session"]
        if one and one["in_force"]:
            said = ", ".join(f"{name} {value}" for name, value in one["winner"].items())
            text += f"| {run['way']} | {run['seed']} | {said} |\n"
    return text


def reasons(runs: Sequence[Run]) -> str:
    """Why nothing is in force after the others, as they said."""
    rows = [
        f"| {run['way']} | {run['seed']} | {one['note'] or ''} |\n"
        for run in runs
        if (one := run["session"]) and not one["in_force"]
    ]
    head = "\nWhy the others put nothing in force:\n\n| search | seed | reason |\n|---|---|---|\n"
    return head + "".join(rows) if rows else ""


if __name__ == "__main__":
    sys.exit(main())
