"""Keys of the terminal, one by one and unechoed, by termios(4)."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import sys
import termios
from types import FrameType, TracebackType

from zfstune.term.signals import Stop

# A key that sends several characters, such as an arrow, is none that anybody asks for.
_SEQUENCE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|[^\[O])?")
_LFLAG, _CC = 3, 6


class Keys:
    """While entered, the terminal of standard input passes on each key at once, and stop.wait()
    returns for it. The terminal is as it was when the block ends, and while the process is
    suspended. In the background there are no keys: the terminal is another's."""

    def __init__(self, stop: Stop) -> None:
        self._stop, self._fd = stop, sys.stdin.fileno()
        self.resized = False

    def __enter__(self) -> Keys:
        self._before = termios.tcgetattr(self._fd)
        on = {
            signal.SIGTSTP: self._on_default,
            signal.SIGQUIT: self._on_default,
            signal.SIGCONT: self._on_resume,
            signal.SIGWINCH: self._on_resume,
        }
        self._handlers = {
            number: signal.signal(number, handler)
            for number, handler in on.items()
            # ignored by a shell without job control
            if signal.getsignal(number) is not signal.SIG_IGN
        }
        self._take()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._give_back()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def pressed(self) -> str:
        """The keys since the last call, "" if there were none; never waits."""
        data = b""
        with contextlib.suppress(OSError):
            while self._foreground() and select.select([self._fd], [], [], 0)[0]:
                piece = os.read(self._fd, 256)
                data += piece
                if not piece:
                    # hung up: it would be readable for ever
                    self._stop.listen(None)
                    break
        return _SEQUENCE.sub(b"", data).decode("ascii", "ignore")

    def _foreground(self) -> bool:
        try:
            return os.tcgetpgrp(self._fd) == os.getpgrp()
        except OSError:
            return False

    def _take(self) -> None:
        if not self._foreground():
            self._stop.listen(None)
            return
        attributes = termios.tcgetattr(self._fd)
        attributes[_LFLAG] &= ~(termios.ICANON | termios.ECHO)
        attributes[_CC] = list(attributes[_CC])
        attributes[_CC][termios.VMIN], attributes[_CC][termios.VTIME] = 1, 0
        with contextlib.suppress(termios.error):
            termios.tcsetattr(self._fd, termios.TCSADRAIN, attributes)
        self._stop.listen(self._fd)

    def _give_back(self) -> None:
        self._stop.listen(None)
        # in the background the shell has done so
        if self._foreground():
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)

    def _on_default(self, number: int, _frame: FrameType | None) -> None:
        """Does what the signal does without a handler, with the terminal as it was."""
        self._give_back()
        handler = signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        signal.signal(number, handler)
        self._on_resume(number, None)

    def _on_resume(self, _number: int, _frame: FrameType | None) -> None:
        self._take()
        self.resized = self._stop.woken = True


def has_keys() -> bool:
    """Whether standard input is a terminal."""
    try:
        return os.isatty(sys.stdin.fileno())
    except (AttributeError, OSError, ValueError):
        return False
