"""The kinds of rounds of the scenario faults, and when their times are good enough."""

from __future__ import annotations

CASES = (
    "tuner killed",
    "tuner and supervisor killed",
    "supervisor killed",
    "supervisor stopped",
    "SIGTERM",
    "SIGHUP",
    "SIGINT",
    "tuner does not go on",
    "stderr stalled",
    "disk full",
    "state frozen",
    "state frozen, both killed",
    "state unopenable",
    "state unopenable, both killed",
    "state read-only",
    "one copy damaged",
    "both copies damaged",
    "administrator",
    "second session",
    "module reloaded",
)

# Those of a short run on FreeBSD.
FEW = (
    "tuner killed",
    "supervisor killed",
    "tuner and supervisor killed",
    "state frozen",
    "administrator",
)


def nearly_all_within(limit_s: float, times_s: list[float]) -> bool:
    """All but one in ten, but one of three or more: a machine may be held up at any moment. None
    of them for long."""
    late = [one for one in times_s if one >= limit_s]
    allowed = max(len(times_s) // 10, len(times_s) >= 3)
    return len(late) <= allowed and max(times_s) < 30
