"""Scenario: sessions that die, are disturbed or find the disk full, at random moments; after
each round the parameters must be as before, or as the administrator has set them.

faults.py ROUNDS [SEED]
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from faults_session import ADMIN, NAMES, PARAMETERS, STATE, WHERE, Child, Values, reset, values
from labkit import Json, finish, make_pool, progress, run, sh
from zfs_linux.host import LinuxHost
from zfstune import guard, planner, recover
from zfstune.places import Busy, Lock


@dataclass
class Round:
    case: str
    host: LinuxHost
    original: Values
    rng: random.Random
    child: Child
    expected: Values = field(default_factory=dict)
    facts: Json = field(default_factory=dict)

    def pause(self, most: float = 1.2) -> None:
        """Until a random moment, now and then one in which the session begins."""
        if self.rng.random() < 0.8:
            self.child.listen_for("applied", 60)
        self.child.listen(self.rng.uniform(0, most))

    def ready(self) -> None:
        if not self.child.listen_for("supervisor", 60):
            raise RuntimeError(f"no session: {self.child.lines}")

    def wait_free(self) -> None:
        """Until the tuner and its supervisor have ended."""
        Lock.take(WHERE, "faults", 60).release()

    def kill_both(self) -> None:
        """In either order, or the tuner alone when there is no supervisor yet."""
        pid = self.child.supervisor
        first = pid is not None and self.rng.random() < 0.5
        if pid and first:
            os.kill(pid, signal.SIGKILL)
        os.kill(self.child.pid, signal.SIGKILL)
        if pid and not first:
            os.kill(pid, signal.SIGKILL)
        self.child.wait()
        self.wait_free()

    def recover(self) -> None:
        """By the next command, or by that of the systemd unit."""
        said: list[str] = []
        if self.rng.random() < 0.5:
            os.environ |= {
                "ZFSTUNE_STATE_DIR": str(WHERE.state),
                "ZFSTUNE_RUN_DIR": str(WHERE.run),
            }
            recover.if_needed("the next command")
        else:
            recover.restore_now(self.host, WHERE, "zfstune recover", said.append, -1)
        self.facts["said"] = said


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
        r.child.wait()
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


def disk_full(r: Round) -> None:
    """A record of the journal cannot be written: the session ends and restores."""
    r.ready()
    r.pause()
    filler = STATE / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    full = time.monotonic()
    r.child.wait()
    r.facts |= {"errors": r.child.found("error"), "ended_s": time.monotonic() - full}
    # nothing begins on a full disk
    second = Child.start(r.rng.randint(0, 1 << 30))
    second.wait()
    r.facts["refused"] = second.found("error")
    filler.unlink()
    r.wait_free()


def damage(path: Path, rng: random.Random) -> None:
    data = path.read_bytes()
    at = rng.randrange(len(data))
    if rng.random() < 0.5:
        path.write_bytes(data[:at])
    else:
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :])


def one_copy_damaged(r: Round) -> None:
    r.ready()
    r.pause()
    r.kill_both()
    damage(r.rng.choice([WHERE.state, WHERE.run]) / "journal", r.rng)
    r.recover()


def both_copies_damaged(r: Round) -> None:
    """What the journal does not explain any more is left: never a wrong write."""
    r.ready()
    r.pause()
    r.kill_both()
    before = values(r.host)
    for directory in (WHERE.state, WHERE.run):
        damage(directory / "journal", r.rng)
    r.recover()
    after = values(r.host)
    r.facts["left"] = [n for n in after if after[n] != r.original[n]]
    wrong = [n for n in NAMES if after[n] not in (before[n], r.original[n])]
    if wrong:
        raise RuntimeError(f"wrong writes: {[(n, before[n], after[n]) for n in wrong]}")
    r.expected = after


def administrator(r: Round) -> None:
    """Sets a parameter in the middle; then the session ends in some way."""
    r.ready()
    r.pause()
    name = r.rng.choice(sorted(ADMIN))
    value = ADMIN[name]
    if r.rng.random() < 0.5:
        (PARAMETERS / name).write_text(str(value))
        pid, start = os.getpid(), time.monotonic()
    else:
        shell = subprocess.Popen(["sh", "-c", f"echo {value} > {PARAMETERS / name}"])
        pid = shell.pid
        shell.wait()
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
    """The module is loaded anew below a session that was killed, or below one that lives."""
    r.ready()
    r.pause()
    lives = r.rng.random() < 0.5
    if lives:
        os.kill(r.child.pid, signal.SIGSTOP)
    else:
        r.kill_both()
    reload_zfs()
    # loaded anew it takes the memory that there is now
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
    for _ in range(50):
        if not sh("modprobe -r zfs 2>&1; ls /sys/module | grep -x zfs", check=False).endswith(
            "zfs\n"
        ):
            break
        time.sleep(0.1)
    sh("modprobe zfs; zpool import tank")
    start_load()


CASES: dict[str, tuple[Callable[[Round], None], int]] = {
    "tuner killed": (killed, 6),
    "tuner and supervisor killed": (killed_both, 8),
    "supervisor killed": (supervisor_killed, 2),
    "SIGTERM": (signalled(signal.SIGTERM), 3),
    "SIGHUP": (signalled(signal.SIGHUP), 3),
    "SIGINT": (signalled(signal.SIGINT), 2),
    "disk full": (disk_full, 3),
    "one copy damaged": (one_copy_damaged, 4),
    "both copies damaged": (both_copies_damaged, 3),
    "administrator": (administrator, 8),
    "second session": (second_session, 2),
    "module reloaded": (reloaded, 2),
}


def play(case: str, host: LinuxHost, original: Values, seed: int) -> Json:
    """One round; ok tells whether all is as it should be afterwards."""
    rng = random.Random(seed)
    start = time.monotonic()
    r = Round(case, host, original, rng, Child.start(seed))
    problem = None
    try:
        CASES[case][0](r)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    with contextlib.suppress(ProcessLookupError, ChildProcessError, OSError):
        os.kill(r.child.pid, signal.SIGKILL)
        os.waitpid(r.child.pid, 0)
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
    _load.append(
        subprocess.Popen(
            "exec fio --name=load --directory=/tank --rw=write --bs=16k --size=32M --fsync=8 "
            "--rate=1m --time_based --runtime=7200 --thread --output=/dev/null",
            shell=True,
        )
    )


def stop_load() -> None:
    while _load:
        process = _load.pop()
        process.kill()
        process.wait()


def schedule(rounds: int, rng: random.Random) -> list[str]:
    """Every case at least once, the others by weight."""
    names = list(CASES)
    weights = [weight for _case, weight in CASES.values()]
    total = sum(weights)
    plan = []
    for name, weight in zip(names, weights, strict=True):
        plan += [name] * max(1, round(rounds * weight / total))
    rng.shuffle(plan)
    return plan


def by_hand(results: Json) -> None:
    """The commands as a person calls them."""
    results["commands"] = {
        " ".join(words): run(["zfstune", *words])
        for words in (["status"], ["revert", "--print"], ["revert"], ["recover"])
    }


def kept(results: Json) -> None:
    """Values stay when the module is loaded anew, and without `keep` they do not."""
    progress("keep")
    names = ("zfs_txg_timeout", "zfs_dirty_data_max", "zfs_wrlog_data_max")
    conf = Path("/etc/modprobe.d/zfstune.conf")
    conf.write_text("# mine\noptions zfs zfs_arc_shrink_shift=7 zfs_txg_timeout=9\n")

    def loaded() -> Values:
        reload_zfs()
        return {name: int((PARAMETERS / name).read_text()) for name in names}

    found: Json = {"before": {name: int((PARAMETERS / name).read_text()) for name in names}}
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


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(1 << 30)
    progress(f"{rounds} rounds, seed {seed}")
    rng = random.Random(seed)
    make_pool()
    sh(f"mkdir -p {STATE}; mount -t tmpfs -o size=1m faults {STATE}")
    start_load()
    host = LinuxHost()
    original = values(host)
    # read once, for all that are forked
    planner.plan(guard.state(host), {}, guard.facts(host))
    results: Json = {"seed": seed, "rounds": [], "fanotify": True}
    for i, case in enumerate(schedule(rounds, rng)):
        found = play(case, host, original, rng.randrange(1 << 30))
        results["rounds"].append(found)
        said = "ok" if found["ok"] else "FAILED"
        facts = str({key: fact for key, fact in found["facts"].items() if key != "said"})
        facts = f"{found['applied'][:9]} {facts}"
        progress(f"{i + 1}: {case} {said} {found['took']:.1f} s {facts[:300]}")
    stop_load()
    results["dmesg"] = sh("dmesg | grep -E 'divide error|BUG|Oops|blocked for more' || true")
    by_hand(results)
    kept(results)
    stop_load()
    finish(results)


main()
