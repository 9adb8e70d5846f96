"""`zfstune doctor`: what this host can measure, what is missing, what that costs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import TextIO

from zfstrace.errors import TraceError
from zfstrace.host import Host
from zfstrace.strict import strict_zip
from zfstrace.types import SCHEMA, Check, Probe, ProbeSurvey, Tool
from zfstune import __version__
from zfstune.errors import DONE, NEGATIVE, NOT_POSSIBLE, UsageError
from zfstune.host import open_host
from zfstune.inside import instead
from zfstune.term.table import Style, aligned, style_of, wrap

_WORDS = {DONE: "ok", NEGATIVE: "incomplete", NOT_POSSIBLE: "impossible"}
_SAY = {
    DONE: "nothing is missing: `zfstune trace fsync` measures every stage",
    NEGATIVE: "something is missing: `zfstune trace fsync` works, with less detail",
    NOT_POSSIBLE: "tracing is not possible here",
}


def run(args: argparse.Namespace) -> int:
    """The command; returns the status of examine(). Raises CommandError and TraceError."""
    if args.cost:
        from zfstune.trace import cost

        return cost.run(args)
    if args.duration:
        raise UsageError(
            "--duration is only for --cost: doctor looks once", "write `zfstune doctor --cost`"
        )
    return examine(open_host(), sys.stdout, as_json=args.json)


def examine(host: Host, out: TextIO, *, as_json: bool) -> int:
    """Prints the findings and returns the exit status for them."""
    checks = host.checks()
    survey = ProbeSurvey()
    try:
        if not any(c.status == "blocking" and c.kind in ("zfs", "library") for c in checks):
            survey = host.survey()
    except TraceError as error:
        cost = "the probes cannot be looked up"
        checks.append(Check("probes", "kernel", str(error), "blocking", cost, error.hint))
    status = _status(checks, survey.probes)
    ways = _instead(host, checks) if status == NOT_POSSIBLE else {}
    if as_json:
        found = _to_json(checks, survey, host.tools(), status)
        found["instead"] = {name: [way.to_json() for way in those] for name, those in ways.items()}
        print(json.dumps(found), file=out)
    else:
        style = style_of(out)
        lines = [*_check_lines(checks, style), "", *_probe_lines(survey, style), ""]
        lines += [*_tool_lines(host.tools()), "", *_instead_lines(ways)]
        print("\n".join([*lines, f"zfstune {__version__}: {_SAY[status]}"]), file=out)
    return status


def _instead(host: Host, checks: Sequence[Check]) -> dict[str, list[instead.Way]]:
    """What works without a trace, by question; questions without an answer are left out."""
    found = instead.Instead(host, checks)
    ways = {question: found.ways(question) for question in instead.QUESTIONS}
    return {question: those for question, those in ways.items() if those}


def _status(checks: Sequence[Check], probes: Sequence[Probe]) -> int:
    if any(check.status == "blocking" for check in checks):
        return NOT_POSSIBLE
    if any(probe.missing and probe.required for probe in probes):
        return NOT_POSSIBLE
    if any(check.status == "missing" for check in checks) or any(p.missing for p in probes):
        return NEGATIVE
    return DONE


def _to_json(
    checks: Sequence[Check], survey: ProbeSurvey, tools: Sequence[Tool], status: int
) -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "type": "doctor",
        "version": __version__,
        "status": _WORDS[status],
        "layout": survey.layout or None,
        "checks": [
            {
                "name": check.name,
                "kind": check.kind,
                "status": check.status,
                "value": check.value,
                "cost": check.cost,
                "fix": check.fix,
            }
            for check in checks
        ],
        "probes": [
            {
                "name": probe.name,
                "symbol": probe.symbol,
                "how": probe.how,
                "status": "missing" if probe.missing else "ok",
                "required": probe.required,
                "cost": probe.cost,
                "why": probe.why,
            }
            for probe in survey.probes
        ],
        "tools": [
            {
                "name": tool.name,
                "runner": tool.runner,
                "status": "missing" if tool.why else "ok",
                "why": tool.why,
            }
            for tool in tools
        ],
    }


def _instead_lines(ways: Mapping[str, Sequence[instead.Way]]) -> list[str]:
    """A paragraph for each question, and an empty line; [] without any."""
    lines = []
    for question, those in ways.items():
        command = question if question in ("diagnose", "flame") else f"trace {question}"
        lines += [f"  in place of `zfstune {command}`", *instead.lines(those, "    ")]
    return [instead.TITLE, *lines, ""] if lines else []


def _mark(status: str, style: Style) -> str:
    text = {"ok": "ok", "missing": "MISSING", "blocking": "FAILS"}[status]
    return style.paint(text, {"ok": "dim", "missing": "hot", "blocking": "bad"}[status])


def _check_lines(checks: Sequence[Check], style: Style) -> list[str]:
    # colours only after the columns are aligned: their codes have a length, too
    cells = [[check.name, check.value] for check in checks]
    lines = []
    for check, row in strict_zip(checks, aligned(cells, "<<")):
        if check.status == "ok":
            lines.append(row)
            lines += wrap(check.fix, "    ") if check.fix else []
            continue
        lines.append(f"{row}  {_mark(check.status, style)}")
        remedy = f"; {check.fix}" if check.fix else ""
        lines += wrap(check.cost + remedy, "    ")
    return lines


def _probe_lines(survey: ProbeSurvey, style: Style) -> list[str]:
    if not survey.probes:
        return ["probes not looked up"]
    missing = [probe for probe in survey.probes if probe.missing]
    found = len(survey.probes) - len(missing)
    lines = [f"{found} of {len(survey.probes)} probes found, structure layouts: {survey.layout}"]
    for why in dict.fromkeys(p.why for p in survey.probes if p.why and not p.missing):
        lines += wrap(f"kprobes instead of fentry, which is cheaper: {why}", "  ")
    cells = [
        [probe.name, *(("", "") if probe.missing else (probe.how, probe.symbol))]
        for probe in survey.probes
    ]
    for probe, row in strict_zip(survey.probes, aligned(cells, "<<<", indent="  ")):
        if not probe.missing:
            lines.append(row)
            continue
        lines.append(f"{row}  {_mark('blocking' if probe.required else 'missing', style)}")
        why = f" ({probe.why})" if probe.why else ""
        lines += wrap(f"{probe.cost or 'less detail'}{why}", "      ")
    return lines


def _tool_lines(tools: Sequence[Tool]) -> list[str]:
    """One paragraph for the tools that would work, and one for each reason why others would not.
    zfstune does not need them, so they do not change the status."""
    reasons = sorted({tool.why for tool in tools})
    lines = []
    for why in reasons:
        names = ", ".join(tool.name for tool in tools if tool.why == why)
        title = f"one-file tools that would not work ({why})" if why else "one-file tools for root"
        lines += [*wrap(f"{title}:"), *wrap(names, "  ")]
    return lines
