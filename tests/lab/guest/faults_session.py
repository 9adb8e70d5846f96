"""The session that the scenario faults disturbs: a process that applies random legal values, and
tells by a pipe what it does."""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labkit import Json, sh
from zfs_linux.host import LinuxHost
from zfstune import apply, guard, planner, session_guard
from zfstune.places import Places

MIB = 1 << 20
STATE, RUN = Path("/mnt/state"), Path("/run/zfstune-faults")
WHERE = Places(STATE / "zfstune", RUN)
PARAMETERS = Path("/sys/module/zfs/parameters")

# Small ranges in which most combinations are legal; the guard refuses the others.
RANGES = {
    "zfs_arc_max": (500 * MIB, 700 * MIB),
    "zfs_arc_min": (70 * MIB, 120 * MIB),
    "zfs_arc_sys_free": (64 * MIB, 120 * MIB),
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

# what is in force of them, by the key of arcstats
LIMITS = {"zfs_arc_max": "c_max", "zfs_arc_min": "c_min", "zfs_arc_sys_free": "arc_sys_free"}

Values = dict[str, int]


def values(host: LinuxHost) -> Values:
    """What must be as before: the parameters, and the limits of the ARC that are in force."""
    found = {name: int((PARAMETERS / name).read_text()) for name in NAMES}
    arc = host.kstat("arcstats")
    return found | {f"arc {key}": arc[key] for key in LIMITS.values()}


def reset(host: LinuxHost, original: Mapping[str, int]) -> None:
    """By hand, after a round that left something."""
    limits = {name: original[f"arc {key}"] for name, key in LIMITS.items()}
    wanted = {name: limits.get(name, original[name]) for name in NAMES}
    for write in planner.plan(guard.state(host), wanted, guard.facts(host), back=True):
        (PARAMETERS / write.name).write_text(str(write.value))
    for name in limits:
        (PARAMETERS / name).write_text(str(original[name]))
    sh(f"rm -rf {WHERE.state} {WHERE.run}")


def candidate(rng: random.Random, host: LinuxHost, names: set[str]) -> Values:
    """Values that the guard does not refuse."""
    state, facts = guard.state(host), guard.facts(host)
    while True:
        some = rng.sample(sorted(names), rng.randint(1, min(6, len(names))))
        wanted = {name: rng.randint(*RANGES[name]) for name in some}
        with contextlib.suppress(guard.Refused):
            planner.plan(state, wanted, facts)
            return wanted


class Driver:
    """Applies candidates as `zfstune tune` does, only faster, until it is told to end."""

    def __init__(self, seed: int, out: int) -> None:
        self._rng = random.Random(seed)
        self._out = out
        self._ended = False
        self._told = 0

    def say(self, **what: Any) -> None:
        os.write(self._out, (json.dumps(what) + "\n").encode())

    def __call__(self) -> int:
        signal.signal(signal.SIGUSR1, self._end)
        host = LinuxHost()
        session = session_guard.TuningSession(
            host, "faults driver", NAMES, self._said, WHERE, still_s=0.05
        )
        try:
            with session:
                self.say(supervisor=session._supervisor.pid)
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

    def _end(self, *_: object) -> None:
        self._ended = True

    def _work(self, host: LinuxHost, session: session_guard.TuningSession) -> None:
        names = set(NAMES)
        while not self._ended:
            start = time.monotonic()
            wanted = candidate(self._rng, host, names)
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

    def _tell(self, session: session_guard.TuningSession, names: set[str]) -> None:
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


@dataclass
class Child:
    pid: int
    pipe: int
    lines: list[Json] = field(default_factory=list)
    rest: bytes = b""
    status: int | None = None

    @classmethod
    def start(cls, seed: int) -> Child:
        sys.stdout.flush()
        read, write = os.pipe()
        pid = os.fork()
        if pid:
            os.close(write)
            return cls(pid, read)
        status = 8
        try:
            os.close(read)
            status = Driver(seed, write)()
        finally:
            os._exit(status)

    def listen(self, seconds: float) -> None:
        """Takes what it says for so long, or until it has ended."""
        end = time.monotonic() + seconds
        while True:
            left = end - time.monotonic()
            if not select.select([self.pipe], [], [], max(0.0, left))[0]:
                return
            data = os.read(self.pipe, 65536)
            if not data:
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
