"""What `zfstune bench` runs: the tests, and which program does them."""

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
# Of the file of each writer, in bytes; as pg_test_fsync has it.
SIZE = 16 << 20


@dataclass(frozen=True)
class Test:
    """Writes of 8 kB, with a sync after so many of them, by so many threads, each on a file of its
    own. sync is "fdatasync", "fsync", "o_dsync" or "none"."""

    __test__ = False  # for pytest

    name: str
    label: str
    sync: str
    writes: int = 1
    jobs: int = 1


def committers(jobs: int) -> Test:
    """So many threads that write and fdatasync at once."""
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
    # the last: what it leaves is written for a while
    Test("plain", "8 kB, no sync", "none"),
)


@dataclass(frozen=True)
class Rate:
    """What a test gave: syncs per second, or writes where there are none, and times of one as far
    as the tool tells them. count is how many there were, None when the tool does not say."""

    test: Test
    per_s: float
    p50_ns: int | None
    p99_ns: int | None
    tool: str
    count: int | None = None


class BenchFailed(CommandError):
    """A test could not be run, or not to its end."""


class Unable(BenchFailed):
    """It cannot do this test here, as it turns out; another program may."""


class Watcher:
    """What is done around a test: nothing."""

    def begun(self) -> None:
        """The first write is about to come; what was before is not of the test."""

    def tick(self) -> None:
        """Called several times a second meanwhile."""

    def ended(self) -> None:
        """The last sync is over, or the test was interrupted."""


NOTHING = Watcher()


class Load(Protocol):
    """A program that can do tests."""

    @property
    def name(self) -> str:
        """With its version: "fio 3.39"."""
        ...

    def lacks(self, test: Test) -> str:
        """Why the test cannot be done by it; "" when it can."""
        ...

    def run(
        self, test: Test, where: Path, seconds: float, stop: Stop, watch: Watcher = NOTHING
    ) -> Rate | None:
        """Does a test on files in a directory, which it makes and leaves there. None when stop
        was asked for meanwhile. Raises BenchFailed."""
        ...


def bytes_needed(tests: Sequence[Test], size: int = SIZE) -> int:
    """What the files of these tests take, at the same time."""
    return size * max((test.jobs for test in tests), default=1)


def too_late(name: str, limit_s: float) -> BenchFailed:
    """It does not come to an end."""
    return BenchFailed(
        f"{name} has not ended {format_time(int(limit_s * 1e9))} after its time, is the pool "
        "suspended? see `zpool status`"
    )
