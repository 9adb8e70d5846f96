"""--at: a moment in an incident file, as a time of day or as a date and a time."""

from __future__ import annotations

import re
from dataclasses import dataclass

from zfstrace.clock import iso_utc
from zfstune.errors import UsageError
from zfstune.incident.intervals import Incident, Interval
from zfstune.incident.times import seconds_of
from zfstune.term.units import SECOND

_DAY = 24 * 3600 * SECOND
_TIME_OF_DAY = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?")
_MOMENT = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]([0-9]{2}:[0-9]{2})(?::([0-9]{2})(?:\.[0-9]{1,9})?)?(Z?)",
)
_LIKE = "write it like 03:05, 03:05:20 or 2026-11-27T03:05Z; it is UTC"


@dataclass(frozen=True)
class Asked:
    """A moment as it was written: ns since 1970, or since midnight if it is a time of day; unit_ns
    is how long what it names lasts, a minute or a second."""

    text: str
    ns: int
    unit_ns: int
    daily: bool


def parse(text: str) -> Asked:
    """The argument of --at. Raises UsageError."""
    daily = _TIME_OF_DAY.fullmatch(text)
    if daily:
        hours, minutes, seconds = (int(part or 0) for part in daily.groups())
        if hours > 23 or minutes > 59 or seconds > 59:
            raise UsageError(f"--at: {text} is no time of day", _LIKE)
        ns = ((hours * 60 + minutes) * 60 + seconds) * SECOND
        return Asked(text, ns, (1 if daily[3] else 60) * SECOND, True)
    match = _MOMENT.fullmatch(text)
    found = seconds_of(f"{match[1]}T{match[2]}:{match[3] or '00'}") if match else None
    if match is None or found is None:
        raise UsageError(f"--at: {text!r} is no time", _LIKE)
    return Asked(text, found * SECOND, (1 if match[3] else 60) * SECOND, False)


def find(asked: Asked, span: tuple[int, int], name: str) -> int:
    """The moment in ns since 1970: of a time of day the last that lies in the file. Raises
    UsageError."""
    first, last = span
    start = asked.ns
    if asked.daily:
        start += (last - asked.ns) // _DAY * _DAY
    # 03:05 is the whole minute
    if start > last or start + asked.unit_ns <= first:
        raise UsageError(
            f"--at: {asked.text} is not in {name}", f"it is from {shown(first)} to {shown(last)}"
        )
    return max(first, start)


def shown(ns: int) -> str:
    """A moment for people: ``2026-11-27 03:05:10 UTC``."""
    return f"{iso_utc(ns)[:19].replace('T', ' ')} UTC"


def choose(incident: Incident, asked: Asked | None, pool: str | None = None) -> Interval:
    """The interval of a moment, or the worst one. Raises UsageError."""
    moment = None if asked is None else find(asked, incident.span, incident.name)
    found = incident.worst(pool) if moment is None else incident.at(moment)
    if found is None:
        raise UsageError(
            f"{incident.name} has no interval",
            "the recorder ran for less than one, or no view was attached",
        )
    return found
