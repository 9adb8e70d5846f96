"""Moments as ISO 8601 in UTC."""

from __future__ import annotations

import time


def iso_utc(time_ns: int) -> str:
    """A time since 1970 in ns, with milliseconds: ``2026-11-21T09:49:12.123Z``."""
    seconds, rest = divmod(time_ns, 1_000_000_000)
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{stamp}.{rest // 1_000_000:03d}Z"


def iso_now() -> str:
    """The present as iso_utc() writes it, with milliseconds."""
    return iso_utc(time.time_ns())


def iso_second() -> str:
    """The present without fractions of a second: ``2026-11-21T09:49:12Z``."""
    return f"{iso_now()[:19]}Z"
