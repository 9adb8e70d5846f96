"""The table at the end of `zfstune tune`: the verdict, the changes, the trials."""

from __future__ import annotations

from collections.abc import Iterator

from zfstrace.printable import printable
from zfstrace.strict import strict_zip
from zfstrace.types import Json
from zfstune.report import words
from zfstune.report.data import finite, listed, mapped
from zfstune.term.table import Style, fit, wrap
from zfstune.term.units import format_count

_LOOKS = {"better": "bold", "worse": "bad", "equivalent": "bold"}
_CLOSING = 8
# The indent of text below a row.
_BELOW = " " * 6
# With more trials only the report has their values.
_MOST_VALUES = 12


def table(session: Json, style: Style) -> list[str]:
    """Lines of at most style.width columns; the last three are the changes, how to undo them, and
    how to keep them."""
    parts = (_verdict, _changed, _limits, _trials, _dropped, _losses, _closing)
    lines: list[str] = []
    for part in parts:
        found = list(part(session, style))
        if found:
            lines += ["", *found] if lines else found
    return lines


def _verdict(session: Json, style: Style) -> Iterator[str]:
    found = words.finding(session)
    for line in _wrap(found.headline, style):
        yield style.paint(line, _LOOKS.get(found.kind, "hot"))
    values = words.before_after(session)
    if values:
        yield from _wrap(f"{words.goal(session)}: {values[0]} before, {values[1]} after.", style)
    yield from _wrap(f"{found.evidence} {found.outcome}", style)
    if session.get("note"):
        for line in _wrap(f"note: {session['note']}", style):
            yield style.paint(line, "hot")
    yield from _wrap(words.more(session), style)


def _changed(session: Json, style: Style) -> Iterator[str]:
    winner, base = mapped(session, "winner"), mapped(session, "baseline")
    if not winner:
        return
    what = "what was changed" if session.get("in_force") else "what was compared"
    yield style.paint(what, "bold")
    rows = [["parameter", "before", "after"]]
    for name, value in winner.items():
        rows.append([_one(name), words.value(name, base.get(name)), words.value(name, value)])
    lines = fit(rows, "<>>", style, 0)
    yield lines[0]
    reasons = mapped(session, "reasons")
    for name, line in strict_zip(winner, lines[1:]):
        yield line
        yield from _wrap(str(reasons.get(name) or "found by the search"), style, _BELOW)


def _limits(session: Json, style: Style) -> Iterator[str]:
    limits = listed(session, "limits")
    if not limits:
        return
    yield style.paint("limits", "bold")
    rows = [[_one(limit.get("text")), words.limit_result(limit)] for limit in limits]
    for limit, line in strict_zip(limits, fit(rows, "<<", style, 0)):
        yield line if limit.get("ok") else style.paint(line, "bad")


def _trials(session: Json, style: Style) -> Iterator[str]:
    tried = listed(session, "trials")
    if not tried:
        return
    count = words.plural(len(tried), "trial")
    yield style.paint(f"{count}, change of {_one(words.goal(session))}", "bold")
    rows = [["#", "from", "change", "pairs"]]
    for place, one in enumerate(tried, 1):
        pairs = finite(one.get("pairs"))
        rows.append(
            [
                _one(one.get("number") or place),
                _one(words.source(one.get("source"))),
                words.change(finite(one.get("change"))),
                "" if pairs is None else f"{pairs:.0f}",
            ]
        )
    lines = fit(rows, "><<>", style, 1)
    yield lines[0]
    base = mapped(session, "baseline")
    for line, one in strict_zip(lines[1:], tried):
        yield line
        if len(tried) <= _MOST_VALUES:
            wanted = {n: v for n, v in mapped(one, "values").items() if base.get(n) != v}
            yield from _wrap(words.values(wanted) or "as before", style, _BELOW)
        for part in _wrap(str(one.get("note") or ""), style, _BELOW):
            yield style.paint(part, "bad")
    if len(tried) > _MOST_VALUES:
        yield "  the values of each are in the report"


def _dropped(session: Json, style: Style) -> Iterator[str]:
    dropped = listed(session, "dropped")
    if not dropped:
        return
    yield style.paint("dropped as unnecessary", "bold")
    for one in dropped:
        names = ", ".join(str(name) for name in one.get("names") or ())
        why = one.get("why") or words.change(finite(one.get("change")))
        yield from _wrap(f"{names}: {why}", style, "  ")


def _losses(session: Json, style: Style) -> Iterator[str]:
    lost = int(finite(session.get("lost")) or 0)
    text = f"lost {format_count(lost)}"
    yield style.paint(text, "bad") if lost else text
    changes = listed(session, "overrides")
    if not changes:
        yield "foreign changes: none"
    for one in changes:
        text = f"foreign change: {words.override(one)}; left as it is"
        for line in _wrap(text, style):
            yield style.paint(line, "hot")


def _closing(session: Json, style: Style) -> Iterator[str]:
    for name, text in words.closing(session):
        first, *more = wrap(_one(text), " " * _CLOSING, style.width)
        yield style.paint(name.ljust(_CLOSING), "bold") + first.strip()
        yield from more


def _wrap(text: str, style: Style, indent: str = "") -> list[str]:
    return wrap(_one(text), indent, style.width)


def _one(text: object) -> str:
    """Without line breaks and escape codes: names and notes come from outside."""
    return " ".join(printable(" ".join(str(text).split())).split())
