"""Scenario: known numbers of synchronous operations of every kind, counted by `zfstune trace fsync`
and by one-file D scripts at the same time, and by ZFS's own kstats."""

from __future__ import annotations

import fcntl
import mmap
import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dscripts import Script

from labkit import Json, finish, make_pool, progress, run, sh, sync_writes, traced

ODD_POOL = "si.de-2 x"
# A character that a mount point may have, and a dataset's name not, is in the mount point only.
ODD_NAMES = {
    "tank/with space": "/tank/with space",
    "tank/-lead": "/tank/-lead",
    "tank/v1.2:x_y": "/tank/päge 100%s",
    f"{ODD_POOL}/da ta": f"/{ODD_POOL}/da ta",
}
DIOCGFLUSH = 0x20006487  # _IO('d', 135), sys/disk.h


def writes(path: str, flags: int, n: int) -> None:
    """n writes of 4 kB, with these flags of open(2)."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o600)
    for i in range(n):
        os.pwrite(fd, b"x" * 4096, i * 4096)
    os.close(fd)


def fdatasyncs(path: str, n: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    for i in range(n):
        os.pwrite(fd, b"x" * 4096, i * 4096)
        os.fdatasync(fd)
    os.close(fd)


def threads(path: str, count: int, n: int) -> None:
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(lambda i: sync_writes(f"{path}/file{i}", n), range(count)))


def msyncs(path: str, n: int) -> None:
    """Of one page of a mapping each."""
    with Path(path).open("r+b") as f, mmap.mmap(f.fileno(), 0) as m:
        for i in range(n):
            m[i * mmap.PAGESIZE] = 1
            m.flush(i * mmap.PAGESIZE, mmap.PAGESIZE)


def flushes(path: str, n: int) -> None:
    """Writes to a volume, each with a flush of the disk that it is."""
    fd = os.open(path, os.O_RDWR)
    for i in range(n):
        os.pwrite(fd, b"x" * 4096, i * 4096)
        fcntl.ioctl(fd, DIOCGFLUSH)
    os.close(fd)


def volume(mode: str) -> None:
    """ZFS makes its node later. Once, of some fifty, it had made none after 40 s."""
    sh(f"zfs create -V 64M -o volmode={mode} tank/{mode}")
    node = Path("/dev/zvol/tank", mode)
    for _ in range(3):
        for _ in range(100):
            if node.exists():
                return
            time.sleep(0.1)
        progress(f"no {node}")
        sh(f"zfs set volmode=none tank/{mode}; zfs set volmode={mode} tank/{mode}")
    raise RuntimeError(f"no {node}")


def load() -> None:
    sync_writes("/tank/db/file", 211)
    fdatasyncs("/tank/fdatasync/file", 199)
    threads("/tank/threads", 8, 31)
    writes("/tank/dsync/file", os.O_DSYNC, 101)
    writes("/tank/osync/file", os.O_SYNC, 97)
    writes("/tank/always/file", 0, 53)
    sync_writes("/tank/off/file", 17)
    msyncs("/tank/msync/file", 59)
    flushes("/dev/zvol/tank/dev", 47)
    writes("/dev/zvol/tank/dev", os.O_SYNC, 41)
    flushes("/dev/zvol/tank/geom", 43)
    for i, directory in enumerate(ODD_NAMES.values()):
        sync_writes(f"{directory}/file", 2 + i)
    sh("zfs create tank/new")
    sync_writes("/tank/new/file", 23)
    sync_writes("/tank/gone/file", 29)


def zil_commits() -> dict[str, int]:
    """The commits of each dataset, as ZFS counts them."""
    names, counts = {}, {}
    for line in sh("sysctl kstat.zfs").splitlines():
        key, _, value = line.partition(": ")
        node, _, name = key.rpartition(".")
        if name == "dataset_name":
            names[node] = value
        elif name == "zil_commit_count":
            counts[node] = int(value)
    return {name: counts[node] for node, name in names.items()}


def whole(results: Json) -> None:
    """Two scripts beside the command."""
    progress("attaching")
    slower, commit = Script("zilslower.d", "0"), Script("zilcommit.d")
    with traced(results, "all", "fsync"):
        progress("load")
        before = zil_commits()
        load()
        results["by_dataset"] = {
            name: count - before.get(name, 0) for name, count in zil_commits().items()
        }
        sh("zfs destroy tank/gone")
        time.sleep(1)
    progress("ending")
    results["zilcommit.d"], results["zilslower.d"] = commit.stop(), slower.stop()


def filters(results: Json) -> None:
    """Two writers; each filter sees only its own."""
    script = "import labkit\ninput()\nlabkit.sync_writes(%r, %d)"

    def writer(path: str, n: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["python3", "-c", script % (path, n)],
            stdin=subprocess.PIPE,
            cwd=Path(__file__).parent,
        )

    def go(*writers: subprocess.Popen[bytes]) -> None:
        for one in writers:
            one.communicate(b"\n")

    progress("filters")
    a, b = writer("/tank/db/a", 31), writer("/tank/with space/b", 37)
    with traced(results, "by_dataset_name", "fsync", "--dataset", "tank/with space"):
        go(a, b)
    a, b = writer("/tank/db/a", 31), writer("/tank/db/b", 37)
    with traced(results, "by_pid", "fsync", "--pid", str(b.pid)):
        go(a, b)
    with traced(results, "by_pool", "fsync", ODD_POOL):
        sync_writes("/tank/db/a", 5)
        sync_writes(f"/{ODD_POOL}/da ta/a", 7)


def main() -> None:
    results: Json = {}
    make_pool()
    make_pool(ODD_POOL, "/dev/vtbd2")
    for name in ("db", "fdatasync", "threads", "dsync", "osync", "msync", "gone"):
        sh(f"zfs create tank/{name}")
    sh("zfs create -o sync=always tank/always; zfs create -o sync=disabled tank/off")
    for mode in ("dev", "geom"):
        volume(mode)
    for name, directory in ODD_NAMES.items():
        sh(f"zfs create -o 'mountpoint={directory}' '{name}'")
    Path("/tank/msync/file").write_bytes(bytes(1 << 20))
    results["listed"] = sh("zfs list -Ho name").splitlines()
    whole(results)
    filters(results)
    results["left"] = run(["pgrep", "-l", "dtrace"])["stdout"]
    finish(results)


main()
