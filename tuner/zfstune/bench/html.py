"""The page of `zfstune bench --html`: the table of the terminal, and the stages as bars."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from zfstrace import stages
from zfstrace.flame import output
from zfstrace.types import Json
from zfstune.bench.measure import MeasuredTest
from zfstune.bench.text import HEAD, PathResult, cells, heading, limit_text, notes
from zfstune.html.page import Section, code, embedded, esc, page, paragraph, raw_json, table
from zfstune.html.stage_colors import stage_color
from zfstune.term.units import format_percent, format_time

_HEIGHT = 18


def save(found: PathResult, path: str) -> None:
    """Writes the page to a file. Raises zfstrace.flame.WriteFailed."""
    output.save(path, [render(found)])


def render(found: PathResult) -> str:
    """The page of `zfstune bench PATH`."""
    data: Json = {
        "place": found.place,
        "seconds": found.seconds,
        "tests": [found.to_json(one) for one in found.rows],
        "missing": found.missing,
        "left": found.left,
    }
    sections = [
        Section("rates", "Rates", "Cost of a write and its sync", _rates(found)),
        Section("stages", "Stages", "Where the time of the syncs goes", _stages(found.rows)),
        Section("measurements", "Data", "All measurements", raw_json("The measurements")),
    ]
    return frame("Synchronous writes", heading(found), problems(found), sections, data)


def frame(
    title: str, where: str, problems: Sequence[str], sections: Sequence[Section], data: Json
) -> str:
    """A page: its title, where it was measured, the problems, the sections, and embedded JSON."""
    said = "".join(f"<li>{esc(one)}</li>" for one in problems)
    head = f'<h1>{esc(title)}</h1>\n<p class="where">{esc(where)}</p>\n' + (
        f'<ul class="notes">{said}</ul>\n' if said else ""
    )
    return page(f"{title}: {where}", head, sections, embedded(data), [])


def problems(found: PathResult) -> list[str]:
    """Sentences on what was not measured, not removed, or lost."""
    lost = sum(one.lost for one in found.rows)
    said = [f"The trace lost {lost} operations."] if lost else []
    return [*found.missing, *found.left, *said]


def _rates(found: PathResult) -> str:
    rows = [[*map(esc, cells(found, one)), esc(one.rate.tool)] for one in found.rows]
    limit = limit_text(found) if any(map(found.limit_per_s, found.rows)) else ""
    text = table([*HEAD, "by"], ["name", "n", "n", "n", "n", "n", ""], rows)
    return text + "".join(paragraph(one, "small") for one in (limit, *notes(found)) if one)


def _stages(measured: Sequence[MeasuredTest]) -> str:
    traced = [one for one in measured if one.fsync and one.fsync.latency and one.shares()]
    if not traced:
        return ""
    rows = []
    for one in traced:
        assert one.fsync
        assert one.fsync.latency
        shares = one.shares()
        text = ", ".join(
            f"{name} {format_percent(share)}" for name, share in list(shares.items())[:3]
        )
        mean = format_time(one.fsync.latency.mean)
        rows.append([_whole(one.rate.test.label), mean, bar(shares), _whole(text)])
    return key(name for one in traced for name in one.shares()) + table(
        ["test", "mean of one sync", "stages", "largest"], ["", "n", "w", ""], rows
    )


def _whole(text: str) -> str:
    """HTML that breaks only after a comma."""
    return esc(text).replace(" ", "&nbsp;").replace(",&nbsp;", ", ")


def key(names: Iterable[str]) -> str:
    """A legend: the colour, name and meaning of these stages."""
    found = set(names)
    items = "".join(
        f'<li><span class="swatch" style="background:{stage_color(one.name)}"></span>'
        f"{code(one.name)} {esc(one.meaning)}</li>"
        for one in stages.STAGES
        if one.name in found
    )
    return f'<ul class="key">{items}</ul>\n'


def bar(shares: Mapping[str, float]) -> str:
    """An SVG bar of shares (of 1), in the order of the stages."""
    left = 0.0
    parts = []
    for name in stages.NAMES:
        width = 1000 * shares.get(name, 0.0)
        if width > 0:
            title = f"{name} {format_percent(shares[name])}"
            parts.append(
                f'<rect x="{left:.1f}" width="{width:.1f}" height="{_HEIGHT}" '
                f'fill="{stage_color(name)}"><title>{esc(title)}</title></rect>'
            )
            left += width
    text = ", ".join(f"{name} {format_percent(share)}" for name, share in shares.items())
    return (
        f'<svg viewBox="0 0 1000 {_HEIGHT}" width="100%" height="{_HEIGHT}" role="img" '
        f'preserveAspectRatio="none" aria-label="{esc(text)}">{"".join(parts)}</svg>'
    )
