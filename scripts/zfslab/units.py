"""Sizes (`30M`) and times (`500ms`, `5m`), written as everywhere in zfstune."""

from __future__ import annotations

import re

_SIZES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_TIMES_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}


def parse_size(text: str) -> int:
    """Bytes in `text`: a number with an optional K, M, G or T (powers of 1024).

    Raises ValueError with a readable message.
    """
    match = re.fullmatch(r"(\d+)([KMGT]?)(?:i?B)?", text, re.IGNORECASE)
    if match is None:
        raise ValueError(f"{text!r} is not a size like 512M or 8G")
    return int(match[1]) * _SIZES[match[2].upper()]


def parse_time_s(text: str) -> float:
    """Seconds in `text`: a number with us, ms, s, m or h; a bare number is seconds.

    Raises ValueError with a readable message.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(us|ms|s|m|h|)", text)
    if match is None:
        raise ValueError(f"{text!r} is not a time like 500ms, 10s or 5m")
    return float(match[1]) * _TIMES_S[match[2]]


def format_size(size_bytes: int) -> str:
    """`size_bytes` for people: `1.4G`, `512M`."""
    value = float(size_bytes)
    for unit in ("B", "K", "M"):
        if value < 1024:
            return f"{value:.0f}{unit}"
        value /= 1024
    return f"{value:.1f}G"


def format_time(seconds: float) -> str:
    """`seconds` for people: `8s`, `4m31s`."""
    whole = int(seconds)
    return f"{whole}s" if whole < 60 else f"{whole // 60}m{whole % 60:02d}s"
