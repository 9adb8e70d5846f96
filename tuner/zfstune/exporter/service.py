"""What a service manager wants to know: sd_notify(3), which is a datagram to a socket."""

from __future__ import annotations

import contextlib
import os
import socket

from zfstrace.printable import printable

# The watchdog is told this often, not with each tick.
_EVERY_TICKS = 10


class Service:
    """The manager that started this process; without one nothing is said."""

    def __init__(self) -> None:
        # for this process only: not for commands that it runs
        self._address = os.environ.pop("NOTIFY_SOCKET", "")
        self._ticks = 0
        self._status = ""

    def ready(self) -> None:
        """It answers now."""
        self._notify("READY=1")

    def tick(self, status: str) -> None:
        """To be called each second by the thread that must not hang."""
        if self._ticks % _EVERY_TICKS == 0:
            self._notify("WATCHDOG=1")
        self._ticks += 1
        if status != self._status:
            self._status = status
            self._notify(f"STATUS={printable(status)}")

    def stopping(self) -> None:
        self._notify("STOPPING=1")

    def _notify(self, text: str) -> None:
        if not self._address.startswith(("/", "@")):
            return
        address = self._address
        if address[0] == "@":
            address = f"\0{address[1:]}"
        # a manager that does not read must not hold it up
        with (
            contextlib.suppress(OSError),
            socket.socket(
                socket.AF_UNIX, socket.SOCK_DGRAM | getattr(socket, "SOCK_CLOEXEC", 0)
            ) as end,
        ):
            end.setblocking(False)
            end.sendto(text.encode("utf-8", "backslashreplace"), address)
