"""Scenario: sessions that die, stop, are disturbed or find a state disk that is full, frozen or
broken, at random moments; after each round the parameters, and what is in force for them, must be
as before, or as the administrator has set them.

faults.py ROUNDS [SEED [KIND ...]]: of all kinds, or only of these
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import faults_state
import faults_stopped
from faults_round import Round
from faults_session import ADMIN, WHERE, Child, Stderr, reset, values
from faults_state import SILENT_S
from faults_system import SYSTEM, Values
from labkit import Json, finish, make_pool, progress, run, sh
from state_disk import StateDisk
from zfstrace.host import Host
from zfstune.changes.lock import Busy, Lock
from zfstune.host import open_host
from zfstune.tunables import guard, planner


def killed(r: Round) -> None:
    r.pause()
    os.kill(r.child.pid, signal.SIGKILL)
    r.child.wait()
    r.wait_free()


def killed_both(r: Round) -> None:
    r.pause()
    r.kill_both()
    r.facts["left"] = values(r.host) != r.original
    r.recover()


def signalled(number: signal.Signals) -> Callable[[Round], None]:
    def case(r: Round) -> None:
        r.pause()
        os.kill(r.child.pid, number)
        r.must_end()
        r.wait_free()

    return case


def supervisor_killed(r: Round) -> None:
    r.ready()
    r.pause()
    pid, start = r.child.supervisor, time.monotonic()
    assert pid
    os.kill(pid, signal.SIGKILL)
    r.child.wait()
    for line in r.child.found("noticed"):
        r.facts["noticed_s"] = line["noticed"] - r.child.free_at(start)
    r.facts["error"] = [line["error"] for line in r.child.found("error")]


def administrator(r: Round) -> None:
    """Sets a parameter in the middle; then the session ends in some way."""
    r.ready()
    r.pause()
    name = r.rng.choice(sorted(ADMIN))
    value = ADMIN[name]
    if r.rng.random() < 0.5:
        SYSTEM.set(name, value)
        pid, start = os.getpid(), time.monotonic()
    else:
        program = subprocess.Popen(SYSTEM.setting(name, value))
        pid = program.pid
        program.wait()
        start = time.monotonic()
    told = r.child.listen_for("override", 30)
    seen = next((o for o in r.child.found("override") if o["override"] == name), None)
    r.facts |= {"name": name, "told": told, "override": seen}
    if seen:
        said = [one for one in r.child.found("said") if one["said"].startswith(f"{name} was ")]
        r.child.listen(0.2)
        told_s = said[0]["time"] - start
        r.facts |= {"told_s": told_s, "pid_right": seen["pid"] == pid}
        r.facts["told_after_apply_s"] = said[0]["time"] - r.child.free_at(start)
    r.pause(0.4)
    end = r.rng.choice(["finish", "kill", "kill both"])
    r.facts["end"] = end
    if end == "kill both":
        r.kill_both()
        r.recover()
    else:
        os.kill(r.child.pid, signal.SIGUSR1 if end == "finish" else signal.SIGKILL)
        r.child.wait()
        r.wait_free()
    if not (seen and seen["lost"]):
        r.expected = r.original | {name: value}


def second_session(r: Round) -> None:
    r.ready()
    try:
        Lock.take(WHERE, "second", 0.2).release()
        r.facts["refused"] = None
    except Busy as error:
        r.facts["refused"] = str(error)
        r.facts["names_first"] = f"process {r.child.pid} " in str(error)
    r.pause()
    os.kill(r.child.pid, signal.SIGUSR1)
    r.child.wait()
    r.wait_free()


def reloaded(r: Round) -> None:
    """The module is reloaded under a session that was killed, or under one that lives."""
    r.ready()
    r.pause()
    lives = r.rng.random() < 0.5
    if lives:
        os.kill(r.child.pid, signal.SIGSTOP)
    else:
        r.kill_both()
    reload_zfs()
    # when reloaded it takes the memory of now
    r.original.update(values(r.host))
    if lives:
        os.kill(r.child.pid, signal.SIGCONT)
        r.child.wait()
        r.wait_free()
        r.facts["errors"] = r.child.found("error")
    else:
        r.recover()


def reload_zfs() -> None:
    stop_load()
    sh("zpool export tank")
    SYSTEM.reload()
    sh("zpool import tank")
    start_load()


@dataclass(frozen=True)
class Case:
    play: Callable[[Round], None]
    weight: int
    silent_s: int = 0
    stderr: bool = False
    least: int = 1  # rounds: what is judged over several needs them


CASES = {
    "tuner killed": Case(killed, 10),
    "tuner and supervisor killed": Case(killed_both, 12, least=3),
    "supervisor killed": Case(supervisor_killed, 8, least=3),
    "supervisor stopped": Case(faults_stopped.supervisor_stopped, 4),
    "SIGTERM": Case(signalled(signal.SIGTERM), 5),
    "SIGHUP": Case(signalled(signal.SIGHUP), 5),
    "SIGINT": Case(signalled(signal.SIGINT), 3),
    "tuner does not go on": Case(faults_stopped.does_not_go_on, 4, SILENT_S),
    "stderr stalled": Case(faults_stopped.stderr_stalled, 6, stderr=True),
    "disk full": Case(faults_state.disk_full, 4),
    "state frozen": Case(faults_state.frozen, 6, SILENT_S),
    "state frozen, both killed": Case(faults_state.frozen_both, 4),
    "state unopenable": Case(faults_state.unopenable_killed, 5),
    "state unopenable, both killed": Case(faults_state.unopenable_both, 5),
    "state read-only": Case(faults_state.read_only, 4),
    "one copy damaged": Case(faults_state.one_copy_damaged, 5),
    "both copies damaged": Case(faults_state.both_copies_damaged, 5, least=2),
    "administrator": Case(administrator, 10, least=3),
    "second session": Case(second_session, 3),
    "module reloaded": Case(reloaded, 4),
}


def play(case: str, host: Host, original: Values, disk: StateDisk, seed: int) -> Json:
    """One round; ok is whether everything is as it should be afterwards."""
    rng = random.Random(seed)
    start = time.monotonic()
    how = CASES[case]
    stderr = Stderr(rng.choice(SYSTEM.stderr)) if how.stderr else None
    child = Child.start(seed, stderr.theirs if stderr else -1, how.silent_s)
    r = Round(case, host, original, disk, rng, child, stderr)
    problem = None
    try:
        how.play(r)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    r.clean_up()
    expected, now = r.expected or original, values(host)
    wrong = {n: (now[n], expected[n]) for n in now if now[n] != expected[n]}
    ok = not wrong and problem is None
    found = {
        "case": case,
        "seed": seed,
        "ok": ok,
        "took": time.monotonic() - start,
        "applied": [round(one["applied"], 3) for one in r.child.found("applied")],
        "facts": r.facts,
    }
    if not ok:
        found |= {"wrong": wrong, "problem": problem, "lines": r.child.lines}
        progress(f"{case} (seed {seed}): {problem} {wrong}\n{r.child.lines}")
    if now != original or not ok:
        reset(host, original)
    return found


_load: list[subprocess.Popen[bytes]] = []


def start_load() -> None:
    """A light one: a few writes, some of them synced."""
    _load.append(subprocess.Popen(SYSTEM.load(), shell=True))


def stop_load() -> None:
    while _load:
        process = _load.pop()
        process.kill()
        process.wait()


def schedule(rounds: int, rng: random.Random) -> list[str]:
    """This many rounds, by weight, with at least `least` of each case."""
    plan = [name for name, case in CASES.items() for _ in range(case.least)]
    total = sum(case.weight for case in CASES.values())
    missing = {name: rounds * case.weight / total - case.least for name, case in CASES.items()}
    while len(plan) < rounds:
        name = max(missing, key=lambda one: missing[one])
        missing[name] -= 1
        plan.append(name)
    rng.shuffle(plan)
    return plan


def summary(rounds: list[Json]) -> str:
    """How many of each kind, how long they took, and when values were back while a fault lasted."""
    kinds = Counter(one["case"] for one in rounds)
    failed = Counter(one["case"] for one in rounds if not one["ok"])
    counts = [
        f"{name} {kinds[name]}" + (f" ({failed[name]} FAILED)" if failed[name] else "")
        for name in CASES
        if kinds[name]
    ]
    seconds = sum(one["took"] for one in rounds) / max(1, len(rounds))
    back = [one["facts"]["back_s"] for one in rounds if "back_s" in one["facts"]]
    times = f"; back after {median(back):.1f} s, {max(back):.1f} s at most" if back else ""
    return (
        f"{len(rounds)} rounds of {len(kinds)} kinds, {seconds:.1f} s each, "
        f"{sum(failed.values())} failed: {', '.join(counts)}{times}"
    )


def by_hand(results: Json) -> None:
    """The commands as a person calls them."""
    results["commands"] = {
        " ".join(words): run(["zfstune", *words])
        for words in (["status"], ["revert", "--print"], ["revert"], ["recover"])
    }


def kept(results: Json) -> None:
    """Kept values survive a reload of the module, others do not."""
    progress("keep")
    names = ("zfs_txg_timeout", "zfs_dirty_data_max", "zfs_wrlog_data_max")
    conf = Path("/etc/modprobe.d/zfstune.conf")
    conf.write_text("# mine\noptions zfs zfs_arc_shrink_shift=7 zfs_txg_timeout=9\n")

    def loaded() -> Values:
        reload_zfs()
        return SYSTEM.parameters(names)

    found: Json = {"before": SYSTEM.parameters(names)}
    values_to_keep = ["zfs_txg_timeout=7", "zfs_dirty_data_max=64M", "zfs_wrlog_data_max=128M"]
    found["set"] = run(["zfstune", "params", "set", *values_to_keep])
    found["keep"] = run(["zfstune", "keep"])
    found["file"] = conf.read_text()
    found["kept"] = loaded()
    found["status"] = run(["zfstune", "status"])
    found["remove"] = run(["zfstune", "keep", "--remove"])
    found["file_removed"] = conf.read_text() if conf.exists() else ""
    found["removed"] = loaded()
    conf.unlink(missing_ok=True)
    results["kept"] = found


def play_all(results: Json, plan: Sequence[str], rng: random.Random) -> None:
    """A round of each of these cases, on a pool with a light load."""
    make_pool()
    disk = StateDisk()
    start_load()
    host = open_host()
    original = values(host)
    # read once, for all that are forked
    planner.plan(guard.state(host.parameters()), {}, guard.facts(host))
    results["compared"] = [name for name in original if name.startswith("arc ")]
    results["rounds"] = []
    for i, case in enumerate(plan):
        found = play(case, host, original, disk, rng.randrange(1 << 30))
        results["rounds"].append(found)
        said = "ok" if found["ok"] else "FAILED"
        facts = str({key: fact for key, fact in found["facts"].items() if key != "said"})
        facts = f"{found['applied'][:9]} {facts}"
        progress(f"{i + 1}: {case} {said} {found['took']:.1f} s {facts[:300]}")
    stop_load()
    results["summary"] = summary(results["rounds"])
    progress(f"faults: {results['summary']}")


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(1 << 30)
    progress(f"{rounds} rounds, seed {seed}")
    rng = random.Random(seed)
    for name in [name for name in CASES if sys.argv[3:] and name not in sys.argv[3:]]:
        del CASES[name]
    results: Json = {"seed": seed}
    play_all(results, schedule(rounds, rng), rng)
    results["dmesg"] = sh("dmesg | grep -E 'divide error|BUG|Oops|blocked for more' || true")
    by_hand(results)
    kept(results)
    stop_load()
    finish(results)


if __name__ == "__main__":
    main()
