"""The page of `zfstune bench --matrix --html`: measured against reported, with the stages."""

from __future__ import annotations

from zfstrace.flame import output
from zfstune.bench.html import bar, frame, key
from zfstune.bench.matrix import rows as bench_rows
from zfstune.bench.matrix.result import MatrixResult
from zfstune.bench.matrix.text import explained, rate, summary, times
from zfstune.html.page import Section, esc, paragraph, raw_json, table
from zfstune.term.units import format_percent


def save(found: MatrixResult, path: str) -> None:
    """Writes the page to a file. Raises zfstrace.flame.WriteFailed."""
    output.save(path, [render(found)])


def render(found: MatrixResult) -> str:
    """The page of `zfstune bench --matrix`."""
    rows = [one.to_json(found.matrix, found.limit(one.row)) for one in found.results]
    said = [f"{one.row.label}: {one.failed}" for one in found.results if one.failed]
    sections = [
        Section("rates", "Rates", "Measured against reported", _rates(found)),
        Section("orders", "Orderings", "Agreement with the report", _orders(found)),
        Section("data", "Data", "All measurements", raw_json("The measurements")),
    ]
    where = f"{found.heading}; reported: {found.matrix.source}"
    data = found.to_json() | {"rows": rows}
    return frame(found.matrix.title, where, [*said, *found.left], sections, data)


def _rates(found: MatrixResult) -> str:
    base = bench_rows.base(found.matrix, found.rates)
    rows = []
    for result in found.results:
        for one in result.measured:
            test = one.rate.test.name
            first = found.rates.get((base.id, test)) if base else None
            reported = result.row.reported.get(test)
            limit = found.limit(result.row) if test == "fdatasync" else None
            words = [
                rate(one.rate.per_s),
                times(bench_rows.ratio(one.rate.per_s, first)),
                rate(reported) if reported else "",
                times(bench_rows.ratio(reported, base.reported.get(test)) if base else None),
                format_percent(one.rate.per_s / limit) if limit else "",
            ]
            shares = one.shares()
            cells = [result.row.label, test, *words]
            rows.append([*map(esc, cells), bar(shares) if shares else ""])
    head = ["setup", "test", "measured", "x", "reported", "x", "of the device", "stages"]
    text = table(head, ["", "name", "n", "n", "n", "n", "n", "w"], rows)
    names = (name for result in found.results for one in result.measured for name in one.shares())
    said = f"x is the ratio to the first row, {base.label}." if base else ""
    return key(names) + text + paragraph(said, "small")


def _orders(found: MatrixResult) -> str:
    pairs = bench_rows.pairs(found.matrix, found.rates)
    wrong = bench_rows.worst_first(pairs)
    items = "".join(f"<li>{esc(explained(found, pair))}</li>\n" for pair in wrong)
    return paragraph(summary(pairs)) + (f"<ul>\n{items}</ul>\n" if items else "")
