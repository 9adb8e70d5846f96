"""The process that restores parameters when the tuner dies, in whatever way.

It is forked before the tuner has threads or has loaded much, and waits for the other end of
a socket to close, which the kernel does for a process that is killed. It shares the
tuner's lock, so nobody else can begin in between.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Collection

from zfstune.host import spare_when_memory_ends

_READY, _DISMISS = b"r", b"q"
_READY_S = 60
# of Linux, of FreeBSD
_LOGS = ("/dev/log", "/var/run/log")


class Supervisor:
    """The tuner's end."""

    def __init__(self, pid: int, end: socket.socket) -> None:
        self.pid, self._end = pid, end

    def alive(self) -> bool:
        """False once it has ended; does not wait."""
        if self._end.fileno() < 0:
            return False
        ready, _, _ = select.select([self._end], [], [], 0)
        return not ready

    def dismiss(self) -> None:
        """Nothing is left to restore: it ends."""
        if self._end.fileno() < 0:
            return
        with contextlib.suppress(OSError):
            self._end.send(_DISMISS)
        self._end.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def start(restore: Callable[[], None], keep: Collection[int]) -> Supervisor:
    """Forks it, and waits until it is out of reach. restore is what it does after the death
    of this process; keep are the descriptors that it needs. Raises OSError."""
    ours, theirs = socket.socketpair()
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
        return Supervisor(pid, ours)
    try:
        ours.close()
        _settle({theirs.fileno(), *keep})
        theirs.send(_READY)
        if _dismissed(theirs):
            os._exit(0)
        restore()
    except Exception as error:
        log(f"parameters could not be restored: {error}, run `zfstune recover`")
    finally:
        # no exit handlers, no buffers: they are the tuner's
        os._exit(1)


def _settle(keep: Collection[int]) -> None:
    """Out of reach of what ends the tuner: its terminal, its signals, a lack of memory."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    with contextlib.suppress(OSError):
        spare_when_memory_ends()
    with contextlib.suppress(OSError):
        os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1):
        os.dup2(null, standard)
    # whoever waits for the tuner's pipes to close must not wait for this process
    kept = sorted({2, *keep})
    for low, high in zip(kept, [*kept[1:], os.sysconf("SC_OPEN_MAX")], strict=True):
        os.closerange(low + 1, high)


def _dismissed(end: socket.socket) -> bool:
    """Waits for the tuner's end; whether it was announced."""
    try:
        return end.recv(1) == _DISMISS
    except OSError:
        return False


def log(text: str) -> None:
    """To stderr, which may be gone, and to the system's log, if there is one."""
    with contextlib.suppress(OSError, ValueError):
        os.write(2, f"zfstune: {text}\n".encode(errors="backslashreplace"))
    # <28> is daemon.warning
    line = f"<28>zfstune[{os.getpid()}]: {text}".encode(errors="backslashreplace")[:900]
    for path in _LOGS:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.settimeout(1)
            out.connect(path)
            out.send(line)
            return
