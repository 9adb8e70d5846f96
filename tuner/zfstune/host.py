"""Picks the platform; only changes/paths.py, which must be cheap, also asks for the system."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from zfstrace.host import Host
from zfstune.errors import NotPossible


def open_host() -> Host:
    """The implementation for this system. Raises NotPossible on any but Linux and FreeBSD."""
    if sys.platform == "linux":
        from zfs_linux.host import LinuxHost

        return LinuxHost()
    if sys.platform.startswith("freebsd"):
        return _freebsd()
    raise NotPossible(f"cannot trace: {sys.platform} is not supported", "use Linux or FreeBSD")


def _freebsd() -> Host:
    try:
        from zfs_freebsd.dtrace import process
        from zfs_freebsd.host import FreeBSDHost
    except ModuleNotFoundError as error:
        if error.name != "zfs_freebsd":
            raise
        # scripts/dist/pack.py leaves it out
        raise NotPossible(
            "cannot trace: this file is for Linux", "on FreeBSD use a checkout or the port"
        ) from None
    from zfstune.term import log
    from zfstune.tunables import catalogue, planner

    def order(values: Mapping[str, int]) -> list[str]:
        return planner.boot_order(host, values)

    process.say = log.say
    host = FreeBSDHost(catalogue.freebsd_names, order)
    return host


def protections() -> tuple[Callable[[], None], ...]:
    """The functions that a process calls, in this order, to escape the OOM killer and its cgroup;
    each may raise OSError."""
    if sys.platform.startswith("freebsd"):
        from zfs_freebsd import protect as freebsd

        return (freebsd.protect_from_oom,)
    from zfs_linux import protect as linux

    return linux.protect_from_oom, linux.leave_cgroup
