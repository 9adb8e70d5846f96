"""The request in the command line of `zfstune tune`."""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from zfstrace.host import Host
from zfstune.errors import NotPossible, UsageError
from zfstune.experiment import arc, search
from zfstune.experiment.objective import Limit, Objective
from zfstune.experiment.runner import BlockPlan
from zfstune.experiment.storage import has_sqlite
from zfstune.term.units import SECOND, format_span
from zfstune.tunables import catalogue
from zfstune.tunables.names import ARC_MAX
from zfstune.tune.args import NAME
from zfstune.tune.workload import account, split

# defaults of --budget, --block and --limit
BUDGET_NS, BLOCK_NS = 60 * 60 * SECOND, 10 * SECOND
LIMITS = ("write.throughput>=-5%", "fsync.mean<=+10%")
# one more default: of a load that reads enough, where reads can be timed
GUARDS = ("read.p99<=+20%",)
# of a session on the ARC: sides of pairs are long and few, so its limits are wider, and all are
# asked where the load has what they need
ARC_BUDGET_NS, ARC_BLOCK_NS = 150 * 60 * SECOND, 10 * 60 * SECOND
ARC_GUARDS = ("write.throughput>=-10%", "fsync.mean<=+20%", "read.p99<=+20%")
ARC_OBJECTIVE, OBJECTIVE = "read.mean", "fsync.p99"
# as --limit: none of these defaults
NO_LIMIT = "none"
# the file of the search, in --out
STUDY = "study.db"
_SHORTEST_BLOCKS = 4 + 4 + 12  # noise, one trial, the shortest proof
# two looks of 30 s in each half
_ARC_SHORTEST_NS = 120 * SECOND
# options that only a search has, with their defaults
_SEARCHES = {"parameters": None, "sampler": None, "storage": None, "resume": None, "study": NAME}
# about the time between two blocks, in which txgs settle
_BETWEEN_NS = 5 * SECOND


@dataclass(frozen=True)
class Request:
    """The command line, checked as far as that needs no host. storage: a file or URL, of the
    study, None: memory. arc: a session on the size of the ARC, which has no study."""

    objective: Objective
    limits: tuple[Limit, ...]
    guards: tuple[Limit, ...]
    names: tuple[str, ...]
    plan: BlockPlan
    budget_ns: int
    seed: int
    out: Path
    storage: str | None
    sampler: str
    arc: bool = False


def parse_request(args: argparse.Namespace) -> Request:
    """The request of a command line. Raises UsageError, NotPossible."""
    try:
        objective = Objective.parse(args.objective or (ARC_OBJECTIVE if args.arc else OBJECTIVE))
        limits, guards = _limits(args)
    except ValueError as error:
        what, _, hint = str(error).partition("\n")
        raise UsageError(what, hint) from None
    if not (args.workload or args.observe or args.dry_run):
        raise UsageError(
            "no load given", "add --workload CMD, or --observe if the load is running already"
        )
    if (args.user or args.shell) and not args.workload:
        raise UsageError("--as and --shell need --workload")
    if args.user:
        account(args.user)
    if args.workload and not args.shell:
        split(args.workload)
    block_ns, budget_ns = _arc_times(args) if args.arc else _times(args)
    out = Path(args.resume or args.out or f"zfstune-{args.pool or 'tune'}")
    storage = _storage(args, out)
    sampler = args.sampler or search.default_sampler(storage)
    # early: measuring takes long
    search.by_optuna(storage, sampler)
    names = catalogue.default_set()
    known = names
    if args.parameters:
        names = tuple(name.strip() for name in args.parameters.split(",") if name.strip())
    for name in names or ("",):
        if name not in known:
            raise UsageError(
                f"--parameters: a session cannot change {name!r}",
                "use --arc for it" if name == ARC_MAX else f"choose from {', '.join(known)}",
            )
    if out.exists() and not out.is_dir():
        raise UsageError(f"--out {out}: it is not a directory", "name another")
    return Request(
        objective,
        limits,
        guards,
        () if args.arc else names,
        # half of a side of the ARC's is for settling
        BlockPlan(block_ns / SECOND / (2 if args.arc else 1), objective.fsyncs()),
        budget_ns,
        args.seed if args.seed is not None else random.SystemRandom().randrange(1 << 31),
        out,
        storage,
        sampler,
        args.arc,
    )


def _limits(args: argparse.Namespace) -> tuple[tuple[Limit, ...], tuple[Limit, ...]]:
    """The limits, and the guards. Each limit of the command line replaces only the default for its
    metric: whoever bounds one more must not lose the others. Raises ValueError."""
    texts = [text.strip() for text in args.limit or ()]
    given = [Limit.parse(text) for text in texts if text != NO_LIMIT]

    def kept(defaults: Sequence[str]) -> tuple[Limit, ...]:
        if NO_LIMIT in texts:
            return ()
        replaced = {limit.metric for limit in given}
        return tuple(one for one in map(Limit.parse, defaults) if one.metric not in replaced)

    if args.arc:
        return tuple(given), kept(ARC_GUARDS)
    return (*kept(LIMITS), *given), kept(GUARDS)


def _times(args: argparse.Namespace) -> tuple[int, int]:
    """The length of a block and the budget, in ns. Raises UsageError."""
    block_ns, budget_ns = args.block or BLOCK_NS, args.budget or BUDGET_NS
    if block_ns < 2 * SECOND:
        raise UsageError("--block is shorter than 2 s: no txg ends in that time", "use 10s")
    shortest_ns = _SHORTEST_BLOCKS * (block_ns + _BETWEEN_NS)
    if budget_ns < shortest_ns:
        raise UsageError(
            f"--budget {format_span(budget_ns)} is too short for --block "
            f"{block_ns / SECOND:g}s: {_SHORTEST_BLOCKS} blocks and the waits between them take "
            f"{format_span(shortest_ns)}"
        )
    return block_ns, budget_ns


def _arc_times(args: argparse.Namespace) -> tuple[int, int]:
    """The same of a session on the ARC, of a side of a pair. Raises UsageError."""
    side_ns, budget_ns = args.block or ARC_BLOCK_NS, args.budget or ARC_BUDGET_NS
    for name, default in _SEARCHES.items():
        if getattr(args, name) != default:
            raise UsageError(f"--{name} and --arc: a session on the ARC does not search")
    if side_ns < _ARC_SHORTEST_NS:
        raise UsageError(
            f"--block is shorter than {format_span(_ARC_SHORTEST_NS)}: the ARC does not settle in "
            "half of that",
            "use 10m",
        )
    shortest_ns = arc.SIDES * side_ns
    if budget_ns < shortest_ns:
        raise UsageError(
            f"--budget {format_span(budget_ns)} is too short for --arc: {arc.SIDES} sides of "
            f"{format_span(side_ns)} (--block) take {format_span(shortest_ns)}"
        )
    return side_ns, budget_ns


def _storage(args: argparse.Namespace, out: Path) -> str | None:
    """Raises UsageError, NotPossible."""
    storage = args.storage or str(out / STUDY)
    asked = {"--resume": args.resume, "--storage": args.storage, "--study": args.study != NAME}
    if not has_sqlite() and ("://" not in storage or storage.startswith("sqlite")):
        for option in (option for option, given in asked.items() if given):
            version = f"{sys.version_info[0]}{sys.version_info[1]}"
            raise NotPossible(
                f"{option} needs sqlite3: {sys.executable} has none",
                f"install it (FreeBSD: `pkg install py{version}-sqlite3`)",
            )
        return None
    if args.resume and not (out / STUDY).exists() and not args.storage:
        raise UsageError(
            f"--resume {out}: it has no {STUDY}", "name the directory of an earlier session"
        )
    return storage


def pool_of(args: argparse.Namespace, host: Host) -> str:
    """The pool of the command line, or the only one. Raises UsageError, NotPossible."""
    if args.pool:
        return str(args.pool)
    pools = host.pools()
    if len(pools) == 1:
        return pools[0]
    params = host.parameters()
    if not params.identity():
        raise NotPossible("cannot tune: ZFS is not loaded", f"run `{params.loading()}`")
    if not pools:
        raise UsageError("no pool is imported", "run `zpool import` to look for one")
    raise UsageError(
        f"no pool given: this host has {len(pools)}", f"name one of {', '.join(pools)}"
    )
