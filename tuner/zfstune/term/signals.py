"""Signals that end a command come when it can take them."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def put_off() -> Iterator[None]:
    """Signals come after the block: a second Ctrl-C must not break a restore. Of blocks within
    each other they come after the outermost.

    Not by a signal mask: that is of one thread, and libraries have others.
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
