"""The place that asks which system this is; with paths.py, which must be cheap, the only one."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from pathlib import Path

from zfstrace.host import Host
from zfstune.errors import NotPossible


def open_host() -> Host:
    """The host's own implementation. Raises NotPossible."""
    if sys.platform == "linux":
        from zfs_linux.host import LinuxHost

        return LinuxHost()
    if sys.platform.startswith("freebsd"):
        return _freebsd()
    raise NotPossible(f"cannot trace, {sys.platform} is not supported, use Linux or FreeBSD")


def _freebsd() -> Host:
    from zfs_freebsd.host import FreeBSDHost
    from zfstune.tunables import catalogue, planner

    def order(values: Mapping[str, int]) -> list[str]:
        return planner.boot_order(host, values)

    host = FreeBSDHost(catalogue.freebsd_names, order)
    return host


def spare_when_memory_ends() -> None:
    """This process is not what the kernel kills then. Raises OSError without privilege."""
    if sys.platform.startswith("freebsd"):
        from zfs_freebsd import protect

        protect.protect()
    else:
        Path("/proc/self/oom_score_adj").write_text("-1000")


def leave_cgroup() -> None:
    """What freezes or ends the rest of this process's cgroup does not reach it then: it goes to
    the root, of version 2, of 2 beside 1, and of the freezer of 1, as far as they are there.
    FreeBSD has none."""
    for root in ("", "unified/", "freezer/"):
        with (
            contextlib.suppress(OSError),
            Path(f"/sys/fs/cgroup/{root}cgroup.procs").open("r+") as f,
        ):
            f.write("0")  # the writer itself
