"""The control socket: `record dump` and `record status` ask the running recorder.

A client sends one line of JSON and gets one, and with it, when it asked for a file, a descriptor.
The server is polled by the recorder's loop, so it needs no thread and no lock. It never waits for a
client.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from zfstrace.types import Json
from zfstune.errors import CommandError, NotPossible, UsageError
from zfstune.term.units import SECOND

MOST_CLIENTS, MOST_REQUEST, TIMEOUT_NS = 4, 4096, 5 * SECOND
# How many are turned away in one turn; the others wait in the kernel.
_MOST_TURNED_AWAY = 64
_MOST_REPLY = 1 << 20
_CLIENT_S = 60.0
_START = "start `zfstune exporter` or `zfstune record run`; see --dump-dir"


@dataclass(frozen=True)
class Reply:
    """body is one JSON object; fd, which is then closed, is for the client, too."""

    body: Json
    fd: int | None = None


Answer = Callable[[Json], Reply]


@dataclass
class _Client:
    socket: socket.socket
    deadline: int
    data: bytes = field(default=b"")


class Server:
    """answer() gets each request; a CommandError or OSError that it raises is the reply."""

    def __init__(self, path: Path, answer: Answer) -> None:
        self._path, self._answer = path, answer
        self._socket: socket.socket | None = None
        self._clients: list[_Client] = []
        self.served = self.refused = 0

    def open(self) -> None:
        """Listens. No file of that name may exist. Raises NotPossible."""
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.setblocking(False)
        # nobody may connect between bind() and chmod()
        before = os.umask(0o177)
        try:
            listening.bind(str(self._path))
            self._path.chmod(0o600)
            listening.listen(MOST_CLIENTS)
        except OSError as error:
            listening.close()
            why = error.strerror or error
            raise NotPossible(
                f"cannot listen on {self._path}: {why}", "name another directory by --dump-dir"
            ) from None
        finally:
            os.umask(before)
        self._socket = listening

    def close(self) -> None:
        """Ends all connections. May be called again."""
        for client in self._clients:
            client.socket.close()
        self._clients = []
        if self._socket:
            self._socket.close()
        self._socket = None

    def poll(self, now: int) -> None:
        """Serves whoever is there; now is CLOCK_MONOTONIC in ns. Never waits."""
        self._accept(now)
        for client in list(self._clients):
            if not self._serve(client, now):
                self._clients.remove(client)
                client.socket.close()
        self._accept(now)

    def _accept(self, now: int) -> None:
        for _ in range(_MOST_TURNED_AWAY):
            try:
                connection = self._socket.accept()[0] if self._socket else None
            except OSError:
                return
            if connection is None:
                return
            connection.setblocking(False)
            client = _Client(connection, now + TIMEOUT_NS)
            if len(self._clients) < MOST_CLIENTS:
                self._clients.append(client)
                continue
            self._refuse(client, "too many connections")
            connection.close()

    def _serve(self, client: _Client, now: int) -> bool:
        """Reads what has come; False when the connection is over."""
        try:
            data = client.socket.recv(MOST_REQUEST + 1 - len(client.data))
        except BlockingIOError:
            if now < client.deadline:
                return True
            self._refuse(client, "no request within 5 s")
            return False
        except OSError:
            return False
        client.data += data
        line, end, _ = client.data.partition(b"\n")
        if end:
            self._reply(client, self._answered(line))
            return False
        if len(client.data) > MOST_REQUEST:
            self._refuse(client, "the request is too long")
            return False
        if now >= client.deadline:
            self._refuse(client, "no request within 5 s")
            return False
        return bool(data)

    def _answered(self, line: bytes) -> Reply:
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            request = None
        if not isinstance(request, dict):
            self.refused += 1
            return Reply({"error": "the request is not a JSON object"})
        self.served += 1
        try:
            return self._answer(request)
        except CommandError as error:
            return Reply({"error": str(error), "hint": error.hint, "status": error.status})
        except OSError as error:
            why = error.strerror or error
            return Reply({"error": f"cannot write: {why}", "hint": "make room in its directory"})

    def _refuse(self, client: _Client, why: str) -> None:
        self.refused += 1
        self._reply(client, Reply({"error": why}))

    def _reply(self, client: _Client, reply: Reply) -> None:
        """Sends what fits; a client that does not read gets no more."""
        line = json.dumps(reply.body).encode() + b"\n"
        try:
            if reply.fd is None:
                client.socket.send(line)
            else:
                socket.send_fds(client.socket, [line], [reply.fd])
        except OSError:
            self.refused += 1
        finally:
            if reply.fd is not None:
                os.close(reply.fd)


def ask(path: Path, request: Json, timeout_s: float = _CLIENT_S) -> Reply:
    """The recorder's reply. Raises NotPossible, and for an error that it replies UsageError or
    NotPossible."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        try:
            connection.connect(str(path))
            connection.sendall(json.dumps(request).encode() + b"\n")
            line, fd = _received(connection)
        except (TimeoutError, socket.timeout):
            raise NotPossible(
                f"the recorder at {path} does not answer", "look at its log"
            ) from None
        except PermissionError:
            raise NotPossible(
                f"no permission to ask the recorder at {path}", "run as root"
            ) from None
        except OSError as error:
            why = error.strerror or error
            raise NotPossible(f"no recorder runs: {path}: {why}", _START) from None
    try:
        body = json.loads(line)
        if not isinstance(body, dict):
            raise ValueError
    except (ValueError, RecursionError):
        _close(fd)
        raise NotPossible(f"the recorder at {path} gave no answer", "look at its log") from None
    if "error" in body:
        _close(fd)
        kind = UsageError if body.get("status") == UsageError.status else NotPossible
        raise kind(f"the recorder: {body['error']}", str(body.get("hint") or ""))
    return Reply(body, fd)


def _received(connection: socket.socket) -> tuple[bytes, int | None]:
    """The line, and the descriptor that came with it. Raises OSError."""
    data, found = b"", []
    while b"\n" not in data and len(data) <= _MOST_REPLY:
        # room for two: Python counts 4 bytes for one, FreeBSD takes 8 and drops what does not fit
        part, fds, _, _ = socket.recv_fds(connection, 1 << 16, 2)
        found += fds
        if not part:
            break
        data += part
    for fd in found:
        os.set_inheritable(fd, False)
    for fd in found[1:]:
        _close(fd)
    return data, found[0] if found else None


def _close(fd: int | None) -> None:
    if fd is not None:
        with contextlib.suppress(OSError):
            os.close(fd)
