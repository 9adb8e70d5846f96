"""A matrix as text: measured against reported rates, and the orderings that agree."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from zfstune.bench.matrix import rows
from zfstune.bench.matrix.result import MatrixResult, RowResult
from zfstune.bench.matrix.rows import Pair, ReportRow
from zfstune.bench.measure import MeasuredTest
from zfstune.term.table import Style, aligned, wrap
from zfstune.term.units import format_count, format_percent

_STAGES = 3
_MOST_PAIRS = 12
_HEAD = ["test", "measured", "x", "reported", "x", "device", "stages"]
_WORDS = {-1: "slower", 0: "the same", 1: "faster"}


def view(found: MatrixResult, style: Style) -> list[str]:
    """The lines of all rows, and below them which orderings agree with the report."""
    base = rows.base(found.matrix, found.rates)
    lines = [style.paint(f"{found.matrix.title}: here {found.heading}", "bold")]
    lines += wrap(f"reported: {found.matrix.source}", "", style.width)
    text = (
        "device: relative to fdatasync on the raw device of the log; stages: those with most time"
    )
    if base:
        text = f"x: the ratio to the first row, {base.label}; {text}"
    lines += wrap(text, "", style.width)
    # aligned as one table, whose lines are then distributed to the rows
    cells = [_cells(found, r.row, one, base) for r in found.results for one in r.measured]
    table = iter(aligned([_HEAD, *cells], "<>>>>><", "  ", "  "))
    lines += ["", style.paint(next(table), "dim")]
    for result in found.results:
        lines.append(style.paint(f"{result.row.label} ({result.row.id})", "bold"))
        lines += itertools.islice(table, len(result.measured))
        lines += _notes(result, style)
    lines += ["", *orders(found, style)]
    return [*lines, f"lost {format_count(found.lost)}"]


def _notes(result: RowResult, style: Style) -> list[str]:
    lines = wrap(f"reported: {result.row.words}", "  ", style.width) if result.row.words else []
    if result.failed:
        lines += [style.paint(line, "bad") for line in wrap(result.failed, "  ", style.width)]
    reasons = {one.untraced for one in result.measured if one.untraced} - {"not on ZFS"}
    for reason in sorted(reasons):
        lines += wrap(f"no stages: {reason}", "  ", style.width)
    return lines


def _cells(
    found: MatrixResult, row: ReportRow, one: MeasuredTest, base: ReportRow | None
) -> list[str]:
    test = one.rate.test.name
    first = found.rates.get((base.id, test)) if base else None
    reported = row.reported.get(test)
    limit = found.limit(row) if test == "fdatasync" else None
    return [
        test,
        rate(one.rate.per_s),
        times(rows.ratio(one.rate.per_s, first)),
        rate(reported) if reported else "",
        times(rows.ratio(reported, base.reported.get(test)) if base else None),
        f"{one.rate.per_s / limit:.0%}".replace("%", " %") if limit else "",
        largest(one.shares()),
    ]


def rate(per_s: float) -> str:
    """Syncs or writes per second: ``331/s``."""
    return f"{per_s:,.1f}/s" if per_s < 100 else f"{per_s:,.0f}/s"


def times(ratio: float | None) -> str:
    """``0.05x``; "" for None."""
    if ratio is None:
        return ""
    return (
        f"{ratio:.1f}x" if ratio >= 9.95 else f"{ratio:.2f}x" if ratio >= 0.095 else f"{ratio:.3f}x"
    )


def largest(shares: Mapping[str, float], number: int = _STAGES) -> str:
    """``flush 93 %, issue 4 %``: the largest stages, without those of 0 %."""
    parts = [f"{name} {share:.0%}".replace("%", " %") for name, share in shares.items()]
    return ", ".join(part for part in parts[:number] if not part.endswith(" 0 %"))


def orders(found: MatrixResult, style: Style) -> list[str]:
    """Lines on how many pairs of rows agree with the report, and on those that do not."""
    pairs = rows.pairs(found.matrix, found.rates)
    lines = wrap(summary(pairs), "", style.width)
    wrong = rows.worst_first(pairs)
    for pair in wrong[:_MOST_PAIRS]:
        lines += [f"  {line}" for line in wrap(explained(found, pair), "", style.width - 2)]
    if len(wrong) > _MOST_PAIRS:
        lines.append(f"  and {len(wrong) - _MOST_PAIRS} more, see --json")
    return lines


def summary(pairs: Sequence[Pair]) -> str:
    """The number of pairs that agree with the report, in one sentence."""
    if not pairs:
        return "orderings: no two rows to compare with the report"
    agree = sum(pair.agrees for pair in pairs)
    turned = sum(pair.reversed for pair in pairs)
    return (
        f"orderings: {agree} of {len(pairs)} pairs of rows agree with the report (less than "
        f"{format_percent(rows.SAME - 1)} apart counts as the same), {turned} are reversed"
    )


def explained(found: MatrixResult, pair: Pair) -> str:
    """A sentence on a pair: what was reported, what was measured, and where the time goes."""
    one, other = (found.matrix.of(row).id for row in (pair.one, pair.other))
    said, is_here = (_WORDS[rows.side(ratio)] for ratio in (pair.reported, pair.measured))
    text = (
        f"{pair.test}: {one} against {other}: reported {said} ({times(pair.reported)}), here "
        f"{is_here} ({times(pair.measured)})"
    )
    stages = []
    for row in (pair.one, pair.other):
        measured = found.measured(row, pair.test)
        shown = largest(measured.shares()) if measured else ""
        if shown:
            stages.append(f"{row}: {shown}")
    return f"{text}; {'; '.join(stages)}" if stages else text
