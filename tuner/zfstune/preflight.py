"""Checks before a trace: whether this host can trace, and whether the names exist."""

from __future__ import annotations

from collections.abc import Sequence

from zfstrace.host import Host
from zfstrace.types import AnyOptions, Check
from zfstune.errors import NotPossible, UsageError


def require_tracing(checks: Sequence[Check], kind: str | None = None) -> None:
    """Raises NotPossible for the first check that makes tracing impossible; with kind, only checks
    of that kind count."""
    for check in checks:
        if check.status == "blocking" and (kind is None or check.kind == kind):
            if check.kind == "library":
                raise NotPossible(check.cost, check.fix)
            raise NotPossible(f"cannot trace: {check.name} {check.value}: {check.cost}", check.fix)


def prepare(host: Host, options: AnyOptions, *, bpf: bool = True, question: str = "") -> None:
    """Raises CommandError if a trace with these options is not possible: a wrong name comes before
    a missing privilege; with question, one of instead.QUESTIONS, it says what answers that all the
    same. Without bpf little is needed. From here on datasets have names, even if they are gone when
    they are shown."""
    checks = host.checks()
    require_tracing(checks, "zfs")
    require_names(host, options)
    if bpf:
        try:
            require_tracing(checks)
        except NotPossible as error:
            error.more = instead_of(question, host, checks, options.pool)
            raise
    host.tick()


def instead_of(
    question: str, host: Host, checks: Sequence[Check], pool: str | None
) -> tuple[str, ...]:
    """Lines on what answers a question although the checks forbid a trace; () without any."""
    from zfstune.inside import instead

    ways = instead.Instead(host, checks, pool).ways(question)
    return (instead.TITLE, *instead.lines(ways)) if ways else ()


def require_names(host: Host, options: AnyOptions) -> None:
    """Raises UsageError if the pool, dataset or process of the options does not exist."""
    if options.dataset is not None:
        datasets = host.dataset_names()
        if options.dataset not in datasets:
            raise UsageError(
                f"no dataset {options.dataset!r}: it does not exist or is not mounted",
                _near(options.dataset, datasets, "datasets in use", "see `zfs mount`"),
            )
    elif options.pool is not None:
        pools = host.pools()
        if options.pool not in pools:
            raise UsageError(
                f"no pool {options.pool!r}: it is not imported",
                _near(options.pool, pools, "imported pools", "look for others with `zpool import`"),
            )
    problem = host.process_error(options.pid) if options.pid is not None else None
    if problem:
        raise UsageError(f"--pid {options.pid}: {problem}", "give the id of a running process")


def _near(name: str, names: Sequence[str], what: str, otherwise: str) -> str:
    import difflib  # only a wrong name needs it

    near = difflib.get_close_matches(name, names, 3, 0.5)
    if near:
        return f"did you mean {' or '.join(near)}?"
    if 0 < len(names) <= 5:
        return f"choose from the {what}: {', '.join(names)}"
    return otherwise
