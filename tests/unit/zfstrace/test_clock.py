"""Moments as ISO 8601."""

from __future__ import annotations

import re

from zfstrace.clock import iso_now, iso_second, iso_utc


def test_a_moment_is_iso_8601_in_utc() -> None:
    assert iso_utc(1_795_254_552_123_456_789) == "2026-11-21T09:49:12.123Z"


def test_now_is_iso_8601_in_utc() -> None:
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", iso_now())
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", iso_second())
