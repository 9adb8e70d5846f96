"""`zfstune params`: lists module parameters, explains them, and sets them safely."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TextIO

from zfstrace.host import Host
from zfstrace.strict import strict_zip
from zfstrace.types import SCHEMA, Json
from zfstune.errors import DONE, UsageError
from zfstune.host import open_host
from zfstune.params.explain import as_json, paragraphs
from zfstune.term.table import Style, fit, style_of, wrap
from zfstune.tunables import catalogue, guard, planner
from zfstune.tunables import values as sizes
from zfstune.tunables.planner import Write
from zfstune.tunables.survey import (
    Row,
    Survey,
    dangerous,
    look,
    require_known,
    require_module,
    require_possible,
)


def run(args: argparse.Namespace) -> int:
    """The command and its subcommands. Raises CommandError."""
    _check(args)
    host = open_host()
    if args.what == "set":
        return set_values(host, args, sys.stdout)
    if args.what == "explain":
        return explain(host, args, sys.stdout)
    survey = look(host)
    require_module(survey)
    if args.what == "get":
        return get(survey, args, sys.stdout)
    return show_list(survey, args, sys.stdout)


def _check(args: argparse.Namespace) -> None:
    """Checks the arguments without a look at the host. Raises UsageError."""
    if args.what not in (None, "list"):
        for name in ("all", "changed"):
            if getattr(args, name):
                raise UsageError(f"--{name} is an option of `zfstune params list`", "leave it out")
    if args.all and args.changed:
        raise UsageError("--changed: not allowed with --all", "leave one out")
    if args.what == "get":
        if args.json and args.value:
            raise UsageError("--value: not allowed with --json", "leave one out")
        require_possible(args.names)
    elif args.what == "explain":
        require_possible(args.names)
    elif args.what == "set":
        check_values(args.values)


# --- list


def show_list(survey: Survey, args: argparse.Namespace, out: TextIO) -> int:
    """Prints the table, and below it what is wrong with the values."""
    rows = [row for row in survey.rows.values() if _listed(row, survey, args)]
    if args.json:
        print(json.dumps(_list_json(survey, rows)), file=out)
        return DONE
    style = style_of(out)
    if rows:
        print("\n".join(_table(rows, survey, style)), file=out)
    elif args.changed:
        print("all parameters known to zfstune are at their defaults", file=out)
    for line in _findings(survey, style):
        print(line, file=out)
    if args.all:
        print("\n-: zfstune does not know the default, and does not set the parameter", file=out)
    elif not args.changed:
        hidden = len(survey.rows) - len(rows)
        print(f"\n{hidden} more with --all; details: zfstune params explain NAME", file=out)
    return DONE


def _broken(survey: Survey) -> set[str]:
    return {name for violation in survey.violations for name in violation.names}


def _listed(row: Row, survey: Survey, args: argparse.Namespace) -> bool:
    if args.all:
        return True
    if args.changed:
        return row.changed
    remarkable = row.changed or row.ignored or row.name in _broken(survey)
    return remarkable or bool(row.parameter and row.parameter.shown)


def _table(rows: Sequence[Row], survey: Survey, style: Style) -> list[str]:
    broken = _broken(survey)
    cells = [["PARAMETER", "VALUE", "DEFAULT", "IN FORCE", ""]]
    for row in rows:
        cells.append(
            [
                row.name,
                _cell(row.value, row.unit, "text"),
                _cell(row.default, row.unit, "-"),
                _cell(row.in_force, row.unit, ""),
                _remark(row, broken),
            ]
        )
    if not any(row[3] for row in cells[1:]):
        cells = [[*row[:3], row[4]] for row in cells]
    lines = fit(cells, "<" + ">" * (len(cells[0]) - 2) + "<", style, 0)
    return [
        style.paint(line, "bold" if i == 0 else _paint(rows[i - 1], broken))
        for i, line in enumerate(line[2:] for line in lines)
    ]


def _paint(row: Row, broken: set[str]) -> str:
    bad = row.ignored or row.name in broken or dangerous(row)
    return "bad" if bad else "hot" if row.changed else ""


def _cell(value: int | None, unit: str, missing: str) -> str:
    return missing if value is None else sizes.show(value, unit)


def _remark(row: Row, broken: set[str]) -> str:
    words = []
    if row.ignored:
        words.append("IGNORED")
    if row.name in broken:
        words.append("BREAKS A RULE")
    if row.changed:
        words.append("DANGEROUS" if dangerous(row) else "changed")
    if row.parameter and not words:
        words.append({"never": "never set", "load": "at load only", "rw": ""}[row.parameter.access])
    return ", ".join(words)


def _findings(survey: Survey, style: Style) -> list[str]:
    """A paragraph for each problem with the present values."""
    lines: list[str] = []
    for row in survey.rows.values():
        if row.ignored and row.value is not None and row.in_force is not None:
            lines += _finding(
                f"{row.name} is {sizes.short(row.value, row.unit)}, which ZFS ignores: "
                f"{sizes.short(row.in_force, row.unit)} is in force. It may take effect when "
                f"another limit changes; set {row.name}={sizes.short(row.in_force, row.unit)}",
                style,
            )
        if dangerous(row) and row.parameter and row.value is not None:
            lines += _finding(f"{row.name} is {row.value}: {row.parameter.hazard}", style)
    for violation in survey.violations:
        advice = guard.advice(violation, violation.names[0])
        lines += _finding(f"{guard.broken(violation, survey.state, survey.facts)}; {advice}", style)
    return lines


def _finding(text: str, style: Style) -> list[str]:
    first, *rest = wrap(text, "  ")
    return ["", style.paint("!", "bad") + first[1:], *rest]


def _list_json(survey: Survey, rows: Sequence[Row]) -> Json:
    return {
        "schema": SCHEMA,
        "type": "params",
        "version": survey.version,
        "parameters": [_row_json(row) for row in rows],
        "violations": [
            {
                "rule": violation.rule,
                "names": list(violation.names),
                "reason": violation.reason,
                "hard": violation.hard,
                "nearest": violation.nearest,
            }
            for violation in survey.violations
        ],
    }


def _row_json(row: Row) -> Json:
    known = row.parameter
    return {
        "name": row.name,
        "freebsd": known.freebsd if known else None,
        "unit": known.unit if known else None,
        "access": known.access if known else None,
        "value": row.value,
        "default": row.default,
        "in_force": row.value if row.in_force is None else row.in_force,
        "changed": row.changed,
        "low": row.low,
        "high": row.high,
    }


# --- get


def get(survey: Survey, args: argparse.Namespace, out: TextIO) -> int:
    """Prints NAME=VALUE in the kernel's unit. Raises UsageError."""
    rows = [_there(survey, name) for name in require_known(args.names, list(survey.rows))]
    if args.json:
        print(json.dumps(_list_json(survey, rows)), file=out)
        return DONE
    for row in rows:
        print(row.value if args.value else f"{row.name}={row.value}", file=out)
    return DONE


def _there(survey: Survey, name: str) -> Row:
    row = survey.rows.get(name)
    if row is None:
        raise UsageError(f"no parameter {name!r} in ZFS {survey.version}: it exists {_where(name)}")
    if row.value is None:
        raise UsageError(f"{name} is not a number: zfstune neither shows nor sets text")
    return row


def _where(name: str) -> str:
    parameter = catalogue.load()[name]
    span = [f"since {parameter.since}"] if parameter.since else []
    span += [f"up to {parameter.until}"] if parameter.until else []
    return " ".join(span) or ("on FreeBSD" if not parameter.linux else "in other builds")


# --- explain


def explain(host: Host, args: argparse.Namespace, out: TextIO) -> int:
    """Prints the entry of each parameter, with its values on this host."""
    survey = look(host)
    names = require_known(args.names, list(survey.rows))
    if args.json:
        print(json.dumps(as_json(names, survey)), file=out)
        return DONE
    style = style_of(out)
    for i, name in enumerate(names):
        if i:
            print(file=out)
        print("\n".join(paragraphs(name, survey, style)), file=out)
    return DONE


# --- set


def set_values(host: Host, args: argparse.Namespace, out: TextIO) -> int:
    """Sets values and prints the writes. Raises Refused, UsageError, NotPossible, ApplyError."""
    survey = look(host)
    require_module(survey, "set")
    wanted = parse_values(args.values, survey)
    if args.dry_run:
        writes = planner.plan(survey.state, wanted, survey.facts, force=args.force)
    else:
        from zfstune.changes import session
        from zfstune.term.log import say

        command = " ".join(["zfstune params set", *args.values, *["--force"] * args.force])
        writes = session.set_values(host, wanted, command, say, force=args.force)
    if args.json:
        print(json.dumps(_writes_json(writes, survey, dry_run=args.dry_run)), file=out)
    else:
        style = style_of(out)
        print("\n".join(_write_lines(writes, survey, style, dry_run=args.dry_run)), file=out)
    return DONE


def check_values(texts: Sequence[str]) -> None:
    """Checks values as far as the catalogue alone allows. Raises Refused, UsageError."""
    pairs = _pairs(texts)
    for name, _ in pairs:
        require_possible([name])
        parameter = catalogue.load().get(name)
        if parameter is None or parameter.access != "rw":
            # refused on every host
            planner.plan(dict.fromkeys(catalogue.load(), 0), {name: 0}, guard.Facts(0, 0, 0))
    for name, value in pairs:
        _parse(name, value, memory=1)


def parse_values(texts: Sequence[str], survey: Survey) -> dict[str, int]:
    """The values of NAME=VALUE texts, by Linux name. Raises UsageError."""
    pairs = _pairs(texts)
    require_known([name for name, _ in pairs], list(survey.rows))
    return {name: _parse(name, value, survey.facts.memory_bytes) for name, value in pairs}


def _pairs(texts: Sequence[str]) -> list[tuple[str, str]]:
    """Linux names and the texts of their values. Raises UsageError."""
    found: dict[str, str] = {}
    for text in texts:
        given, equals, value = text.partition("=")
        if not equals or not given.strip():
            raise UsageError(f"{text!r} sets nothing", "write it like zfs_txg_timeout=5s")
        name = catalogue.canonical(given.strip())
        if name in found:
            raise UsageError(f"{name} is given twice", "leave one out")
        found[name] = value
    return list(found.items())


def _parse(name: str, value: str, memory: int) -> int:
    """Raises UsageError."""
    parameter = catalogue.load().get(name)
    try:
        return sizes.parse(value, parameter.unit if parameter else "count", memory)
    except ValueError as error:
        why, _, hint = str(error).partition("\n")
        raise UsageError(f"cannot set {name}: {why}", hint) from None


def _steps(writes: Sequence[Write], survey: Survey) -> list[tuple[Write, int]]:
    """Each write, and the value before it."""
    now = dict(survey.state)
    steps = []
    for write in writes:
        steps.append((write, now[write.name]))
        now[write.name] = write.value
    return steps


def _writes_json(writes: Sequence[Write], survey: Survey, *, dry_run: bool) -> Json:
    return {
        "schema": SCHEMA,
        "type": "params-set",
        "dry_run": dry_run,
        "writes": [
            {
                "name": write.name,
                "before": before,
                "value": write.value,
                "quiet": write.quiet,
                "why": write.why,
            }
            for write, before in _steps(writes, survey)
        ],
    }


def _write_lines(
    writes: Sequence[Write], survey: Survey, style: Style, *, dry_run: bool
) -> list[str]:
    if not writes:
        return ["nothing to do: already set"]
    cells = []
    for i, (write, before) in enumerate(_steps(writes, survey), 1):
        unit = catalogue.load()[write.name].unit
        values = [sizes.show(before, unit), "->", sizes.show(write.value, unit)]
        cells.append([str(i), write.name, *values, "waits" if write.quiet else ""])
    head = "writes in this order:" if dry_run else "written:"
    lines = [head]
    for line, write in strict_zip(fit(cells, "><><<<", style, 1), writes):
        lines.append(line)
        lines += wrap(write.why, "       ") if write.why else []
    if any(write.quiet for write in writes):
        lines.append("waits: until the throttle delays no writer for 0.3 s, 3 s at most")
    return [*lines, *_after(writes), *_undo(dry_run)]


def _after(writes: Sequence[Write]) -> list[str]:
    """When the change takes effect."""
    known = [catalogue.load()[write.name] for write in writes]
    txgs = max(parameter.settle_txgs for parameter in known)
    lines = [f"takes full effect after {txgs} txgs"] if txgs else []
    other = {p.name: p.settles for p in known if p.settles}
    return lines + [line for n, s in other.items() for line in wrap(f"{n} takes effect {s}")]


def _undo(dry_run: bool) -> list[str]:
    if dry_run:
        return ["nothing was written; `zfstune revert` would undo these writes"]
    return ["undo: `zfstune revert`; keep over a reboot: `zfstune keep`"]
