"""Scenario: known causes of slow fsyncs, each made on purpose, to be found in its stage.

Disks: vdb plain, vdc with slow flushes, vdd with slow writes, vde with limited bandwidth
and operations, vdf for a log device.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from labkit import (
    Json,
    Tracer,
    finish,
    fio,
    kstat,
    make_pool,
    programs,
    progress,
    sh,
    sync_writes,
    traced,
)


@contextlib.contextmanager
def pool_on(disk: str) -> Iterator[None]:
    """A pool with a dataset whose log exists already."""
    make_pool(disk=disk)
    sh("zfs create tank/db")
    sync_writes("/tank/db/warm", 3)
    try:
        yield
    finally:
        sh("zpool destroy tank")


def slow_devices(results: Json) -> None:
    for key, disk in (("flush", "vdc-delay"), ("log_write", "vdd-delay")):
        progress(f"slow device: {key}")
        with pool_on(f"/dev/mapper/{disk}"), traced(results, key, "fsync", "tank"):
            sync_writes("/tank/db/file", 61)


def crowd(results: Json) -> None:
    """The same load from one thread and from sixteen."""
    for jobs in (1, 16):
        progress(f"{jobs} threads")
        with traced(results, f"crowd{jobs}", "fsync", "tank"):
            fio(
                "/tank/db",
                "--fsync=1",
                f"--numjobs={jobs}",
                f"--number_ios={1 + 800 // jobs}",
                "--group_reporting",
                name=f"crowd{jobs}",
                size="16M",
            )


def mapped_writer(results: Json) -> None:
    """Pages dirtied through mmap are written by the fsync itself. A small log record for
    each page follows, so the pages are many and the file is one."""
    progress("mmap writer")
    path = Path("/tank/db/mapped")
    size = 24 << 20
    path.write_bytes(bytes(size))
    sh("zpool sync tank")
    with (
        path.open("r+b") as f,
        mmap.mmap(f.fileno(), size) as m,
        traced(results, "writeback", "fsync", "tank"),
    ):
        for _ in range(3):
            for offset in range(0, size, mmap.PAGESIZE):
                m[offset] = 1
            os.fsync(f.fileno())


def no_log(results: Json) -> None:
    """The first commit of a dataset creates its log and waits for a whole txg for that."""
    progress("first commits")
    for i in range(7):
        sh(f"zfs create tank/new{i}")
    with traced(results, "first", "fsync", "tank"):
        for i in range(7):
            sync_writes(f"/tank/new{i}/file", 1)


def failing_log(results: Json) -> None:
    """The log device begins to fail under load: the commits whose log block could not be
    written wait for a whole txg instead."""
    progress("failing log device")
    sectors = int(sh("blockdev --getsz /dev/vdf"))
    sh(f"dmsetup create frail --table '0 {sectors} linear /dev/vdf 0'; udevadm settle")
    sh("zpool add -f tank log /dev/mapper/frail")
    sync_writes("/tank/db/warm", 5)
    with traced(results, "failing", "fsync", "tank"):
        before = kstat("zil")
        sync_writes("/tank/db/good", 10)
        sh("dmsetup suspend frail")
        sh(f"dmsetup load frail --table '0 {sectors} error'")
        sh("dmsetup resume frail")
        sync_writes("/tank/db/bad", 20)
        after = kstat("zil")
    results["failing"]["zil"] = {k: after[k] - before.get(k, 0) for k in after}
    results["failing"]["status"] = sh("zpool status tank")


def busy_cpu(results: Json) -> None:
    """The writer may only run where four hogs of a better priority do."""
    progress("CPU hog")
    hog = "while :; do :; done"
    writer = (
        "import os\nfd=os.open('/tank/db/hog',os.O_WRONLY|os.O_CREAT)\n"
        "for i in range(60):\n os.pwrite(fd,b'x'*8192,i*8192)\n os.fsync(fd)\n"
    )
    with traced(results, "wakeup", "fsync", "tank"):
        hogs = [subprocess.Popen(["taskset", "-c", "0", "sh", "-c", hog]) for _ in range(4)]
        try:
            subprocess.run(
                ["taskset", "-c", "0", "nice", "-n", "10", "python3", "-c", writer], check=True
            )
        finally:
            for h in hogs:
                h.kill()
                h.wait()


def mixed(results: Json) -> None:
    """A bulk writer and a log writer on a limited disk; slow ones are reported too."""
    progress("mixed load")
    make_pool(disk="/dev/vde")
    sh("zfs create tank/bulk; zfs create tank/db")
    slow = Tracer("slow", "--over", "2ms", "tank")
    bulk = (
        "fio --name=bulk --directory=/tank/bulk --rw=write --bs=1M --size=400M --time_based "
        "--runtime=25 --output=/tmp/bulk.txt"
    )
    with traced(results, "mixed", "fsync", "tank"):
        other = subprocess.Popen(bulk, shell=True)
        results["mixed_fio"] = fio(
            "/tank/db", "--fsync=1", "--time_based", "--runtime=20", name="wal", size="32M"
        )["jobs"][0]["sync"]["lat_ns"]
        other.wait()
    rows = slow.rows()
    results["slow"] = {"rows": rows, "status": slow.process.returncode}
    sh("zpool destroy tank")


def throttled(results: Json) -> None:
    """A bulk writer beyond a small dirty data limit: up to 2.1.11 a commit's transaction is
    held up by the write throttle like any other."""
    progress("write throttle")
    limit = Path("/sys/module/zfs/parameters/zfs_dirty_data_max")
    before = limit.read_text()
    make_pool(disk="/dev/vde")
    sh("zfs create tank/bulk; zfs create tank/db")
    sync_writes("/tank/db/warm", 3)
    limit.write_text(str(32 << 20))
    bulk = subprocess.Popen(
        "exec fio --name=bulk --directory=/tank/bulk --rw=write --bs=1M --size=400M "
        "--time_based --runtime=600 --output=/dev/null",
        shell=True,
    )
    time.sleep(3)
    with traced(results, "throttled", "fsync", "--dataset", "tank/db"):
        sync_writes("/tank/db/file", 29)
    bulk.terminate()
    bulk.wait()
    limit.write_text(before)
    sh("zpool destroy tank")


def main() -> None:
    results: Json = {}
    slow_devices(results)
    with pool_on("/dev/vdb"):
        crowd(results)
        mapped_writer(results)
        no_log(results)
        busy_cpu(results)
        failing_log(results)
    mixed(results)
    throttled(results)
    results["programs_left"] = programs()
    finish(results)


main()
