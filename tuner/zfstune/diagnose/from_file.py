"""`zfstune diagnose --from`: judges again what was measured, from --json or an incident file."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

from zfstrace.printable import printable
from zfstrace.types import SCHEMA, Json
from zfstune.diagnose.judge import Diagnosis, judge
from zfstune.diagnose.quantities import NAMES, Value
from zfstune.diagnose.text import view
from zfstune.errors import UsageError
from zfstune.incident import at
from zfstune.incident.intervals import Interval, load
from zfstune.incident.lines import Input
from zfstune.incident.reader import Reader, is_incident
from zfstune.incident.times import ns_of
from zfstune.term.log import say
from zfstune.term.table import Style, style_of, wrap
from zfstune.term.units import format_count

# Measurements are counters and times of the kernel: 64 bits.
_MOST = (1 << 64) - 1
_GIVE = "give the output of `zfstune diagnose --json`, or a file of `zfstune record dump`"
# More than any host has; each takes 30 KiB.
_MOST_POOLS = 64

Measured = dict[str, Value]


@dataclass(frozen=True)
class Again:
    """A diagnosis that was judged again; lost and missing are what its traces did not see."""

    diagnosis: Diagnosis
    lost: int | None = None
    missing: Json = field(default_factory=dict)

    def to_json(self) -> Json:
        """A ``diagnosis`` object of the schema."""
        beside = {} if self.lost is None else {"lost": self.lost, "missing_views": self.missing}
        return self.diagnosis.to_json() | beside


def run(args: argparse.Namespace) -> int:
    """The command. Raises UsageError."""
    asked = None if args.at is None else at.parse(args.at)
    given = Input(args.source, _GIVE)
    try:
        if is_incident(given.begin):
            found = in_incident(Reader(args.source, given), asked, args.pool)
        elif asked:
            raise UsageError(
                f"--at: {given.name} is of one moment", "leave it out, or name an incident file"
            )
        else:
            found = [Again(judge(one)) for one in read(given, args.pool)]
    finally:
        given.close()
    return _show(found, as_json=args.json)


def _show(found: list[Again], *, as_json: bool) -> int:
    """Prints diagnoses and returns their worst status."""
    if as_json:
        for one in found:
            print(json.dumps(one.to_json()))
    else:
        style = style_of(sys.stdout)
        # pools with findings first
        order = sorted(found, key=lambda one: -one.diagnosis.status)
        blocks = [[*view(one.diagnosis, style), *_unseen(one, style)] for one in order]
        print("\n\n".join("\n".join(block) for block in blocks))
    return max((one.diagnosis.status for one in found), default=0)


def _unseen(one: Again, style: Style) -> list[str]:
    lines = []
    for name, why in one.missing.items():
        lines += wrap(f"trace {name} was not available: {printable(str(why))}", "", style.width)
    if one.lost:
        lines.append(style.paint(f"lost {format_count(one.lost)}", "bad"))
    return lines


# --- the output of --json


def read(given: Input, pool: str | None) -> list[Measured]:
    """The measurements of each pool, or of one. Raises UsageError."""
    try:
        text = b"".join(given.pieces()).decode()
    except UnicodeDecodeError:
        raise UsageError(f"{given.name} is not text", _GIVE) from None
    found = [_measurements(line, given.name) for line in text.split("\n") if line.strip()]
    if not found:
        raise UsageError(f"{given.name} is empty", _GIVE)
    named = [one for one in found if pool in (None, one["pool"])]
    if not named:
        _no_pool(pool, given.name, {str(one["pool"]) for one in found})
    return named


def _no_pool(pool: str | None, name: str, others: set[str]) -> None:
    raise UsageError(f"no pool {pool!r} in {name}", f"choose from {', '.join(sorted(others))}")


def _measurements(line: str, name: str) -> Measured:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        entry = None
    if not isinstance(entry, dict) or entry.get("type") != "diagnosis":
        raise UsageError(f"{name} has a line that is no diagnosis", _GIVE)
    given = entry.get("measurements")
    if entry.get("schema") != SCHEMA or not isinstance(given, dict):
        raise UsageError(f"{name} is not of schema {SCHEMA}", "use the zfstune that wrote it")
    try:
        return typed(given)
    except ValueError as error:
        raise UsageError(f"{name}: {error}", _GIVE) from None


def typed(given: Json) -> Measured:
    """Measurements with the values that belong to their names; unknown names are left out, missing
    ones are None. Raises ValueError."""
    found: Measured = {name: given.get(name) for name in NAMES}
    for name, value in found.items():
        kind = str if NAMES[name].unit == "text" else int
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            raise ValueError(f"{name} is not of type {kind.__name__}")
        if isinstance(value, int) and abs(value) > _MOST:
            raise ValueError(f"{name} has more than 64 bits")
    return found


# --- an incident file


class Best:
    """The diagnoses to show, one for each pool: the nearest to a moment, or the worst."""

    def __init__(self, moment_ns: int | None) -> None:
        self._moment = moment_ns
        self._found: dict[str, tuple[tuple[int, ...], Json]] = {}
        self.count = self.odd = 0

    def see(self, _interval: Interval, record: Json) -> None:
        if record["type"] != "diagnosis":
            return
        try:
            typed(record["measurements"])
        except ValueError:
            self.odd += 1
            return
        self.count += 1
        pool, rank = record["pool"], self._rank(record)
        known = self._found.get(pool)
        if known is None and len(self._found) >= _MOST_POOLS:
            return
        if known is None or rank > known[0]:
            self._found[pool] = rank, record

    def _rank(self, record: Json) -> tuple[int, ...]:
        """The larger, the better."""
        measured = typed(record["measurements"])
        if self._moment is not None:
            return (-abs((ns_of(record["time"]) or 0) - self._moment),)
        return tuple(
            value if isinstance(value := measured[name], int) else 0
            for name in ("pool_suspended", "p99_ns")
        )

    def records(self) -> Iterator[Json]:
        for _, record in self._found.values():
            yield record

    @property
    def pools(self) -> set[str]:
        return set(self._found)


def in_incident(reader: Reader, asked: at.Asked | None, pool: str | None = None) -> list[Again]:
    """Of each pool the diagnosis nearest to a moment, or the worst one, judged again. Says what is
    missing in the file. Raises UsageError."""
    moment = None if asked is None else at.find(asked, reader.span, reader.name)
    best = Best(moment)
    problems = load(reader, best.see).problems
    for problem in problems:
        say(problem)
    if best.odd:
        odd = format_count(best.odd)
        say(f"{reader.name}: diagnoses with values of the wrong type, left out: {odd}")
    if not best.count:
        raise UsageError(
            f"{reader.name} has no diagnosis", f"see `zfstune trace --from {reader.name}`"
        )
    chosen = [again(one) for one in best.records() if pool in (None, one["pool"])]
    if not chosen:
        _no_pool(pool, reader.name, best.pools)
    which = f"those nearest to {at.shown(moment)}" if moment else "the worst of each pool"
    host = (reader.header["host"]["name"] or "a host").strip()
    many = f"{format_count(best.count)} diagnoses" if best.count > 1 else "one diagnosis"
    say(f"{host}: {many} until {at.shown(reader.span[1])}; {which}")
    return chosen


def again(record: Json) -> Again:
    """A record of an incident file, judged. Raises ValueError."""
    return Again(
        judge(typed(record["measurements"])), record["lost"], record["missing_views"] or {}
    )
