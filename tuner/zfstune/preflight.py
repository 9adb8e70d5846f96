"""Whether what is asked for is possible on this host."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from zfstrace.host import Host
from zfstrace.types import Check, FsyncOptions, TraceOptions
from zfstune.errors import NotPossible, UsageError


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
    what is wrong with the request, then with the host. Without bpf little is needed. Datasets
    have names from then on, also when they are gone by the time that they are shown."""
    checks = host.checks()
    require_tracing(checks, "zfs")
    require_names(host, options)
    if bpf:
        require_tracing(checks)
    host.tick()


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
