"""Versions of OpenZFS."""

from __future__ import annotations

import functools
import re


@functools.cache
def version_key(version: str) -> tuple[int, ...]:
    """``2.3.9-0+deb13u1`` as (2, 3, 9); () if it is no version."""
    match = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", version)
    return tuple(int(part or 0) for part in match.groups()) if match else ()
