"""What the exporter's port answers to requests, honest and hostile, over real connections."""

from __future__ import annotations

import socket
import zlib
from collections.abc import Iterator

import pytest
from support.scraping import GET, Serving, parts, read, serving, status
from support.waiting import wait_for


@pytest.fixture
def up() -> Iterator[Serving]:
    with serving() as made:
        yield made
        made.server.close()
        assert "server" not in made.errors


@pytest.mark.parametrize(
    ("request_line", "expected"),
    [
        ("GET /metrics HTTP/1.1", 200),
        ("GET /metrics HTTP/1.0", 200),
        ("GET /metrics?name[]=zfstune_up HTTP/1.1", 200),
        ("GET http://db1:9810/metrics HTTP/1.1", 200),
        ("GET / HTTP/1.1", 200),
        ("GET http://db1:9810 HTTP/1.1", 200),
        ("GET /-/healthy HTTP/1.1", 200),
        ("GET /metrics/ HTTP/1.1", 404),
        ("GET /metrics/../metrics HTTP/1.1", 404),
        ("GET /../../etc/passwd HTTP/1.1", 404),
        ("GET /favicon.ico HTTP/1.1", 404),
        ("POST /metrics HTTP/1.1", 405),
        ("DELETE / HTTP/1.1", 405),
        ("OPTIONS /-/healthy HTTP/1.1", 405),
        ("GET * HTTP/1.1", 404),
        ("GET /metrics", 400),
        ("GET /metrics HTTP/2.0", 400),
        ("PRI * HTTP/2.0", 400),
        ("GET /metrics HTTP/1.1 x", 400),
        ("GET  /metrics HTTP/1.1", 400),
        ("GET /\x00 HTTP/1.1", 400),
        ("GET /\u00e9 HTTP/1.1", 400),
        ("get /metrics HTTP/1.1", 400),
        ("\x16\x03\x01\x02\x00\x01", 400),
        ("", 400),
    ],
)
def test_each_request_gets_its_status(up: Serving, request_line: str, expected: int) -> None:
    got = up.ask(f"{request_line}\r\nHost: a\r\n\r\n".encode())
    head, body = parts(got)
    assert status(got) == expected
    assert "Connection: close" in head
    assert ("Allow: GET, HEAD" in head) == (expected == 405)
    if expected != 200:
        assert body.count(b"\n") == 1


def test_the_scrape_and_its_type_arrive(up: Serving) -> None:
    accept = "application/openmetrics-text;version=1.0.0"
    request = f"GET /metrics HTTP/1.1\r\nACCEPT:{accept}\r\naccept: text/plain\r\n\r\n"
    head, body = parts(up.ask(request.encode()))
    assert body == up.scrape.body
    assert f"Content-Type: {up.scrape.kind}" in head
    assert up.scrape.accepts == [f"{accept},text/plain"]


def test_the_first_page_has_two_lines_and_a_link(up: Serving) -> None:
    head, body = parts(up.ask(b"GET / HTTP/1.1\r\n\r\n"))
    assert "Content-Type: text/html" in head
    assert body.count(b"\n") == 2
    assert b'href="/metrics"' in body
    assert up.scrape.accepts == []


@pytest.mark.parametrize("path", ["/metrics", "/", "/-/healthy", "/nothing"])
def test_head_is_get_without_the_body(up: Serving, path: str) -> None:
    get = up.ask(f"GET {path} HTTP/1.1\r\n\r\n".encode())
    head, _, body = up.ask(f"HEAD {path} HTTP/1.1\r\n\r\n".encode()).partition(b"\r\n\r\n")
    assert body == b""
    with_date, without = (
        [line for line in text.split("\r\n") if not line.startswith("Date:")]
        for text in (parts(get)[0], head.decode())
    )
    assert without == with_date


def test_neither_program_nor_version_is_named(up: Serving) -> None:
    for request in (GET, b"GET /x HTTP/1.1\r\n\r\n", b"x"):
        head = up.ask(request).partition(b"\r\n\r\n")[0].lower()
        assert b"server" not in head
        assert b"python" not in head


def test_a_scrape_prints_nothing(up: Serving, capfd: pytest.CaptureFixture[str]) -> None:
    up.honest()
    up.ask(b"nonsense\r\n\r\n")
    assert capfd.readouterr() == ("", "")
    assert up.told() == []


def test_a_second_request_of_a_connection_is_not_answered(up: Serving) -> None:
    head, body = parts(up.ask(GET + GET))
    assert head.startswith("HTTP/1.1 200")
    assert body == up.scrape.body


def test_a_client_may_close_its_end_first(up: Serving) -> None:
    with up.connect() as connection:
        connection.sendall(GET)
        connection.shutdown(socket.SHUT_WR)
        assert parts(read(connection))[1] == up.scrape.body


@pytest.mark.parametrize("end", [b"\r\n\r\n", b"\n\n"])
def test_a_request_may_come_byte_by_byte(up: Serving, end: bytes) -> None:
    with up.connect() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number in b"GET /-/healthy HTTP/1.1" + end:
            connection.sendall(bytes([number]))
        assert parts(read(connection))[1] == b"healthy\n"


# accept-encoding


@pytest.mark.parametrize(
    ("accepted", "packed"),
    [
        ("gzip", True),
        ("GZIP", True),
        ("deflate, gzip;q=0.5", True),
        ("gzip;q=1.000", True),
        ("*", True),
        ("*;q=0.1", True),
        ("identity;q=1, *;q=0", False),
        ("gzip;q=0", False),
        ("gzip; Q = 0", False),
        ("gzip;q=0.000, *", False),
        ("gzip;q=nan", False),
        ("gzip;q=", False),
        ("deflate, br", False),
        ("x-gzipped", False),
        ("", False),
        (";,;q=0,,", False),
    ],
)
def test_gzip_is_for_those_who_accept_it(up: Serving, accepted: str, packed: bool) -> None:
    request = f"GET /metrics HTTP/1.1\r\nAccept-Encoding: {accepted}\r\n\r\n"
    head, body = parts(up.ask(request.encode()))
    assert ("Content-Encoding: gzip" in head) == packed
    if packed:
        body = zlib.decompress(body, zlib.MAX_WBITS | 16)
    assert body == up.scrape.body


def test_the_packed_body_is_that_of_this_scrape(up: Serving) -> None:
    request = b"GET /metrics HTTP/1.1\r\nAccept-Encoding: gzip\r\n\r\n"
    for number in (1, 1, 2):
        up.scrape.body = b"zfstune_up %d\n" % number
        body = parts(up.ask(request))[1]
        assert zlib.decompress(body, zlib.MAX_WBITS | 16) == up.scrape.body


# hostile requests


@pytest.mark.parametrize(
    ("request_bytes", "expected"),
    [
        (b"GET /" + b"a" * 500_000 + b" HTTP/1.1\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 100_000 + b"\r\n", 431),
        (b"G" * 500_000, 431),
        (b"GET / HTTP/1.1\r\na: " + b"b" * 8192 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\na: " + b"b" * 8000 + b"\r\n\r\n", 200),
        (b"GET http://" + b"a" * 8000 + b"\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\na: b\r\n folded\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\na b: c\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nAccept: \xff\xfe\x00\r\n\r\n", 200),
        (bytes(range(256)) * 2000, 400),
        (b"\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 500000\r\n\r\n" + b"a" * 500_000, 405),
    ],
)
def test_a_client_gets_an_answer_to_anything(
    up: Serving, request_bytes: bytes, expected: int
) -> None:
    with up.connect() as connection:
        connection.sendall(request_bytes)
        assert status(read(connection)) == expected
    up.honest()


def test_a_client_that_sends_without_end_is_cut(up: Serving) -> None:
    with up.connect() as connection, pytest.raises(OSError):
        for _ in range(10_000):
            connection.sendall(b"G" * 65536)
    wait_for(lambda: not up.server.open)
    up.honest()


def test_a_request_that_never_came_gets_no_answer(up: Serving) -> None:
    with up.connect() as connection:
        connection.shutdown(socket.SHUT_WR)
        assert read(connection) == b""
    wait_for(lambda: not up.server.open)
    assert up.told() == []
