"""The process that restores parameters when the tuner dies or stops answering.

It is forked before the tuner has threads or has loaded much, and waits until the other end of a
socket closes: the kernel closes it when the tuner is killed. It shares the tuner's lock, so no
other process can begin in between.

While something is in force the tuner says so every second. A tuner that is silent for a minute is
stopped, frozen or hangs in the kernel: it is killed, after which none of its code runs any more,
and the parameters are restored. Silence is counted in polls that timed out, not by a clock: a pause
of the whole machine, or of both processes, counts as one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from zfstrace.printable import printable
from zfstrace.strict import strict_zip
from zfstune.host import protections
from zfstune.term.outlet import write_now

_READY = b"r"
# from the tuner: something is in force, nothing is, it ends; the first two are echoed
_BEAT, _CALM, _DISMISS = b"b", b"c", b"q"
_READY_S = 60
# How long to wait for a killed process: in the kernel it may hang for ever.
_GONE_S = 1.0
_ENDS_S = 5.0
# The number of silent ticks after which the tuner is killed, and the length of a tick in s.
SILENT = (60, 1.0)
# on Linux, on FreeBSD
_LOGS = ("/dev/log", "/var/run/log")


@dataclass
class Supervisor:
    """The tuner's end of the socket."""

    pid: int
    _end: socket.socket
    _silent: tuple[int, float] = SILENT
    _ticked: float = field(default_factory=time.monotonic)
    _unanswered: int = 0
    _said: bytes = _CALM

    def alive(self, *, in_force: bool = False) -> bool:
        """Whether the supervisor runs and answers; call it every second. It also tells the
        supervisor that this process runs, and whether something is in force. Never waits."""
        ticks, tick_s = self._silent
        now, say = time.monotonic(), _BEAT if in_force else _CALM
        # at most one tick, however long this process was stopped
        if now - self._ticked >= tick_s or say != self._said:
            self._unanswered += now - self._ticked >= tick_s
            self._ticked, self._said = now, say
            _send(self._end, say)
        try:
            while self._end.recv(4096, socket.MSG_DONTWAIT):
                self._unanswered = 0
        except BlockingIOError:
            return self._unanswered <= ticks
        except OSError:
            pass
        return False

    def dismiss(self) -> None:
        """Ends the supervisor: nothing is left to restore."""
        if self._end.fileno() < 0:
            return
        _send(self._end, _DISMISS)
        self._end.close()
        with contextlib.suppress(ChildProcessError):
            if not self._ended(_ENDS_S):
                # it is stopped, and has the lock
                os.kill(self.pid, signal.SIGKILL)
                self._ended(_GONE_S)

    def _ended(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not (ended := os.waitpid(self.pid, os.WNOHANG)[0]) and time.monotonic() < deadline:
            time.sleep(0.005)
        return bool(ended)


def start(
    restore: Callable[[str], None], keep: Collection[int], silent: tuple[int, float] = SILENT
) -> Supervisor:
    """Forks the supervisor and waits until it is ready. After the death of this process it calls
    restore with a sentence on how that happened; keep are the descriptors that restore needs.
    Raises OSError."""
    ours, theirs = socket.socketpair()
    tuner = os.getpid()
    # imported here, not in the child, which must load nothing
    protect = protections()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    pid = os.fork()
    if pid:
        theirs.close()
        ours.settimeout(_READY_S)
        try:
            if ours.recv(1) != _READY:
                raise ChildProcessError(errno.ECHILD, "it ended at once")
        except BaseException:
            # it has nothing to restore, and shares the lock
            ours.close()
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        ours.settimeout(None)
        return Supervisor(pid, ours, silent)
    try:
        ours.close()
        _settle({theirs.fileno(), *keep}, protect)
        # the tuner may be dead already, which is for _end_of() to find
        _send(theirs, _READY)
        how = _end_of(tuner, theirs, silent)
        if how is None:
            os._exit(0)
        restore(how)
    except Exception as error:
        log(f"parameters could not be restored: {error}; run `zfstune recover`")
    finally:
        # exit handlers and buffers are the tuner's
        os._exit(1)


def _settle(keep: Collection[int], protect: Iterable[Callable[[], None]]) -> None:
    """Escapes what may end or stop the tuner: its terminal, its signals, the OOM killer, its
    cgroup."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for one in protect:
        with contextlib.suppress(OSError):
            one()
    with contextlib.suppress(OSError):
        os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1):
        os.dup2(null, standard)
    # readers of the tuner's pipes must not wait for this process
    kept = sorted({2, *keep})
    for low, high in strict_zip(kept, [*kept[1:], os.sysconf("SC_OPEN_MAX")]):
        os.closerange(low + 1, high)


def _end_of(tuner: int, end: socket.socket, silent: tuple[int, float]) -> str | None:
    """Waits for the tuner's end, or kills it if it does not answer; returns how it ended, None if
    it announced its end."""
    ticks, tick_s = silent
    died = f"process {tuner} died unexpectedly"
    said, missed = _CALM, 0
    while missed < ticks:
        if select.select([end], [], [], tick_s)[0]:
            data = _receive(end)
            if not data or _DISMISS in data:
                return None if data else died
            said, missed = data[-1:], 0
            _send(end, said)
        elif os.getppid() != tuner:
            return died  # another process has inherited its socket
        elif said == _BEAT:
            missed += 1
    if os.getppid() != tuner:
        return died
    os.kill(tuner, signal.SIGKILL)
    _wait_for_end(tuner, end)
    return f"process {tuner} did not answer for {ticks * tick_s:g} s and was killed"


def _wait_for_end(tuner: int, end: socket.socket) -> None:
    deadline = time.monotonic() + _GONE_S
    while os.getppid() == tuner and (left := deadline - time.monotonic()) > 0:
        if select.select([end], [], [], min(left, 0.05))[0] and not _receive(end):
            return


def _receive(end: socket.socket) -> bytes:
    """What has arrived; b"" if the other end is closed."""
    try:
        return end.recv(4096)
    except OSError:
        return b""


def _send(end: socket.socket, what: bytes) -> None:
    """Sends without waiting for the reader."""
    with contextlib.suppress(OSError):
        end.send(what, socket.MSG_DONTWAIT)


def log(text: str) -> None:
    """Writes a line to the system log, if there is one, and to stderr, which may be closed or
    stopped."""
    text = printable(text)
    # <28> is daemon.warning
    line = f"<28>zfstune[{os.getpid()}]: {text}".encode(errors="backslashreplace")[:900]
    for path in _LOGS:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.settimeout(1)
            out.connect(path)
            out.send(line)
            break
    write_now(2, f"zfstune: {text}\n".encode(errors="backslashreplace"))
