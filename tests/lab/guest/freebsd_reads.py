"""Scenario: known numbers of reads and writes on FreeBSD, counted by zfsread-json.d and by ZFS's
own kstats. Disks: vtbd1 plain (pool tank), vtbd2 with slow reads (pool slow), vtbd3 (pool side).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from dscripts import Script
from reading import BLOCK, READER, fill, preads, pwrites

from labkit import Json, Tracer, finish, make_pool, parameters, progress, run, sh, traced

COLD = 101
MIB = 1 << 20


def objset(dataset: str) -> dict[str, int]:
    """The kstat of a dataset in use."""
    found: dict[str, dict[str, str]] = {}
    for line in sh(f"sysctl kstat.zfs.{dataset.split('/')[0]}.dataset").splitlines():
        name, _, value = line.partition(": ")
        number, field = name.split(".")[-2:]
        found.setdefault(number, {})[field] = value
    for values in found.values():
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


def hits(results: Json) -> None:
    progress("hits")
    fill("/tank/db/file", 64)
    preads("/tank/db/file", 64)
    with counted(results, "hits", "tank/db", "tank"):
        preads("/tank/db/file", 503, 4096)
    with counted(results, "kstat", "tank/db", "tank", "--source", "kstat"):
        preads("/tank/db/file", 211, 4096)
    progress("a buffer that is not in memory")
    pwrites("/tank/db/large", 2, MIB)
    preads("/tank/db/large", 2, MIB, 1)
    with counted(results, "untouched", "tank/db", "tank"):
        fd = os.open("/tank/db/large", os.O_RDONLY)
        for _ in range(3):
            os.preadv(fd, [mmap.mmap(-1, MIB)], 0)
        os.close(fd)
    progress("the end of a file, and a mapping")
    with traced(results, "end", "read", "tank"):
        fd = os.open("/tank/db/file", os.O_RDONLY)
        for _ in range(7):
            os.pread(fd, 4096, 64 * BLOCK)
        with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as mapped:
            results["mapped"] = sum(mapped[i * BLOCK] for i in range(64))
        os.close(fd)


def misses(results: Json) -> None:
    """From a disk so slow that no read has its data before its thread waits."""
    progress("misses")
    fill("/slow/cold/file", COLD)
    sh("sysctl vfs.zfs.prefetch.disable=1; zpool export slow; zpool import slow")
    with counted(results, "misses", "slow/cold", "slow"):
        preads("/slow/cold/file", COLD, blocks=COLD)
        preads("/slow/cold/file", 53, blocks=COLD)
    progress("the same block, by two threads")
    sh("zpool export slow; zpool import slow")
    with traced(results, "shared", "read", "slow"):
        threads("/slow/cold/file", 2, 1)
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
    small = {"zfs_dirty_data_max": 8 * MIB, "zfs_delay_min_dirty_percent": 10}
    with parameters(**small), traced(results, "held", "read", "tank"):
        pwrites("/tank/other/large", 512, 128 << 10)


def filters(results: Json) -> None:
    progress("filters")

    def reader(path: str, n: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", READER, path, str(n)], stdin=subprocess.PIPE)

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


def threads(path: str, count: int, reads: int) -> None:
    """Reads of the first block by as many threads at once."""
    code = (
        "import os, sys, threading\n"
        f"start = threading.Barrier({count})\n"
        "def go():\n"
        " fd = os.open(sys.argv[1], os.O_RDONLY)\n"
        " start.wait()\n"
        f" for i in range({reads}): os.pread(fd, 4096, 0)\n"
        f"ts = [threading.Thread(target=go) for _ in range({count})]\n"
        "[t.start() for t in ts]; [t.join() for t in ts]\n"
    )
    subprocess.run([sys.executable, "-c", code, path], check=True)


def kernel(results: Json) -> None:
    """What the kernel itself reads, as nfsd(8) does: a disk of md(4) in a file."""
    progress("reads of the kernel")
    sh("truncate -s 1m /tank/db/disk")
    unit = sh("mdconfig -a -t vnode -f /tank/db/disk").strip()
    with traced(results, "kernel", "read", "tank"):
        sh(f"dd if=/dev/{unit} of=/dev/null bs=8k count=29")
    sh(f"mdconfig -d -u {unit}")


def sample(results: Json) -> None:
    """A mixed load, as a table; and the script by itself."""
    progress("sample")
    tracer = Tracer("read", "slow", json_lines=False)
    preads("/slow/cold/file", 400, blocks=COLD)
    pwrites("/slow/cold/new", 200)
    results["sample"] = tracer.stop()
    script = Script("zfsread-json.d", "0", "slow")
    preads("/slow/cold/file", 17)
    results["script"] = script.stop()


def main() -> None:
    results: Json = {"cold": COLD}
    make_pool()
    make_pool("slow", "/dev/vtbd2")
    make_pool("side", "/dev/vtbd3")
    for name in ("tank/db", "tank/other", "slow/cold"):
        sh(f"zfs create -o recordsize=8k {name}")
    for step in (hits, misses, writes, filters, kernel, sample):
        step(results)
        finish(results)
    with traced(results, "threads", "read", "tank"):
        threads("/tank/db/file", 8, 97)
    results["text"] = sh("zfstune trace read tank --duration 2s")
    results["refused"] = run(["zfstune", "trace", "read", "--source", "kstat", "--pid", "1"])
    results["unknown"] = run(["zfstune", "trace", "read", "--dataset", "tank/nosuch"])
    results["left"] = sh("pgrep dtrace", check=False)
    finish(results)


main()
