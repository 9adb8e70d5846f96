"""Errors that end the command, and the exit statuses."""

from __future__ import annotations

from zfstrace.errors import Hinted

DONE = 0
NEGATIVE = 1
USAGE = 2
NOT_POSSIBLE = 3
RESTORED = 4


def in_one_line(error: BaseException) -> str:
    """An error of any kind for a person: what went wrong and what to do, or else what it is."""
    if isinstance(error, Hinted):
        return error.in_one_line()
    from zfstrace.printable import printable

    if isinstance(error, OSError) and error.strerror:
        what = f"{error.filename}: " if error.filename else ""
        return printable(f"{what}{error.strerror}")
    return printable(f"{type(error).__name__}: {error}")[:300]


class CommandError(Hinted):
    """main() prints it as `zfstune: error: WHAT: WHY` and, if there is one, `hint: WHAT TO DO`.
    more are lines below that."""

    status = NEGATIVE
    more: tuple[str, ...] = ()


class UsageError(CommandError):
    """The command line is wrong, or names something that does not exist."""

    status = USAGE


class NotPossible(CommandError):
    """Not on this host, or not with these privileges."""

    status = NOT_POSSIBLE


class RestoredError(CommandError):
    """Something failed after parameters had been changed; their previous values are restored."""

    status = RESTORED
