"""--at: a moment in an incident file, as a time of day or as a date and a time: in UTC, or with an
offset from it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from zfstrace.clock import iso_utc
from zfstune.errors import UsageError
from zfstune.incident.intervals import Incident, Interval
from zfstune.incident.times import seconds_of
from zfstune.term.units import SECOND

_DAY = 24 * 3600 * SECOND
# as date(1) writes it; no zone is further than 14 h from UTC
_OFFSET = r"(?:Z|([+-])(0[0-9]|1[0-4]):?([0-5][0-9]))?"
_TIME_OF_DAY = re.compile(rf"([0-9]{{1,2}}):([0-9]{{2}})(?::([0-9]{{2}}))?{_OFFSET}")
_MOMENT = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]([0-9]{2}:[0-9]{2})(?::([0-9]{2})(?:\.[0-9]{1,9})?)?"
    + _OFFSET,
)
_LIKE = "write it like 03:05 or 2026-11-27T03:05Z, which are UTC, or 2026-11-27T04:05+01:00"


@dataclass(frozen=True)
class Asked:
    """A moment as it was written, in UTC: ns since 1970, or since midnight if it is a time of day;
    unit_ns is how long what it names lasts, a minute or a second."""

    text: str
    ns: int
    unit_ns: int
    daily: bool


def parse(text: str) -> Asked:
    """The argument of --at. Raises UsageError."""
    daily = _TIME_OF_DAY.fullmatch(text)
    if daily:
        hours, minutes, seconds = (int(part or 0) for part in daily.groups()[:3])
        if hours > 23 or minutes > 59 or seconds > 59:
            raise UsageError(f"--at: {text} is no time of day", _LIKE)
        ns = ((hours * 60 + minutes) * 60 + seconds) * SECOND
        return Asked(text, (ns - _offset(daily)) % _DAY, (1 if daily[3] else 60) * SECOND, True)
    match = _MOMENT.fullmatch(text)
    found = seconds_of(f"{match[1]}T{match[2]}:{match[3] or '00'}") if match else None
    if match is None or found is None:
        raise UsageError(f"--at: {text!r} is no time", _LIKE)
    ns = found * SECOND - _offset(match)
    return Asked(text, ns, (1 if match[3] else 60) * SECOND, False)


def _offset(match: re.Match[str]) -> int:
    """How far its clock is ahead of UTC, in ns: the last three groups, which are none for UTC."""
    sign, hours, minutes = match.groups()[-3:]
    ahead = (int(hours or 0) * 60 + int(minutes or 0)) * 60 * SECOND
    return -ahead if sign == "-" else ahead


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
