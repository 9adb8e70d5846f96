"""A session that changes parameters: lock, journal, supervisor, and the restore."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from types import FrameType, TracebackType

from zfstrace.host import Host
from zfstune.changes import recovery, supervisor
from zfstune.changes.apply import Applier, ApplyError, Overridden, RestoreReport
from zfstune.changes.journal import Journal
from zfstune.changes.lock import Lock, unmark_session
from zfstune.changes.records import Override
from zfstune.changes.state_dir import Places, places
from zfstune.errors import NotPossible
from zfstune.term.signals import SIGNALS, deferred_signals
from zfstune.tunables import catalogue
from zfstune.tunables.planner import Write

Say = Callable[[str], None]

__all__ = ["ApplyError", "ChangeSession", "Overridden", "SupervisorGone", "set_values"]


class SupervisorGone(ApplyError):
    """The session must end, because no process would restore after a crash."""


class ChangeSession:
    """A session restores the previous values however it ends, except after finish(applied=True).

    names are its parameters, which it watches from the beginning. Enter it before threads are
    started. Raises NotPossible if there is another session (lock.Busy), no privilege, or no room
    for the journal.
    """

    def __init__(
        self,
        host: Host,
        command: str,
        names: Sequence[str],
        say: Say = supervisor.log,
        where: Places | None = None,
        still_s: float = 0.3,
    ) -> None:
        self._host, self._command, self._names, self._say = host, command, list(names), say
        self._where = where or places()
        self._still_s = still_s
        self._lock: Lock | None = None
        self._overrides: list[Override] = []
        self._in_force = False
        self.report: RestoreReport | None = None

    def __enter__(self) -> ChangeSession:
        require_writable(self._host, self._names)
        self._pid = os.getpid()
        # what to undo, the last first, if it cannot begin
        with contextlib.ExitStack() as undo:
            lock = Lock.take(self._where, self._command)
            undo.callback(lock.release)
            recovery.require_restored(self._host, self._where, self._say)
            with deferred_signals():
                self._begin(lock, undo)
            self._take_signals()
            self._lock = lock
            undo.pop_all()
        atexit.register(self._at_exit)
        return self

    def _begin(self, lock: Lock, undo: contextlib.ExitStack) -> None:
        self._journal = Journal(self._where, write=True)
        undo.callback(self._journal.close)
        self._applier = Applier(
            self._host, self._journal, catalogue.load(), self._say, still_s=self._still_s
        )
        identity, originals = self._applier.starting_point(self._names)
        self.originals = {name: original.value for name, original in originals.items()}
        undo.callback(unmark_session, self._where)
        lock.mark_session()
        self._layer = self._journal.begin("session", identity, self._command, originals)
        undo.callback(self._put_aside)
        undo.callback(self._applier.restore, self._layer)
        try:
            restore = functools.partial(self._after_death, lock)
            self.supervisor = supervisor.start(restore, {lock.fd})
        except OSError as error:
            raise NotPossible(f"cannot start the supervisor: {error.strerror}") from None
        undo.callback(self.supervisor.dismiss)
        self._applier.before_write = self._require_supervisor
        watch = self._applier.params.watch(self._names, {self.supervisor.pid})
        undo.callback(watch.close)
        self._applier.watch = watch

    def _take_signals(self) -> None:
        self._handlers = {number: signal.getsignal(number) for number in SIGNALS}
        for number, handler in self._handlers.items():
            # signals that others handle or ignore stay theirs
            if handler is signal.SIG_DFL:
                signal.signal(number, _to_exception)

    def _after_death(self, lock: Lock, how: str) -> None:
        """Runs in the supervisor. Messages come last, after the restore."""
        said = [how]
        left = None
        try:
            left = recovery.restore_left(self._host, self._where, said.append)
        finally:
            # for all that share it: a killed tuner that hangs in the kernel would hold it
            fcntl.flock(lock.fd, fcntl.LOCK_UN)
            for text in said:
                supervisor.log(text)
        os._exit(1 if left and not left.complete else 0)

    # --- while it lasts

    def apply(self, wanted: Mapping[str, int]) -> list[Write]:
        """Sets values in the safe order; returns the writes, [] if all are already set.

        Raises guard.Refused before the first write; Overridden if another process has set one of
        them, and other ApplyErrors: the values from before the call are then restored.
        """
        with deferred_signals():
            self._in_force = True
            try:
                return self._applier.apply(wanted)
            finally:
                before = self._layer.originals
                now = {name: self._applier.params.read(name) for name in before}
                self._in_force = any(now[name] != before[name].value for name in before)
                self.alive()

    def _require_supervisor(self) -> None:
        if not self.alive():
            raise SupervisorGone("cannot go on: the supervisor was killed or stopped")

    def overrides(self) -> list[Override]:
        """What other processes have set during the session so far; also reports it through say.
        Never blocks."""
        if self._lock is not None:
            self._applier.notice()
            self._overrides = list(self._layer.overrides)
        return self._overrides

    def alive(self) -> bool:
        """Whether the supervisor is alive; ask every second, and end the session if not. This is
        also the heartbeat: while values of the session are in force, a process that does not ask
        for a minute is killed, and the values are restored."""
        return self.supervisor.alive(in_force=self._in_force)

    def values(self) -> dict[str, int]:
        """The present values of the session's parameters."""
        read = self._applier.params.read
        found = ((name, read(name)) for name in self.originals)
        return {name: value for name, value in found if value is not None}

    # --- its end

    def finish(self, *, applied: bool) -> RestoreReport:
        """Ends the session: if applied, the present values stay until `zfstune revert`; otherwise
        the originals are restored. Later calls return the same report."""
        if self._lock is None:
            return self.report or RestoreReport()
        try:
            with deferred_signals():
                self._end(applied=applied)
        finally:
            self._give_back_signals()
        return self.report or RestoreReport()

    def _end(self, *, applied: bool) -> None:
        # a restore must be possible without room for a record
        self._journal.tolerant = not applied
        self.overrides()
        if applied:
            self._applier.applied(self._layer)
            self.report = RestoreReport(kept=tuple(self._layer.overrides))
        else:
            self.report = self._applier.restore(self._layer)
        self._close()

    def _give_back_signals(self) -> None:
        for number, handler in self._handlers.items():
            if handler is signal.SIG_DFL:
                signal.signal(number, handler)

    def _close(self) -> None:
        if self._applier.watch:
            self._applier.watch.close()
        self._overrides = list(self._layer.overrides)
        self._put_aside()
        self._journal.close()
        if self._lock and self.report and self.report.complete:
            unmark_session(self._where)
        self.supervisor.dismiss()
        if self._lock:
            self._lock.release()
            self._lock = None
        atexit.unregister(self._at_exit)

    def _put_aside(self) -> None:
        if not self._journal.history.in_force:
            self._journal.put_aside()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.finish(applied=False)

    def _at_exit(self) -> None:
        # not in a forked child
        if os.getpid() == self._pid:
            self.finish(applied=False)


def set_values(
    host: Host,
    wanted: Mapping[str, int],
    command: str,
    say: Say,
    *,
    force: bool = False,
    where: Places | None = None,
) -> list[Write]:
    """Sets values that stay until `zfstune revert`; returns the writes. force overrides the
    guard's soft rules. Raises guard.Refused, ApplyError, NotPossible; then nothing is changed.

    If it is killed midway, the next command restores what it has written. systemd does not watch
    it, unlike a session: every intermediate state is legal.
    """
    where = where or places()
    require_writable(host, list(wanted))
    lock = Lock.take(where, command)
    try:
        recovery.require_restored(host, where, say)
        journal = Journal(where, write=True)
        with contextlib.closing(journal):
            applier = Applier(host, journal, catalogue.load(), say)
            identity, originals = applier.starting_point(wanted)
            with deferred_signals():
                layer = journal.begin("manual", identity, command, originals)
                try:
                    writes = applier.apply(wanted, force=force)
                    if writes:
                        applier.applied(layer)
                finally:
                    if layer.end is None:
                        applier.restore(layer)
                    if not journal.history.in_force:
                        journal.put_aside()
            return writes
    finally:
        lock.release()


def require_writable(host: Host, names: Sequence[str]) -> None:
    """Raises NotPossible without the module, or without privilege."""
    params = host.parameters()
    if not params.identity():
        raise NotPossible("cannot set parameters: ZFS is not loaded", f"run `{params.loading()}`")
    there = [name for name in names if params.read(name) is not None]
    if there and not any(params.writable(name) for name in there):
        raise NotPossible("cannot set parameters: no permission", f"run as {params.who()}")


def _to_exception(number: int, _frame: FrameType | None) -> None:
    """Turns a signal into an exception, so that the session ends in order."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)
