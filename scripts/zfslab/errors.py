"""How the lab says no: one line, what, why, what to do, and an exit status."""

from __future__ import annotations

USAGE = 2
"""The command line is wrong."""

NOT_POSSIBLE = 3
"""The command line is right, but something is missing on this machine."""

GUEST_FAILED = 125
"""The guest panicked, hung or ran out of time, so there is no status of the command."""


class LabError(Exception):
    """An error a person can act on: the message is one line, `status` the exit status."""

    def __init__(self, message: str, status: int = NOT_POSSIBLE) -> None:
        super().__init__(message)
        self.status = status
