"""Errors that end the command: one line on stderr, and a status."""

from __future__ import annotations

DONE = 0
NEGATIVE = 1
USAGE = 2
NOT_POSSIBLE = 3
RESTORED = 4


class CommandError(Exception):
    """The message says what, why, and what to do; it has no line break."""

    status = NEGATIVE


class UsageError(CommandError):
    """The command line asks for something that is not there."""

    status = USAGE


class NotPossible(CommandError):
    """Not on this host, or not with these privileges."""

    status = NOT_POSSIBLE


class RestoredError(CommandError):
    """Something failed after parameters had been changed; they are back as they were."""

    status = RESTORED
