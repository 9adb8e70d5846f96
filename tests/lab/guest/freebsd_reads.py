"""Scenario: known numbers of reads and writes, counted by `zfstune trace read` and by the kstats."""

from __future__ import annotations

import os
import subprocess

from labkit import Json, finish, make_pool, progress, sh, traced

BLOCK, COLD = 8192, 101

READER = (
    "import os, sys\nfd = os.open(sys.argv[1], os.O_RDONLY)\ninput()\n"
    "for i in range(int(sys.argv[2])):\n os.pread(fd, 4096, 0)\n"
)


def writes(path: str, blocks: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    for i in range(blocks):
        os.pwrite(fd, os.urandom(BLOCK), i * BLOCK)
    os.close(fd)


def reads(path: str, n: int, size: int, blocks: int) -> None:
    fd = os.open(path, os.O_RDONLY)
    for i in range(n):
        os.pread(fd, size, i % blocks * BLOCK)
    os.pread(fd, size, blocks * BLOCK)  # its end: no data
    os.close(fd)


def reader(path: str, n: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["python3", "-c", READER, path, str(n)], stdin=subprocess.PIPE)


def main() -> None:
    results: Json = {"cold": COLD}
    make_pool()
    sh("zfs create -o recordsize=8k tank/db; zfs create -o recordsize=8k tank/other")
    sh("sysctl vfs.zfs.prefetch.disable=1")
    progress("writes")
    with traced(results, "writes", "read", "tank"):
        writes("/tank/other/file", 211)
    writes("/tank/db/file", COLD)
    progress("hits")
    with traced(results, "hits", "read", "tank"):
        reads("/tank/db/file", 503, 4096, COLD)
    with traced(results, "kstat", "read", "tank", "--source", "kstat"):
        reads("/tank/db/file", 307, 4096, COLD)
    progress("misses")
    sh("zpool export tank; zpool import tank")
    with traced(results, "misses", "read", "tank"):
        reads("/tank/db/file", COLD, BLOCK, COLD)
    progress("filters")
    for key, option in (("by_dataset", "--dataset"), ("by_pid", "--pid")):
        a, b = reader("/tank/db/file", 31), reader("/tank/other/file", 37)
        with traced(results, key, "read", option, "tank/other" if option[2] == "d" else str(b.pid)):
            for one in (a, b):
                one.communicate(b"\n")
    finish(results)


main()
