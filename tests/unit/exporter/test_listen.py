"""Where the exporter listens: the option, the addresses, and what prevents it."""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from support.scraping import serving

from zfstune.errors import CommandError, NotPossible, UsageError
from zfstune.exporter import listen
from zfstune.exporter.listen import ListenOptions, parse_listen


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:9810", ("127.0.0.1", 9810)),
        ("[::1]:9810", ("::1", 9810)),
        ("[::]:9810", ("::", 9810)),
        ("[fe80::1%eth0.5]:9810", ("fe80::1%eth0.5", 9810)),
        (":9810", ("", 9810)),
        ("localhost:9810", ("localhost", 9810)),
        ("db-1.example:65535", ("db-1.example", 65535)),
        ("127.0.0.1:0", ("127.0.0.1", 0)),
    ],
)
def test_addresses_are_read(text: str, expected: tuple[str, int]) -> None:
    assert parse_listen(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "9810",
        "127.0.0.1",
        "127.0.0.1:",
        "::1:9810",
        "[::1]",
        "[::1]9810",
        "[127.0.0.1:9810",
        "[localhost]:9810",
        "127.0.0.1:65536",
        "127.0.0.1:-1",
        "127.0.0.1:+1",
        "127.0.0.1:9810 ",
        "127.0.0.1:9810\n",
        "127.0.0.1:\u0661\u0662",
        "h\u00f6st:9810",
        "a b:9810",
        "a\x00:9810",
        "http://localhost:9810",
        "localhost:9810/metrics",
        "unix:/run/socket",
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError) as caught:
        parse_listen(text)
    what, hint = str(caught.value).split("\n")
    assert what == f"{text!r} is not ADDRESS:PORT"
    assert "127.0.0.1:9810" in hint


@pytest.mark.parametrize(
    ("address", "hosts"),
    [
        ("127.0.0.1", ["127.0.0.1"]),
        ("localhost", ["127.0.0.1"]),
        pytest.param("::1", ["::1"], marks=needs_ipv6),
        pytest.param("::", ["127.0.0.1", "::1"], marks=needs_ipv6),
        pytest.param("0::0", ["127.0.0.1", "::1"], marks=needs_ipv6),
        pytest.param("", ["127.0.0.1", "::1"], marks=needs_ipv6),
        ("0.0.0.0", ["127.0.0.1"]),
        ("", ["127.0.0.1"]),
    ],
)
def test_it_is_reached_at_its_addresses(address: str, hosts: list[str]) -> None:
    with serving(address=address) as up:
        for host in hosts:
            assert up.ask(host=host).startswith(b"HTTP/1.1 200")
        for other in {"127.0.0.1", "127.0.0.2"} - set(hosts):
            if address in ("127.0.0.1", "localhost", "::1"):
                with pytest.raises(ConnectionRefusedError):
                    up.connect(other)


def test_a_name_of_both_is_its_ipv4_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def both(_name: str, port: int, **_more: Any) -> list[Any]:
        return [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", port, 0, 0)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)),
        ]

    monkeypatch.setattr(socket, "getaddrinfo", both)
    with listen.listen(ListenOptions("localhost", 0)) as made:
        assert made.getsockname()[0] == "127.0.0.1"


@needs_ipv6
def test_ipv4_is_accepted_where_the_system_would_not(monkeypatch: pytest.MonkeyPatch) -> None:
    class Only6(socket.socket):
        """A socket of FreeBSD, or of Linux with net.ipv6.bindv6only."""

        def __init__(self, family: int = -1, *given: Any, **named: Any) -> None:
            super().__init__(family, *given, **named)
            if family == socket.AF_INET6:
                self.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)

    with monkeypatch.context() as patch:
        patch.setattr(socket, "socket", Only6)
        made = listen.listen(ListenOptions("::", 0))
    with made, socket.create_connection(("127.0.0.1", made.getsockname()[1]), 30):
        pass


@pytest.mark.parametrize("number", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
def test_without_ipv6_all_addresses_are_those_of_ipv4(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(socket, "socket", refusing(number, socket.AF_INET6))
    with serving(address="") as up:
        up.honest()
    with pytest.raises(CommandError, match=r"cannot listen on \[::\]:0"):
        listen.listen(ListenOptions("::", 0))


def refusing(number: int, which: int) -> type[socket.socket]:
    """Sockets that cannot be bound, as of a kernel that says so."""

    class Refusing(socket.socket):
        def bind(self, address: Any) -> None:
            if self.family == which:
                raise OSError(number, os.strerror(number))
            super().bind(address)

    return Refusing


@contextlib.contextmanager
def fails(kind: type[CommandError], message: str) -> Iterator[None]:
    """In the block the command would end with this line, and a hint."""
    with pytest.raises(CommandError) as caught:
        yield
    assert type(caught.value) is kind
    assert str(caught.value) == message
    assert caught.value.hint
    assert "\n" not in caught.value.hint


@pytest.mark.parametrize(("address", "other"), [("127.0.0.1", "127.0.0.1"), ("127.0.0.1", "")])
def test_a_port_in_use_is_named(address: str, other: str) -> None:
    with serving(address=address) as up:
        port = up.server.port
        with fails(NotPossible, f"cannot listen on {other}:{port}: the port is in use"):
            listen.listen(ListenOptions(other, port))
        up.honest()


# TEST-NET-1 of RFC 5737, the documentation prefix of RFC 3849, and a name of RFC 6761
@pytest.mark.parametrize(
    ("address", "shown", "why"),
    [
        ("192.0.2.1", "192.0.2.1", "this host has no such address"),
        pytest.param(
            "2001:db8::1", "[2001:db8::1]", "this host has no such address", marks=needs_ipv6
        ),
        ("fe80::1%nothing", "[fe80::1%nothing]", "no such address"),
        ("1.2.3.4.5", "1.2.3.4.5", "no such address"),
    ],
)
def test_an_address_of_others_is_named(address: str, shown: str, why: str) -> None:
    # it may come: a service goes on trying
    with fails(NotPossible, f"cannot listen on {shown}:0: {why}"):
        listen.listen(ListenOptions(address, 0))


@pytest.mark.parametrize("name", ["x" * 64 + ".invalid", "a..invalid"])
def test_what_can_be_no_name_is_a_wrong_option(name: str) -> None:
    with fails(UsageError, f"cannot listen on {name}:0: no such address"):
        listen.listen(ListenOptions(name, 0))


@pytest.mark.parametrize(
    ("number", "why"),
    [
        (errno.EACCES, "no permission"),
        (errno.EADDRINUSE, "the port is in use"),
        (errno.ENOBUFS, "No buffer space available"),
    ],
)
def test_what_the_kernel_refuses_is_one_line(
    monkeypatch: pytest.MonkeyPatch, number: int, why: str
) -> None:
    monkeypatch.setattr(socket, "socket", refusing(number, socket.AF_INET))
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with pytest.raises(NotPossible) as caught:
        listen.listen(ListenOptions("127.0.0.1", 80))
    assert str(caught.value) == f"cannot listen on 127.0.0.1:80: {why}"
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_what_the_kernel_keeps_for_a_client_is_bounded() -> None:
    with listen.listen(ListenOptions("127.0.0.1", 0)) as made:
        port = made.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port), 30), made.accept()[0] as accepted:
            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                # Linux doubles it, socket(7)
                assert accepted.getsockopt(socket.SOL_SOCKET, option) <= 2 * (256 << 10)
