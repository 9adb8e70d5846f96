"""A diagnosis as text."""

from __future__ import annotations

from zfstrace.printable import printable
from zfstune.diagnose.judge import Diagnosis, Finding
from zfstune.diagnose.observe import Watched
from zfstune.diagnose.quantities import number, show
from zfstune.term.table import Style, wrap
from zfstune.term.units import format_count, format_percent, format_rate, format_span, format_time
from zfstune.trace.footer import footer

_OWNERS = {"device": "device", "zfs": "ZFS", "system": "scheduler", "unknown": "unexplained"}
_STATES = {"DEGRADED": "redundancy is reduced, and a resilver may be running"}


def view(one: Diagnosis, style: Style) -> list[str]:
    """The lines of one pool."""
    lines = _wrapped(_heading(one), style, "dim")
    state = show("pool_state", one.measurements["pool_state"])
    if state not in ("ONLINE", "?"):
        note = _STATES.get(state, "it does not write, and fsyncs wait")
        lines += _wrapped(f"The pool is {state}: {note}; see `zpool status {_pool(one)}`.", style)
    lines += _wrapped(f"{one.summary}.", style, "bold")
    for position, finding in enumerate(one.findings, 1):
        lines += ["", *_finding(position, finding, style)]
    if one.rest_total is not None and one.verdict in ("causes", "unknown"):
        lines += ["", *wrap(_rest(one), "", style.width)]
    for cause, name in one.not_judged:
        lines += wrap(f"not judged: {cause.title} ({name} is not known)", "", style.width)
    return lines


def _pool(one: Diagnosis) -> str:
    return printable(str(one.measurements["pool"]))


def _heading(one: Diagnosis) -> str:
    found = one.measurements
    span, count = number(found, "duration_ns") or 0, number(found, "operations") or 0
    until = f" until {printable(str(found['time']))[11:19]} UTC" if found["time"] else ""
    seen = f"{format_count(count)} fsyncs" if span else "not traced"
    text = f"{_pool(one)}, {format_span(span)}{until}: {seen}"
    if count:
        times = ", ".join(
            f"{name} {format_time(number(found, f'{name}_ns') or 0)}" for name in ("p50", "p99")
        )
        text += f", {format_rate(count, span)}, {times}"
    return text


def _wrapped(text: str, style: Style, how: str = "hot") -> list[str]:
    return [style.paint(line, how) for line in wrap(text, "", style.width)]


def _finding(position: int, finding: Finding, style: Style) -> list[str]:
    shares = f"{_share(finding.share_p99)} of the p99, {_share(finding.share_total)} of all time"
    if finding.share_p99 is None and finding.share_total is None:
        shares = "not measured"
    if not finding.cause.explains:
        shares = "outside the time of fsyncs"
    head = wrap(f"{position}. {finding.title}", "", style.width)
    lines = [style.paint(line, "hot") for line in head]
    lines += wrap(f"{shares}; {finding.certainty}: {finding.why}", "   ", style.width)
    for word, texts in (
        ("seen", finding.evidence),
        ("next", finding.next),
        # a sure cause has no lookalike
        ("looks the same", () if finding.certainty == "sure" else finding.alike),
    ):
        for text in texts:
            lines += _hanging(f"{word}: {text}", style)
    return lines


def _hanging(text: str, style: Style) -> list[str]:
    lines = wrap(text, "     ", style.width)
    return ["   " + lines[0].lstrip(), *lines[1:]] if lines else []


def _share(share: int | None) -> str:
    return "?" if share is None else format_percent(share / 1000)


def _rest(one: Diagnosis) -> str:
    parts = ", ".join(
        f"{_OWNERS[owner]} {format_percent(share / 1000)}"
        for owner, share in one.owners.items()
        if share
    )
    text = f"the rest: {_share(one.rest_p99)} of the p99, {_share(one.rest_total)} of all time"
    tail = number(one.measurements, "tail_operations")
    if tail is not None:
        slowest = show("tail_operations", tail)
        text += f" ({parts})" if parts else ""
        return f"{text}; p99: the slowest {slowest} of {_count(one)}"
    return f"{text} ({parts})" if parts else text


def _count(one: Diagnosis) -> str:
    return show("operations", one.measurements["operations"])


def end(watched: Watched, style: Style) -> list[str]:
    """The last lines: what the traces did not measure."""
    lines = []
    for name, why in watched.missing.items():
        lines += wrap(f"trace {name} not available: {printable(why)}", "", style.width)
    others = {name: n for name, n in watched.lost.items() if name != "fsync"}
    if others:
        text = ", ".join(f"{name} {format_count(n)}" for name, n in others.items())
        lines += _wrapped(f"lost by other traces: {text}", style, "bad")
    return lines + footer(watched.span.losses, watched.span.probes, style)
