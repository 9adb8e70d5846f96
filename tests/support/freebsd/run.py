"""The command line as on FreeBSD: sys.platform says so, and nothing of Linux is there.

Usage: run.py ROOT LIBRARY ARGUMENT...; ROOT stands for /, LIBRARY for libc. It runs in its own
process, because it removes what other Python code may need."""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from types import ModuleType

# What Python has on Linux only, and what must not be imported.
LINUX_ONLY: tuple[tuple[ModuleType, tuple[str, ...]], ...] = (
    (select, ("epoll",)),
    (signal, ("pidfd_send_signal",)),
    (time, ("CLOCK_MONOTONIC_RAW", "CLOCK_BOOTTIME")),
    (
        os,
        (
            "eventfd",
            "inotify_init",
            "memfd_create",
            "pidfd_open",
            "sched_setaffinity",
            "sched_getaffinity",
            "splice",
            "setns",
            "unshare",
            "O_PATH",
        ),
    ),
)
BLOCKED = ("zfs_linux", "bcc")
_ABSENT = ("/proc", "/sys", "/run")


class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] in BLOCKED:
            raise AssertionError(f"{name} is imported on FreeBSD")
        return None


def no_linux_files(event: str, arguments: tuple[object, ...]) -> None:
    """An audit hook that hides /proc, /sys and /run."""
    if event in ("open", "os.listdir", "os.scandir") and isinstance(arguments[0], str):
        path = arguments[0]
        if any(path == top or path.startswith(f"{top}/") for top in _ABSENT):
            raise FileNotFoundError(2, os.strerror(2), path)


def become_freebsd(root: str, library: str) -> None:
    sys.platform = "freebsd14"
    for module, names in LINUX_ONLY:
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    sys.meta_path.insert(0, Blocker())
    sys.addaudithook(no_linux_files)
    from zfs_freebsd import host, protect

    protect.protect_from_oom = functools.partial(protect.protect_from_oom, library)
    host.FreeBSDHost = functools.partial(  # type: ignore[misc,assignment]
        host.FreeBSDHost, root=root, library=library
    )


if __name__ == "__main__":
    become_freebsd(*sys.argv[1:3])
    from zfstune.cli import main

    sys.exit(main(sys.argv[3:]))
