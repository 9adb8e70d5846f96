"""Makes calls that may never return, as on a disk that does not answer, in a child process.

A thread would not do: while it sleeps in the kernel it keeps its process, with the lock and the
pipes that others wait for. An abandoned child has neither.
"""

from __future__ import annotations

import errno
import marshal
import os
import select
import signal
import time

from zfstune.errors import NotPossible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    T = TypeVar("T")

_REAP_S = 0.2


def call(limit_s: float, what: Callable[..., T], *given: object) -> T:
    """Returns what(*given), which marshal must support. Raises its OSError or NotPossible;
    TimeoutError after limit_s; ChildProcessError if the child was killed."""
    ours, theirs = os.pipe()
    try:
        pid = _fork(theirs, what, given)
    except OSError:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    try:
        answer = _read(ours, time.monotonic() + limit_s)
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        _reap(pid)
        raise
    finally:
        os.close(ours)
    _reap(pid)
    try:
        kind, value = marshal.loads(answer)
    except (EOFError, ValueError, TypeError):
        raise ChildProcessError(errno.ECHILD, "the process that did it was killed") from None
    if kind == "error":
        raise OSError(*value)
    if kind == "refused":
        raise NotPossible(*value)
    result: T = value
    return result


def _fork(answer: int, what: Callable[..., object], given: tuple[object, ...]) -> int:
    """Forks the child with signals blocked: those of a terminal or cgroup are for the parent."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = os.fork()
        if pid:
            return pid
        try:
            os.setsid()
            os.closerange(0, answer)
            os.closerange(answer + 1, os.sysconf("SC_OPEN_MAX"))
            rest = memoryview(marshal.dumps(_answer(what, given)))
            while rest:
                rest = rest[os.write(answer, rest) :]
        finally:
            # exit handlers and buffers are the parent's
            os._exit(0)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _answer(what: Callable[..., object], given: tuple[object, ...]) -> tuple[str, Any]:
    try:
        return "done", what(*given)
    except NotPossible as error:
        return "refused", (str(error), error.hint)
    except OSError as error:
        return "error", (error.errno, error.strerror)


def _read(fd: int, end: float) -> bytes:
    found = bytearray()  # bytes would be copied for each piece of a huge journal
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    while poll.poll(max(0.0, end - time.monotonic()) * 1000):
        more = os.read(fd, 1 << 16)
        if not more:
            return bytes(found)
        found += more
    raise TimeoutError(errno.ETIMEDOUT, "it does not answer")


def _reap(pid: int) -> None:
    """Waits a moment only: a child that sleeps in the kernel is left to init."""
    end = time.monotonic() + _REAP_S
    try:
        while not os.waitpid(pid, os.WNOHANG)[0] and time.monotonic() < end:
            time.sleep(0.001)
    except ChildProcessError:
        pass
