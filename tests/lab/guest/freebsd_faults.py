"""Scenario: the rounds of the scenario faults, on FreeBSD.

freebsd_faults.py ROUNDS|KIND,KIND,... [SEED]
"""

from __future__ import annotations

import random
import sys
import time

import faults
from labkit import Json, finish, progress, sh


def dtrace() -> str:
    """The processes of dtrace(1) that do not end within a minute."""
    end = time.monotonic() + 60
    while (left := sh("pgrep -fl '^dtrace'", check=False)) and time.monotonic() < end:
        time.sleep(0.5)
    return left


def main() -> None:
    what = sys.argv[1]
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(1 << 30)
    rng = random.Random(seed)
    plan = faults.schedule(int(what), rng) if what.isdigit() else what.split(",")
    progress(f"{len(plan)} rounds, seed {seed}")
    results: Json = {"seed": seed}
    faults.play_all(results, plan, rng)
    results["left"] = dtrace()
    finish(results)


main()
