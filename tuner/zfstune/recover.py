"""`zfstune recover`: undoes what a session that was killed with its supervisor has left; and
the same at the start of every command."""

from __future__ import annotations

from zfstune.errors import DONE, NEGATIVE, CommandError, NotPossible
from zfstune.paths import journal_exists

TYPE_CHECKING = False
if TYPE_CHECKING:  # nothing of it is needed where there is no journal
    import argparse
    from collections.abc import Callable

    from zfstrace.host import Host
    from zfstune.apply import RestoreReport
    from zfstune.journal import Journal
    from zfstune.places import Places


_ALL = "what zfstune has changed"
UNREADABLE = (
    "nothing in the journal can be used (a copy of it is journal.damaged, if there is room), "
    "compare with `zfstune params list --changed`"
)


def if_needed(command: str = "zfstune") -> RestoreReport | None:
    """Restores what a crash has left, and says so; None when there is nothing. Cheap where there
    is no journal. Raises only what Python itself raises."""
    if not journal_exists():
        return None
    from zfstune.host import open_host
    from zfstune.live import say
    from zfstune.places import Busy, places

    where = places()
    try:
        if not _left(where):
            return None
        return restore_now(open_host(), where, command, say, wait_s=0)
    except Busy:
        return None  # a session that lives
    except CommandError as error:
        say(f"parameters of a session that was killed may be in force: {error}")
    return None


def _left(where: Places) -> bool:
    """Whether there is something to undo or put aside; looks without the lock."""
    from zfstune.journal import Journal

    journal = Journal(where, write=False)
    try:
        if journal.history.open_layer:
            return True
        # of an earlier boot: to be put aside
        return bool(journal.history.layers) and _stale(journal)
    finally:
        journal.close()


def _stale(journal: Journal) -> bool:
    from zfstune.host import open_host

    here = open_host().parameters().identity()
    return any(layer.identity != here for layer in journal.history.in_force)


def restore_now(
    host: Host, where: Places, command: str, say: Callable[[str], None], wait_s: float
) -> RestoreReport | None:
    """restore_left() under the lock. Raises places.Busy, NotPossible."""
    from zfstune.places import Lock

    lock = Lock.take(where, command, wait_s)
    try:
        return restore_left(host, where, say)
    finally:
        lock.release()


def restore_left(host: Host, where: Places, say: Callable[[str], None]) -> RestoreReport | None:
    """With the lock held: ends a session that is open, and puts a journal aside of which
    nothing is in force. None when there was neither. Raises NotPossible. Signals come after it."""
    from zfstune.places import unmark_session
    from zfstune.signals import put_off

    with put_off():
        report = _restore_left(host, where, say) if there(where) else None
        if report is None or report.complete:
            unmark_session(where)
        return report


def _restore_left(host: Host, where: Places, say: Callable[[str], None]) -> RestoreReport | None:
    from zfstune.apply import RestoreReport
    from zfstune.journal import Journal

    journal = Journal(where, write=True)
    try:
        for note in journal.notes:
            say(note)
        if journal.unreadable:
            return RestoreReport(failed=((_ALL, UNREADABLE),))
        return _restore(host, journal, say)
    finally:
        journal.close()


def there(where: Places) -> bool:
    """Whether there is a journal. Raises NotPossible when that cannot be seen."""
    import contextlib
    import os

    from zfstune.journal import exists
    from zfstune.places import open_directory

    for path in (where.state, where.run):
        with contextlib.suppress(FileNotFoundError):
            os.close(open_directory(path, create=False))
    return exists(where)


def _restore(host: Host, journal: Journal, say: Callable[[str], None]) -> RestoreReport | None:
    from zfstune.apply import Applier
    from zfstune.catalogue import load

    history = journal.history
    applier = Applier(host, journal, load(), say)
    report = None
    here = host.parameters().identity()
    layer = history.open_layer
    if any(one.identity != here for one in history.in_force):
        report = applier.back_to(dict(history.base), history.in_force)
        say(
            "the zfs module was loaded anew since parameters were changed: their values went "
            "with it, there is nothing to restore"
        )
    elif layer:
        say(
            f"process {layer.pid} (`{layer.command}`, since {layer.time}) was killed, restoring "
            "the parameters that it has changed"
        )
        report = applier.restore(layer)
        for line in describe(report, host):
            say(line)
    if not history.in_force:
        journal.put_aside()
    return report


def describe(report: RestoreReport, host: Host) -> list[str]:
    """What a restore did, one line for each parameter."""
    from zfstune.catalogue import remains

    lines = [
        f"{r.name}: {_exact(r.name, r.before)} -> {_exact(r.name, r.value)}"
        for r in report.restored
    ]
    lines += remains(r.name for r in report.restored)
    for override in report.kept:
        before = ""
        if override.original is not None:
            command = host.parameters().shell(override.name, override.original)
            before = f"; `{command}` sets what was there before"
        lines.append(f"{override}, it is left as it is{before}")
    lines += [f"{name} is not there any more, nothing to restore" for name in report.gone]
    lines += [f"{name} could not be restored: {reason}" for name, reason in report.failed]
    return lines


def _exact(name: str, value: int) -> str:
    from zfstune import catalogue, sizes

    parameter = catalogue.load().get(name)
    return sizes.short(value, parameter.unit if parameter else "count")


def require_restored(host: Host, where: Places, say: Callable[[str], None]) -> None:
    """restore_left(), before anything new begins. Raises NotPossible when something that a
    killed session has set cannot be put back."""
    report = restore_left(host, where, say)
    if report and not report.complete:
        name, reason = report.failed[0]
        raise NotPossible(
            f"cannot begin, {name} of a session that was killed could not be restored: {reason}"
        )


def run(args: argparse.Namespace) -> int:
    """The command; status 1 when something could not be restored."""
    from zfstune.host import open_host
    from zfstune.live import say
    from zfstune.places import Busy, places

    where = places()
    try:
        report = restore_now(open_host(), where, "zfstune recover", say, -1 if args.wait else 0)
    except Busy as error:
        say(f"nothing to do, {error}")
        return DONE
    if report is None:
        say("nothing to restore")
        return DONE
    return DONE if report.complete else NEGATIVE
