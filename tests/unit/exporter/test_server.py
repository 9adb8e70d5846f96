"""What no client can do to the exporter's port, with real connections, and what no bug can."""

from __future__ import annotations

import contextlib
import os
import resource
import selectors
import socket
import struct
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.hostile import EVIL, raw
from support.scraping import GET, PATIENT_S, Scrape, Serving, parts, read, serving, status
from support.waiting import wait_for

from zfstune.errors import NotPossible
from zfstune.exporter import http, server
from zfstune.exporter.listen import ListenOptions
from zfstune.exporter.server import ERRORS, Limits

# More than the buffers of both ends take
LARGE = bytes(range(256)) * (64 << 10)


def patient(**limits: Any) -> Limits:
    """No limit of time but these."""
    most = dict.fromkeys(("request_s", "scrape_s", "answer_s", "linger_s"), PATIENT_S)
    return Limits(**{**most, **limits})


@pytest.fixture
def up() -> Iterator[Serving]:
    with serving() as made:
        yield made
        made.server.close()
        assert "server" not in made.errors


@pytest.fixture
def descriptors() -> Iterator[None]:
    """Enough of them for a thousand clients and the server."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# hostile numbers, and hostile patience


@pytest.mark.usefixtures("descriptors")
@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTTP/1.1\r\nX", GET])
def test_a_thousand_connections_do_not_stop_the_next_scrape(sent: bytes) -> None:
    threads = threading.active_count()
    with contextlib.ExitStack() as clients, serving() as up:
        assert threading.active_count() == threads + 2
        for _ in range(1000):
            clients.enter_context(up.connect()).sendall(sent)
            assert up.server.open <= 128
        up.honest()
        assert threading.active_count() == threads + 2
        wait_for(lambda: up.server.refused >= 1001 - 128)
        assert up.told(*["refused"] * up.server.refused) == []


def test_who_has_most_connections_gives_way() -> None:
    with contextlib.ExitStack() as clients, serving(limits=patient(connections=8)) as up:
        honest = clients.enter_context(up.connect())
        honest.sendall(GET[:-1])
        wait_for(lambda: up.server.open == 1)
        for _ in range(50):
            clients.enter_context(up.connect(source="127.0.0.2"))
        wait_for(lambda: up.server.refused == 43)
        honest.sendall(GET[-1:])
        assert parts(read(honest))[1] == up.scrape.body


def test_who_waits_for_the_scrape_keeps_the_place() -> None:
    with contextlib.ExitStack() as clients, serving(limits=patient(connections=8)) as up:
        up.scrape.gate.clear()
        honest = clients.enter_context(up.connect())
        honest.sendall(GET)
        wait_for(lambda: up.scrape.accepts)
        for _ in range(50):
            clients.enter_context(up.connect())
        wait_for(lambda: up.server.refused == 43)
        up.scrape.gate.set()
        assert parts(read(honest))[1] == up.scrape.body


def test_no_more_wait_for_a_scrape_than_there_are_places() -> None:
    with contextlib.ExitStack() as clients, serving(limits=patient(connections=8)) as up:
        up.scrape.gate.clear()
        for _ in range(50):
            clients.enter_context(up.connect()).sendall(GET)
        wait_for(lambda: up.server.refused == 42)
        up.scrape.gate.set()
        up.honest()
        # who has gone is not scraped for: one was under way
        assert len(up.scrape.accepts) <= 10


class BothFormats(Scrape):
    """One body with an Accept header, another without."""

    bodies = b"zfstune_up 1\n", b"zfstune_up 1.0\n# EOF\n"

    def encoded(self, accept: str) -> tuple[bytes, str]:
        return self.bodies[bool(accept)], self.kind


def test_two_formats_in_turn_are_packed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    packed: list[Any] = []
    pack = zlib.compressobj

    def counted(**options: Any) -> Any:
        packed.append(options)
        return pack(**options)

    monkeypatch.setattr(zlib, "compressobj", counted)
    request = b"GET /metrics HTTP/1.1\r\nAccept-Encoding: gzip\r\n%s\r\n"
    with serving(BothFormats()) as up:
        for _ in range(3):
            for accept in (b"", b"Accept: a\r\n"):
                got = zlib.decompress(parts(up.ask(request % accept))[1], zlib.MAX_WBITS | 16)
                assert got == BothFormats.bodies[bool(accept)]
    assert len(packed) == 2


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTTP/1.1\r\nX"])
def test_a_slow_request_is_cut(sent: bytes) -> None:
    with serving(limits=patient(request_s=0.2)) as up, up.connect() as connection:
        # it may be cut before it has sent anything
        with contextlib.suppress(ConnectionError):
            connection.sendall(sent)
            assert read(connection) == b""
        wait_for(lambda: up.server.timed_out == 1)
        assert up.told("timeout") == []
        assert up.scrape.accepts == []


def test_a_steady_slow_request_is_cut() -> None:
    with serving(limits=patient(request_s=0.2, head_bytes=1 << 30)) as up:
        with up.connect() as connection, contextlib.suppress(ConnectionError):
            connection.sendall(b"GET /metrics HTTP/1.1\r\nX:")
            while not up.server.timed_out:
                connection.sendall(b"a")
        assert up.told("timeout") == []


def test_a_steady_slow_reader_is_cut() -> None:
    got = 0
    with serving(Scrape(LARGE), patient(answer_s=0.3)) as up, up.connect() as connection:
        connection.sendall(GET)
        while not up.server.timed_out:
            got += len(connection.recv(1))
        with contextlib.suppress(ConnectionError):
            got += len(read(connection))
        assert got < len(LARGE)
        assert up.told("timeout") == []


def test_readers_that_stop_do_not_stop_the_next_scrape() -> None:
    with contextlib.ExitStack() as clients, serving(Scrape(LARGE)) as up:
        for _ in range(150):
            clients.enter_context(up.connect()).sendall(GET)
        assert parts(up.ask())[1] == LARGE


def test_who_does_not_close_after_the_answer_is_closed() -> None:
    with serving(limits=patient(linger_s=0.1)) as up, up.connect() as connection:
        connection.sendall(GET)
        assert parts(read(connection))[1] == up.scrape.body
        wait_for(lambda: not up.server.open)
        assert up.told() == []


@pytest.mark.parametrize("sent", [b"", b"GET", GET])
def test_a_reset_is_nothing(sent: bytes) -> None:
    with serving(Scrape(LARGE)) as up:
        for _ in range(20):
            with up.connect() as connection:
                connection.sendall(sent)
                if sent == GET:
                    assert connection.recv(1) == b"H"
                # closing resets the connection
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wait_for(lambda: not up.server.open)
        assert parts(up.ask())[1] == LARGE
        assert up.told() == []


# without descriptors


@contextlib.contextmanager
def no_descriptors() -> Iterator[None]:
    """This process can open nothing; those are free again at the end."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.open(os.devnull, os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, taken[0] + 100), hard))
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(taken[0]))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in taken:
            os.close(fd)


def test_without_descriptors_it_waits_and_goes_on() -> None:
    with serving(limits=patient(exhausted_s=0.01)) as up:
        with socket.socket() as client:
            client.settimeout(30)
            with no_descriptors():
                client.connect(("127.0.0.1", up.server.port))
                client.sendall(GET)
                wait_for(lambda: len(up.errors) >= 3)
            assert parts(read(client))[1] == up.scrape.body
        up.honest()
        assert set(up.errors) == {"accept"}


def test_without_descriptors_it_does_not_spin_and_serves_the_others() -> None:
    limits = patient(exhausted_s=PATIENT_S)
    with serving(limits=limits) as up, up.connect() as before, socket.socket() as client:
        up.scrape.gate.clear()
        before.sendall(GET)
        wait_for(lambda: up.scrape.accepts)
        with no_descriptors():
            client.connect(("127.0.0.1", up.server.port))
            # the thread that would tell us waits at the gate
            wait_for(lambda: up.server._resume_at is not None)
            up.scrape.gate.set()
            assert parts(read(before))[1] == up.scrape.body
        # the loop has gone round several times
        assert up.told("accept") == []


def test_without_descriptors_the_slow_give_way() -> None:
    limits = patient(exhausted_s=PATIENT_S)
    with serving(limits=limits) as up, up.connect() as slow, socket.socket() as client:
        wait_for(lambda: up.server.open == 1)
        client.settimeout(30)
        with no_descriptors():
            client.connect(("127.0.0.1", up.server.port))
            client.sendall(GET)
            assert parts(read(client))[1] == up.scrape.body
            assert read(slow) == b""
        assert up.told("accept", "refused") == []


def test_few_descriptors_are_not_all_for_clients() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        with contextlib.ExitStack() as clients, serving() as up:
            for _ in range(80):
                clients.enter_context(up.connect())
            up.honest()
            assert up.server.refused == 81 - 64
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# bugs


@pytest.mark.parametrize(
    "error",
    [
        ValueError(f"a\nb {EVIL}"),
        RuntimeError("x" * 10_000),
        AssertionError(),
        MemoryError(),
        SystemExit(1),
        KeyboardInterrupt(),
    ],
)
def test_a_bug_in_a_scrape_is_one_line(up: Serving, error: BaseException) -> None:
    up.scrape.error = error
    for _ in range(3):
        got = up.ask()
        assert status(got) == 500
        line = parts(got)[1].decode()
        assert line.count("\n") == 1
        assert len(line) < 250
        assert raw(line) == set()
    up.scrape.error = None
    up.honest()
    # once, whatever clients do
    (said,) = up.told("scrape", "scrape", "scrape")
    assert type(error).__name__ in said
    assert raw(said) == set()


@pytest.mark.parametrize(
    ("body", "kind"), [("text", "text/plain"), (None, "text/plain"), (b"", "a\u20ac")]
)
def test_a_scrape_that_is_no_scrape_is_an_error(up: Serving, body: Any, kind: Any) -> None:
    good = up.scrape.body, up.scrape.kind
    up.scrape.body, up.scrape.kind = body, kind
    assert status(up.ask()) == 500
    up.scrape.body, up.scrape.kind = good
    up.honest()
    assert len(up.told("scrape")) == 1


def test_a_scrape_that_hangs_stops_only_scrapes(up: Serving) -> None:
    up.scrape.gate.clear()
    with up.connect() as connection:
        connection.sendall(GET)
        wait_for(lambda: up.scrape.accepts)
        assert parts(up.ask(b"GET /-/healthy HTTP/1.1\r\n\r\n"))[1] == b"healthy\n"
        up.scrape.gate.set()
        assert parts(read(connection))[1] == up.scrape.body


def test_who_waits_for_a_scrape_that_hangs_is_cut() -> None:
    with serving(limits=patient(scrape_s=0.2)) as up:
        up.scrape.gate.clear()
        assert up.ask() == b""
        assert up.server.timed_out == 1
        up.scrape.gate.set()
        # on a busy machine a scrape may need more than one
        wait_for(lambda: up.ask().startswith(b"HTTP/1.1 200"))
        assert up.errors[0] == "timeout"


def test_a_bug_in_the_server_ends_one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as up:
        with monkeypatch.context() as patch:
            patch.setattr(http, "parse", lambda *_: 1 / 0)
            assert up.ask() == b""
        up.honest()
        assert up.told("server") == ["server: ZeroDivisionError: division by zero"]


def test_a_bug_between_connections_does_not_end_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    select = selectors.DefaultSelector.select
    failed = 0

    def failing(self: Any, timeout: float | None = None) -> Any:
        nonlocal failed
        failed += 1
        if failed <= 3:
            raise OSError("select failed")
        return select(self, timeout)

    monkeypatch.setattr(selectors.DefaultSelector, "select", failing)
    with serving(limits=patient(exhausted_s=0.01)) as up:
        up.honest()
        (said,) = up.told(*["server"] * 3)
        assert said == "server: OSError: select failed"


def test_a_bug_of_who_counts_does_not_end_the_server() -> None:
    def fails(_what: str) -> None:
        raise RuntimeError

    scrape = Scrape(error=ValueError())
    made = server.serve(scrape, ListenOptions("127.0.0.1", 0), fails, fails)
    try:
        up = Serving(made, scrape, [], [])
        assert status(up.ask()) == 500
        scrape.error = None
        up.honest()
    finally:
        made.close()


def test_who_counts_may_wait_for_a_lock_and_the_port_does_not() -> None:
    lock, scrape, counted = threading.Lock(), Scrape(), []

    def count(what: str) -> None:
        with lock:
            counted.append(what)

    made = server.serve(scrape, ListenOptions("127.0.0.1", 0), count, limits=patient(connections=1))
    try:
        up = Serving(made, scrape, [], [])
        with up.connect(), lock:
            for _ in range(3):
                assert parts(up.ask(b"GET /-/healthy HTTP/1.1\r\n\r\n"))[1] == b"healthy\n"
            assert made.refused >= 1
            assert counted == []
        wait_for(lambda: counted == ["refused"] * made.refused)
        # and a scrape shows what came before it
        up.honest()
    finally:
        made.close()


def test_every_error_that_is_counted_has_its_name() -> None:
    found = set()
    for path in Path(server.__file__).parent.glob("*.py"):
        if path.name in ("server.py", "tls.py"):
            for line in path.read_text().splitlines():
                for call in (".count(", "_errors(", ".bug("):
                    word = line.partition(f'{call}"')[2].partition('"')[0]
                    found |= {word} - {""}
    assert found == set(ERRORS)


# the end


def test_closing_frees_everything() -> None:
    threads, fds = threading.active_count(), set(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with serving() as up:
        connections = [up.connect() for _ in range(20)]
        connections[0].sendall(GET)
        read(connections[0])
        up.server.close()
        up.server.close()
        for connection in connections:
            connection.close()
        with pytest.raises(ConnectionRefusedError):
            up.connect()
    assert threading.active_count() == threads
    assert set(os.listdir("/proc/self/fd")) == fds  # noqa: PTH208


def test_a_scrape_that_hangs_does_not_hold_up_the_end() -> None:
    with serving() as up, up.connect() as connection:
        up.scrape.gate.clear()
        connection.sendall(GET)
        wait_for(lambda: up.scrape.accepts)
        up.server.close()
        with pytest.raises(ConnectionRefusedError):
            up.connect()
        # it ends later, and finds nobody
        up.scrape.gate.set()
        wait_for(lambda: "scrapes" not in {thread.name for thread in threading.enumerate()})


def test_the_port_is_free_again_at_once() -> None:
    with serving() as up:
        up.honest()
        up.server.close()
        again = server.serve(up.scrape, ListenOptions("127.0.0.1", up.server.port))
        again.close()
        assert again.port == up.server.port


def test_without_threads_it_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(NotPossible, match="cannot start a thread: can't start new thread"):
        server.serve(Scrape(), ListenOptions("127.0.0.1", 0))
