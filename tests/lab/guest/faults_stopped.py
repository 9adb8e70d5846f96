"""Rounds of the scenario faults in which a process stops: the reader of stderr, the tuner, its
supervisor."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from faults_round import DEADLINE_S, Round
from faults_state import SILENT_S
from faults_system import SYSTEM
from labkit import sh

CGROUPS = Path("/mnt/cgroup")


def stderr_stalled(r: Round) -> None:
    """Nobody reads stderr any more (Ctrl-S, a pager, a stuck journald). The session must end on a
    signal, and its supervisor must restore."""
    assert r.stderr
    how = r.rng.choice(["SIGTERM", "SIGKILL"])
    r.facts |= {"stderr": r.stderr.kind, "how": how}
    r.ready()
    r.child.listen_for("applied", 60)
    r.stderr.stall()
    r.child.listen(r.rng.uniform(0, 1.2))
    os.kill(r.child.pid, signal.Signals[how])
    r.back(time.monotonic())
    r.must_end()
    r.wait_free()


@contextlib.contextmanager
def stopped(r: Round) -> Iterator[None]:
    os.kill(r.child.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        if r.child.status is None:
            os.kill(r.child.pid, signal.SIGCONT)


@contextlib.contextmanager
def in_frozen_cgroup(r: Round) -> Iterator[None]:
    if not CGROUPS.exists():
        sh(f"mkdir {CGROUPS}; mount -t cgroup2 none {CGROUPS}")
    group = CGROUPS / f"round-{r.child.pid}"
    group.mkdir()
    (group / "cgroup.procs").write_text(str(r.child.pid))
    (group / "cgroup.freeze").write_text("1")
    try:
        yield
    finally:
        (group / "cgroup.freeze").write_text("0")


def does_not_go_on(r: Round) -> None:
    """The tuner is stopped or frozen: it lives, but its guardrails no longer work. Its supervisor
    kills it and restores."""
    how = r.rng.choice(SYSTEM.stops)
    r.facts["how"] = how
    r.in_force()
    with stopped(r) if how == "SIGSTOP" else in_frozen_cgroup(r):
        r.back(time.monotonic(), DEADLINE_S + SILENT_S)
        r.must_end()
    r.wait_free()


def supervisor_stopped(r: Round) -> None:
    """A stopped supervisor blocks nothing: the session notices, or ends on a signal."""
    r.in_force()
    pid = r.child.supervisor
    assert pid
    os.kill(pid, signal.SIGSTOP)
    try:
        r.child.listen(r.rng.uniform(0, 2))
        os.kill(r.child.pid, r.rng.choice([signal.SIGTERM, signal.SIGUSR1]))
        r.back(time.monotonic())
        r.must_end()
        r.wait_free()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
