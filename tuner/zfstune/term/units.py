"""Times, sizes and counts: parsed, and formatted for people.

The second line of a ValueError is the hint."""

from __future__ import annotations

import re

US = 1_000
MS = 1_000_000
SECOND = 1_000_000_000

_TIMES = {
    "ns": 1,
    "us": US,
    "\N{MICRO SIGN}s": US,
    "\N{GREEK SMALL LETTER MU}s": US,
    "ms": MS,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3600 * SECOND,
}
_SIZES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}

_TIME = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,15}))?([a-z\u00b5\u03bc]*)")
_SIZE = re.compile(r"([0-9]{1,15})([KMGT]?)(?:i?B)?", re.IGNORECASE)
_LIKE = "write it like 500us, 10ms, 10s or 5m"

# Longer is a mistake, and deadlines would not fit into 64 bits.
_LONGEST = 366 * 24 * 3600 * SECOND


def parse_time(text: str) -> int:
    """``500us``, ``10ms``, ``1.5s``, ``5m``, ``1h`` in ns. Raises ValueError."""
    match = _TIME.fullmatch(text.strip())
    if not match or match[3] not in _TIMES:
        if match and not match[3]:
            raise ValueError(f"{text!r} has no unit\nwrite it like {text.strip()}ms or 10s")
        raise ValueError(f"{text!r} is not a time\n{_LIKE}")
    unit = _TIMES[match[3]]
    fraction = match[2] or "0"
    one: int = 10 ** len(fraction)
    value = int(match[1]) * unit + int(fraction) * unit // one
    if value > _LONGEST:
        raise ValueError(f"{text!r} is more than a year\n{_LIKE}")
    return value


def parse_span(text: str) -> int:
    """A time of more than 0, in ns. Raises ValueError."""
    value = parse_time(text)
    if value <= 0:
        raise ValueError(f"{text!r} is zero\nuse a time of more than 0")
    return value


def parse_size(text: str) -> int:
    """``64M``, ``1G``, ``4096`` in bytes; powers of 1024. Raises ValueError."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise ValueError(f"{text!r} is not a size\nwrite it like 64M, 1G or 4096")
    return int(match[1]) * _SIZES[match[2].upper()]


def format_time(ns: int) -> str:
    """Three digits and a unit: ``950 ns``, ``1.23 ms``, ``45.6 s``, ``7300 s``."""
    for unit, name in ((1, "ns"), (US, "us"), (MS, "ms")):
        # 999.6 us is 1.00 ms, not 1000 us
        if ns * 2 < unit * 1999:
            return f"{_three_digits(ns, unit)} {name}"
    return f"{_three_digits(ns, SECOND)} s"


def _three_digits(ns: int, unit: int) -> str:
    if unit == 1:
        return str(ns)
    value = ns / unit
    if value < 9.995:
        return f"{value:.2f}"
    return f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def format_span(ns: int) -> str:
    """A duration: ``0.4 s``, ``10.0 s``, ``5 m 12 s``, ``2 h 5 m``."""
    seconds = ns / SECOND
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} m {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} m"


def format_count(number: int) -> str:
    """``1,234,567``."""
    return f"{number:,}"


def format_short(number: int) -> str:
    """At most five characters below 10^12: ``12345``, ``123k``, ``1.23M``."""
    if number < 100_000:
        return str(number)
    for unit, name in ((1_000, "k"), (1_000_000, "M"), (1_000_000_000, "G")):
        if number * 2 < unit * 1999 or name == "G":
            return f"{_three_digits(number, unit)}{name}"
    raise AssertionError


def format_size(size: int) -> str:
    """Bytes in powers of 1024, three digits: ``512``, ``64.0K``, ``1.23G``."""
    sign, size = "-" if size < 0 else "", abs(size)
    if size < 1024:
        return f"{sign}{size}"
    unit = 0
    value = size / 1024
    while value >= 999.5 and unit < 5:
        value /= 1024
        unit += 1
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{sign}{value:.{digits}f}{'KMGTPE'[unit]}"


def format_percent(share: float) -> str:
    """``0.3 %``, ``72 %``, ``100 %``."""
    percent = share * 100
    return f"{percent:.1f} %" if 0 < percent < 9.95 else f"{percent:.0f} %"


def format_rate(number: int, duration_ns: int) -> str:
    """``0.4/s``, ``1,234/s``; 0 if the duration is 0."""
    rate = number * SECOND / duration_ns if duration_ns > 0 else 0.0
    return f"{rate:.1f}/s" if rate < 100 else f"{rate:,.0f}/s"
