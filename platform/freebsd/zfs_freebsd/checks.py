"""What tracing needs on FreeBSD, and whether this host has it."""

from __future__ import annotations

import os
from pathlib import Path

from zfs_freebsd.dtrace import scripts
from zfs_freebsd.kstat import Kstats
from zfs_freebsd.sysctl import Sysctl
from zfstrace.types import WRITES_BLOCKED, Check


def of_host(sysctl: Sysctl, kstats: Kstats, version: str, root: Path) -> list[Check]:
    """Most basic first. version is the loaded module's, "" if there is none; /dev is below root.
    Never raises."""
    return [
        _zfs(version),
        *_pools(kstats),
        Check("kernel", "kernel", f"{os.uname().sysname} {os.uname().release}"),
        _privileges(sysctl),
        scripts.check(root),
        *(_kstats(kstats) if version else []),
    ]


def _zfs(version: str) -> Check:
    if version:
        return Check("ZFS", "zfs", version)
    fix = "run `kldload zfs`"
    return Check("ZFS", "zfs", "not loaded", "blocking", "nothing to trace", fix)


def _pools(kstats: Kstats) -> list[Check]:
    """Those in which writes block."""
    states = {pool: kstats.text(pool, "misc", "state").strip() for pool in kstats.pools()}
    cost = "no fsync ends there"
    return [
        Check(f"pool {pool}", "zfs", state, "missing", cost, f"see `zpool status {pool}`")
        for pool, state in states.items()
        if state in WRITES_BLOCKED
    ]


def _privileges(sysctl: Sysctl) -> Check:
    value, fix = "root", ""
    if os.geteuid() != 0:
        value, fix = "not root", "run as root"
    elif sysctl.get_int("security.jail.jailed"):
        value, fix = "root in a jail", "run outside the jail"
    if not fix:
        return Check("privileges", "privilege", value)
    cost = "parameters can be read but not set"
    return Check("privileges", "privilege", value, "missing", cost, fix)


def _kstats(kstats: Kstats) -> list[Check]:
    no_txgs = "txg_state of slow fsyncs is null, and `zfstune tune` cannot measure"
    there = {"zil": (bool(kstats.named("zil")), "counts of ZIL commits cannot be compared")}
    there |= {f"{pool}/txgs": (bool(kstats.txg_rows(pool)), no_txgs) for pool in kstats.pools()}
    return [
        Check(f"kstat {name}", "kstat", "present")
        if found
        else Check(f"kstat {name}", "kstat", "absent", "missing", cost)
        for name, (found, cost) in there.items()
    ]
