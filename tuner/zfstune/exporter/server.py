"""The exporter's port: a small HTTP server that a hostile client cannot stop.

One thread talks to all clients and waits for none of them; another asks for the scrape, which may
have to wait for the counters. A slow client costs a place for some seconds. When all places are
taken a newcomer gets that of the oldest client of the address that has most of them, so that the
next honest scrape gets through. A connection has one request: who scrapes each 15 s does not need
more.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import resource
import selectors
import socket
import threading
import time
import zlib
from collections import Counter, deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Protocol

from zfstrace.printable import printable
from zfstune.errors import NotPossible
from zfstune.exporter import http
from zfstune.exporter.listen import ListenOptions, listen, parse_listen
from zfstune.term.log import say as say_on_stderr

__all__ = ["ERRORS", "Limits", "ListenOptions", "Scraped", "Server", "parse_listen", "serve"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zfstune.exporter.tls import Tls

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE

# At once; the rest of a large answer waits for its turn.
_PIECE = 1 << 16
# What a client may still send while it is answered, so that the answer is not lost by a reset
_MOST_AFTER = 1 << 20
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_SAY_AGAIN_S = 600.0


@dataclass(frozen=True)
class Limits:
    """What clients may take. request_s is from the connection to the end of its request, with the
    handshake; scrape_s from there until the scrape is made, which takes long on a busy host;
    answer_s from there to the last byte of the answer, however steadily it is read."""

    connections: int = 128
    request_s: float = 10.0
    scrape_s: float = 60.0
    answer_s: float = 10.0
    linger_s: float = 2.0
    head_bytes: int = 8192
    exhausted_s: float = 0.5


class Scraped(Protocol):
    """What there is to scrape."""

    def encoded(self, accept: str) -> tuple[bytes, str]:
        """The body and its content type for an Accept header; called in a thread of the server."""


def serve(
    scraped: Scraped,
    options: ListenOptions,
    errors: Callable[[str], None] = lambda _what: None,
    say: Callable[[str], None] = say_on_stderr,
    limits: Limits | None = None,
) -> Server:
    """Listens and answers until Server.close(). Raises UsageError and NotPossible.

    errors() is called with what failed, one of ERRORS, and say() with a line for a person; both in
    the thread that asks for scrapes, so they may wait for what a scrape may wait for.
    """
    report = _Report(errors, say)
    tls = None
    if options.tls:
        from zfstune.exporter.tls import Tls

        tls = Tls(options.tls, report.count, report.say)
    return Server(scraped, listen(options), tls, report, limits or Limits())


# accept: no descriptor or memory left; refused: the place went to a newcomer; server: a bug here;
# timeout: no whole request, or the answer not taken, in time
ERRORS = ("accept", "certificate", "handshake", "refused", "scrape", "server", "timeout")


class _Report:
    """Counts what fails, and says what is a bug at most once in ten minutes: clients may be able to
    make it happen as often as they like. What there is to tell the program waits for deliver(): it
    may take a lock that a reading of the counters holds, for which the port must not wait."""

    def __init__(self, errors: Callable[[str], None], say: Callable[[str], None]) -> None:
        self._errors, self._say = errors, say
        self._said: dict[str, float] = {}
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._lines: deque[str] = deque(maxlen=100)

    def count(self, what: str) -> None:
        with self._lock:
            self._counts[what] += 1

    def say(self, text: str) -> None:
        with self._lock:
            self._lines.append(text)

    def pending(self) -> bool:
        return bool(self._counts or self._lines)

    def deliver(self) -> None:
        with self._lock:
            counts, lines = list(self._counts.elements()), list(self._lines)
            self._counts.clear()
            self._lines.clear()
        for call, texts in ((self._errors, counts), (self._say, lines)):
            for text in texts:
                # a bug there is not ours to die of
                with contextlib.suppress(Exception):
                    call(text)

    def bug(self, what: str, error: BaseException) -> str:
        """Counts an error; returns it in one line."""
        line = printable(f"{type(error).__name__}: {error}")[:200]
        self.count(what)
        now = time.monotonic()
        if now - self._said.get(what, -_SAY_AGAIN_S) >= _SAY_AGAIN_S:
            self._said[what] = now
            self.say(f"a {what} failed: {line}" if what == "scrape" else f"{what}: {line}")
        return line


_Talk = Generator[int, None, None]


class _Stream(Protocol):
    """What a client sends and gets, encrypted or not."""

    def recv(self, most: int, /) -> bytes: ...

    def send(self, data: memoryview, /) -> int: ...


@dataclass(eq=False)
class _Connection:
    """A client. talk yields the events for which it waits, 0 for the scrape."""

    sock: socket.socket
    address: str
    deadline: float
    talk: _Talk | None = None
    events: int = 0
    request: http.Request | None = None
    answer: list[memoryview] | None = None
    answered: bool = False
    closed: bool = False


class _Scrapes:
    """Asks for scrapes, in a thread of its own. done() is called in it, with a connection that has
    got its answer."""

    def __init__(
        self, scraped: Scraped, done: Callable[[_Connection], None], report: _Report
    ) -> None:
        self._scraped, self._done, self._report = scraped, done, report
        self._asked: deque[_Connection] = deque()
        self._changed = threading.Condition()
        self._closing = False
        # a body and its gzip, in both formats: packing takes longer than all else of an answer
        self._packed: deque[tuple[bytes, bytes]] = deque(maxlen=2)
        self._thread = threading.Thread(target=self._run, name="scrapes", daemon=True)
        self._thread.start()

    def ask(self, connection: _Connection) -> None:
        with self._changed:
            self._asked.append(connection)
            self._changed.notify()

    def forget(self, connection: _Connection) -> None:
        """Takes back what a client asked that has gone: so no more can wait than connections."""
        with self._changed, contextlib.suppress(ValueError):
            self._asked.remove(connection)

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify()
        # a scrape that hangs must not hold up the end
        self._thread.join(1)

    def wake(self) -> None:
        """There is something to report."""
        with self._changed:
            self._changed.notify()

    def _run(self) -> None:
        while not self._closing:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._asked or self._closing or self._report.pending()
                )
                connection = self._asked.popleft() if self._asked else None
            # before the scrape, which shows it
            self._report.deliver()
            if connection and connection.request and not self._closing:
                connection.answer = self._scrape(connection.request)
                self._done(connection)
        self._report.deliver()

    def _scrape(self, request: http.Request) -> list[memoryview]:
        bodiless = request.method == "HEAD"
        try:
            body, kind = self._scraped.encoded(request.accept)
            if request.gzip:
                body = self._pack(body)
            return http.answer(200, body, kind, encoded=request.gzip, bodiless=bodiless)
        except BaseException as error:  # SystemExit, too, would end only this thread
            line = self._report.bug("scrape", error)
            return http.answer(500, f"the scrape failed: {line}\n".encode(), bodiless=bodiless)

    def _pack(self, body: bytes) -> bytes:
        """gzip, once for all clients that get the same body."""
        found = next((packed for known, packed in self._packed if known is body), None)
        if found is None:
            packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
            found = packer.compress(body) + packer.flush()
            self._packed.append((body, found))
        return found


class Server:
    """A port that is served. port is its number; refused and timed_out count connections that were
    closed because there were too many, or which took too long."""

    def __init__(
        self,
        scraped: Scraped,
        listener: socket.socket,
        tls: Tls | None,
        report: _Report,
        limits: Limits,
    ) -> None:
        self.port: int = listener.getsockname()[1]
        self.refused = self.timed_out = 0
        self._listener, self._tls, self._report, self._limits = listener, tls, report, limits
        self._connections: dict[_Connection, None] = {}  # the oldest first
        # most descriptors are for those who trace
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._places = (
            limits.connections if soft < 0 else min(limits.connections, max(1, soft // 4))
        )
        self._answered: deque[_Connection] = deque()
        self._resume_at: float | None = None
        self._closing = threading.Event()
        self._woken, self._waker = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        for end in (self._woken, self._waker, listener):
            end.setblocking(False)
        self._selector.register(self._woken, READ)
        self._selector.register(listener, READ)
        self._thread = threading.Thread(target=self._run, name="port", daemon=True)
        try:
            self._scrapes = _Scrapes(scraped, self._on_answer, report)
            self._thread.start()
        except RuntimeError as error:
            self._free()
            what = f"cannot start a thread: {error}"
            raise NotPossible(what, "allow more tasks (TasksMax= of the service)") from None

    @property
    def open(self) -> int:
        """The connections now."""
        return len(self._connections)

    def close(self) -> None:
        """Frees the port. Who waits for an answer gets none."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._wake()
        self._thread.join()
        self._scrapes.close()
        self._free()

    def _free(self) -> None:
        for connection in list(self._connections):
            self._drop(connection)
        self._selector.close()
        for end in (self._listener, self._woken, self._waker):
            end.close()

    def _wake(self) -> None:
        # full: it is awake already; closed: a scrape ended after the server
        with contextlib.suppress(OSError):
            self._waker.send(b"\0")

    def _on_answer(self, connection: _Connection) -> None:
        self._answered.append(connection)
        self._wake()

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self._turn()
            except Exception as error:
                self._report.bug("server", error)
                # whatever it is, it must not take a CPU
                self._closing.wait(self._limits.exhausted_s)

    def _turn(self) -> None:
        """Waits for what is next, and does it."""
        now = time.monotonic()
        for connection in [one for one in self._connections if one.deadline <= now]:
            if not connection.answered:
                self.timed_out += 1
                self._report.count("timeout")
            self._drop(connection)
        if self._resume_at is not None and self._resume_at <= now:
            self._resume_at = None
            self._selector.register(self._listener, READ)
        # also what the turn before has to report
        if self._report.pending():
            self._scrapes.wake()
        times = [one.deadline for one in self._connections]
        times += [] if self._resume_at is None else [self._resume_at]
        for key, _events in self._selector.select(max(0.0, min(times) - now) if times else None):
            if key.fileobj is self._listener:
                self._accept()
            elif key.fileobj is self._woken:
                self._woken.recv(_PIECE)
            else:
                self._go_on(key.data)
        while self._answered:
            self._go_on(self._answered.popleft())

    def _accept(self) -> None:
        try:
            sock, address = self._listener.accept()
        except OSError as error:
            # else: the client has gone again
            if error.errno in _EXHAUSTED:
                self._on_exhausted()
            return
        if len(self._connections) >= self._places:
            self._refuse(self._slow() or next(iter(self._connections)))
        sock.setblocking(False)
        connection = _Connection(sock, address[0], time.monotonic() + self._limits.request_s)
        connection.talk = self._talk(connection)
        self._connections[connection] = None
        self._go_on(connection)

    def _on_exhausted(self) -> None:
        """The newcomer stays in the backlog, and would wake us again and again."""
        self._report.count("accept")
        slow = self._slow()
        if slow:
            self._refuse(slow)
            return
        self._selector.unregister(self._listener)
        self._resume_at = time.monotonic() + self._limits.exhausted_s

    def _slow(self) -> _Connection | None:
        """The oldest connection of the address that has most, of those that are waited for: who
        waits for the scrape did its part."""
        slow = [one for one in self._connections if one.events]
        held = Counter(one.address for one in slow)
        most = max(held.values(), default=0)
        return next((one for one in slow if held[one.address] == most), None)

    def _refuse(self, connection: _Connection) -> None:
        self.refused += 1
        self._report.count("refused")
        self._drop(connection)

    def _go_on(self, connection: _Connection) -> None:
        """Talks to a client until it has to be waited for."""
        if connection.closed or not connection.talk:
            return
        try:
            self._watch(connection, next(connection.talk))
            return
        except (StopIteration, OSError):
            pass  # the end, or the client has gone
        except Exception as error:
            self._report.bug("server", error)
        self._drop(connection)

    def _watch(self, connection: _Connection, events: int) -> None:
        if events == connection.events:
            return
        if events and connection.events:
            self._selector.modify(connection.sock.fileno(), events, connection)
        elif events:
            self._selector.register(connection.sock.fileno(), events, connection)
        else:
            self._selector.unregister(connection.sock.fileno())
        connection.events = events

    def _drop(self, connection: _Connection) -> None:
        connection.closed = True
        del self._connections[connection]
        self._scrapes.forget(connection)
        with contextlib.suppress(KeyError, ValueError, OSError):
            self._watch(connection, 0)
        if connection.talk:
            connection.talk.close()
        with contextlib.suppress(OSError):
            connection.sock.close()

    def _talk(self, connection: _Connection) -> _Talk:
        secured = None
        if self._tls:
            try:
                secured = self._tls.wrap(connection.sock)
                yield from _ready(secured.do_handshake, READ)
            except OSError:
                self._report.count("handshake")
                return
        stream: _Stream = secured or connection.sock
        got = yield from _receive(stream, self._limits.head_bytes)
        if not got:
            return
        connection.deadline = time.monotonic() + self._limits.answer_s
        request = http.parse(got, self._limits.head_bytes)
        pieces = http.refusal(request) if isinstance(request, int) else http.page(request)
        if not pieces:
            assert isinstance(request, http.Request)
            connection.request = request
            connection.deadline = time.monotonic() + self._limits.scrape_s
            self._scrapes.ask(connection)
            yield 0
            connection.deadline = time.monotonic() + self._limits.answer_s
            pieces = connection.answer or []
        yield from _send(stream, pieces)
        if secured:
            yield from _ready(secured.end, WRITE)
        connection.answered = True
        connection.deadline = time.monotonic() + self._limits.linger_s
        yield from _linger(connection.sock)


# By name: ssl is imported only where it is used
_WANTED = {"SSLWantReadError": READ, "SSLWantWriteError": WRITE}


def _ready(call: Callable[[], Any], events: int) -> Generator[int, None, Any]:
    """What call() returns once it need not wait; until then yields the events to wait for."""
    while True:
        try:
            return call()
        except BlockingIOError:
            wanted: int | None = events
        except OSError as error:
            wanted = _WANTED.get(type(error).__name__)
            if wanted is None:
                raise
        yield wanted or events


def _receive(stream: _Stream, most: int) -> Generator[int, None, bytes]:
    """What a client sends until its request is whole, too long, or none at all, as TLS is where
    there is no TLS."""
    got = b""
    while True:
        piece: bytes = yield from _ready(functools.partial(stream.recv, 4096), READ)
        start = max(0, len(got) - 3)  # of a blank line that came in parts
        got += piece
        if not piece or len(got) > most or not got[:1].isupper() or http.END.search(got, start):
            return got


def _send(stream: _Stream, pieces: list[memoryview]) -> _Talk:
    for piece in pieces:
        left = piece
        while left:
            sent = yield from _ready(functools.partial(stream.send, left[:_PIECE]), WRITE)
            left = left[sent:]


def _linger(sock: socket.socket) -> _Talk:
    """Waits for the client to close. Closing with bytes unread, as of too long a request, would
    reset the connection, and the client would lose the answer."""
    sock.shutdown(socket.SHUT_WR)
    left = _MOST_AFTER
    while left > 0:
        piece = yield from _ready(functools.partial(sock.recv, _PIECE), READ)
        if not piece:
            return
        left -= len(piece)
