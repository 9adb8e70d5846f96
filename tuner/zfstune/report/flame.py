"""The flame graphs in the report: the difference of two recordings, and each of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from zfstrace import flame
from zfstrace.flame import diff, svg
from zfstrace.stacks import Stacks
from zfstrace.types import Json
from zfstune.html.page import details, esc, paragraph
from zfstune.report.data import SIDES, mapped

# Characters of all graphs together.
MOST = 750_000


@dataclass
class Flames:
    """body is HTML; scripts are the texts of the scripts in it."""

    body: str = ""
    scripts: list[str] = field(default_factory=list)


def flames(session: Json, directory: Path) -> Flames:
    """The section with the stacks recorded beside the session; empty without any."""
    found = Flames()
    notes: list[str] = []
    named = mapped(session, "flame")
    if named.get("note"):
        notes.append(str(named["note"]))
    recorded = {side: _read(named.get(side), directory, notes) for side, _ in SIDES}
    before, after = recorded["before"], recorded["after"]
    graphs: list[tuple[str, str]] = []
    if before and after:
        try:
            diff.check(before, after)
            graphs.append(
                ("", "".join(diff.render(before, after, "Stacks: before to after the change")))
            )
        except flame.FlameError as error:
            notes.append(error.in_one_line())
    for title, stacks in (("before", before), ("after", after)):
        if stacks:
            graphs.append((title, "".join(svg.render(replace(stacks, title=f"Stacks {title}")))))
    room = MOST
    for title, graph in graphs:
        if len(graph) > room:
            what = f"flame graph {title}" if title else "difference of the flame graphs"
            notes.append(
                f"the {what} is too large for this page; draw it with `zfstune flame "
                f"{'convert' if title else 'diff'}` from the .folded files beside session.json"
            )
            continue
        room -= len(graph)
        frame = _frame(title or "difference", graph, found.scripts)
        found.body += details(f"Flame graph {title}", frame) if title else frame
    found.body += "".join(paragraph(f"Note: {note}.", "small") for note in notes)
    return found


def _read(name: object, directory: Path, notes: list[str]) -> Stacks | None:
    if not isinstance(name, str) or not name:
        return None
    # only files beside the session
    path = directory / Path(name).name
    try:
        return flame.read(str(path)).stacks
    except flame.FlameError as error:
        notes.append(error.in_one_line())
        return None


def _frame(title: str, graph: str, scripts: list[str]) -> str:
    """A graph in a separate document, which isolates its keys and styles."""
    graph = graph.partition("?>\n")[2]
    height = re.search(r'<svg [^>]*height="([0-9]+)"', graph)
    scripts += _scripts(graph)
    page = f'<!DOCTYPE html><meta charset="utf-8"><style>body{{margin:0}}</style>{graph}'
    # apostrophes are rare in a graph, quotation marks are not
    text = page.replace("&", "&amp;").replace("'", "&#39;")
    return (
        f'<div class="flame"><iframe title="Flame graph: {esc(title)}" '
        f'height="{int(height[1]) + 6 if height else 600}" '
        f"srcdoc='{text}'></iframe></div>\n"
    )


def _scripts(graph: str) -> Iterable[str]:
    return re.findall(r"<script><!\[CDATA\[(.*?)\]\]></script>", graph, re.DOTALL)
