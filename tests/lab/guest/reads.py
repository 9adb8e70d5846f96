"""Scenario: known numbers of reads and writes, counted by the tracer and by ZFS's own kstats."""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from reading import BLOCK, READER, fill, preads, pwrites

from labkit import (
    DISK,
    KSTAT,
    Json,
    Tracer,
    finish,
    fio,
    make_pool,
    parameters,
    programs,
    progress,
    run,
    sh,
    traced,
)

COLD = 101


def objset(dataset: str) -> dict[str, int]:
    """The kstat of a dataset in use."""
    for path in (KSTAT / dataset.split("/")[0]).glob("objset-*"):
        lines = [line.split(None, 2) for line in path.read_text().splitlines()[2:]]
        values = {name: value for name, _kind, value in lines}
        if values["dataset_name"] == dataset:
            return {name: int(value) for name, value in values.items() if value.isdigit()}
    raise RuntimeError(f"no kstat of {dataset}")


@contextmanager
def counted(results: Json, key: str, dataset: str, *args: str) -> Iterator[None]:
    """Traces the body, and adds what the kstat of the dataset counted meanwhile."""
    before = objset(dataset)
    with traced(results, key, "read", *args):
        yield
    after = objset(dataset)
    names = ("reads", "nread", "writes", "nwritten")
    results[key]["kstat"] = {name: after[name] - before[name] for name in names}


def forget() -> None:
    """What was read is no longer in memory."""
    sh("zpool export slow; zpool import slow")


def slow_disk(disk: str) -> str:
    """The disk with reads that take 10 ms more: no read has its data before its thread waits."""
    sectors = int(sh(f"blockdev --getsz {disk}"))
    sh(f"dmsetup create slow --table '0 {sectors} delay {disk} 0 10 {disk} 0 0'; udevadm settle")
    return "/dev/mapper/slow"


def hits(results: Json) -> None:
    progress("hits")
    fill("/tank/db/file", 64)
    preads("/tank/db/file", 64)
    with counted(results, "hits", "tank/db", "tank"):
        preads("/tank/db/file", 503, 4096)
    with counted(results, "kprobes", "tank/db", "tank", "--no-fentry"):
        preads("/tank/db/file", 307, 4096)
    with counted(results, "kstat", "tank/db", "tank", "--source", "kstat"):
        preads("/tank/db/file", 211, 4096)
    progress("the end of a file, and a mapping")
    with traced(results, "end", "read", "tank"):
        fd = os.open("/tank/db/file", os.O_RDONLY)
        for _ in range(7):
            os.pread(fd, 4096, 64 * BLOCK)
        with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as mapped:
            results["mapped"] = sum(mapped[i * BLOCK] for i in range(64))
        os.close(fd)


def misses(results: Json) -> None:
    progress("misses")
    fill("/slow/cold/file", COLD)
    with parameters(zfs_prefetch_disable=1):
        forget()
        with counted(results, "misses", "slow/cold", "slow"):
            preads("/slow/cold/file", COLD, blocks=COLD)
        forget()
        with counted(results, "misses_kprobes", "slow/cold", "slow", "--no-fentry"):
            preads("/slow/cold/file", COLD, blocks=COLD)
            preads("/slow/cold/file", 53, blocks=COLD)
    progress("errors")
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open("/slow/cold/file", os.O_RDONLY)
    with traced(results, "errors", "read", "slow"):
        # into a page that nobody has
        results["failed"] = [libc.pread(fd, ctypes.c_void_p(64), 4096, 0) for _ in range(3)]
    os.close(fd)


def writes(results: Json) -> None:
    progress("writes")
    with counted(results, "writes", "tank/other", "tank"):
        pwrites("/tank/other/file", 211)
    progress("writes that are held up")
    small = {"zfs_dirty_data_max": 8 << 20, "zfs_delay_min_dirty_percent": 10}
    with parameters(**small), counted(results, "held", "tank/other", "tank"):
        pwrites("/tank/other/large", 512, 128 << 10)


def filters(results: Json) -> None:
    progress("filters")

    def reader(path: str, n: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(["python3", "-c", READER, path, str(n)], stdin=subprocess.PIPE)

    def go(*readers: subprocess.Popen[bytes]) -> None:
        for one in readers:
            one.communicate(b"\n")

    fill("/tank/db/a", 1)
    fill("/tank/other/b", 1)
    fill("/side/c", 1)
    a, b = reader("/tank/db/a", 31), reader("/tank/other/b", 37)
    with traced(results, "by_dataset", "read", "--dataset", "tank/other"):
        go(a, b)
    a, b = reader("/tank/db/a", 31), reader("/tank/db/a", 37)
    with traced(results, "by_pid", "read", "--pid", str(b.pid)):
        go(a, b)
    a, c = reader("/tank/db/a", 31), reader("/side/c", 41)
    with traced(results, "by_pool", "read", "side"):
        go(a, c)


def mounts(results: Json) -> None:
    """A dataset that comes and goes during a trace keeps its name, and another does not get it."""
    progress("mounted again")
    with traced(results, "mounts", "read", "tank"):
        preads("/tank/db/file", 13)
        sh("zfs unmount tank/db; zfs mount tank/db")
        preads("/tank/db/file", 17)
        sh("zfs unmount tank/db; zfs unmount tank/other; zfs mount tank/other; zfs mount tank/db")
        preads("/tank/other/file", 19)
        preads("/tank/db/file", 23)


def threads(results: Json) -> None:
    """Of a thread that ends in between nothing is left behind, and many at once lose nothing."""
    progress("threads")
    code = (
        "import os, sys, threading\n"
        "def go():\n fd = os.open(sys.argv[1], os.O_RDONLY)\n"
        " for i in range(97):\n  os.pread(fd, 4096, 0)\n"
        "ts = [threading.Thread(target=go) for _ in range(8)]\n"
        "[t.start() for t in ts]; [t.join() for t in ts]\n"
    )
    with counted(results, "threads", "tank/db", "tank"):
        sh(f"python3 -c '{code}' /tank/db/file")


def sample(results: Json) -> None:
    """A mixed load, as the page about the view shows it."""
    progress("sample")
    fio("/slow/cold", "--rw=write", name="mixed", size="64M")
    forget()
    tracer = Tracer("read", "slow", json_lines=False)
    options = "--rw=randrw --rwmixread=90 --random_distribution=zipf:1.2 --numjobs=2 --thread"
    fio("/slow/cold", *options.split(), "--time_based", "--runtime=10", name="mixed", size="64M")
    results["sample"] = tracer.stop()


def main() -> None:
    results: Json = {"cold": COLD}
    make_pool()
    make_pool("side", DISK[:-1] + "c")
    make_pool("slow", slow_disk(DISK[:-1] + "d"))
    for name in ("tank/db", "tank/other", "slow/cold"):
        sh(f"zfs create -o recordsize=8k {name}")
    hits(results)
    misses(results)
    writes(results)
    filters(results)
    mounts(results)
    threads(results)
    sample(results)
    results["text"] = sh("zfstune trace read tank --duration 2s")
    results["refused"] = run(["zfstune", "trace", "read", "--source", "kstat", "--pid", "1"])
    results["programs_left"] = programs()
    finish(results)


main()
