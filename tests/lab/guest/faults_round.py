"""One round of the scenario faults: a session, its disturbance, and what was seen."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

from faults_session import NAMES, WHERE, Child, Stderr, values
from faults_system import Values
from labkit import Json, run
from state_disk import StateDisk
from zfstrace.host import Host
from zfstune.changes import recovery
from zfstune.changes.lock import Lock

# Until then values must be back: far more than it takes, since an emulated machine may be held up.
# How long it took is in the facts.
DEADLINE_S = 120
ENVIRONMENT = {"ZFSTUNE_STATE_DIR": str(WHERE.state), "ZFSTUNE_RUN_DIR": str(WHERE.run)}


def _apart(what: Callable[[], list[str]]) -> list[str]:
    """What a child process returns. Raises RuntimeError if it fails."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        status = 1
        try:
            os.write(write, json.dumps(what()).encode())
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read) as answer:
        found = answer.read()
    if status := os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise RuntimeError(f"a recovery ended with status {status}")
    said: list[str] = json.loads(found)
    return said


@dataclass
class Round:
    case: str
    host: Host
    original: Values
    disk: StateDisk
    rng: random.Random
    child: Child
    stderr: Stderr | None = None
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

    def in_force(self) -> None:
        """Until a random moment after it has set values for the first time."""
        self.ready()
        self.child.listen_for("applied", 60)
        self.child.listen(self.rng.uniform(0, 1.2))

    def hold(self, least: int = 1) -> None:
        """Stops the tuner with so many values in force, and its supervisor: whatever kills them,
        neither restores or writes any more."""
        self.in_force()
        end = time.monotonic() + DEADLINE_S
        while True:
            self.child.stop()
            now = values(self.host)
            if sum(now[name] != self.original[name] for name in NAMES) >= least:
                break
            if time.monotonic() > end:
                raise RuntimeError(f"it has not set {least} values: {self.child.lines}")
            os.kill(self.child.pid, signal.SIGCONT)
            self.child.listen(0.05)
        pid = self.child.supervisor
        assert pid
        os.kill(pid, signal.SIGSTOP)

    def back(self, since: float, seconds: float = DEADLINE_S) -> None:
        """Waits for the previous values, and records how long after `since` they came; a round in
        which they do not come is a failure."""
        end = time.monotonic() + seconds
        while (now := values(self.host)) != self.original:
            if time.monotonic() > end:
                wrong = {n: (now[n], self.original[n]) for n in now if now[n] != self.original[n]}
                raise RuntimeError(f"not restored after {seconds:g} s: {wrong}")
            self.child.listen(0.02) if self.child.status is None else time.sleep(0.02)
        self.facts["back_s"] = round(time.monotonic() - since, 2)

    def must_end(self) -> None:
        """By itself, or as it is killed by its supervisor."""
        if not self.child.ended(DEADLINE_S):
            raise RuntimeError(f"it hangs, in state {self.child.state}")

    def command(self, *words: str) -> Json:
        """A zfstune command on the same journal."""
        return run(["zfstune", *words], env=os.environ | ENVIRONMENT)

    def kill_both(self) -> None:
        """Kills both in either order, or the tuner alone while there is no supervisor."""
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
        """Recovers by the next command, or by that of the systemd unit. Not in this process: one
        that has found a disk not to answer does not try it again."""
        said: list[str] = []

        def at_next_command() -> list[str]:
            os.environ |= ENVIRONMENT
            recovery.if_needed("the next command")
            return said

        def by_unit() -> list[str]:
            recovery.restore_now(self.host, WHERE, "zfstune recover", said.append, -1)
            return said

        self.facts["said"] = _apart(at_next_command if self.rng.random() < 0.5 else by_unit)

    def clean_up(self) -> None:
        """Nothing of this round lives on into the next one."""
        if self.stderr:
            self.stderr.go_on()
        if self.child.status is None:
            with contextlib.suppress(OSError):
                os.kill(self.child.pid, signal.SIGKILL)
                os.waitpid(self.child.pid, 0)
        pid = self.child.found("supervisor")
        with contextlib.suppress(ProcessLookupError):
            if pid and self.child.status is None:
                os.kill(pid[0]["supervisor"], signal.SIGCONT)
