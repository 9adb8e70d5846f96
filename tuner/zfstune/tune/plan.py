"""A request on a host: the plan, refusals, and consent."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from zfstrace.disk import dev_of
from zfstrace.host import Host
from zfstrace.printable import printable
from zfstrace.zpool.status import scanning
from zfstune.changes.state_dir import places
from zfstune.errors import CommandError, NotPossible, UsageError
from zfstune.experiment import arc, search
from zfstune.experiment.samplers import LOCAL
from zfstune.experiment.space import Space
from zfstune.term.secrets import masked
from zfstune.term.table import aligned
from zfstune.term.units import SECOND, format_span
from zfstune.tunables import catalogue, guard, values
from zfstune.tunables.names import ARC_MAX
from zfstune.tune import production
from zfstune.tune.request import Request


@dataclass(frozen=True)
class Setup:
    """A request on a host, with the space and the values in force."""

    request: Request
    host: Host
    pool: str
    facts: guard.Facts
    current: Mapping[str, int]
    space: Space
    slog: bool

    @classmethod
    def of(cls, request: Request, host: Host, pool: str) -> Setup:
        """Reads the values in force. Raises NotPossible when there is nothing to tune or no way to
        measure, UsageError."""
        params = host.parameters()
        current, facts = guard.state(params), guard.facts(host)
        slog = host.kstat("zil").get("zil_itx_metaslab_slog_count", 0) > 0
        space = Space(request.names, current, facts, slog=slog)
        names = _names(request, space)
        if not names or not current.keys() >= set(names):
            raise NotPossible("nothing to tune: this ZFS has none of the parameters")
        locked = [name for name in names if not params.writable(name)]
        if len(locked) == len(names):
            others = " and others" if len(names) > 1 else ""
            raise NotPossible(f"cannot set {locked[0]}{others}", f"run as {params.who()}")
        if locked:
            raise NotPossible(
                f"cannot set {locked[0]}: it is read-only", "leave it out with --parameters"
            )
        if not host.txg_rows(pool):
            raise NotPossible(
                "cannot see when txgs are synced: zfs_txg_history is 0",
                "run `zfstune params set zfs_txg_history=100`",
            )
        return cls(request, host, pool, facts, current, space, slog)

    def parameters(self) -> tuple[str, ...]:
        """Those that the session may change."""
        return _names(self.request, self.space)

    def originals(self) -> dict[str, int]:
        """Their values."""
        return {name: self.current[name] for name in self.parameters()}

    def baseline(self) -> dict[str, int]:
        """Their values in force, which differ where a value is not set or ignored."""
        known = guard.in_force(self.current, self.facts) if self.request.arc else self.current
        return {name: known[name] for name in self.parameters()}

    def arc_most(self) -> int:
        """The largest ARC that a session tries: what the guard allows, and half of memory unless
        the limit is higher already."""
        _, highest = guard.bounds(ARC_MAX, self.current, self.facts)
        most = max(self.facts.arc_c_max, self.facts.memory_bytes // 2)
        return most if highest is None else min(most, highest)

    def describe(self, args: argparse.Namespace) -> list[str]:
        """The lines of the plan, for --dry-run and before the question."""
        request = self.request
        load = "load: the existing one"
        if args.workload:
            load = f"workload: {masked(args.workload)}"
        bounds = self.space.bounds()
        if request.arc:
            bounds = {ARC_MAX: (self.baseline()[ARC_MAX], self.arc_most())}
        rows = [["PARAMETER", "NOW", "LOWEST", "HIGHEST"]]
        rows += [
            [name, *(_shown(name, value) for value in (self.baseline()[name], low, high))]
            for name, (low, high) in bounds.items()
        ]
        limits = ", ".join(map(str, request.limits))
        guards = ", ".join(map(str, request.guards))
        return [
            f"pool {self.pool}, {load}",
            f"objective: {request.objective}" + (f"; limits: {limits}" if limits else ""),
            *([f"  and, where the load has what they need, {guards}"] if guards else []),
            *(self._arc_time() if request.arc else self._time()),
            "",
            *aligned(rows, "<>>>", indent="  "),
            "",
            "writes: in an order without hazardous intermediate states, each recorded in a journal",
            "first; a supervisor undoes all of them if this program dies",
            "undo: `zfstune revert`; `zfstune revert --print` shows commands that need no zfstune",
            *(f"note: {one}" for one in self.notes()),
        ]

    def _time(self) -> list[str]:
        request, block_s = self.request, self.request.plan.seconds
        blocks = int(request.budget_ns / SECOND / (block_s + 8))
        return [
            f"search: candidates of the model, then of the sampler {request.sampler}",
            f"time: {format_span(request.budget_ns)}, about {blocks} blocks of {block_s:g} s, with "
            "2 or 3 txgs after each change:",
            "  4 or more for the noise, 2 or more for each candidate, 12 or more fresh ones for "
            "the proof",
        ]

    def _arc_time(self) -> list[str]:
        side = format_span(round(2 * self.request.plan.seconds * SECOND))
        return [
            "search: the size that the ghost lists of the ARC predict to save most misses",
            f"time: {format_span(self.request.budget_ns)}, in sides of {side}, half of each to "
            "settle:",
            f"  1 for the noise and the forecast, {2 * arc.FEWEST_PAIRS} or more for the proof",
        ]

    def notes(self) -> list[str]:
        """Sentences on what slightly disturbs the measurement, and on what is missing."""
        found = []
        if not self.request.arc and self.request.sampler == LOCAL and not search.has_optuna():
            found.append(
                "the search draws by local, for this Python has no optuna; docs/search.md says how "
                "the two compare"
            )
        if not (self.request.storage or self.request.arc):
            found.append(
                "the study is in memory, for this Python has no sqlite3: the session cannot be "
                "continued"
            )
        for what, path in (("journal", places().state), ("results", self.request.out)):
            dataset = _dataset(self.host, self.pool, path)
            if dataset:
                found.append(
                    f"the {what} ({path}) will be on {dataset}, in the measured pool, and add to "
                    "its fsyncs"
                )
        return found


def _names(request: Request, space: Space) -> tuple[str, ...]:
    return (ARC_MAX,) if request.arc else space.parameters()


def _shown(name: str, value: int) -> str:
    return values.show(value, catalogue.load()[name].unit)


def _dataset(host: Host, pool: str, path: Path) -> str | None:
    """The dataset of a path, which need not exist; None if it is not on the pool."""
    there = next((one for one in (path.absolute(), *path.absolute().parents) if one.exists()), path)
    try:
        name = host.dataset_name(pool, 0, dev_of(there))
    except OSError:
        return None
    return name if name and name.split("/", 1)[0] == pool else None


def refusals(args: argparse.Namespace, setup: Setup) -> list[NotPossible]:
    """The errors for which a session would not begin now."""
    found = []
    signs = production.signs()
    if signs and not args.staging:
        found.append(
            NotPossible(
                f"this host looks like production: {signs[0]}",
                "tune a copy of it, or add --staging if it may be slower for a while",
            )
        )
    scan = scanning(setup.pool)
    if scan:
        found.append(
            NotPossible(f"a {scan} is running on {setup.pool}", "try again when it is over")
        )
    return found


def require_consent(args: argparse.Namespace, setup: Setup) -> None:
    """Asks on the terminal unless --yes is given. Raises NotPossible when the host must not be
    tuned now, UsageError without a terminal, CommandError when the answer is no."""
    for refusal in refusals(args, setup):
        raise refusal
    if args.yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(
            "cannot ask for consent to change parameters: stdin is not a terminal", "add --yes"
        )
    print("\n".join(map(printable, setup.describe(args))), file=sys.stderr)
    try:
        answer = input("Change parameters of this host and measure? [y/N] ")
    except EOFError:
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        raise CommandError("nothing was changed")
