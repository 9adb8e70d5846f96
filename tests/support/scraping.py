"""Clients of the exporter's port, and what they get."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from zfstune.exporter.listen import ListenOptions
from zfstune.exporter.server import Limits, Server, serve
from zfstune.exporter.tls import TlsOptions

GET = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"
# Longer than any test takes: where a limit is not the subject
PATIENT_S = 600.0


@dataclass
class Scrape:
    """What is scraped: a body, a function's error in its place, and a gate to wait at."""

    body: bytes = b"zfstune_up 1\n"
    kind: str = "text/plain; version=0.0.4; charset=utf-8"
    error: BaseException | None = None
    accepts: list[str] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.gate.set()

    def encoded(self, accept: str) -> tuple[bytes, str]:
        self.accepts.append(accept)
        assert self.gate.wait(PATIENT_S)
        if self.error:
            raise self.error
        return self.body, self.kind


@dataclass
class Serving:
    """A server, and what it told the program."""

    server: Server
    scrape: Scrape
    errors: list[str]
    said: list[str]

    def connect(self, host: str = "127.0.0.1", source: str = "") -> socket.socket:
        """A connection. Who waits for 30 s for an answer has found a bug."""
        made = socket.create_connection(
            (host, self.server.port), 30, (source, 0) if source else None
        )
        made.settimeout(30)
        return made

    def ask(self, request: bytes = GET, host: str = "127.0.0.1") -> bytes:
        """All that comes back for these bytes."""
        with self.connect(host) as connection:
            connection.sendall(request)
            return read(connection)

    def told(self, *errors: str) -> list[str]:
        """Ends the server; it has counted just these errors. Returns what it said."""
        self.server.close()
        assert self.errors == [*errors]
        return self.said

    def honest(self) -> None:
        """A scrape like that of Prometheus gets its answer."""
        head, body = parts(self.ask())
        assert head.startswith("HTTP/1.1 200 OK\r\n")
        assert body == self.scrape.body


def read(connection: socket.socket) -> bytes:
    """Everything up to the end of a connection."""
    return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def parts(answer: bytes) -> tuple[str, bytes]:
    """An answer's head and body, whose length is what the head says."""
    head, end, body = answer.partition(b"\r\n\r\n")
    assert end
    assert f"Content-Length: {len(body)}\r\n".encode() in head + b"\r\n"
    return head.decode(), body


@contextlib.contextmanager
def serving(
    scrape: Scrape | None = None,
    limits: Limits | None = None,
    address: str = "127.0.0.1",
    tls: TlsOptions | None = None,
) -> Iterator[Serving]:
    """A server on a free port. Its own bugs fail the test that did not expect one."""
    scrape = scrape or Scrape()
    errors: list[str] = []
    said: list[str] = []
    if limits is None:
        most = PATIENT_S
        limits = Limits(request_s=most, scrape_s=most, answer_s=most, linger_s=most)
    server = serve(scrape, ListenOptions(address, 0, tls), errors.append, said.append, limits)
    try:
        yield Serving(server, scrape, errors, said)
    finally:
        scrape.gate.set()
        server.close()
