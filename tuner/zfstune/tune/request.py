"""What the command line of `zfstune tune` asks for."""

from __future__ import annotations

import argparse
import importlib.util
import random
import sys
from dataclasses import dataclass
from pathlib import Path

from zfstrace.host import Host
from zfstune.errors import NotPossible, UsageError
from zfstune.experiment.objective import Limit, Objective
from zfstune.experiment.runner import BlockPlan
from zfstune.term.units import SECOND, format_span
from zfstune.tunables import catalogue
from zfstune.tune.workload import account, split

# defaults of --budget, --block and --limit
BUDGET_NS, BLOCK_NS = 60 * 60 * SECOND, 10 * SECOND
LIMITS = ("write.throughput>=-5%", "fsync.mean<=+10%")
# the file of the search, in --out
STUDY = "study.db"
_PACKAGES = ("numpy", "scipy", "optuna")
_SHORTEST_BLOCKS = 4 + 4 + 12  # noise, one trial, the shortest proof
# what is between two blocks, about: txgs that settle
_BETWEEN_NS = 5 * SECOND


@dataclass(frozen=True)
class Request:
    """What the command line asks for, checked as far as it goes without a host."""

    objective: Objective
    limits: tuple[Limit, ...]
    names: tuple[str, ...]
    plan: BlockPlan
    budget_ns: int
    seed: int
    out: Path


def parse_request(args: argparse.Namespace) -> Request:
    """The request of a command line; the host is not looked at. Raises UsageError."""
    try:
        objective = Objective.parse(args.objective)
        limits = tuple(Limit.parse(text) for text in args.limit or LIMITS)
    except ValueError as error:
        what, _, hint = str(error).partition("\n")
        raise UsageError(what, hint) from None
    if not (args.workload or args.observe or args.dry_run):
        raise UsageError(
            "no load is named, write --workload CMD, or --observe if it is there already"
        )
    if (args.user or args.shell) and not args.workload:
        raise UsageError("--as and --shell are for --workload, name its command")
    if args.user:
        account(args.user)
    if args.workload and not args.shell:
        split(args.workload)
    block_ns = args.block or BLOCK_NS
    budget_ns = args.budget or BUDGET_NS
    if block_ns < 2 * SECOND:
        raise UsageError("--block is shorter than 2 s, no txg ends in that time, make it 10 s")
    shortest_ns = _SHORTEST_BLOCKS * (block_ns + _BETWEEN_NS)
    if budget_ns < shortest_ns:
        raise UsageError(
            f"--budget {format_span(budget_ns)} is too short for --block "
            f"{block_ns / SECOND:g}s, {_SHORTEST_BLOCKS} blocks and what is between them take "
            f"{format_span(shortest_ns)}"
        )
    out = Path(args.resume or args.out or f"zfstune-{args.pool or 'tune'}")
    if args.resume and not (out / STUDY).exists() and not args.storage:
        raise UsageError(f"--resume {out}: there is no {STUDY} of a session, leave it out")
    names = catalogue.default_set()
    known = names + catalogue.on_request()
    if args.arc:
        names = known
    if args.parameters:
        names = tuple(name.strip() for name in args.parameters.split(",") if name.strip())
    for name in names or ("nothing",):
        if name not in known:
            raise UsageError(
                f"--parameters: {name} is none that a session changes, there are {', '.join(known)}"
            )
    if out.exists() and not out.is_dir():
        raise UsageError(f"--out {out}: it is no directory, name another")
    return Request(
        objective,
        limits,
        names,
        BlockPlan(seconds=block_ns / SECOND, min_fsyncs=objective.fsyncs()),
        budget_ns,
        args.seed if args.seed is not None else random.SystemRandom().randrange(1 << 31),
        out,
    )


def pool_of(args: argparse.Namespace, host: Host) -> str:
    """The pool to tune for. Raises UsageError, NotPossible."""
    if args.pool:
        return str(args.pool)
    pools = host.pools()
    if len(pools) == 1:
        return pools[0]
    params = host.parameters()
    if not params.identity():
        raise NotPossible(f"cannot tune, ZFS is not loaded, run `{params.loading()}`")
    raise UsageError(
        f"there are {len(pools)} pools ({', '.join(pools)}), name the one to tune for"
        if pools
        else "no pool is imported, `zpool import` looks for one"
    )


def require_packages() -> None:
    """Raises NotPossible when this Python lacks one of those that a session computes with."""
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise NotPossible(
            f"`zfstune tune` needs {', '.join(missing)}, which {sys.executable} does not have, "
            'run it by a Python that has them (see "What it needs" in the README)'
        )
