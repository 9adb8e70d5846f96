"""Undoes the changes of a session that was killed with its supervisor: for `zfstune recover`, and
at the start of every command."""

from __future__ import annotations

from zfstune.changes.paths import journal_exists
from zfstune.errors import CommandError, NotPossible

TYPE_CHECKING = False
if TYPE_CHECKING:  # nothing of it is needed where there is no journal
    from collections.abc import Callable

    from zfstrace.host import Host
    from zfstune.changes.apply import RestoreReport
    from zfstune.changes.journal import Journal
    from zfstune.changes.lock import Lock
    from zfstune.changes.state_dir import Places


_ALL = "what zfstune has changed"


def if_needed(command: str = "zfstune") -> RestoreReport | None:
    """Restores what a crash has left, and says so; None if there was nothing. Cheap without a
    journal. Raises no CommandError."""
    if not journal_exists():
        return None
    from zfstune.changes.lock import Busy
    from zfstune.changes.state_dir import places
    from zfstune.host import open_host
    from zfstune.term.log import say

    where = places()
    try:
        if not _left(where):
            return None
        return restore_now(open_host(), where, command, say, wait_s=0)
    except Busy:
        return None  # a session is running
    except CommandError as error:
        say(f"parameters of a killed session may be in force: {error.in_one_line()}")
    return None


def _left(where: Places) -> bool:
    """Whether there is something to undo or put aside. Does not take the lock."""
    from zfstune.changes.journal import Journal

    journal = Journal(where, write=False)
    if journal.history.open_layer:
        return True
    # of an earlier boot: to be put aside
    return bool(journal.history.layers) and _stale(journal)


def _stale(journal: Journal) -> bool:
    from zfstune.host import open_host

    here = open_host().parameters().identity()
    return any(layer.identity != here for layer in journal.history.in_force)


def restore_now(
    host: Host, where: Places, command: str, say: Callable[[str], None], wait_s: float
) -> RestoreReport | None:
    """restore_left() with the lock. Raises lock.Busy, NotPossible."""
    lock = take_lock(where, command, wait_s)
    try:
        return restore_left(host, where, say)
    finally:
        lock.release()


def take_lock(where: Places, command: str, wait_s: float | None = None) -> Lock:
    """The lock for a restore. Raises lock.Busy, NotPossible."""
    from zfstune.changes.journal import Journal
    from zfstune.changes.lock import Busy, Lock

    lock = Lock.take(where, command, wait_s, restore=True)
    if lock.substitute:
        # a session that began earlier has another lock
        layer = Journal(where, write=False).history.open_layer
        if layer and _alive(layer.pid):
            lock.release()
            raise Busy(
                f"cannot begin: process {layer.pid} (`{layer.command}`) may be changing "
                f"parameters, and {where.run} cannot be used",
                "wait until it ends, or stop it",
            )
    return lock


def _alive(pid: int) -> bool:
    import os

    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return pid != os.getpid()


def restore_left(host: Host, where: Places, say: Callable[[str], None]) -> RestoreReport | None:
    """Ends an open session, and puts the journal aside if nothing of it is in force; None if there
    was no open session. Needs the lock. Reports afterwards, and defers signals. Raises
    NotPossible."""
    from zfstune.changes.lock import unmark_session
    from zfstune.term.signals import deferred_signals

    said: list[str] = []
    try:
        with deferred_signals():
            report = _restore_left(host, where, said)
            if report is None or report.complete:
                unmark_session(where)
            return report
    finally:
        for text in said:
            say(text)


def _restore_left(host: Host, where: Places, said: list[str]) -> RestoreReport | None:
    from zfstune.changes.apply import RestoreReport
    from zfstune.changes.journal import Journal

    journal = Journal(where, write=True, here=host.parameters().identity())
    try:
        said += journal.notes
        report = _restore(host, journal, said)
        if journal.unknown:
            said.append(f"{_ALL} is not known: {journal.unknown.in_one_line()}")
            report = with_unknown(report or RestoreReport(), journal)
        return report
    finally:
        journal.close()


def with_unknown(report: RestoreReport, journal: Journal) -> RestoreReport:
    """The report, failed if a part of the journal cannot be read."""
    from dataclasses import replace

    if not journal.unknown:
        return report
    return replace(report, failed=(*report.failed, (_ALL, journal.unknown.in_one_line())))


def _restore(host: Host, journal: Journal, said: list[str]) -> RestoreReport | None:
    from zfstune.changes.apply import Applier
    from zfstune.tunables import catalogue

    history = journal.history
    applier = Applier(host, journal, catalogue.load(), said.append)
    report = None
    here = host.parameters().identity()
    layer = history.open_layer
    if any(one.identity != here for one in history.in_force):
        report = applier.back_to(dict(history.base), history.in_force)
        said.append(
            "nothing to restore: the zfs module was reloaded after parameters were changed, which "
            "reset their values"
        )
    elif layer:
        said.append(
            f"process {layer.pid} (`{layer.command}`, since {layer.time}) was killed; restoring "
            "the parameters that it changed"
        )
        report = applier.restore(layer)
        said += describe(report, host)
    if not history.in_force:
        journal.put_aside()
    return report


def forget(host: Host, where: Places, say: Callable[[str], None]) -> bool:
    """Restores what is known, and puts aside what cannot be read, as a person who has looked at it
    asks. False if something known could not be restored. Raises lock.Busy, NotPossible."""
    import contextlib

    from zfstune.changes.journal import Journal
    from zfstune.changes.lock import unmark_session
    from zfstune.term.signals import deferred_signals

    lock = take_lock(where, "zfstune recover --forget", 0)
    try:
        with deferred_signals():
            restore_left(host, where, say)
            journal = Journal(where, write=True, here=host.parameters().identity())
            with contextlib.closing(journal):
                if not journal.unknown:
                    say("nothing to forget: the whole journal can be read")
                    return True
                if journal.history.open_layer:
                    return False
                journal.forget()
                if not journal.history.in_force:
                    journal.put_aside()
            unmark_session(where)
        say("the unreadable part is put aside as journal.damaged")
        return True
    finally:
        lock.release()


def describe(report: RestoreReport, host: Host) -> list[str]:
    """What a restore did, one line per parameter."""
    from zfstune.tunables import catalogue

    lines = [
        f"{r.name}: {_exact(r.name, r.before)} -> {_exact(r.name, r.value)}"
        for r in report.restored
    ]
    lines += catalogue.remains(r.name for r in report.restored)
    for override in report.kept:
        before = ""
        if override.original is not None:
            command = host.parameters().shell(override.name, override.original)
            before = f"; `{command}` sets its previous value"
        lines.append(f"{override} and is left as it is{before}")
    went = "was reset by the reload of the module" if report.stale else "does not exist any more"
    lines += [f"{name} {went}: nothing to restore" for name in report.gone]
    for name, reason in report.failed:
        what = "is not known" if name == _ALL else "could not be restored"
        lines.append(f"{name} {what}: {reason}")
    return lines


def _exact(name: str, value: int) -> str:
    from zfstune.tunables import catalogue, values

    parameter = catalogue.load().get(name)
    return values.short(value, parameter.unit if parameter else "count")


def require_restored(host: Host, where: Places, say: Callable[[str], None]) -> None:
    """restore_left(), before anything new begins. Raises NotPossible if values of a killed session
    cannot be restored."""
    report = restore_left(host, where, say)
    if report and not report.complete:
        name, reason = report.failed[0]
        if name == _ALL:
            raise NotPossible(f"cannot begin: {_ALL} is not known: {reason}")
        raise NotPossible(
            f"cannot begin: {name} of a killed session could not be restored: {reason}"
        )
