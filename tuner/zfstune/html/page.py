"""The HTML of the report: escaping, tables, commands to copy, and the frame of the page."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

from zfstrace import packaged
from zfstrace.printable import printable
from zfstrace.strict import strict_zip
from zfstrace.types import Json
from zfstune.term.json import clean

# The longest embedded JSON, in characters; a longer one loses its lists.
MOST_JSON = 450_000
_LONG = ("txgs", "histograms", "blocks", "trials")


class Section(NamedTuple):
    """A part of the page, left out if its body is empty. link is the short title."""

    name: str
    link: str
    title: str
    body: str


def esc(text: object) -> str:
    """Any text, escaped for HTML."""
    return escape(printable(str(text)))


def code(text: object) -> str:
    """Any text as a <code> element."""
    return f"<code>{esc(text)}</code>"


def paragraph(text: str, look: str = "") -> str:
    """A plain text as a <p> element of class look; "" if it is empty."""
    kind = f' class="{look}"' if look else ""
    return f"<p{kind}>{esc(text)}</p>\n" if text else ""


def table(
    head: Sequence[str], looks: Sequence[str], rows: Iterable[Sequence[str]], label: str = ""
) -> str:
    """A table: head is plain text, the cells are HTML, looks has the class of each column. With a
    label, plain text too, a table wider than the screen can be scrolled with the keyboard."""
    names = [esc(one) for one in head]
    kinds = [f' class="{look}"' if look else "" for look in looks]
    top = "".join(f'<th scope="col"{kind}>{name}</th>' for name, kind in strict_zip(names, kinds))

    def cells(row: Sequence[str]) -> str:
        # a narrow screen shows the name with each cell
        return "".join(
            f'<td{kind} data-name="{name}">{one}</td>'
            for one, name, kind in strict_zip(row, names, kinds)
        )

    body = "".join(f"<tr>{cells(row)}</tr>\n" for row in rows)
    return (
        f'<div class="scroll"{_region(label)}><table>\n<thead><tr>{top}</tr></thead>\n'
        f"<tbody>{body}</tbody></table></div>\n"
    )


def scrolled(label: str, lines: Iterable[str]) -> str:
    """Plain lines of equal width, in a frame that scrolls; "" without any."""
    text = "\n".join(esc(line) for line in lines)
    return f'<div class="lines"{_region(label)}><pre>{text}</pre></div>\n' if text else ""


def _region(label: str) -> str:
    return f' tabindex="0" role="region" aria-label="{esc(label)}"' if label else ""


def command(label: str, lines: Sequence[str]) -> str:
    """Commands with a button that copies them."""
    # esc() removes line breaks, so each line is escaped by itself
    text = "\n".join(esc(line) for line in lines)
    name = f'<div class="label">{esc(label)}</div>' if label else ""
    return (
        f'<div>{name}<div class="cmd"><pre>{text}</pre>'
        '<button type="button" hidden>Copy</button></div></div>\n'
    )


def facts(rows: Iterable[tuple[str, str]]) -> str:
    """A list of plain names and their HTML values, without empty ones."""
    items = "".join(f"<dt>{esc(name)}</dt><dd>{one}</dd>\n" for name, one in rows if one)
    return f'<dl class="facts">{items}</dl>\n' if items else ""


def details(summary: str, body: str) -> str:
    """HTML folded below a plain summary; "" if it is empty."""
    return f"<details><summary>{esc(summary)}</summary>\n{body}</details>\n" if body else ""


def interval(low: float | None, middle: float | None, high: float | None, widest: float) -> str:
    """A small picture of a change and its interval; widest, from spread(), is the largest |log
    ratio| of the scale. "" without a change."""
    if middle is None:
        return ""
    xs = [_place(one, widest) for one in (low, middle, high)]
    bar = ""
    if xs[0] is not None and xs[2] is not None:
        width = max(1.0, xs[2] - xs[0])
        bar = (
            f'<rect x="{xs[0]:.1f}" y="7.5" width="{width:.1f}" height="7" rx="3.5" '
            'fill="var(--after)" opacity=".32"/>'
        )
    return (
        '<svg class="interval" viewBox="0 0 200 22" aria-hidden="true">'
        '<path d="M2 11H198" stroke="var(--rule)"/><path d="M100 2V20" stroke="var(--quiet)"/>'
        f'{bar}<circle cx="{xs[1]:.1f}" cy="11" r="4.2" fill="var(--after)"/></svg>'
    )


def _place(change: float | None, widest: float) -> float | None:
    if change is None:
        return None
    log = math.log(max(1e-9, 1 + change))
    return 100 + 94 * max(-1.0, min(1.0, log / widest))


def spread(changes: Iterable[float | None]) -> float:
    """The widest of interval() for these changes: a factor of at least 1.5, at most 6."""
    logs = [abs(math.log(1 + one)) for one in changes if one is not None and one > -1]
    return min(max([math.log(1.5), *logs]), math.log(6))


def embedded(session: Json) -> str:
    """A session as JSON for a script element; if it would be too large, long lists are replaced by
    their lengths."""
    data = clean(session)
    text = json.dumps(data, separators=(",", ":"))
    for name in _LONG:
        if len(text) <= MOST_JSON:
            break
        data[name] = {"left_out": len(data.get(name) or ())}
        text = json.dumps(data, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def raw_json(what: str) -> str:
    """The element in which page.js shows the data of page(); what names the data."""
    return (
        f'<details class="raw-json"><summary>{esc(what)} as JSON</summary>\n'
        f'<pre class="json"{_region(f"{what} as JSON")}></pre>'
        "<noscript>It is in the last lines of this file.</noscript></details>\n"
    )


def page(title: str, head: str, sections: Sequence[Section], data: str, scripts: list[str]) -> str:
    """The whole file. scripts are the scripts of frames inside it; no others can run, and nothing
    can be loaded."""
    script = _asset("page.js")
    shown = [one for one in sections if one.body]
    links = "".join(f'<a href="#{one.name}">{esc(one.link)}</a>' for one in shown)
    body = "".join(
        f'<section id="{one.name}"><h2>{esc(one.title)}</h2>\n{one.body}</section>\n'
        for one in shown
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy([script, *scripts])}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{esc(title)}</title>\n<style>\n{_asset('page.css')}</style>\n</head>\n<body>\n"
        f'<header>\n{head}<nav aria-label="Contents">{links}</nav>\n</header>\n'
        f"<main>\n{body}</main>\n"
        "<footer>Written by zfstune. The file needs nothing else: it loads nothing, and can be "
        "moved or sent as it is.</footer>\n"
        f'<script type="application/json" id="data">{data}</script>\n'
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


def _policy(scripts: Iterable[str]) -> str:
    hashes = {base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in scripts}
    allowed = " ".join(f"'sha256-{one}'" for one in sorted(hashes))
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src {allowed}; "
        "base-uri 'none'; form-action 'none'"
    )


def _asset(name: str) -> str:
    return packaged.read("zfstune.html", name).decode()
