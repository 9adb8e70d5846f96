"""`zfstune record status` for people."""

from __future__ import annotations

from zfstrace.printable import printable
from zfstrace.types import Json
from zfstune.record.triggers import UNITS
from zfstune.term.table import wrap
from zfstune.term.units import format_count, format_size, format_span


def status(found: Json) -> list[str]:
    """The lines, from the object that the recorder replies."""
    lines = [
        _recorded(found),
        _row("memory", _memory(found)),
        *(_row("off", f"{view}: {why}") for view, why in sorted(found["off"].items())),
        _row("lost", _lost(found)),
        *(_row("trigger", _trigger(one)) for one in found["triggers"]),
        _row("diagnoses", _diagnoses(found["diagnoses"])),
        _row("incidents", _incidents(found)),
    ]
    found_files = [f"  {printable(name)}" for name in found["files"]]
    return [part for line in lines for part in wrap(printable(line), "", 99)] + found_files


def _row(name: str, text: str) -> str:
    return f"{name}: {text}"


def _memory(found: Json) -> str:
    size, limit = (format_size(found[name]) for name in ("memory_bytes", "memory_limit_bytes"))
    return f"{size} of {limit}, {'locked' if found['memory_locked'] else 'not locked'}"


def _recorded(found: Json) -> str:
    if not found["records"]:
        return f"process {found['pid']} has recorded nothing yet"
    since, until = (found[name][:19].replace("T", " ") for name in ("time_from", "time_to"))
    return (
        f"recorded: {format_span(found['span_ns'])}, {since} to {until[11:]} UTC, "
        f"{format_count(found['records'])} records, by process {found['pid']}"
    )


def _lost(found: Json) -> str:
    lost = {view: n for view, n in found["lost"].items() if n}
    parts = [f"{view} {format_count(n)}" for view, n in sorted(lost.items())] or ["0"]
    if found["left_out"]:
        parts.append(f"{format_count(found['left_out'])} rows left out")
    if found["too_long"]:
        parts.append(f"{format_count(found['too_long'])} records too long")
    if found["errors"]:
        parts.append(f"{format_count(found['errors'])} errors")
    return ", ".join(parts)


def _trigger(one: Json) -> str:
    value = "not known" if one["value"] is None else UNITS[one["unit"]].show(one["value"])
    return f"{one['text']}; now {value}"


def _diagnoses(found: Json | None) -> str:
    if not found:
        return "none are made"
    parts = [f"{found['done']}, {found['failed']} failed"]
    if found["cpu_ns"]:
        parts.append(f"{format_span(found['cpu_ns'])} of CPU")
    if found["running"]:
        parts.append("one runs")
    elif found["next_in_ns"]:
        parts.append(f"the budget allows the next in {format_span(found['next_in_ns'])}")
    if found["error"]:
        parts.append(f"last: {found['error']}")
    return "; ".join(parts)


def _incidents(found: Json) -> str:
    parts = [f"{found['dumps']} written"]
    for name, what in (
        ("dumps_failed", "failed"),
        ("fired", "triggers fired"),
        ("suppressed", "of them within an hour of the last file"),
    ):
        if found[name]:
            parts.append(f"{found[name]} {what}")
    if found["waiting"]:
        parts.append(f"one waits to be written ({found['waiting']})")
    return f"{', '.join(parts)}; in {found['directory']}"
