"""Rounds of the scenario faults in which the state directory or the journal fails."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from faults_round import DEADLINE_S, ENVIRONMENT, Round
from faults_session import NAMES, WHERE, Child, effects, forget, values
from labkit import Json

# A tuner that hangs in the kernel is taken for dead after this, in s.
SILENT_S = 8


def disk_full(r: Round) -> None:
    """A record of the journal cannot be written: the session ends and restores."""
    r.ready()
    r.pause()
    with r.disk.full():
        full = time.monotonic()
        r.child.wait()
        r.facts |= {"errors": r.child.found("error"), "ended_s": time.monotonic() - full}
        # nothing begins on a full disk
        second = Child.start(r.rng.randint(0, 1 << 30))
        second.wait()
        r.facts["refused"] = second.found("error")
    r.wait_free()


def recovery(r: Round, seconds: float = 3 * DEADLINE_S) -> None:
    """`zfstune recover` by hand, which must neither hang nor refuse. To start Python takes long on
    an emulated machine."""
    process = subprocess.Popen(
        ["zfstune", "recover"],
        env=os.environ | ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    since = time.monotonic()
    try:
        r.back(since, seconds)
        process.wait(seconds)
    finally:
        # one that hangs in the kernel ends when the disk works again
        process.kill()
    assert process.stdout
    r.facts["recover"] = {"status": process.returncode, "said": process.stdout.read()}


def frozen(r: Round) -> None:
    """The file system of the state directory does not answer (fsfreeze, a suspended pool): what
    the tuner has set is put back all the same, by its supervisor. The tuner is killed, or only
    hangs in the kernel, where no signal reaches it."""
    r.in_force()
    how = r.rng.choice(["stopped", "killed", "hangs"])
    r.facts["how"] = how
    if how == "stopped":
        r.child.stop()
    with r.disk.frozen():
        since = time.monotonic()
        if how != "hangs":
            os.kill(r.child.pid, signal.SIGKILL)
        r.facts["state"] = r.child.state
        # a process in state D dies only after the thaw: its silence shows it
        r.back(since, DEADLINE_S + (0 if how == "stopped" else SILENT_S))
    r.child.wait()
    r.wait_free()


def frozen_both(r: Round) -> None:
    """As before, but it is `zfstune recover` that puts back."""
    r.hold()
    with r.disk.frozen():
        r.kill_both()
        r.facts["left"] = values(r.host) != r.original
        recovery(r)


@contextlib.contextmanager
def unopenable(r: Round) -> Iterator[None]:
    """The state directory cannot be used, in one of several ways."""
    how = r.rng.choice(r.disk.unopenable)
    r.facts["how"] = how
    aside = WHERE.state.with_name("aside")
    if how == "EIO":
        with r.disk.failing():
            yield
    elif how == "mode":
        WHERE.state.chmod(0o775)
        try:
            yield
        finally:
            WHERE.state.chmod(0o700)
    else:
        WHERE.state.rename(aside)
        WHERE.state.write_text("")
        try:
            yield
        finally:
            WHERE.state.unlink()
            aside.rename(WHERE.state)


def unopenable_killed(r: Round) -> None:
    r.in_force()
    r.child.stop()
    with unopenable(r):
        os.kill(r.child.pid, signal.SIGKILL)
        since = time.monotonic()
        r.child.wait()
        r.back(since)
        r.wait_free()


def unopenable_both(r: Round) -> None:
    r.hold()
    with unopenable(r):
        r.kill_both()
        r.facts["left"] = values(r.host) != r.original
        recovery(r)


def read_only(r: Round) -> None:
    """As after an error of the disk. The session ends by itself, or is killed in between."""
    r.in_force()
    how = r.rng.choice(["ends", "killed", "both killed"])
    r.facts["how"] = how
    if how != "ends":
        r.child.stop()
    with r.disk.read_only():
        since = time.monotonic()
        if how == "both killed":
            r.kill_both()
            recovery(r)
        else:
            if how == "killed":
                os.kill(r.child.pid, signal.SIGKILL)
            r.must_end()
            r.back(since)
            r.wait_free()
    r.facts["errors"] = r.child.found("error")


def damage(path: Path, rng: random.Random, part: str = "any") -> None:
    """Truncates it or turns a bit, anywhere, in the first record or in the last one."""
    data = path.read_bytes()
    first = data.rfind(b"\n", 0, -1) + 1 if part == "last" else 0
    at = rng.randrange(first, 40 if part == "first" else len(data))
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


@dataclass
class Found:
    """What the longest intact beginning of a journal says. ours is of parameters: the value of
    before, and those that may be ours now; damaged tells whether there is more, not intact."""

    ours: dict[str, tuple[int, set[int]]]
    damaged: bool


def explained() -> Found:
    """Of both copies; read without the product's code."""
    best: list[Json] = []
    damaged = False
    for directory in (WHERE.state, WHERE.run):
        data = (directory / "journal").read_bytes()
        records: list[Json] = []
        digest, size = "", 0
        for line in data.split(b"\n")[:-1]:
            found, _, text = line.partition(b" ")
            digest = hashlib.sha256(digest.encode() + b" " + text).hexdigest()[:16]
            if found != digest.encode():
                break
            records.append(json.loads(text))
            size += len(line) + 1
        if len(records) >= len(best):
            best, damaged = records, size < len(data)
    ours: dict[str, tuple[int, set[int]]] = {}
    for record in best:
        kind, name = record["type"], record.get("name", "")
        if kind == "original":
            ours[name] = record["value"], {record["value"]}
        elif kind == "intend":
            ours[name] = ours[name][0], {record["old"], record["new"]}
        elif kind == "wrote":
            ours[name] = ours[name][0], {record["value"]}
    return Found(ours, damaged)


# by turns: nothing of it can be used, all but the last word, a part
_PARTS = itertools.cycle(("first", "last", "any"))


def both_copies_damaged(r: Round) -> None:
    """What the journal still explains is restored, to the true values; the rest is left, reported
    and not forgotten: the second call reports the same, until `--forget`."""
    # the last record may be all that tells of one of two
    r.hold(least=2)
    r.kill_both()
    before = values(r.host)
    part = next(_PARTS)
    for directory in (WHERE.state, WHERE.run):
        damage(directory / "journal", r.rng, part)
    journal = explained()
    ours = {n for n in NAMES if n in journal.ours and before[n] in journal.ours[n][1]}
    changed = {n for n in NAMES if before[n] != r.original[n]}
    left = changed - ours
    r.facts |= {"unusable": not journal.ours, "restored": sorted(changed & ours)}
    r.facts["left"] = sorted(left)
    first = r.command("recover")
    after = values(r.host)
    r.expected = before | {n: r.original[n] for n in ours}
    # an effect belongs to its parameter
    r.expected |= {
        one: r.original[one] if n in ours else after[one] for n in NAMES for one in effects(n)
    }
    unnamed = [n for n in left if n in journal.ours and n not in first["stderr"]]
    if unnamed:
        raise RuntimeError(f"left without a word: {unnamed}: {first}")
    if left and journal.damaged:
        calls = [first, r.command("recover"), r.command("status"), r.command("recover", "--forget")]
        last = [(call["stdout"] + call["stderr"]).splitlines()[-1:] for call in calls]
        if [call["status"] for call in calls] != [1, 1, 1, 0] or last[0] != last[1]:
            raise RuntimeError(f"forgotten, or not the same again: {calls}")
        if "not known" not in calls[2]["stdout"]:
            raise RuntimeError(f"status knows nothing of it: {calls[2]}")
    # nothing of it is left to the next round
    forget()
