"""Weights of stacks in human-readable form."""

from __future__ import annotations

_TIMES = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"))
# What each kind of stack measures.
MEASURES = {
    "off-cpu": "off-CPU time",
    "on-cpu": "CPU use",
    "wakeup": "off-CPU time with its wakers",
    "other": "stacks",
}


def amount(value: int, unit: str) -> str:
    """``1.23 ms`` for ns, ``1,234 samples`` otherwise."""
    if unit != "ns":
        return f"{value:,} sample{'' if value == 1 else 's'}"
    for size, name in _TIMES:
        # 999.6 us must not become 1000 us
        if value * 2000 >= size * 1999:
            part = value / size
            digits = 2 if part < 9.995 else 1 if part < 99.95 else 0
            return f"{part:,.{digits}f} {name}"
    return f"{value} ns"


def percent(value: int, total: int) -> str:
    """The share of a total: ``12.3 %``, with two decimals if it is small."""
    share = 100 * value / total if total else 0.0
    return f"{share:.{1 if share >= 9.995 else 2}f} %"
