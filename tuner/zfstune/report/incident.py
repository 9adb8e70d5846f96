"""The page of an incident: what happened when, why, and what the recorder could not see.

One HTML file, like the report of a session: it loads nothing. All that it shows is data from a file
of anybody, checked by the reader and escaped here.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from zfstrace.flame import output
from zfstune.diagnose.from_file import Again, again
from zfstune.errors import UsageError
from zfstune.html.page import Section, code, embedded, esc, page, paragraph
from zfstune.html.stage_colors import stage_color
from zfstune.incident import at
from zfstune.incident.intervals import load
from zfstune.incident.reader import Reader
from zfstune.incident.times import ns_of
from zfstune.report import incident_plots, incident_tables
from zfstune.report.incident_data import Fold, Story
from zfstune.report.incident_plots import Mark, clock
from zfstune.report.svg import Plot
from zfstune.report.target import require_writable
from zfstune.term.log import say
from zfstune.term.units import format_count, format_span, format_time

# More plots than that say nothing.
_MOST_PLOTS = 4
_MOST_NAMES = 10
# Each has an element in each panel.
_MOST_MARKS = 60
_COUNTED = {
    "fsyncs": "All fsyncs are counted.",
    "commits": "Commits of the ZIL are counted; shares of stages are estimated from short windows.",
    "fsyncs and commits": "All fsyncs are counted while the view fsync was on; at other times "
    "commits of the ZIL, and shares of stages are estimated from short windows.",
}
_VERDICTS = {
    "causes": ("worse", "Cause found"),
    "unknown": ("worse", "Cause unknown"),
    "healthy": ("better", "Nothing wrong"),
    "idle": ("", "Too few fsyncs"),
    "no_log": ("worse", "No log"),
}


def run(args: argparse.Namespace) -> int:
    """The command. Raises UsageError and zfstrace.flame.WriteFailed."""
    target = args.output or _beside(args.file)
    if target != "-":
        require_writable(Path(target))
    story = read(args.file, args.at)
    for problem in story.incident.problems:
        say(problem)
    # only for the owner, because it has names of datasets and programs
    output.save(target, [render(story)], 0o600)
    if target != "-":
        say(f"report: {target}")
    return 0


def _beside(source: str) -> str:
    if source == "-":
        raise UsageError("there is no name for the page of standard input", "add -o FILE, or -o -")
    name = source
    for end in (".gz", ".jsonl"):
        name = name.removesuffix(end)
    return f"{name}.html"


def read(source: str, moment: str | None) -> Story:
    """All that the page needs. Raises UsageError."""
    asked = None if moment is None else at.parse(moment)
    with Reader(source) as reader:
        moment_ns = None if asked is None else at.find(asked, reader.span, reader.name)
        fold = Fold(reader.span, reader.header["interval_ns"], moment_ns)
        incident = load(reader, fold.see)
    diagnoses = sorted((again(one) for one in fold.best.records()), key=_rank)
    return Story(incident, fold, at.choose(incident, asked), diagnoses, asked is None)


def _rank(one: Again) -> tuple[int, int]:
    p99 = one.diagnosis.measurements["p99_ns"]
    return -one.diagnosis.status, -(p99 if isinstance(p99, int) else 0)


def render(story: Story) -> str:
    """The page."""
    slowest = incident_tables.slowest(story.fold)
    sections = [
        Section("timeline", "Timeline", "Timeline", _timeline(story)),
        Section("diagnosis", "Diagnosis", "Why", incident_tables.diagnoses(story.diagnoses)),
        Section("moment", "Moment", _title(story), incident_tables.moment(story.interval)),
        Section("slowest", "Slowest", "The slowest operations", slowest),
        Section("changes", "Changes", "Changes and events", incident_tables.changes(story.fold)),
        Section("losses", "Losses", "What was not seen", incident_tables.losses(story)),
        Section("host", "Host", "The host", incident_tables.host(story)),
    ]
    host = story.incident.header["host"]["name"] or "a host"
    return page(f"zfstune: incident on {host}", _head(story), sections, _data(story), [])


def _title(story: Story) -> str:
    interval = story.interval
    span = format_span(interval.duration_ns)
    return f"The {span} until {clock(interval.end_ns)} UTC"


def _head(story: Story) -> str:
    header, (first, last) = story.incident.header, story.incident.span
    where = [
        esc(header["host"]["name"] or "host not named"),
        f"{esc(at.shown(first))} to {esc(at.shown(last))}",
        "names replaced" if header["anonymised"] else "",
    ]
    look, word = "", "No diagnosis"
    if story.diagnoses:
        look, word = _VERDICTS.get(story.diagnoses[0].diagnosis.verdict, ("", "Diagnosis"))
    p99 = story.interval.p99()
    when = "at the worst moment" if story.worst else "at the chosen moment"
    what = "fsyncs" if any(story.interval.records("fsync_summary")) else "commits"
    sentence = f"No fsync was recorded {when}"
    if p99:
        sentence = (
            f"The p99 of {what} was {format_time(p99)} {when}, {clock(story.interval.end_ns)} UTC"
        )
    evidence = ""
    if story.diagnoses:
        first_one = story.diagnoses[0].diagnosis
        until = str(first_one.measurements["time"] or "?")[11:19]
        evidence = f"{first_one.summary} (watched until {until} UTC)."
    reason = f"Written because of: {header['reason']}." if header["reason"] else ""
    notes = "".join(f"<li>{esc(note)}</li>\n" for note in _notes(story))
    return (
        f'<div class="{look}">\n<p class="where">{" · ".join(filter(None, where))}</p>\n'
        f'<span class="badge">{esc(word)}</span>\n<h1>{esc(sentence)}</h1>\n'
        f"{paragraph(evidence, 'evidence')}{paragraph(reason, 'evidence')}"
        + (f'<ul class="notes">\n{notes}</ul>\n' if notes else "")
        + "</div>\n"
    )


def _notes(story: Story) -> Iterable[str]:
    for problem in story.incident.problems:
        yield f"{problem}."
    lost = sum(story.fold.lost.values())
    if lost:
        yield f"{format_count(lost)} events were lost: they are missing in these numbers."
    for name, (why, intervals) in story.fold.off.items():
        yield (
            f"The view {name} was off in {format_count(intervals)} of "
            f"{format_count(story.fold.intervals)} intervals: {why}."
        )
    if story.fold.outside:
        yield f"{format_count(story.fold.outside)} rows have a time outside of the file."
    if story.fold.crowded:
        rows = format_count(story.fold.crowded)
        yield f"{rows} rows are of more pools than the timeline has room for."
    if story.fold.best.odd:
        yield f"{format_count(story.fold.best.odd)} diagnoses have values of the wrong type."


def _marks(story: Story) -> list[Mark]:
    """Those in the time of the file."""
    bins = story.fold.bins
    found = [Mark("moment", story.interval.end_ns, "the moment of this page")]
    for one in story.diagnoses:
        measured = one.diagnosis.measurements
        when = ns_of(str(measured["time"]))
        if when is not None:
            found.append(Mark("diagnosis", when, f"diagnosis of {measured['pool']}"))
    for change in story.fold.changes:
        if change["type"] != "note":
            said = incident_tables.change(change)
            found.append(Mark("change", ns_of(change["time"]) or 0, said))
    return [one for one in found if bins.first_ns <= one.time_ns <= bins.last_ns]


def _timeline(story: Story) -> str:
    bins, marks = story.fold.bins, _marks(story)
    busy = bins.busiest()
    shown = busy[:_MOST_PLOTS]
    made = ""
    for number, pool in enumerate(shown):
        plot = incident_plots.timeline(f"timeline-{number}", pool, bins, marks[:_MOST_MARKS])
        if plot:
            heading = f"<h3>Pool {code(pool or '(unknown)')}</h3>\n" if len(shown) > 1 else ""
            made += heading + _figure(plot, _caption(story, pool)) + _key(story, pool)
    unmarked = len(marks[_MOST_MARKS:]) + story.fold.more_marks
    if made and unmarked:
        left = format_count(unmarked)
        made += paragraph(
            f"Changes and diagnoses without a mark, as there are too many: {left}.", "small"
        )
    if len(busy) > len(shown):
        left = format_count(len(busy) - len(shown))
        made += paragraph(f"{left} pools with fewer fsyncs are not drawn.", "small")
    idle = sorted(set(bins.pools) - set(busy))
    if idle:
        names = ", ".join(idle[:_MOST_NAMES]) + (" ..." if len(idle) > _MOST_NAMES else "")
        made += paragraph(f"No fsync was seen on {names}.", "small")
    return made or paragraph("Nothing was recorded.")


def _caption(story: Story, pool: str) -> str:
    step = format_span(story.fold.bins.step_ns)
    what = _COUNTED[story.fold.bins.what(pool)]
    return f"Each point is of {step}: the highest p99 and the longest sync in it. {what}"


def _key(story: Story, pool: str) -> str:
    names = incident_plots.stages_of(story.fold.bins.pools[pool].values())
    items = "".join(
        f'<li><span class="swatch" style="background:{stage_color(name)}"></span>{esc(name)}</li>'
        for name in names
    )
    return f'<ul class="key" aria-label="Colours of the stages">{items}</ul>\n' if items else ""


def _figure(plot: Plot, caption: str) -> str:
    return (
        f'<figure class="plot"><div class="wide">{plot.wide}</div>'
        f'<div class="narrow">{plot.narrow}</div><figcaption>{esc(caption)}</figcaption></figure>\n'
    )


def _data(story: Story) -> str:
    """The facts of the page for programs; the file has the rest."""
    return embedded(
        {
            "type": "incident_report",
            "schema": 1,
            "header": story.incident.header,
            "time": story.interval.time,
            "diagnoses": [one.to_json() for one in story.diagnoses],
            "slowest": story.fold.slowest(),
            "slow_commits": story.fold.slow_commits(),
            "changes": story.fold.changes,
        }
    )
