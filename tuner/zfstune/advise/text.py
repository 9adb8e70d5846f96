"""Findings as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence

from zfstrace.printable import printable
from zfstrace.types import SCHEMA, Json
from zfstune.advise.database import PAGES
from zfstune.advise.gather import Asked, State
from zfstune.advise.judge import Finding, Verdict
from zfstune.advise.rules import SEVERITIES
from zfstune.term.table import Style, wrap

# The most datasets or commands to list; the rest is counted.
_NAMED = 4
_TITLE = " " * 8
_INDENT = " " * 12
_PAINT = {"high": "bad", "medium": "hot", "low": "bold"}
_REWRITE = {
    "none": "",
    "data": "existing data keeps its form until it is rewritten (copy it, or send and receive it)",
    "pool": "a new vdev or pool, to which the data is copied",
}


def lines(state: State, asked: Asked, verdict: Verdict, style: Style) -> list[str]:
    """The whole text: findings, notes, rules that could not be judged, and a summary."""
    shown: list[str] = []
    for finding in verdict.findings:
        shown += [*_finding(finding, style), ""]
    for note in state.notes:
        shown += wrap(f"note: {printable(note)}")
    if verdict.unjudged:
        shown += wrap(_unjudged(verdict), "", 98)
    return [*shown, *wrap(_summary(state, asked, verdict))]


def _finding(finding: Finding, style: Style) -> list[str]:
    rule = finding.rule
    first, *rest = wrap(printable(finding.what), _TITLE)
    head = style.paint(f"{rule.severity.upper():<6}", _PAINT[rule.severity])
    found = [f"{head}  {first[len(_TITLE) :]}", *rest]
    if rule.lowers_durability:
        found.append(style.paint(f"{_TITLE}LOWERS DURABILITY: for data that may be lost", "bad"))
    found += _part("where", _where(finding.where))
    found += _part("why", finding.why)
    found += _part("effect", f"{finding.effect} [{rule.source}]")
    found += _part("risk", finding.risk)
    for command in finding.commands[:_NAMED]:
        # not folded, so that it can be copied
        found.append(f"  {'command':<8}  {printable(command)}")
    if len(finding.commands) > _NAMED:
        found.append(f"{_INDENT}and {len(finding.commands) - _NAMED} more commands, see --json")
    if finding.how:
        found += _part("how", finding.how)
    if _REWRITE[rule.rewrite]:
        found += _part("needs", _REWRITE[rule.rewrite])
    return found


def _part(name: str, text: str) -> list[str]:
    first, *rest = wrap(printable(text), _INDENT)
    return [f"  {name:<8}  {first[len(_INDENT) :]}", *rest]


def _where(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _unjudged(verdict: Verdict) -> str:
    rules = [f"{name} ({', '.join(missing)})" for name, missing in verdict.unjudged.items()]
    count = "1 rule" if len(rules) == 1 else f"{len(rules)} rules"
    return f"{count} could not be judged: {', '.join(rules)}"


def _summary(state: State, asked: Asked, verdict: Verdict) -> str:
    counts = dict.fromkeys(SEVERITIES, 0)
    for finding in verdict.findings:
        counts[finding.rule.severity] += 1
    told = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    what = asked.where or ", ".join(state.pools)
    hint = "" if asked.load else "; --for and --config also judge by its use"
    if asked.load in PAGES and not asked.database:
        hint = "; --config judges the database, too"
    return f"{printable(what)}: {told or 'nothing found'}; nothing was changed{hint}"


def to_json(state: State, asked: Asked, verdict: Verdict) -> Json:
    return {
        "schema": SCHEMA,
        "type": "advise",
        "version": state.version,
        "pools": list(state.pools),
        "where": asked.where,
        "load": asked.load or None,
        "findings": [_finding_json(finding) for finding in verdict.findings],
        "unjudged": [
            {"rule": name, "missing": list(missing)} for name, missing in verdict.unjudged.items()
        ],
        "notes": list(state.notes),
    }


def _finding_json(finding: Finding) -> Json:
    rule = finding.rule
    return {
        "rule": rule.id,
        "severity": rule.severity,
        "scope": rule.scope,
        "where": list(finding.where),
        "what": finding.what,
        "why": finding.why,
        "effect": finding.effect,
        "source": rule.source,
        "risk": finding.risk,
        "commands": list(finding.commands),
        "how": finding.how or None,
        "rewrite": rule.rewrite,
        "lowers_durability": rule.lowers_durability,
    }
