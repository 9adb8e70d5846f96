"""Errors that end the lab: one line on stderr, a hint, and an exit status."""

from __future__ import annotations

# The command line is wrong
USAGE = 2

# The command line is right, but this machine lacks something
NOT_POSSIBLE = 3

# The guest panicked, hung or ran out of time, so the command has no status
GUEST_FAILED = 125


class LabError(Exception):
    """Printed as `lab: error: WHAT: WHY` and, if there is one, `hint: WHAT TO DO`."""

    def __init__(self, message: str, hint: str = "", *, status: int = NOT_POSSIBLE) -> None:
        super().__init__(message)
        self.hint = hint
        self.status = status
