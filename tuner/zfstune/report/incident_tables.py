"""The tables of the page of an incident: causes, rows of a moment, operations, changes, losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zfstrace.types import FsyncSummary, Json
from zfstune.diagnose.from_file import Again
from zfstune.diagnose.judge import Finding
from zfstune.html.page import code, details, esc, facts, paragraph, raw_json, scrolled, table
from zfstune.incident.intervals import Interval
from zfstune.incident.times import ns_of
from zfstune.report.incident_data import Fold, Story, by_view
from zfstune.report.incident_plots import clock
from zfstune.term.units import (
    format_count,
    format_percent,
    format_rate,
    format_size,
    format_span,
    format_time,
)
from zfstune.trace import device
from zfstune.trace.largest import largest_stages
from zfstune.trace.rebuilt import as_fsyncs, row
from zfstune.trace.throttle import KINDS, dirty

_MOST_ROWS = 100
_MOST_LAYOUT = 400
_NOT_SINGLY = (
    "There are single fsyncs only in the view fsync: "
    "record with --views fsync,txg,throttle,arc to have them."
)
_AFTER = (
    "The view light keeps at most one slow commit a minute, not of which dataset it was, and the "
    "fsyncs of the seconds after it: shown is the dataset with the most time in them."
)


def _more(rows: Sequence[Sequence[str]], what: str) -> str:
    left = len(rows) - _MOST_ROWS
    return (
        paragraph(f"{format_count(left)} more {what} are in the file.", "small") if left > 0 else ""
    )


# --- the diagnosis


def diagnoses(found: Sequence[Again]) -> str:
    """Each pool's causes."""
    if not found:
        return paragraph("The file has no diagnosis.")
    return "".join(_diagnosis(one) for one in found)


def _diagnosis(one: Again) -> str:
    measured = one.diagnosis.measurements
    span, count = measured["duration_ns"], measured["operations"]
    seen = f"{format_count(count)} fsyncs" if isinstance(count, int) else "not traced"
    length = format_span(span) if isinstance(span, int) else "?"
    when = str(measured["time"] or "?")[:19].replace("T", " ")
    heading = f"<h3>Pool {code(measured['pool'] or '?')}</h3>\n"
    made = heading + paragraph(f"Watched for {length} until {when} UTC: {seen}.", "small")
    made += paragraph(f"{one.diagnosis.summary}.", "outcome")
    made += "".join(
        _finding(place, finding) for place, finding in enumerate(one.diagnosis.findings, 1)
    )
    unseen = [f"trace {name} was not available: {why}" for name, why in one.missing.items()]
    if one.lost:
        unseen.append(f"{format_count(one.lost)} events were lost meanwhile")
    made += "".join(paragraph(f"{text}.", "small") for text in unseen)
    judged = [[esc(cause.title), code(name)] for cause, name in one.diagnosis.not_judged]
    causes = "1 cause was" if len(judged) == 1 else f"{format_count(len(judged))} causes were"
    return made + details(
        f"{causes} not judged",
        table(["cause", "not known"], ["w", ""], judged, "Causes that were not judged")
        if judged
        else "",
    )


def _finding(place: int, finding: Finding) -> str:
    shares = (
        "outside the time of fsyncs"
        if not finding.cause.explains
        else f"{_share(finding.share_p99)} of the p99, {_share(finding.share_total)} of all time"
    )
    items = [("seen", text) for text in finding.evidence]
    items += [("next", text) for text in finding.next]
    if finding.certainty != "sure":
        items += [("looks the same", text) for text in finding.alike]
    return (
        f"<h4>{place}. {esc(finding.title)}</h4>\n"
        + paragraph(f"{shares}; {finding.certainty}: {finding.why}.")
        + facts((name, _with_code(text)) for name, text in items)
    )


def _with_code(text: str) -> str:
    """A text whose commands are between backquotes, as HTML."""
    parts = text.split("`")
    return "".join(code(part) if place % 2 else esc(part) for place, part in enumerate(parts))


def _share(share: int | None) -> str:
    return "?" if share is None else format_percent(share / 1000)


# --- the moment


def moment(interval: Interval) -> str:
    """The rows of the interval."""
    rows: dict[str, list[Any]] = {}
    for record in interval.records():
        rows.setdefault(record["type"], []).append(row(record))
    fsyncs = rows.get("fsync_summary") or [as_fsyncs(one) for one in rows.get("light_summary", ())]
    made = _fsyncs([one for one in fsyncs if one.dataset is not None])
    made += _throttle(rows.get("throttle", ()))
    made += _devices(rows.get("device", ()))
    return made or paragraph("Nothing was recorded in this interval.")


def _part(
    title: str,
    label: str,
    head: Sequence[str],
    looks: Sequence[str],
    cells: Sequence[Sequence[str]],
    what: str,
) -> str:
    """A table under its title, with how many rows are left out; "" without any."""
    if not cells:
        return ""
    shown = table(head, looks, cells[:_MOST_ROWS], label)
    return f"<h3>{title}</h3>\n{shown}{_more(cells, what)}"


def _fsyncs(rows: Sequence[FsyncSummary]) -> str:
    cells = []
    for one in rows:
        times = (one.latency.p50, one.latency.p99, one.latency.max) if one.latency else ()
        stages = {stage.name: stage.total_ns for stage in one.stages}
        cells.append(
            [
                code(one.dataset),
                esc(format_rate(one.count, one.duration_ns)),
                *(esc(format_time(ns)) for ns in times or ()),
                *("-" for _ in range(3 - len(times))),
                esc(largest_stages(stages, 60)),
            ]
        )
    head = ["dataset", "rate", "p50", "p99", "max", "largest stages"]
    looks = ["name", "n", "n", "n", "n", "w"]
    return _part("Datasets", "Fsyncs by dataset", head, looks, cells, "datasets")


def _throttle(rows: Sequence[Any]) -> str:
    cells = [
        [
            code(f"{one.comm} {one.pid or ''}".strip()),
            code(one.pool),
            format_count(one.count),
            esc(format_time(one.total_ns)),
            esc(format_time(one.max)),
            esc(dirty(one)),
            esc(", ".join(KINDS[k].column for k, w in one.kinds.items() if w.count)),
        ]
        for one in rows
    ]
    head = ["program", "pool", "waits", "total", "longest", "dirty", "by"]
    looks = ["name", "", "n", "n", "n", "n", ""]
    return _part(
        "Writers that were held up", "Writers that were held up", head, looks, cells, "writers"
    )


def _devices(rows: Sequence[Any]) -> str:
    cells = [
        [
            code(one.vdev),
            esc(one.io_class),
            esc(device.per_second(one)),
            "-" if one.queue is None else esc(format_time(one.queue.p99)),
            esc(format_time(one.device.p50)),
            esc(format_time(one.device.p99)),
            esc(format_time(one.device.max)),
        ]
        for one in rows
    ]
    head = ["vdev", "class", "IOPS", "queue p99", "device p50", "device p99", "max"]
    looks = ["name", "", "n", "n", "n", "n", "n"]
    return _part("Devices", "Devices by class of I/O", head, looks, cells, "rows")


# --- the whole file


def slowest(fold: Fold) -> str:
    """Single fsyncs, and the commits of a light trace."""
    made = _slow_fsyncs(fold.slowest()) + _slow_commits(fold.slow_commits())
    return made if fold.bins.exact else made + paragraph(_NOT_SINGLY, "small")


def _slow_fsyncs(records: Sequence[Json]) -> str:
    cells = [
        [
            esc(one["time"][11:23]),
            esc(format_time(one["total_ns"])),
            code(f"{one['comm']} {one['pid']}"),
            code(one["dataset"] or one["pool"] or "?"),
            esc(one["kind"]),
            esc(one["txg_state"] or "-"),
            esc(largest_stages(one["stages"], 60)),
        ]
        for one in records
    ]
    head = ["time (UTC)", "took", "program", "dataset", "kind", "txg", "largest stages"]
    looks = ["name", "n", "c", "", "", "", "w"]
    return _part("Fsyncs", "The slowest fsyncs", head, looks, cells, "fsyncs")


def _slow_commits(records: Sequence[Json]) -> str:
    cells = [
        [
            esc(_began(one)),
            esc(format_time(one["cause"]["total_ns"])),
            code(f"{one['cause']['comm']} {one['cause']['pid']}"),
            code(one["dataset"] or one["pool"] or "?") if one["fsyncs"] else "-",
            format_count(one["fsyncs"]),
            esc(largest_stages(one["stages"], 60)),
        ]
        for one in records
    ]
    head = ["time (UTC)", "took", "program", "dataset after it", "fsyncs", "largest stages"]
    looks = ["name", "n", "c", "", "n", "w"]
    made = _part("Commits", "The slowest commits", head, looks, cells, "commits")
    return made and made + paragraph(_AFTER, "small")


def _began(window: Json) -> str:
    """When a window began, which is when the commit was seen."""
    return clock(max(0, (ns_of(window["time"]) or 0) - window["duration_ns"]))


def change(record: Json) -> str:
    """A change or an event in a few words."""
    if record["type"] == "parameter_change":
        by = f" by {record['by']}" if record["by"] else ""
        return f"{record['name']}: {_value(record['old'])} to {_value(record['new'])}{by}"
    if record["type"] == "pool_state":
        return f"pool {record['pool']} is {record['state'] or '?'}"
    return str(record["text"])


def _value(value: object) -> str:
    return "?" if value is None else str(value)


def changes(fold: Fold) -> str:
    """Parameters, states of pools, and what the recorder noted."""
    cells = [[esc(one["time"][:19].replace("T", " ")), esc(change(one))] for one in fold.changes]
    if not cells:
        return paragraph("No parameter and no pool changed its state.")
    made = table(["time (UTC)", "what"], ["name", "w"], cells, "Changes and events")
    if fold.more_changes:
        made += paragraph(f"{format_count(fold.more_changes)} more are in the file.", "small")
    return made


def losses(story: Story) -> str:
    """What the recorder did not see."""
    fold, header = story.fold, story.incident.header
    began = by_view(header["lost"])
    names = list(dict.fromkeys([*fold.lost, *began, *fold.off]))
    cells = []
    for name in names:
        why, count = fold.off.get(name, ("", 0))
        cells.append(
            [
                esc(name),
                format_count(fold.lost.get(name, 0)),
                format_count(began[name]) if name in began else "-",
                esc(f"{why} ({format_count(count)} intervals)" if count else "-"),
            ]
        )
    made = ""
    if cells:
        head = ["view", "lost in this file", "since the recorder began", "off"]
        made += table(head, ["name", "n", "n", "w"], cells, "Losses by view")
    else:
        made += paragraph("Nothing was lost, and no view was off.")
    missing = [[code(n), esc(one["cost"]), esc(one["why"])] for n, one in fold.missing.items()]
    if missing:
        made += "<h3>Missing probes</h3>\n" + table(
            ["probe", "cost", "why"], ["name", "w", ""], missing, "Missing probes"
        )
    return made


def host(story: Story) -> str:
    """The facts of the header."""
    header = story.incident.header
    found = header["host"]
    memory, cpus = found["memory_bytes"], found["cpus"]
    made = facts(
        [
            ("host", esc(found["name"] or "")),
            ("system", esc(found["system"] or "")),
            ("kernel", esc(found["kernel"] or "")),
            ("ZFS", esc(found["zfs"] or "")),
            ("CPUs", "" if cpus is None else format_count(cpus)),
            ("memory", "" if memory is None else esc(format_size(memory))),
            ("recorded by", esc(f"{header['program']} {header['version']}")),
            ("intervals", format_count(story.fold.intervals)),
            ("records", format_count(story.fold.records)),
        ]
    )
    values = header["parameters"] or {}
    if values:
        rows = [[code(name), esc(value)] for name, value in values.items()]
        made += "<h3>Parameters that are not at their default</h3>\n" + table(
            ["parameter", "value"], ["name", "n"], rows, "Parameters not at their default"
        )
    for name, pool in list((header["pools"] or {}).items())[:_MOST_ROWS]:
        state = f": {esc(pool['state'])}" if pool["state"] else ""
        made += f"<h3>Pool {code(name)}{state}</h3>\n"
        made += scrolled(f"Layout of {name}", (pool["layout"] or ())[:_MOST_LAYOUT])
    return made + raw_json("These facts")
