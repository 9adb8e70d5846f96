"""The place that asks which system this is; with paths.py, which must be cheap, the only one."""

from __future__ import annotations

import contextlib
import difflib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from zfstrace.host import Host
from zfstrace.types import Check, FsyncOptions, TraceOptions
from zfstune.errors import NotPossible, UsageError


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


def require_tracing(checks: Sequence[Check], kind: str | None = None) -> None:
    """Raises NotPossible with the first thing that makes tracing impossible; with
    kind given only checks of that kind count."""
    for check in checks:
        if check.status == "blocking" and (kind is None or check.kind == kind):
            if check.kind == "library":
                raise NotPossible(check.cost)
            raise NotPossible(
                f"cannot trace, {check.name} {check.value}: {check.cost}, {check.fix}"
            )


def prepare(host: Host, options: FsyncOptions | TraceOptions, *, bpf: bool = True) -> None:
    """Raises CommandError when a trace with these options is not possible: first
    what is wrong with the request, then with the host. Without bpf little is needed."""
    checks = host.checks()
    require_tracing(checks, "zfs")
    require_names(host, options)
    if bpf:
        require_tracing(checks)
    host.learn_names()


def require_names(host: Host, options: FsyncOptions | TraceOptions) -> None:
    """Raises UsageError when the pool, dataset or process asked for is not there."""
    if isinstance(options, FsyncOptions) and options.dataset is not None:
        datasets = host.dataset_names()
        if options.dataset not in datasets:
            hint = _near(
                options.dataset, datasets, "datasets in use", "`zfs mount` shows the mounted ones"
            )
            raise UsageError(
                f"no dataset {options.dataset!r}, it is not mounted here or not there, {hint}"
            )
    elif options.pool is not None:
        pools = host.pools()
        if options.pool not in pools:
            hint = _near(options.pool, pools, "imported pools", "`zpool import` looks for others")
            raise UsageError(f"no pool {options.pool!r}, it is not imported here, {hint}")
    problem = host.process_error(options.pid) if options.pid is not None else None
    if problem:
        raise UsageError(f"--pid {options.pid}: {problem}, give the id of a running process")


def _near(name: str, names: Sequence[str], what: str, otherwise: str) -> str:
    near = difflib.get_close_matches(name, names, 3, 0.5)
    if near:
        return f"did you mean {' or '.join(near)}?"
    # a short list is an answer, too
    if 0 < len(names) <= 5:
        return f"{what}: {', '.join(names)}"
    return otherwise
