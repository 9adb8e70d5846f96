"""The tests of `zfstune bench`, and the interface of the programs that run them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from zfstune.errors import CommandError
from zfstune.term.argtypes import MOST_JOBS
from zfstune.term.signals import Stop
from zfstune.term.units import format_time

BLOCK = 8192
# Bytes of each writer's file, as in pg_test_fsync.
SIZE = 16 << 20


@dataclass(frozen=True)
class Test:
    """jobs threads, each with its own file, that write 8 kB and sync after every writes of them.
    sync is "fdatasync", "fsync", "o_dsync" or "none"."""

    __test__ = False  # for pytest

    name: str
    label: str
    sync: str
    writes: int = 1
    jobs: int = 1


def committers(jobs: int) -> Test:
    """The test with this number of concurrent threads."""
    return Test(f"committers-{jobs}", f"{jobs} x 8 kB, fdatasync", "fdatasync", jobs=jobs)


def committers_of(name: str) -> int | None:
    """N of "committers-N"; None for any other name, and for more than MOST_JOBS."""
    found = re.fullmatch(r"committers-([1-9][0-9]{0,3})", name)
    return int(found[1]) if found and int(found[1]) <= MOST_JOBS else None


TESTS: tuple[Test, ...] = (
    Test("fdatasync", "8 kB, fdatasync", "fdatasync"),
    Test("fsync", "8 kB, fsync", "fsync"),
    Test("o_dsync", "8 kB, O_DSYNC", "o_dsync"),
    Test("two-fdatasync", "two 8 kB, fdatasync", "fdatasync", writes=2),
    committers(2),
    committers(8),
    # the last, because its dirty data is written for a while
    Test("plain", "8 kB, no sync", "none"),
)


@dataclass(frozen=True)
class Rate:
    """The result of a test: syncs (without any, writes) per second, and the latency of one; None
    where the tool reports none. count is their number, None if not reported."""

    test: Test
    per_s: float
    p50_ns: int | None
    p99_ns: int | None
    tool: str
    count: int | None = None


class BenchFailed(CommandError):
    """A test could not be run, or did not finish."""


class Unable(BenchFailed):
    """The program cannot run this test here; another one may."""


class Watcher:
    """Follows a test; this one does nothing."""

    def begun(self) -> None:
        """The test is about to write; anything before was preparation."""

    def tick(self) -> None:
        """Called several times a second during the test."""

    def ended(self) -> None:
        """The last sync has returned, or the test was interrupted."""


NOTHING = Watcher()


class Load(Protocol):
    """A program that runs tests."""

    @property
    def name(self) -> str:
        """With its version: "fio 3.39"."""
        ...

    def lacks(self, test: Test) -> str:
        """Why it cannot run the test; "" if it can."""
        ...

    def run(
        self, test: Test, where: Path, seconds: float, stop: Stop, watch: Watcher = NOTHING
    ) -> Rate | None:
        """Runs a test on files in a directory, which it creates and leaves there. None when
        interrupted. Raises BenchFailed."""
        ...


def bytes_needed(tests: Sequence[Test], size: int = SIZE) -> int:
    """The space that the files of these tests take at most."""
    return size * max((test.jobs for test in tests), default=1)


def too_late(name: str, limit_s: float) -> BenchFailed:
    """The error of a program that does not end; limit_s is how long it was waited for."""
    return BenchFailed(
        f"{name} is still running {format_time(int(limit_s * 1e9))} after its time",
        "see `zpool status` for whether the pool is suspended",
    )
