"""Moments of incident files, as text and as a number."""

from __future__ import annotations

import functools
import re
from datetime import datetime, timezone

from zfstune.term.units import SECOND

_ISO = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?Z")
_LONGEST = 32
FIRST_YEAR, LAST_YEAR = 1970, 2200


def ns_of(text: str) -> int | None:
    """ns since 1970 of ``2026-11-21T09:49:12.123Z``; None for what is no such time, or is too far
    from the present to be one."""
    # the cache must not keep long texts
    return _ns_of(text) if len(text) <= _LONGEST else None


# the rows of an interval have the same time
@functools.lru_cache(maxsize=1024)
def _ns_of(text: str) -> int | None:
    match = _ISO.fullmatch(text)
    if not match:
        return None
    seconds = seconds_of(match[1])
    if seconds is None:
        return None
    return seconds * SECOND + int((match[2] or "0").ljust(9, "0"))


def seconds_of(text: str) -> int | None:
    """Seconds since 1970 of ``2026-11-21T09:49:12``, UTC; None if there is no such time."""
    try:
        found = datetime.fromisoformat(text).replace(tzinfo=timezone.utc)
    except ValueError:
        return None
    if not FIRST_YEAR <= found.year <= LAST_YEAR:
        return None
    return int(found.timestamp())
