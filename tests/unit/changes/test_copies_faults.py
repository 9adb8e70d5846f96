"""Random faults of either copy and deaths at random points: recover and revert always restore the
previous values, and nothing is disowned."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from support.fake_module import ARC, DEFAULTS, GIB, MIB, ModuleHost
from support.faults import Faults

from zfstune.changes import bounded, copies, recovery, revert, status
from zfstune.changes.apply import ApplyError
from zfstune.changes.journal import Journal
from zfstune.changes.session import ChangeSession, set_values
from zfstune.errors import NotPossible

# More of them: ZFSTUNE_FAULTS=1500 pytest tests/unit/changes/test_copies_faults.py
ROUNDS = int(os.environ.get("ZFSTUNE_FAULTS", "25"))
NAMES = ["zfs_txg_timeout", "zfs_dirty_data_max", "zfs_arc_max"]
DELAY = "zfs_delay_min_dirty_percent"
# No room in both places from the session's end on, or in the middle of it.
END, MIDST = "full at the end", "full in the midst"
FAULTS: list[int | str] = [errno.ENOSPC, errno.EIO, errno.EROFS, "hang", END, MIDST]


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Iterator[Faults]:
    """What hangs does not answer at once: in this process, for speed."""

    def call(limit_s: float, what: Callable[..., object], *given: object) -> object:
        if given[0] in found.hanging() and what is not copies._look:
            raise TimeoutError(errno.ETIMEDOUT, "it does not answer")
        return what(*given)

    monkeypatch.setattr(bounded, "call", call)
    monkeypatch.setattr("zfstune.changes.session.supervisor.start", lambda *_: Nobody())
    found = Faults(monkeypatch)
    yield found


class Nobody:
    """No supervisor: a death is that of both processes."""

    pid = 0

    def alive(self, *, in_force: bool = False) -> bool:
        return True

    def dismiss(self) -> None: ...


def mortal(host: ModuleHost, lives: int) -> None:
    """It dies before or after a write of a parameter, with its supervisor: files are left."""
    write, left = type(host.params).write, lives

    def one(name: str, value: int, identity: str | None = None) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os._exit(1)
        write(host.params, name, value, identity)
        if left == 1 and lives % 2:
            os._exit(1)

    host.params.write = one  # type: ignore[method-assign]


# Called at the "begin" and the "end" of a session.
Turn = Callable[[str], None]


def work(host: ModuleHost, rng: random.Random, turn: Turn = lambda _moment: None) -> None:
    """Changes that fail are what this is about."""
    quiet: Callable[[str], None] = lambda _text: None  # noqa: E731
    with contextlib.suppress(NotPossible, ApplyError, OSError):
        value = rng.randint(6, 20)
        set_values(host, {"zfs_txg_timeout": value}, "set", quiet, where=host.where)
    with (
        contextlib.suppress(NotPossible, ApplyError, OSError),
        ChangeSession(host, "tune", NAMES, quiet, host.where, still_s=0) as session,
    ):
        turn("begin")
        for _ in range(rng.randint(1, 3)):
            wanted = {
                "zfs_txg_timeout": rng.randint(21, 40),
                "zfs_dirty_data_max": rng.randint(1, 5) * 128 * MIB,
                "zfs_arc_max": rng.randint(3, 9) * GIB,
            }
            with contextlib.suppress(ApplyError):
                session.apply(wanted)
        turn("end")
        if rng.random() < 0.3:
            session.finish(applied=True)


def in_child(host: ModuleHost, rng: random.Random, lives: int, turn: Turn) -> None:
    if not (pid := os.fork()):
        try:
            if lives:
                mortal(host, lives)
            work(host, rng, turn)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def break_one(
    faults: Faults, rng: random.Random, kind: int | str | None, where: Sequence[Path]
) -> Turn:
    """Breaks one directory or both, from a random moment on or when the session reaches a point."""

    def turn(moment: str) -> None:
        for path in where:
            if kind == END and moment == "end":
                faults.put(path, errno.ENOSPC)
            elif kind == MIDST:
                full = moment == "begin"
                faults.put(path, errno.ENOSPC if full else None, after=rng.randint(0, 9))

    if kind not in (None, END, MIDST):
        for path in rng.choice([[where[0]], [where[1]], where]):
            # a directory in memory always answers
            one = errno.EIO if kind == "hang" and path == where[1] else kind
            faults.put(path, one, after=rng.randint(0, 25))
    return turn


def attempt(seed: int, faults: Faults, *, die: bool, fail: bool) -> None:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as directory:
        host = ModuleHost(Path(directory))
        where = (host.where.state, host.where.run)
        copies._silent.clear()
        if rng.random() < 0.5:
            work(host, random.Random(seed + 1))
        kind = rng.choice(FAULTS) if fail else None
        turn = break_one(faults, rng, kind, where)
        in_child(host, rng, rng.randint(1, 14) if die else 0, turn)
        # in the child it was another process
        turn("end")
        if kind == MIDST and not die:
            # there was room for the last word
            assert Journal(host.where, write=False).history.open_layer is None, seed
        try:
            if rng.random() < 0.5:
                # it lasts until after the recovery
                with contextlib.suppress(NotPossible):
                    recovery.restore_left(host, host.where, lambda _text: None)
        finally:
            for path in where:
                faults.put(path, None)
        copies._silent.clear()
        report = recovery.restore_left(host, host.where, lambda _text: None)
        assert report is None or report.complete, seed
        found = revert.revert(host, host.where)
        assert found.complete, seed
        now, kept = host.now(), {override.name for override in found.kept}
        if die and fail and now[DELAY] == 100:
            # during a restore of which nothing could be recorded: it is reported
            now[DELAY] = DEFAULTS[DELAY]
            kept -= {DELAY}
        assert not kept, seed
        assert now == DEFAULTS, seed
        assert host.params.arc() == ARC, seed
        assert status.collect(host, host.where)["state"] == "unchanged", seed


@pytest.mark.parametrize("die", [False, True])
def test_random_faults_never_lose_the_previous_values(faults: Faults, die: bool) -> None:
    for seed in range(ROUNDS):
        attempt(seed, faults, die=die, fail=True)


def test_random_deaths_never_lose_the_previous_values(faults: Faults) -> None:
    for seed in range(ROUNDS):
        attempt(seed, faults, die=True, fail=False)
