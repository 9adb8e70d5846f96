"""What a session is asked to do, and on what: the command line, the host, the plan, and consent."""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from zfstrace.host import Host
from zfstune.changes.state_dir import places
from zfstune.errors import CommandError, NotPossible, UsageError
from zfstune.experiment.guardrails import scanning
from zfstune.experiment.objective import Limit, Objective
from zfstune.experiment.runner import BlockPlan
from zfstune.experiment.space import ARC, DEFAULT, Space
from zfstune.term.secrets import masked
from zfstune.term.table import printable, render
from zfstune.term.units import SECOND, format_span
from zfstune.tunables import guard, values
from zfstune.tunables.catalogue import load
from zfstune.tune import production
from zfstune.tune.workload import account, split

BUDGET_NS = 60 * 60 * SECOND
BLOCK_NS = 10 * SECOND
LIMITS = ("write.throughput>=-5%", "fsync.mean<=+10%")
STUDY = "study.db"
_PACKAGES = ("numpy", "scipy", "optuna")
_SHORTEST_BLOCKS = 4 + 4 + 12  # noise, one trial, the shortest proof
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


def parse(args: argparse.Namespace) -> Request:
    """Raises UsageError."""
    try:
        objective = Objective.parse(args.objective)
        limits = tuple(Limit.parse(text) for text in args.limit or LIMITS)
    except ValueError as error:
        raise UsageError(str(error)) from None
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
    names = DEFAULT + (ARC if args.arc else ())
    if args.parameters:
        names = tuple(name.strip() for name in args.parameters.split(",") if name.strip())
    for name in names or ("nothing",):
        if name not in DEFAULT + ARC:
            raise UsageError(
                f"--parameters: {name} is none that a session changes, "
                f"there are {', '.join(DEFAULT + ARC)}"
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
    """Raises NotPossible."""
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise NotPossible(
            f"`zfstune tune` needs {', '.join(missing)}, which {sys.executable} does not have, "
            'run it by a Python that has them (see "What it needs" in the README)'
        )


@dataclass(frozen=True)
class Setup:
    """A request on a host: the space, and the values that are in force."""

    request: Request
    host: Host
    pool: str
    facts: guard.Facts
    current: Mapping[str, int]
    space: Space
    slog: bool

    @classmethod
    def of(cls, request: Request, host: Host, pool: str) -> Setup:
        """Raises UsageError, NotPossible."""
        params = host.parameters()
        present = {name: params.read(name) for name in params.names()}
        current = {name: value for name, value in present.items() if value is not None}
        facts = guard.facts(host)
        slog = host.kstat("zil").get("zil_itx_metaslab_slog_count", 0) > 0
        space = Space(request.names, current, facts, slog=slog)
        if not space.names:
            raise NotPossible("none of the parameters is there, so there is nothing to tune")
        locked = [name for name in space.parameters() if not params.writable(name)]
        if locked and os.geteuid() != 0:
            raise NotPossible(f"cannot set {locked[0]} and others, run as root")
        if locked:
            raise NotPossible(f"cannot set {locked[0]}, it is read-only, leave it out")
        if not host.txg_rows(pool):
            raise NotPossible(
                "nothing tells when txgs are synced, as zfs_txg_history is 0, run "
                "`zfstune params set zfs_txg_history=100`"
            )
        return cls(request, host, pool, facts, current, space, slog)

    def baseline(self) -> dict[str, int]:
        return {name: self.current[name] for name in self.space.parameters()}

    def describe(self, args: argparse.Namespace) -> list[str]:
        """The plan in words, for --dry-run and before the question."""
        request, block_s = self.request, self.request.plan.seconds
        blocks = int(request.budget_ns / SECOND / (block_s + 8))
        load = "load: what is there already"
        if args.workload:
            load = f"workload: {masked(args.workload)}"
        bounds = self.space.bounds()
        rows = [["PARAMETER", "NOW", "LOWEST", "HIGHEST"]]
        rows += [
            [name, *(_shown(name, value) for value in (self.current[name], low, high))]
            for name, (low, high) in bounds.items()
        ]
        limits = ", ".join(map(str, request.limits))
        return [
            f"pool {self.pool}, {load}",
            f"objective: {request.objective}; limits: {limits}",
            f"time: {format_span(request.budget_ns)}, about {blocks} blocks of {block_s:g} s with "
            "3 txgs between two different ones:",
            "  4 to 12 for the noise, 4 for each candidate, 12 or more fresh ones for the proof",
            "",
            *render(rows, "<>>>", indent="  "),
            "",
            "order of writes: the guard's, no state in between is hazardous; each is in a journal",
            "before it is done, and a supervisor undoes all of them if this program dies",
            "undo: `zfstune revert`; `zfstune revert --print` has the commands without zfstune",
            *(f"note: {one}" for one in self.notes()),
        ]

    def notes(self) -> list[str]:
        """What disturbs the measurement a little."""
        found = []
        for what, path in (("journal", places().state), ("results", self.request.out)):
            dataset = _dataset(self.host, self.pool, path)
            if dataset:
                found.append(
                    f"the {what} ({path}) will be on {dataset}, which is measured: its fsyncs "
                    "count as load"
                )
        return found


def _shown(name: str, value: int) -> str:
    return values.show(value, load()[name].unit)


def _dataset(host: Host, pool: str, path: Path) -> str | None:
    """The dataset of the pool on which a path is, or will be."""
    there = next((one for one in (path.absolute(), *path.absolute().parents) if one.exists()), path)
    try:
        device = there.stat().st_dev
    except OSError:
        return None
    name = host.dataset_name(pool, 0, (os.major(device), os.minor(device)))
    return name if name and name.split("/", 1)[0] == pool else None


def refusals(args: argparse.Namespace, setup: Setup) -> list[str]:
    """Why a session would not begin now."""
    found = []
    signs = production.signs()
    if signs and not args.staging:
        found.append(
            f"this host looks like production: {signs[0]}; tune a copy of it, or add --staging "
            "if it may be slower for a while"
        )
    scan = scanning(setup.pool)
    if scan:
        found.append(f"a {scan} runs on {setup.pool}, try again when it is over")
    return found


def require_consent(args: argparse.Namespace, setup: Setup) -> None:
    """Raises NotPossible, UsageError, CommandError."""
    for reason in refusals(args, setup):
        raise NotPossible(reason)
    if args.yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("parameters of the kernel will be changed, add --yes to agree to that")
    print("\n".join(map(printable, setup.describe(args))), file=sys.stderr)
    try:
        answer = input("Change parameters of this host and measure? [y/N] ")
    except EOFError:
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        raise CommandError("nothing was changed")
