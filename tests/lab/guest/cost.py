"""Scenario: what a trace adds to an fsync, in instructions, which the emulator counts.

cost.py [--peers] [MODE ...], of scripts/benchmarks/modes.py or peers of tracing_guest.py;
without MODE all modes, with --peers all peers as well

Runs on one CPU whose time passes with its instructions (scripts/lab run --instructions), on a pool
in memory: nothing but the code itself is left to differ. The names of what was executed are left
beside the results: the functions of /proc/kallsyms while the tracers of a mode were attached.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import mmap
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts"))

from benchmarks import tracing_guest
from benchmarks.loads import Load, jobs
from benchmarks.modes import MODES, attached
from labkit import OUT, Json, commits, finish, make_pool, progress, set_parameter, sh

FSYNCS = 1000
WARM = 300
EIGHT = Load("tank/db", 8, FSYNCS // 8, 1)


class Marks:
    """Functions of two instructions, NOPL with an address that instructions.c knows, and RET."""

    def __init__(self) -> None:
        rwx = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
        self.page = mmap.mmap(-1, mmap.PAGESIZE, prot=rwx)
        for number in range(256):
            self.page.write(bytes((0x0F, 0x1F, 0x80, number, 0x62, 0x6C, 0x7A, 0xC3)))
        self.start = ctypes.addressof(ctypes.c_char.from_buffer(self.page))

    def __getitem__(self, number: int) -> Callable[[], None]:
        return ctypes.CFUNCTYPE(None)(self.start + 8 * number)


def fsyncs(fd: int, count: int) -> None:
    block = b"x" * 8192
    for _ in range(count):
        os.pwrite(fd, block, 0)
        os.fsync(fd)


@contextlib.contextmanager
def first() -> Iterator[None]:
    """Lets no thread of ZFS take the CPU before this one, and those that it begins, wait for it. Or
    else a log block is written before its commit waits for it, or after, as the scheduler has it,
    and a large part of what a trace adds is at the wait."""
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


@contextlib.contextmanager
def one_job(dataset: str) -> Iterator[Callable[[int], None]]:
    """What does so many fsyncs."""
    fd = os.open(f"/{dataset}/file", os.O_WRONLY | os.O_CREAT, 0o600)
    yield partial(fsyncs, fd)
    os.close(fd)


@contextlib.contextmanager
def eight_jobs() -> Iterator[Callable[[int], None]]:
    """What has eight processes do FSYNCS together, whatever it is asked for."""
    with first():
        piece = jobs(EIGHT)
    yield lambda _: piece()


def measure(load: Callable[[int], None], begin: Callable[[], None], end: Callable[[], None]) -> int:
    """Marks FSYNCS fsyncs; the commits of ZFS meanwhile."""
    with first():
        load(WARM)
        before = commits()
        gc.collect()
        begin()
        load(FSYNCS)
        end()
        return commits() - before


def tracing(name: str) -> contextlib.AbstractContextManager[object]:
    """Our tracers of a mode, or a peer, while the body runs."""
    if name in MODES:
        return attached(name)
    return tracing_guest.running(tracing_guest.TOOLS[name])


def main() -> None:
    tracing_guest.install_packages()
    named = [name for name in sys.argv[1:] if name != "--peers"]
    wanted = named or [*MODES, *(tracing_guest.peers() if "--peers" in sys.argv else ())]
    # peers, and why they are not counted
    absent: dict[str, str] = {}
    results: Json = {"fsyncs": FSYNCS, "modes": [], "absent": absent}
    sh("modprobe brd rd_nr=1 rd_size=524288")
    # so that none of its pages is new
    sh("dd if=/dev/urandom of=/dev/ram0 bs=1M count=512")
    make_pool(disk="/dev/ram0")
    sh("zfs create -o sync=disabled tank/off; zfs create -o recordsize=8k tank/db")
    set_parameter("zfs_txg_timeout", "3600")
    marks = Marks()
    gc.disable()
    number = 0
    of = {"tank/db": one_job("tank/db"), "8 jobs": eight_jobs(), "tank/off": one_job("tank/off")}
    for dataset, load in of.items():
        with load as do:
            do(FSYNCS)
            for name in wanted:
                if name in absent:
                    continue
                progress(f"{dataset}: {name}")
                sh("zpool sync tank")
                number += 2
                try:
                    with tracing(name):
                        done = measure(do, marks[number], marks[number + 1])
                        sh(f"grep -i ' t ' /proc/kallsyms > {OUT}/symbols-{number + 1}")
                except RuntimeError as error:
                    if name in MODES:
                        raise
                    absent[name] = str(error)
                    continue
                row = {"dataset": dataset, "mode": name, "mark": number + 1, "commits": done}
                results["modes"].append(row)
    results["modes"] = [row for row in results["modes"] if row["mode"] not in absent]
    finish(results)


main()
