"""The process that restores parameters when the tuner dies or does not answer any more.

It is forked before the tuner has threads or has loaded much, and waits for the other end of
a socket to close, which the kernel does for a process that is killed. It shares the
tuner's lock, so nobody else can begin in between.

While something is in force the tuner says so every second. One that is silent for a minute is
stopped, frozen or hangs in the kernel: it is killed, after which no code of its own runs any more,
in whatever state it is, and then the same is done. Silence is counted in polls that ended without a
word, not by a clock: a pause of the whole machine, or of both processes, is one of them.
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
from zfstune.host import protections
from zfstune.term.outlet import write_now

_READY = b"r"
# of the tuner: something is in force, nothing is, it ends; the first two are answered by the same
_BEAT, _CALM, _DISMISS = b"b", b"c", b"q"
_READY_S = 60
# How long a process that was killed is waited for: in the kernel it may hang for ever.
_GONE_S = 1.0
_ENDS_S = 5.0
# So many ticks without a word are too many, and the length of one in s.
SILENT = (60, 1.0)
# of Linux, of FreeBSD
_LOGS = ("/dev/log", "/var/run/log")


@dataclass
class Supervisor:
    """The tuner's end."""

    pid: int
    _end: socket.socket
    _silent: tuple[int, float] = SILENT
    _ticked: float = field(default_factory=time.monotonic)
    _unanswered: int = 0
    _said: bytes = _CALM

    def alive(self, *, in_force: bool = False) -> bool:
        """False once it has ended, or has been stopped for long; to be asked every second. It
        is told that this process goes on, and whether something is in force. Does not wait."""
        ticks, tick_s = self._silent
        now, say = time.monotonic(), _BEAT if in_force else _CALM
        # a tick at most, however long this process has been stopped
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
        """Nothing is left to restore: it ends."""
        if self._end.fileno() < 0:
            return
        _send(self._end, _DISMISS)
        self._end.close()
        with contextlib.suppress(ChildProcessError):
            if not self._ended(_ENDS_S):
                # stopped: it has the lock as well
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
    """Forks it, and waits until it is out of reach. restore is what it does after the death
    of this process, and gets in words how that came; keep are the descriptors that it needs.
    Raises OSError."""
    ours, theirs = socket.socketpair()
    tuner = os.getpid()
    # here and not in the child, which is to load nothing
    protect = protections()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    pid = os.fork()
    if pid:
        theirs.close()
        ours.settimeout(_READY_S)
        try:
            if ours.recv(1) != _READY:
                raise ChildProcessError(errno.ECHILD, "it has ended at once")
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
        theirs.send(_READY)
        how = _end_of(tuner, theirs, silent)
        if how is None:
            os._exit(0)
        restore(how)
    except Exception as error:
        log(f"parameters could not be restored: {error}, run `zfstune recover`")
    finally:
        # no exit handlers, no buffers: they are the tuner's
        os._exit(1)


def _settle(keep: Collection[int], protect: Iterable[Callable[[], None]]) -> None:
    """Out of reach of what ends or stops the tuner: its terminal, its signals, a lack of memory,
    its cgroup."""
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
    # whoever waits for the tuner's pipes to close must not wait for this process
    kept = sorted({2, *keep})
    for low, high in zip(kept, [*kept[1:], os.sysconf("SC_OPEN_MAX")], strict=True):
        os.closerange(low + 1, high)


def _end_of(tuner: int, end: socket.socket, silent: tuple[int, float]) -> str | None:
    """Waits for the tuner's end, or kills it when it does not answer; returns how it ended, None
    when that was announced."""
    ticks, tick_s = silent
    died = f"process {tuner} has ended without a word"
    said, missed = _CALM, 0
    while missed < ticks:
        if select.select([end], [], [], tick_s)[0]:
            data = _receive(end)
            if not data or _DISMISS in data:
                return None if data else died
            said, missed = data[-1:], 0
            _send(end, said)
        elif os.getppid() != tuner:
            return died  # somebody has inherited its socket
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
    """b"" when the other end is closed."""
    try:
        return end.recv(4096)
    except OSError:
        return b""


def _send(end: socket.socket, what: bytes) -> None:
    """Whoever does not read is not waited for."""
    with contextlib.suppress(OSError):
        end.send(what, socket.MSG_DONTWAIT)


def log(text: str) -> None:
    """To the system's log, if there is one, and to stderr, which may be gone or stopped."""
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
