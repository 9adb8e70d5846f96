"""What a write and its fsync take of the CPUs, measured in a guest of one CPU, so that no thread
spins while another has a lock.

The time of all threads counts, however long a disk is waited for. A measurement is the median of
short pieces, each between two runs of a loop that no tracer touches. Its time is in relation to
these: what others do on the machine's cores makes both slower, at times twice as slow.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import random
import re
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path

SCHEDSTAT = Path("/proc/schedstat")
BLOCK = b"x" * 8192


@dataclass(frozen=True)
class Load:
    """Processes that write 8 kB and call fsync, so often each in a piece, on a dataset; and how
    many pieces a measurement has. How many fsyncs share a log block varies where jobs meet."""

    dataset: str
    jobs: int
    fsyncs: int
    pieces: int

    @property
    def pool(self) -> str:
        return self.dataset.partition("/")[0]


# Less than a tenth of a second each, emulated. One pool is in memory, one on a disk of the lab
LOADS = {
    "1 job": Load("ram/db", 1, 100, 8),
    "8 jobs": Load("ram/db", 8, 12, 12),
    "disk": Load("disk/db", 1, 50, 4),
    "sync=disabled": Load("ram/off", 1, 1000, 5),
}
# No txg ends by itself here, and until one does, log blocks and records of the ZIL stay
PIECES_OF_TXG = 5


def sh(command: str) -> str:
    return subprocess.run(command, shell=True, check=True, capture_output=True, text=True).stdout


def cpu_ns() -> int:
    """How long threads have run, on all CPUs: the seventh number of each
    (Documentation/scheduler/sched-stats.rst), without those that run now."""
    lines = (line.split() for line in SCHEDSTAT.read_text().splitlines())
    return sum(int(fields[7]) for fields in lines if re.fullmatch(r"cpu\d+", fields[0]))


class Reference:
    """A loop that takes as long as the machine is slow: memory is read in an order that no cache
    foresees, as in most of what a kernel does."""

    STEPS, WALK = 100_000, 12_000

    def __init__(self) -> None:
        order = list(range(self.STEPS))
        random.Random(1).shuffle(order)
        self._next = [0] * self.STEPS
        for here, there in zip(order, (*order[1:], order[0]), strict=True):
            self._next[here] = there
        self._at = 0
        # what it usually takes; results are in ns of a machine as slow as that
        self.usual = statistics.median(self.ns() for _ in range(50))

    def ns(self) -> int:
        """How long it takes now, of this thread alone."""
        following, at = self._next, self._at
        start = time.thread_time_ns()
        for _ in range(self.WALK):
            at = following[at]
        took = time.thread_time_ns() - start
        self._at = at
        return took


def cpu_per_fsync(
    load: Load, reference: Reference, own: Callable[[], int] = lambda: 0, seconds: float = 0
) -> float:
    """CPU time of a write and its fsync, in ns of a machine as slow as usual, without what `own`
    says that a process has had. Lasts for so long at least."""
    found, before, end = list[float](), reference.ns(), time.monotonic() + seconds
    for one in pieces(load):
        before_own = own()
        time.sleep(0.001)  # the kernel counts a thread's time when it stops running
        start = cpu_ns()
        one()
        ns = cpu_ns() - start - (own() - before_own)
        after = reference.ns()
        found.append(ns * 2 * reference.usual / (before + after))
        before = after
        if len(found) >= load.pieces and time.monotonic() >= end:
            break
    return statistics.median(found) / (load.jobs * load.fsyncs)


def pieces(load: Load) -> Iterator[Callable[[], None]]:
    """The load's pieces, without an end, each to be called."""
    one = jobs(load)
    for n in itertools.count():
        if not n % PIECES_OF_TXG:
            sh(f"zpool sync {load.pool}")
        yield one


@cache
def jobs(load: Load) -> Callable[[], None]:
    """Begins the load's processes, which stay; what has each of them do a piece. That raises
    RuntimeError if one fails."""
    fork = multiprocessing.get_context("fork")
    ends, processes = list[Connection](), list[multiprocessing.process.BaseProcess]()
    for n in range(load.jobs):
        ours, theirs = fork.Pipe()
        path = f"/{load.dataset}/file{n}"
        process = fork.Process(target=job, args=(path, load.fsyncs, theirs), daemon=True)
        process.start()
        ends.append(ours)
        processes.append(process)

    def piece() -> None:
        try:
            for end in ends:
                end.send_bytes(b"go on")
            errors = [error for error in (end.recv_bytes().decode() for end in ends) if error]
            if errors:
                raise RuntimeError(f"{len(errors)} of {load.jobs} jobs failed: {errors[0]}")
        except BaseException:
            # one that is in a piece would answer during the next
            for process in processes:
                process.kill()
            jobs.cache_clear()
            raise

    return piece


def job(path: str, fsyncs: int, end: Connection) -> None:
    """Writes to the file and fsyncs it, so often each time that it is told to."""
    while end.recv_bytes():
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
            for _ in range(fsyncs):
                os.pwrite(fd, BLOCK, 0)
                os.fsync(fd)
            os.close(fd)
            end.send_bytes(b"")
        except OSError as error:
            end.send_bytes(str(error).encode())
