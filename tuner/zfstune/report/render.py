"""The report of a session: one HTML file, in the order of an administrator's questions: the result,
in a sentence and a picture, how to keep or undo it, the changes, and then the evidence and the
reasons."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from zfstrace import stages as fsync_stages
from zfstrace.flame import output
from zfstrace.types import Json
from zfstune.html.page import (
    Section,
    code,
    command,
    details,
    embedded,
    esc,
    facts,
    interval,
    page,
    paragraph,
    raw_json,
    spread,
    table,
)
from zfstune.html.stage_colors import stage_color
from zfstune.report import data, plots, words
from zfstune.report.data import finite, listed, mapped
from zfstune.report.flame import Flames, flames
from zfstune.report.svg import Plot
from zfstune.term.units import format_count, format_time

NAME = "report.html"

# Trials shown at first; the rest is folded up.
_MOST_TRIALS = 12
_FSYNC_ROWS = (
    ("p50", 500, "fsync.p50"),
    ("p90", 900, ""),
    ("p99", 990, "fsync.p99"),
    ("p99.9", 999, "fsync.p999"),
)

_PLOTS = (plots.latency, plots.stages, plots.timeline, plots.pairs, plots.trials, plots.txgs)
# by name
Plots = dict[str, Plot]


def write(session: Json, directory: Path) -> Path:
    """Writes report.html into the session's directory, and returns its path. Raises
    zfstrace.flame.WriteFailed."""
    path = directory / NAME
    save(session, directory, str(path))
    return path


def save(session: Json, directory: Path, path: str) -> None:
    """Writes the page to path, ``-`` for standard output. Raises zfstrace.flame.WriteFailed."""
    # only for the owner, because it has the command line
    output.save(path, [render(session, directory)], 0o600)


def render(session: Json, directory: Path) -> str:
    """The page; directory has the recordings that the session names."""
    drawn = _plots(session)
    graphs = flames(session, directory)
    pool = esc(session.get("pool") or "?")
    sections = [
        Section("changed", "Changes", "What was changed", _changed(session)),
        Section("limits", "Limits", "Limits and other measures", _limits(session)),
        Section("latency", "Latency", "Fsync latency before and after", _latency(session)),
        Section("stages", "Stages", "Where fsyncs spend their time", _stages(session, drawn)),
        Section("blocks", "Blocks", "Block by block", _blocks(session, drawn)),
        Section("txgs", "Txgs", "Transaction groups", _txgs(drawn)),
        Section("trials", "Trials", "What was tried", _trials(session, drawn)),
        Section("stacks", "Stacks", "Where threads waited", _stacks(graphs)),
        Section("session", "Session", "The session", _session(session)),
    ]
    return page(
        f"zfstune: {words.finding(session).word}, pool {session.get('pool')}",
        _head(session, pool, drawn),
        sections,
        embedded(session),
        graphs.scripts,
    )


def _plots(session: Json) -> Plots:
    made = ((maker.__name__, maker(session)) for maker in _PLOTS)
    return {name: plot for name, plot in made if plot}


def _figure(drawn: Plots, name: str, caption: str) -> str:
    plot = drawn.get(name)
    if not plot:
        return ""
    return (
        f'<figure class="plot"><div class="wide">{plot.wide}</div>'
        f'<div class="narrow">{plot.narrow}</div><figcaption>{esc(caption)}</figcaption></figure>\n'
    )


def _head(session: Json, pool: str, drawn: Plots) -> str:
    found = words.finding(session)
    host = mapped(session, "host")
    where = [f"pool {pool}", esc(host.get("hostname") or ""), esc(session.get("started") or "")]
    length = words.duration(session)
    if length:
        where.append(f"took {length}")
    sentence = found.sentence
    # a metric keeps its lower case: p99
    if not sentence.startswith(words.goal(session)):
        sentence = sentence[:1].upper() + sentence[1:]
    notes = "".join(f"<li>{esc(note)}</li>\n" for note in _notes(session))
    return (
        f'<div class="{found.kind}">\n<p class="where">{" · ".join(filter(None, where))}</p>\n'
        f'<span class="badge">{esc(found.word)}</span>\n<h1>{esc(sentence)}</h1>\n'
        f"{paragraph(found.evidence, 'evidence')}{paragraph(found.outcome, 'outcome')}"
        f"{paragraph(words.more(session))}{_hero(session)}"
        + _figure(
            drawn,
            "latency",
            "The share of fsyncs that took longer than a time (a curve crosses 1 % at its p99; "
            "lower is better), and their distribution. All fsyncs of the confirmation.",
        )
        + _ways(session)
        + (f'<ul class="notes">\n{notes}</ul>\n' if notes else "")
        + "</div>\n"
    )


def _ways(session: Json) -> str:
    """To keep what is in force, and back."""
    if not session.get("in_force"):
        return ""
    keep = command("Keep: set the new values at each boot", [str(session.get("keep") or "")])
    undo = command("Undo: restore the previous values", [str(session.get("undo") or "")])
    return f'<div class="cmds">\n{keep}{undo}</div>\n'


def _notes(session: Json) -> Iterable[str]:
    """The warnings."""
    if session.get("note"):
        state = "It failed" if session.get("state") == "failed" else "Note"
        yield f"{state}: {str(session['note']).rstrip('. ')}."
    for one in words.missed(session):
        moved = words.change(finite(one.get("change")))
        how = "may be missed" if words.unproved(one) else "was missed"
        yield f"A limit {how}: {one.get('text')} ({moved})."
    for one in listed(session, "overrides"):
        yield f"Another process changed a parameter, which was left alone: {words.override(one)}."
    lost = finite(session.get("lost")) or 0
    if lost:
        yield (
            f"{words.plural(int(lost), 'event')} could not be measured and "
            f"{'is' if lost == 1 else 'are'} missing from these numbers."
        )


def _hero(session: Json) -> str:
    """The objective before and after, and the interval."""
    values = words.before_after(session)
    parts = ""
    if values:
        parts += (
            f'<dl class="numbers"><div class="a"><dt>before</dt><dd>{esc(values[0])}</dd></div>'
            '<span class="to" aria-hidden="true">→</span>'
            f'<div class="b"><dt>after</dt><dd>{esc(values[1])}</dd></div></dl>\n'
        )
    parts += _gauge(session)
    return f'<div class="hero">{parts}</div>\n' if parts else ""


def _gauge(session: Json) -> str:
    """The change and its interval on a scale with numbers."""
    verdict = mapped(session, "verdict")
    low, middle, high = (finite(verdict.get(key)) for key in ("low", "change", "high"))
    if low is None or middle is None or high is None or min(low, middle, high) <= -1:
        return ""
    logs = [math.log(1 + one) for one in (low, middle, high)]
    left, right = min(-0.3, *logs) * 1.12, max(0.2, *logs) * 1.12
    left, right = max(left, -math.log(30)), min(right, math.log(30))

    def x(log: float) -> float:
        return 8 + 424 * (min(max(log, left), right) - left) / (right - left)

    marks = ""
    last = -99.0
    for ratio in (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.85, 1, 1.2, 1.5, 2, 3, 5, 10, 20):
        at = x(math.log(ratio))
        # always the middle, the others only if there is room
        near = abs(at - x(0)) < 46 or at - last < 46
        if not left <= math.log(ratio) <= right or (near and ratio != 1):
            continue
        last = at
        text = "no change" if ratio == 1 else _percent_change(ratio - 1)
        anchor = "end" if at > 400 else "middle" if at > 34 else "start"
        marks += (
            f'<path d="M{at:.1f} 26V32" stroke="var(--quiet)"/><text x="{at:.1f}" y="47" '
            f'text-anchor="{anchor}" font-size="12.5" fill="var(--quiet)">{text}</text>'
        )
    return (
        '<svg class="gauge" viewBox="0 0 440 52" role="img" aria-label="change with its interval">'
        f'<path d="M8 26H432" stroke="var(--rule)"/>{marks}'
        f'<path d="M{x(0):.1f} 6V32" stroke="var(--ink)"/>'
        f'<rect x="{x(logs[0]):.1f}" y="12" width="{max(2.0, x(logs[2]) - x(logs[0])):.1f}" '
        'height="10" rx="5" fill="var(--after)" opacity=".35"/>'
        f'<circle cx="{x(logs[1]):.1f}" cy="17" r="6.5" fill="var(--after)"/></svg>\n'
    )


def _percent_change(change: float) -> str:
    return f"x {1 + change:g}" if change >= 1 else f"{100 * change:+.0f} %"


def _changed(session: Json) -> str:
    winner, base = mapped(session, "winner"), mapped(session, "baseline")
    if not winner:
        back = "Nothing: all parameters have their previous values."
        if not words.whole_again(session):
            back = "Nothing, but not all parameters are restored: see `zfstune status`."
        return paragraph(back)
    reasons = mapped(session, "reasons")
    rows = [
        [
            code(name),
            _parameter(name, base.get(name), "a-ink"),
            _parameter(name, value, "b-ink"),
            esc(reasons.get(name) or "found by the search"),
        ]
        for name, value in winner.items()
    ]
    head = ["parameter", "before", "after", "why"]
    made = table(head, ["name", "n", "n", "w"], rows, "Changed parameters")
    shell = [str(line) for line in session.get("undo_shell") or []]
    if not session.get("in_force"):
        back = "These values are not in force: all have been restored."
        if not words.whole_again(session):
            back = "These values were not to stay, but not all are restored: see `zfstune status`."
        made = paragraph(back) + made
        return made + details("Commands that set the previous values", command("", shell))
    return made + (details("Undo without zfstune", command("", shell)) if shell else "")


def _parameter(name: str, value: object, look: str) -> str:
    """A value for people, and below it the kernel's number if that differs."""
    text = words.value(name, value)
    raw = str(value)
    below = "" if raw == text.replace(",", "").partition(" ")[0] else raw
    shown = f'<b class="{look}">{esc(text)}</b>'
    return shown + (f'<span class="raw">{esc(below)}</span>' if below else "")


def _limits(session: Json) -> str:
    rows = []
    for limit in listed(session, "limits"):
        moved = finite(limit.get("change"))
        state = '<span class="ok">✓ kept</span>'
        if not limit.get("ok"):
            how = "not proved" if words.unproved(limit) else "missed"
            state = f'<span class="missed">✗ {how}</span>'
        rows.append([code(limit.get("text")), state, esc(words.change(moved))])
    measures = _other_measures(session)
    if not rows:
        return measures
    head = ["limit", "", "change in the confirmation"]
    return table(head, ["name", "c", "w"], rows, "Limits") + measures


def _other_measures(session: Json) -> str:
    """The metrics that are not in the table of latencies."""
    changes = mapped(session, "changes")
    known = {name for _, _, name in _FSYNC_ROWS} | {"fsync.mean"}
    names = [name for name in words.METRICS if name in changes and name not in known]
    names += [name for name in changes if name not in words.METRICS]
    widest = _widest(changes, names)
    rows = []
    for name in names:
        before, after = data.typical(session, name)
        rows.append(
            [
                esc(words.metric_name(name)),
                esc(words.metric_value(name, before)),
                esc(words.metric_value(name, after)),
                *_change_cells(changes, name, widest),
            ]
        )
    if not rows:
        return ""
    head = ["in the confirmation, median block", "before", "after", "change", "interval", ""]
    return table(head, ["name", "n", "n", "c", "c", "strip"], rows, "Other measures")


def _widest(changes: Json, names: Iterable[str]) -> float:
    return spread(
        finite(mapped(changes, name).get(key)) for name in names for key in ("low", "high")
    )


def _change_cells(changes: Json, name: str, widest: float) -> list[str]:
    one = mapped(changes, name)
    low, middle, high = (finite(one.get(key)) for key in ("low", "change", "high"))
    if middle is None:
        return ["", "", ""]
    return [
        esc(words.change(middle)),
        esc(words.interval(low, high)),
        interval(low, middle, high, widest),
    ]


def _latency(session: Json) -> str:
    hists = {side: data.histogram(session, side) for side, _ in data.SIDES}
    if not any(hist.count for hist in hists.values()):
        return paragraph("There was no confirmation, so nothing can be compared.")
    changes = mapped(session, "changes")
    widest = _widest(changes, [name for _, _, name in _FSYNC_ROWS] + ["fsync.mean"])
    rows = []
    for title, permille, name in _FSYNC_ROWS:
        cells = [_ns(hist.quantile(permille), bool(hist.count)) for hist in hists.values()]
        rows.append([esc(title), *cells, *_change_cells(changes, name, widest)])
    means = [_ns(h.sum_ns // max(1, h.count), bool(h.count)) for h in hists.values()]
    rows.append(["mean", *means, *_change_cells(changes, "fsync.mean", widest)])
    rows.append(["slowest", *(_ns(h.max_ns, bool(h.count)) for h in hists.values()), "", "", ""])
    rows.append(["fsyncs", *(format_count(h.count) for h in hists.values()), "", "", ""])
    head = ["", "before", "after", "change within pairs", "interval", ""]
    return table(head, ["name", "n", "n", "c", "c", "strip"], rows, "Fsync latency") + paragraph(
        "Before and after cover all fsyncs of the confirmation; the change and its interval "
        "come from pairs of adjacent blocks, on which the verdict rests.",
        "small",
    )


def _ns(ns: int, known: bool) -> str:
    return esc(format_time(ns)) if known else "-"


def _stages(session: Json, drawn: Plots) -> str:
    times = {side: data.stage_times(session, side) for side, _ in data.SIDES}
    totals = {side: sum(found.values()) for side, found in times.items()}
    if not any(totals.values()):
        return ""
    timed = {side: bool(data.histogram(session, side).count) for side in times}
    known = list(fsync_stages.NAMES)
    names = known + sorted({name for found in times.values() for name in found} - set(known))
    rows = []
    for name in names:
        if not any(found.get(name) for found in times.values()):
            continue
        row = [_stage_name(name, bool(drawn))]
        for side, found in times.items():
            share = found.get(name, 0.0) / (totals[side] or 1)
            row.append(f"{100 * share:.1f} %" if totals[side] else "-")
        for side, found in times.items():
            row.append(_ns(round(found.get(name, 0.0)), timed[side]))
        stage = fsync_stages.BY_NAME.get(name)
        row.append(esc(stage.meaning if stage else ""))
        rows.append(row)
    head = [
        "stage",
        "share before",
        "share after",
        "per fsync before",
        "per fsync after",
        "meaning",
    ]
    return _figure(
        drawn, "stages", "The stages of an fsync, in the order of the table below."
    ) + table(head, ["name", "n", "n", "n", "n", "w"], rows, "Stages of an fsync")


def _stage_name(name: str, key: bool) -> str:
    if not key:
        return code(name)
    return f'<span class="swatch" style="background:{stage_color(name)}"></span>{code(name)}'


def _blocks(session: Json, drawn: Plots) -> str:
    count = len(data.blocks(session))
    if not count:
        return paragraph("No block was measured.")
    noise = mapped(session, "noise")
    effect = finite(noise.get("effect"))
    text = (
        f"{words.plural(count, 'block')} were measured. Old and new values alternated, so that "
        "other changes affect both sides equally."
    )
    if count == 1:
        text = "One block was measured."
    sure = ""
    if effect is not None:
        pairs = words.plural(int(finite(noise.get("pairs")) or 0), "pair")
        sure = (
            f"The first blocks were measured without a change (A/A, {pairs}): with their noise, "
            f"changes of {words.percent(effect)} or more can be detected."
        )
    return (
        paragraph(text)
        + _figure(
            drawn,
            "timeline",
            "Each mark is a block, as wide as its duration; the scale is logarithmic.",
        )
        + (paragraph(sure) if sure else "")
        + _figure(
            drawn,
            "pairs",
            "The change between the two blocks of a pair. "
            + (
                "The band is the interval of the verdict (Hodges and Lehmann, by the ranks of the "
                "pairs), the line its middle: the verdict rests on these pairs, never on single "
                "fsyncs."
                if data.pairs(session, "confirm")
                else "There was no confirmation, so this shows only the noise of the pool."
            ),
        )
    )


def _txgs(drawn: Plots) -> str:
    return _figure(
        drawn,
        "txgs",
        "A line for each transaction group: its dirty data, and the time to sync it. During a sync "
        "fsyncs compete with it for the disks.",
    )


def _trials(session: Json, drawn: Plots) -> str:
    tried = listed(session, "trials")
    if not tried:
        return paragraph("No trial was made.")
    rows = [_trial(session, place, one) for place, one in enumerate(tried, 1)]
    head = ["trial", "from", f"change of {words.goal(session)}", "pairs", "values"]
    looks = ["name k", "", "c", "n", "w"]
    made = table(head, looks, rows[:_MOST_TRIALS], "Trials")
    if len(rows) > _MOST_TRIALS:
        more = table(head, looks, rows[_MOST_TRIALS:], "More trials")
        made += details(f"{words.plural(len(rows) - _MOST_TRIALS, 'more trial')}", more)
    return (
        _figure(
            drawn,
            "trials",
            "If less is better, better trials are below the line. A trial has few pairs, so the "
            "best of many looks better than it is: only the confirmation counts.",
        )
        + made
        + _reasons(tried)
        + _dropped(session)
    )


def _trial(session: Json, place: int, one: Json) -> list[str]:
    base = mapped(session, "baseline")
    wanted = {n: v for n, v in mapped(one, "values").items() if base.get(n) != v}
    values = "<br>".join(
        f'<span class="nb">{code(n)} {esc(words.value(n, v))}</span>' for n, v in wanted.items()
    )
    pairs = finite(one.get("pairs"))
    note = one.get("note")
    return [
        esc(one.get("number") or place),
        esc(words.source(one.get("source"))),
        esc(words.change(finite(one.get("change")))),
        "" if pairs is None else f"{pairs:.0f}",
        (values or "as before") + (f'<br><span class="missed">{esc(note)}</span>' if note else ""),
    ]


def _reasons(tried: Iterable[Json]) -> str:
    """The reasons for the values that were tried, each once."""
    rows: dict[tuple[str, str], str] = {}
    for place, one in enumerate(tried, 1):
        for name, why in mapped(one, "reasons").items():
            rows.setdefault((str(name), str(why)), str(one.get("number") or place))
    body = table(
        ["parameter", "first in trial", "why"],
        ["name", "n", "w"],
        [[code(name), esc(first), esc(why)] for (name, why), first in rows.items()],
        "Reasons for these values",
    )
    return details("Reasons for these values", body) if rows else ""


def _dropped(session: Json) -> str:
    rows = [
        [
            "<br>".join(code(name) for name in one.get("names") or ()),
            esc(words.change(finite(one.get("change")))),
            esc(one.get("why") or ""),
        ]
        for one in listed(session, "dropped")
    ]
    if not rows:
        return ""
    title, head = "Dropped as unnecessary", ["parameter", "without it", "why"]
    return (
        f"<h3>{title}</h3>\n"
        + paragraph("The gain does not measurably need these changes.")
        + table(head, ["name", "c", "w"], rows, title)
    )


def _stacks(graphs: Flames) -> str:
    if not graphs.body:
        return ""
    return (
        paragraph(
            "The stacks of threads that waited in an fsync. Click a frame to zoom, press / to "
            "search; red is a larger share after the change, blue a smaller one."
        )
        + graphs.body
    )


def _session(session: Json) -> str:
    host = mapped(session, "host")
    memory = finite(host.get("memory_bytes"))
    said = session.get("command")
    line = " ".join(map(_shell_word, said)) if isinstance(said, list) else ""
    changes = listed(session, "overrides")
    lost = int(finite(session.get("lost")) or 0)
    made = facts(
        [
            ("command", code(line) if line else ""),
            ("host", esc(host.get("hostname") or "")),
            ("kernel", esc(host.get("kernel") or "")),
            ("ZFS", esc(host.get("zfs") or "")),
            ("memory", esc(words.size(int(memory))) if memory else ""),
            ("CPUs", esc(host.get("cpus") or "")),
            ("pool", esc(session.get("pool") or "")),
            ("objective", esc(words.goal(session))),
            ("from, to", _span(session)),
            ("state", esc(session.get("state") or "")),
            ("seed", esc(session.get("seed")) if session.get("seed") is not None else ""),
            ("lost events", format_count(lost)),
            ("foreign changes", esc("; ".join(map(words.override, changes)) or "none")),
        ]
    )
    base = mapped(session, "baseline")
    rows = [[code(name), _parameter(name, value, "")] for name, value in base.items()]
    made += details(
        "All parameters of the session, with their previous values",
        table(["parameter", "value"], ["name", ""], rows, "Previous values") if rows else "",
    )
    return made + raw_json("The session")


def _span(session: Json) -> str:
    ends = [session.get("started"), session.get("ended")]
    return esc(" to ".join(str(one) for one in ends if one))


def _shell_word(word: Any) -> str:
    import shlex

    return shlex.quote(str(word))
