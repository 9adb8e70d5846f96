"""The session that the scenario faults disturbs: a process that applies random legal values, and
reports them through a pipe, and on stderr like `zfstune tune`."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pty
import random
import select
import signal
import sys
import termios
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from faults_system import SYSTEM, Values
from labkit import Json, sh
from state_disk import STATE
from zfstrace.host import Host
from zfstune.changes import apply, supervisor
from zfstune.changes import session as session_guard
from zfstune.changes.state_dir import Places
from zfstune.host import open_host
from zfstune.term.progress import Progress
from zfstune.tunables import guard, planner

MIB = 1 << 20
WHERE = Places(STATE / "zfstune", SYSTEM.run)

# Small ranges in which most combinations are legal; the guard refuses the others.
RANGES = {
    "zfs_arc_max": (500 * MIB, 700 * MIB),
    "zfs_arc_min": (70 * MIB, 120 * MIB),
    "zfs_arc_grow_retry": (1, 60),
    "zfs_arc_shrink_shift": (6, 9),
    "zfs_arc_sys_free": (80 * MIB, 160 * MIB),
    "zfs_commit_timeout_pct": (1, 40),
    "zfs_delay_min_dirty_percent": (61, 90),
    "zfs_delay_scale": (100_000, 900_000),
    "zfs_dirty_data_max": (32 * MIB, 100 * MIB),
    "zfs_dirty_data_sync_percent": (5, 25),
    "zfs_txg_timeout": (2, 20),
    "zfs_vdev_async_write_active_max_dirty_percent": (50, 60),
    "zfs_vdev_async_write_active_min_dirty_percent": (26, 40),
    "zfs_vdev_async_write_max_active": (4, 20),
    "zfs_vdev_async_write_min_active": (1, 3),
    "zfs_wrlog_data_max": (210 * MIB, 400 * MIB),
}
NAMES = sorted(RANGES)
# What an administrator sets; the session's values are never these.
ADMIN = {
    "zfs_commit_timeout_pct": 41,
    "zfs_delay_scale": 950_001,
    "zfs_txg_timeout": 21,
    "zfs_vdev_async_write_max_active": 21,
    "zfs_dirty_data_max": 101 * MIB,
    "zfs_delay_min_dirty_percent": 91,
}

# What is in force is not what the parameter says when that is 0: the limits in arcstats, and
# SYSTEM.variables.
LIMITS = {"zfs_arc_max": "c_max", "zfs_arc_min": "c_min", "zfs_arc_sys_free": "arc_sys_free"}


def values(host: Host) -> Values:
    """What must be as before: the parameters, and the limits in force."""
    found = SYSTEM.parameters(NAMES)
    arc = host.kstat("arcstats")
    found |= {f"arc {key}": arc[key] for key in LIMITS.values()}
    return found | {f"arc {name}": value for name, value in SYSTEM.in_force().items()}


def effects(name: str) -> list[str]:
    """What goes with a parameter in values()."""
    found = SYSTEM.variables.get(name, ())
    return [f"arc {one}" for one in (*found, *([LIMITS[name]] if name in LIMITS else []))]


def reset(host: Host, original: Mapping[str, int]) -> None:
    """By hand, after a round that left something."""
    limits = {name: original[f"arc {key}"] for name, key in LIMITS.items()}
    limits |= {name: original[f"arc {keys[0]}"] for name, keys in SYSTEM.variables.items()}
    limits = {name: value for name, value in limits.items() if name in NAMES}
    wanted = {name: limits.get(name, original[name]) for name in NAMES}
    for write in planner.plan(guard.state(host.parameters()), wanted, guard.facts(host), back=True):
        SYSTEM.set(write.name, write.value)
    for name in limits:
        SYSTEM.set(name, original[name])
    forget()


def forget() -> None:
    """All that zfstune has written down."""
    sh(f"rm -rf {WHERE.state} {WHERE.run}")


def other(rng: random.Random, name: str, original: int) -> int:
    """A value of its range that is not the original one, so that there is something to restore."""
    low, high = RANGES[name]
    value = rng.randint(low, high - (low <= original <= high))
    return value + (low <= original <= value)


def candidate(
    rng: random.Random, host: Host, names: set[str], originals: Mapping[str, int]
) -> Values:
    """Values that the guard does not refuse, none of them an original one."""
    state, facts = guard.state(host.parameters()), guard.facts(host)
    while True:
        some = rng.sample(sorted(names), rng.randint(1, min(6, len(names))))
        wanted = {name: other(rng, name, originals[name]) for name in some}
        with contextlib.suppress(guard.Refused):
            planner.plan(state, wanted, facts)
            return wanted


class Driver:
    """Applies candidates like `zfstune tune`, only faster, until a signal ends it."""

    def __init__(self, seed: int, out: int) -> None:
        self._rng = random.Random(seed)
        self._out = out
        self._progress = Progress(sys.stderr, time.monotonic_ns() + 3600 * 10**9)
        self._ended = False
        self._told = 0

    def say(self, **what: Any) -> None:
        os.write(self._out, (json.dumps(what) + "\n").encode())

    def __call__(self) -> int:
        signal.signal(signal.SIGUSR1, self._end)
        host = open_host()
        session = session_guard.ChangeSession(
            host, "faults driver", NAMES, self._said, WHERE, still_s=0.05
        )
        try:
            with session:
                self.say(supervisor=session.supervisor.pid)
                try:
                    self._work(host, session)
                except session_guard.SupervisorGone:
                    self.say(noticed=time.monotonic())
                    raise
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            self.say(error=type(error).__name__, text=str(error), time=time.monotonic())
            return getattr(error, "status", 9)
        finally:
            if session.report:
                self.say(ended=time.monotonic(), failed=session.report.failed)
        return 0

    def _said(self, text: str) -> None:
        self.say(said=text, time=time.monotonic())
        self._progress.line(text)

    def _end(self, *_: object) -> None:
        self._ended = True

    def _work(self, host: Host, session: session_guard.ChangeSession) -> None:
        names = set(NAMES)
        while not self._ended:
            start = time.monotonic()
            self._progress.status("faults driver")
            self._progress.line("a candidate comes")
            wanted = candidate(self._rng, host, names, session.originals)
            try:
                session.apply(wanted)
                self.say(applied=time.monotonic() - start)
            except apply.Overridden as error:
                names -= self._coupled(error.names)
            except guard.Refused:
                pass
            finally:
                # all that can take long: under emulation it may be seconds
                self.say(busy=[start, time.monotonic()])
            for _ in range(self._rng.randint(1, 6)):
                self._tell(session, names)
                if not session.alive():
                    raise session_guard.SupervisorGone("the supervisor is gone")
                time.sleep(0.05)

    @staticmethod
    def _coupled(names: tuple[str, ...]) -> set[str]:
        """What cannot be set without them."""
        found = set(names)
        if "zfs_delay_min_dirty_percent" in found:
            found |= {"zfs_dirty_data_max", "zfs_wrlog_data_max"}
        return found

    def _tell(self, session: session_guard.ChangeSession, names: set[str]) -> None:
        found = session.overrides()
        for one in found[self._told :]:
            self.say(
                override=one.name,
                value=one.value,
                pid=one.pid,
                comm=one.comm,
                lost=one.lost,
                time=time.monotonic(),
            )
            names -= self._coupled((one.name,))
        self._told = len(found)


class Stderr:
    """What a session has for stderr: a pipe, or a terminal, whose reader stops."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.ours, self.theirs = pty.openpty() if kind == "terminal" else os.pipe()
        os.set_blocking(self.ours, False)

    def stall(self) -> None:
        if self.kind == "terminal":
            termios.tcflow(self.theirs, termios.TCOOFF)
            return
        # another open file description: theirs must keep blocking
        own = os.open(f"/proc/self/fd/{self.theirs}", os.O_WRONLY | os.O_NONBLOCK)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(own, b"x")
        os.close(own)

    def go_on(self) -> None:
        """For whoever still waits to write."""
        if self.kind == "terminal":
            termios.tcflow(self.theirs, termios.TCOON)
        os.close(self.theirs)
        with contextlib.suppress(OSError):
            while os.read(self.ours, 65536):
                pass
        os.close(self.ours)


@dataclass
class Child:
    pid: int
    pipe: int
    lines: list[Json] = field(default_factory=list)
    rest: bytes = b""
    status: int | None = None

    @classmethod
    def start(cls, seed: int, stderr: int = -1, silent_s: int = 0) -> Child:
        """stderr is what it has for that, /dev/null by default; silent_s the time after which
        its supervisor takes it for dead, the usual one by default."""
        sys.stdout.flush()
        sys.stderr.flush()
        read, write = os.pipe()
        pid = os.fork()
        if pid:
            os.close(write)
            return cls(pid, read)
        status = 8
        try:
            os.close(read)
            os.dup2(os.open(os.devnull, os.O_WRONLY) if stderr < 0 else stderr, 2)
            if silent_s:
                limit: dict[str, Any] = {"silent": (silent_s, 1.0)}
                supervisor.start = functools.partial(supervisor.start, **limit)
            status = Driver(seed, write)()
        finally:
            os._exit(status)

    def listen(self, seconds: float) -> None:
        """Reads its output for this long, or until it has ended."""
        end = time.monotonic() + seconds
        while True:
            left = end - time.monotonic()
            if not select.select([self.pipe], [], [], max(0.0, left))[0]:
                return
            data = os.read(self.pipe, 65536)
            if not data:
                # it has ended: whoever asks again at once would keep a CPU busy
                time.sleep(max(0.0, min(0.02, end - time.monotonic())))
                return
            *lines, self.rest = (self.rest + data).split(b"\n")
            self.lines += [json.loads(line) for line in lines]

    def listen_for(self, key: str, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while not self.found(key) and time.monotonic() < end and self.status is None:
            self.listen(0.01)
        return bool(self.found(key))

    def found(self, key: str) -> list[Json]:
        return [line for line in self.lines if key in line]

    def free_at(self, moment: float) -> float:
        """When the apply that was running then, or began before the driver looked again, had
        ended."""
        spans = (line["busy"] for line in self.found("busy"))
        return max((end for start, end in spans if start - 0.2 <= moment <= end), default=moment)

    @property
    def supervisor(self) -> int | None:
        if self.status is None:
            self.listen(0)
        found = self.found("supervisor")
        return found[0]["supervisor"] if found else None

    def wait(self) -> None:
        self.listen(60)
        self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self.pipe)

    def ended(self, seconds: float) -> bool:
        """Whether it has ended within this time; reads its output meanwhile."""
        end = time.monotonic() + seconds
        while self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.listen(0.1)
                self.status = os.waitstatus_to_exitcode(status)
                os.close(self.pipe)
            elif time.monotonic() > end:
                return False
            else:
                self.listen(0.05)
        return True

    @property
    def state(self) -> str:
        return SYSTEM.state(self.pid)

    def stop(self) -> None:
        """Outside of any call of the kernel that cannot be interrupted."""
        os.kill(self.pid, signal.SIGSTOP)
        end = time.monotonic() + 30
        while self.state not in "TZ" and time.monotonic() < end:
            time.sleep(0.01)
