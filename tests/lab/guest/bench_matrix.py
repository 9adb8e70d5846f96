"""Scenario: `zfstune bench --matrix` erases the named disks, and nothing else: disks that carry
data or are in use, two rows, signals at random moments, SIGKILL, a disk that vanishes.

Disks: /dev/mapper/vdb-delay (slow), vdc (log device), vdd (for all kinds of data), vde (a pool of
another owner), vdf (too small). `bench_matrix.py [SIGNALS]`."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pty
import random
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from labkit import KSTAT, Json, finish, make_pool, programs, progress, run, sh, until_loading

MATRIX = ("zfstune", "bench", "--matrix", "reports-2014", "--duration", "500ms")
SLOW, LOG, DISK, OTHER, SMALL = (
    "/dev/mapper/vdb-delay",
    "/dev/vdc",
    "/dev/vdd",
    "/dev/vde",
    "/dev/vdf",
)
MIB = 1 << 20
ONE_ROW = ("--rows", "recordsize-8k")
# Each run takes seconds in emulation: `make test` tries one of a kind.
SHORT = ("refusals", "rows", "signals")
SHORT_REFUSALS = ("wrong name", "mounted, forced", "imported pool, forced", "exported pool", "dm")
# images may lack e2fsprogs: then rows that need it are not tried
EXT4 = bool(shutil.which("mkfs.ext4"))
MKFS = "mkfs.ext4 -q -F" if EXT4 else "busybox mke2fs"


def ends(disk: str) -> str:
    """A checksum of the first and the last MiB, past the cache."""
    fd = os.open(disk, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        size = os.lseek(fd, 0, 2)
        parts = [os.pread(fd, MIB, 0), os.pread(fd, MIB, size - MIB)]
    finally:
        os.close(fd)
    return hashlib.sha256(b"".join(parts)).hexdigest()


def blank(disk: str = DISK) -> None:
    with Path(disk).open("r+b") as file:
        size = file.seek(0, 2)
        for start in (0, size - 16 * MIB):
            file.seek(start)
            file.write(bytes(16 * MIB))
    sh(f"blockdev --rereadpt {disk}; udevadm settle", check=False)


def partition_table(disk: str = DISK) -> None:
    """An MBR with one partition; sfdisk is not in each image."""
    entry = struct.pack("<B3sB3sII", 0, b"\0" * 3, 0x83, b"\0" * 3, 2048, 1 << 20)
    with Path(disk).open("r+b") as file:
        file.seek(446)
        file.write(entry + bytes(48) + b"\x55\xaa")
    sh(f"blockdev --rereadpt {disk}; udevadm settle")


@contextlib.contextmanager
def made(before: str, after: str) -> Iterator[None]:
    sh(before)
    try:
        yield
    finally:
        sh(f"{after}; udevadm settle", check=False)
        blank()


@contextlib.contextmanager
def partitioned(before: str = "true", after: str = "true") -> Iterator[None]:
    partition_table()
    with made(before, after):
        yield


@contextlib.contextmanager
def unknown() -> Iterator[None]:
    Path(DISK).write_bytes(random.Random(1).randbytes(8192))
    try:
        yield
    finally:
        blank()


def pools() -> list[str]:
    return [name for name in sh("zpool list -H -o name").split() if "bench" in name]


def left() -> Json:
    """What a run may not leave."""
    return {
        "pools": pools(),
        "directories": [str(path) for path in Path("/tmp").glob("zfstune-bench-*")],
        "mounts": [
            line for line in Path("/proc/mounts").read_text().split("\n") if "bench" in line
        ],
        "fio": sh("pgrep -x fio", check=False).split(),
        "programs": programs(),
    }


def refusals(*, short: bool) -> Json:
    """What the command says for each content of the disk, and whether it wrote."""
    found: Json = {}

    def refused(name: str, *words: str, disk: str = DISK) -> None:
        if short and name not in SHORT_REFUSALS:
            return
        before = ends(disk) if disk.startswith("/dev/") and Path(disk).is_block_device() else ""
        given = words or ("--disk", disk, "--yes", *ONE_ROW)
        found[name] = run([*MATRIX, *given])
        found[name]["written"] = before != (ends(disk) if before else "")
        progress(f"{name}: {found[name]['stderr'].strip()}")

    force = ("--disk", DISK, "--yes", *ONE_ROW, "--force-erase", DISK)
    with made(f"{MKFS} {DISK}", "true"):
        refused("file system")
        refused("wrong name", *force[:-1], "/dev/vdx")
        refused("another name of it", *force[:-1], "/dev/../dev/vdd")
        refused("nobody to ask", *force[:2], *ONE_ROW, "--force-erase", DISK)
        if not short:
            found["wrong answer"] = answered("vdd\n", force)
        # read-only: else the file system itself writes, seconds after it was mounted
        with made(f"mount -o ro {DISK} /mnt", "umount /mnt"):
            refused("mounted")
            refused("mounted, forced", *force)
    with partitioned():
        refused("partition table")
    with partitioned(f"{MKFS} {DISK}1; mount -o ro {DISK}1 /mnt", "umount /mnt"):
        refused("partition mounted")
        refused("partition mounted, forced", *force)
    with made(f"mkswap -q {DISK}; swapon {DISK}", f"swapoff {DISK}"):
        refused("swap, forced", *force)
    with made(f"zpool create victim {DISK}", "zpool destroy victim"):
        refused("imported pool")
        refused("imported pool, forced", *force)
        refused("imported pool, its partition", "--disk", f"{DISK}1", "--yes", *ONE_ROW)
        sh("zpool export victim; udevadm settle")
        refused("exported pool")
        sh("zpool import -d /dev victim")
    with made(f"modprobe loop; udevadm settle; losetup -f {DISK}", "losetup -D"):
        refused("loop, forced", *force)
    refused("dm", disk="/dev/vdb")
    with unknown():
        refused("unknown data")
    refused("volume", disk="/dev/zvol/keep/volume")
    refused("too small", disk=SMALL)
    refused("one twice", "--disk", DISK, "--slog", "/dev/../dev/vdd", "--yes")
    refused("file", disk="/etc/hostname")
    refused("nothing there", disk="/dev/vdx")
    refused("no disk", "--yes")
    refused("no such row", "--disk", DISK, "--yes", "--rows", "recordsize-9k")
    refused("no such matrix", "--matrix", "reports-2015", "--disk", DISK, "--yes")
    refused("with a path", "/tmp", "--disk", DISK, "--yes")
    return found


def answered(answer: str, words: tuple[str, ...]) -> Json:
    """The command on a terminal, with an answer."""
    given = [word for word in words if word != "--yes"]
    before = ends(DISK)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*MATRIX, *given], stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    os.close(theirs)
    os.write(ours, answer.encode())
    stdout, stderr = process.communicate(timeout=120)
    os.close(ours)
    return {
        "status": process.returncode,
        "stdout": stdout,
        "stderr": stderr,
        "written": before != ends(DISK),
    }


def forced() -> Json:
    """Data on a disk is erased when its name is repeated; then it is blank."""
    sh(f"{MKFS} {DISK}")
    first = answered(f"{DISK}\n", ("--disk", DISK, "--force-erase", DISK, *ONE_ROW))
    first["left"] = left()
    second = run([*MATRIX, "--disk", DISK, "--yes", "--rows", "raw-disk"])
    return {"first": first, "second": second}


def few_rows(*, short: bool) -> Json:
    """With the log device."""
    words = ("--disk", SLOW, "--slog", LOG, "--yes")
    ext4 = ",ext4,zvol" if EXT4 else ""
    rows = "raw-slog,slog" if short else f"raw-slog,slog,flash{ext4}"
    found = run([*MATRIX, *words, "--rows", rows, "--json"], timeout=300)
    return found | {"left": left()}


def signals(rounds: int) -> list[Json]:
    """The command is ended at a random moment."""
    found = []
    chosen = random.Random(2014)
    for number in range(rounds):
        signum = (signal.SIGINT, signal.SIGTERM)[number % 2]
        # a single one comes while it measures
        after = chosen.uniform(0, 25) if rounds > 1 else 12
        rows = "slog,ext4,zvol,recordsize-8k" if EXT4 else "slog,flash,recordsize-8k"
        process = subprocess.Popen(
            [*MATRIX, "--disk", SLOW, "--slog", LOG, "--yes", "--rows", rows, "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        until_loading(process)
        time.sleep(after)
        process.send_signal(signum)
        stdout, stderr = process.communicate(timeout=180)
        found.append(
            {
                "signal": signum.name,
                "after": after,
                "status": process.returncode,
                "stdout": stdout,
                "stderr": stderr,
                "left": left(),
            }
        )
        progress(f"{signum.name} after {after:.1f} s: {process.returncode} {found[-1]['left']}")
    return found


def begun(disk: str, duration: str) -> tuple[subprocess.Popen[str], str]:
    """A run that measures, and its pool."""
    process = subprocess.Popen(
        [*MATRIX, "--disk", disk, "--yes", *ONE_ROW, "--duration", duration, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (made := pools()) or not sh("pgrep -x fio", check=False):
        if process.poll() is not None:
            raise RuntimeError(process.communicate()[1])
        time.sleep(0.2)
    time.sleep(2)
    return process, made[0]


def killed() -> Json:
    """SIGKILL leaves the pool; the next run reports it and leaves it alone."""
    process, pool = begun(DISK, "60s")
    process.kill()
    process.communicate()
    found = {"pool": pool, "next": run([*MATRIX, "--disk", DISK, "--yes", *ONE_ROW])}
    sh("pkill -x fio; sleep 1", check=False)
    sh(f"zpool destroy {pool}; rmdir /tmp/zfstune-bench-*")
    blank()
    return found


def vanished() -> Json:
    """The disk goes away while it is measured."""
    process, pool = begun(DISK, "60s")
    removed = Path("/sys/block/vdd/device/../remove").resolve()
    removed.write_text("1")
    stdout, stderr = process.communicate(timeout=300)
    progress(f"vanished: {process.returncode} {stderr}")
    state = (KSTAT / pool / "state").read_text().strip()
    advice = back(pool)
    return {
        "pool": pool,
        "status": process.returncode,
        "stdout": stdout,
        "stderr": stderr,
        "state": state,
        "advice": advice,
    }


def back(pool: str) -> Json:
    """The disk comes back, and what the command said is done. What hangs is not waited for."""
    Path("/sys/bus/pci/rescan").write_text("1")
    sh("udevadm settle --timeout=20", check=False)
    found: Json = {"disks": sorted(str(path) for path in Path("/dev").glob("vd?"))}
    progress(f"back: {found}")
    for words in (["clear"], ["destroy", "-f"]):
        process = subprocess.Popen(["zpool", *words, pool], stderr=subprocess.PIPE, text=True)
        try:
            found[words[0]] = process.communicate(timeout=30)[1]
        except subprocess.TimeoutExpired:
            found[words[0]] = "hangs"
        progress(f"{words[0]}: {found[words[0]]}")
        if found[words[0]]:
            break
    return found


def main() -> None:
    rounds = int(sys.argv[1]) if sys.argv[1:] else 2
    whole = rounds > 1
    make_pool("keep", OTHER)
    sh("zfs create -V 1G -s keep/volume; udevadm settle")
    Path("/keep/data").write_bytes(random.Random(7).randbytes(4 * MIB))
    sh("zpool sync keep")
    results: Json = {"whole": whole}
    parts: dict[str, Callable[[], Any]] = {
        "refusals": lambda: refusals(short=not whole),
        "forced": forced,
        "rows": lambda: few_rows(short=not whole),
        "signals": lambda: signals(rounds),
        "killed": killed,
        "vanished": vanished,
    }
    wanted = sys.argv[2].split(",") if sys.argv[2:] else list(parts) if whole else SHORT
    for name, part in parts.items():
        if name not in wanted:
            continue
        began = time.monotonic()
        results[name] = part()
        progress(f"{name} took {time.monotonic() - began:.0f} s")
    data = Path("/keep/data").read_bytes()
    results["keep"] = {
        "same": data == random.Random(7).randbytes(4 * MIB),
        "state": (KSTAT / "keep" / "state").read_text().strip(),
        "writes": run(["sh", "-c", "echo x > /keep/more; zpool sync keep"], timeout=60)["status"],
    }
    finish(results)


if __name__ == "__main__":
    main()
