"""Errors that end the command: one line on stderr, a hint, and a status."""

from __future__ import annotations

from zfstrace.errors import Hinted

DONE = 0
NEGATIVE = 1
USAGE = 2
NOT_POSSIBLE = 3
RESTORED = 4


class CommandError(Hinted):
    """main() prints it as `zfstune: error: WHAT: WHY` and, if there is one, `hint: WHAT TO DO`."""

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
