"""A state directory on a real file system, that fills up, freezes, fails or becomes read-only: ext4
on device mapper on a loop device, or UFS on ggatel(8)."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from labkit import sh, turn

STATE = Path("/mnt/state")
_IMAGE, _NAME = Path("/var/tmp/state.img"), "state"
_SIZE = 8 << 20


class _Disk:
    """What any file system does."""

    _remount = "mount -o remount,{}"

    @contextlib.contextmanager
    def read_only(self) -> Iterator[None]:
        """Remounts read-only, as after an error. Impossible while a file is open for writing."""
        for _ in range(200):
            if not sh(f"{self._remount.format('ro')} {STATE} 2>&1", check=False):
                break
            time.sleep(0.02)
        else:
            raise RuntimeError("the state directory could not be made read-only")
        try:
            yield
        finally:
            sh(f"{self._remount.format('rw')} {STATE}")

    @contextlib.contextmanager
    def full(self) -> Iterator[None]:
        fillers: list[Path] = []
        # UFS has room for small files when it has none for more of a large one
        while not fillers or fillers[-1].stat().st_size:
            fillers.append(STATE / f"filler{len(fillers)}")
            with fillers[-1].open("wb", buffering=0) as file:
                for size in (4096, 512, 1):
                    with contextlib.suppress(OSError):
                        while True:
                            file.write(bytes(size))
        try:
            yield
        finally:
            for filler in fillers:
                filler.unlink()


class LinuxDisk(_Disk):
    # how it can be impossible to open
    unopenable = ("mode", "no directory", "EIO")

    def __init__(self) -> None:
        """Makes and mounts it."""
        with _IMAGE.open("wb") as file:
            file.truncate(_SIZE)
        self._loop = sh(f"modprobe loop; losetup --find --show {_IMAGE}").strip()
        sectors = _SIZE // 512
        self._works = f"0 {sectors} linear {self._loop} 0"
        self._fails = f"0 {sectors} error"
        sh(f"dmsetup create {_NAME} --table '{self._works}'; udevadm settle")
        self.make()

    def make(self) -> None:
        """An empty file system, whatever became of the last one."""
        sh(f"umount -l {STATE}", check=False)
        sh(f"mkfs.ext4 -q -F -b 1024 -m 0 -E lazy_itable_init=0 /dev/mapper/{_NAME}")
        sh(f"mkdir -p {STATE}; mount /dev/mapper/{_NAME} {STATE}")

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Whoever writes there hangs, and cannot be killed."""
        sh(f"fsfreeze -f {STATE}")
        try:
            yield
        finally:
            sh(f"fsfreeze -u {STATE}")

    @contextlib.contextmanager
    def failing(self) -> Iterator[None]:
        """Each access is EIO; afterwards it is empty."""
        turn(_NAME, self._fails)
        sh("echo 3 > /proc/sys/vm/drop_caches")
        try:
            yield
        finally:
            sh(f"umount -l {STATE}", check=False)
            turn(_NAME, self._works)
            self._until_free()
            self.make()

    @staticmethod
    def _until_free() -> None:
        """A lazily unmounted one is in use until the last descriptor is closed."""
        end = time.monotonic() + 60
        while int(sh(f"dmsetup info -c --noheadings -o open {_NAME}")) and time.monotonic() < end:
            time.sleep(0.05)


class FreeBSDDisk(_Disk):
    unopenable = ("mode", "no directory")
    _remount = "mount -u -o {}"

    def __init__(self) -> None:
        """Makes and mounts it."""
        with _IMAGE.open("wb") as file:
            file.truncate(_SIZE)
        sh("kldload -n geom_gate")
        # -v: the process that serves the disk stays a child
        self._server = subprocess.Popen(
            ["ggatel", "create", "-v", "-u", "0", str(_IMAGE)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        end = time.monotonic() + 30
        while not Path("/dev/ggate0").exists() and time.monotonic() < end:
            time.sleep(0.05)
        sh(f"newfs -b 4096 -f 512 -m 0 /dev/ggate0; mkdir -p {STATE}; mount /dev/ggate0 {STATE}")

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Whoever writes there hangs, and cannot be killed."""
        os.kill(self._server.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self._server.pid, signal.SIGCONT)


if sys.platform == "linux":
    StateDisk = LinuxDisk
else:
    StateDisk = FreeBSDDisk
