"""Signals that end a command: they stop a trace, and wait while parameters are restored."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import TextIO

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def deferred_signals() -> Iterator[None]:
    """Defers SIGINT, SIGTERM and SIGHUP until the (outermost) block ends: a second Ctrl-C must not
    break a restore. In the main thread only.

    A signal mask would not do: it is per thread, and libraries have threads of their own.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        for number, handler in before.items():
            if handler not in (signal.SIG_IGN, None):
                signal.signal(number, lambda number, _frame: came.append(number))
        yield
    finally:
        for number, handler in before.items():
            if handler not in (signal.SIG_IGN, None):
                signal.signal(number, handler)
        for missed in dict.fromkeys(came):
            signal.raise_signal(missed)


class Stop:
    """While entered, signals only set ``asked``, so that the command can print what it measured.
    reader_gone is set when nobody reads out any more (`| head`). wait() also returns when something
    sets woken, which the caller resets."""

    def __init__(self, out: TextIO) -> None:
        self.asked = False
        self.reader_gone = False
        self.woken = False
        self._input: int | None = None
        self._poll = select.poll()
        try:
            self._out: int | None = out.fileno()
        except (OSError, ValueError):
            self._out = None

    def __enter__(self) -> Stop:
        # a signal just before poll() writes a byte, which ends the poll
        self._pipe = os.pipe()
        for end in self._pipe:
            os.set_blocking(end, False)
        self._poll.register(self._pipe[0], select.POLLIN)
        if self._out is not None:
            self._poll.register(self._out, 0)
        self._wakeup = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        self._handlers = {
            number: signal.getsignal(number)
            for number in SIGNALS
            # an ignored SIGHUP stays ignored, as nohup asks
            if not (number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN)
        }
        for number in self._handlers:
            signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        for end in self._pipe:
            os.close(end)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.asked = True

    def now(self) -> int:
        """CLOCK_MONOTONIC in ns."""
        return time.monotonic_ns()

    def listen(self, fd: int | None) -> None:
        """Sets woken when this descriptor can be read, until the next call; None: no descriptor."""
        if fd == self._input:
            return
        if self._input is not None:
            self._poll.unregister(self._input)
        if fd is not None:
            self._poll.register(fd, select.POLLIN)
        self._input = fd

    def wait(self, ns: int) -> bool:
        """Waits for at most ns; returns whether the trace is to end."""
        deadline = self.now() + ns
        while not (self.asked or self.reader_gone or self.woken):
            left_ms = (deadline - self.now()) / 1e6
            for fd, _event in self._poll.poll(max(0.0, left_ms)):
                if fd == self._out:
                    self.reader_gone = True
                elif fd == self._input:
                    self.woken = True
                else:
                    self._drain()
            if left_ms <= 0:
                break
        return self.asked or self.reader_gone

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._pipe[0], 512)
