"""Where the exporter listens: its option, and the socket."""

from __future__ import annotations

import argparse
import errno
import re
import socket
from dataclasses import dataclass
from typing import Any

from zfstune.errors import NotPossible, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zfstune.exporter.tls import TlsOptions

_BACKLOG = 128
# The kernel would give a connection megabytes; of a slow reader that is memory for nothing.
_KERNEL_BUFFER = 1 << 18


@dataclass(frozen=True)
class ListenOptions:
    """Where to listen: address "" is all addresses, port 0 any free port."""

    address: str
    port: int
    tls: TlsOptions | None = None


def parse_listen(text: str) -> tuple[str, int]:
    """The address and port of --listen, for argparse; the address is "" for all."""
    found = re.fullmatch(
        r"(?:\[([0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|([\w.-]*)):([0-9]{1,5})", text, re.ASCII
    )
    if not found or int(found[3]) > 65535:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not ADDRESS:PORT\n"
            "write it as 127.0.0.1:9810, [::1]:9810, or :9810 for all addresses"
        )
    return found[1] or found[2] or "", int(found[3])


# None of them is a wrong option, with which a service would end for good: a port becomes free, and
# an address may come late at boot, as by DHCP.
_NOT_LISTENING: dict[int, tuple[str, str]] = {
    errno.EADDRINUSE: (
        "the port is in use",
        "choose another one with --listen, or end the program that has it",
    ),
    errno.EADDRNOTAVAIL: (
        "this host has no such address",
        "name one of its addresses, or none for all",
    ),
    errno.EACCES: ("no permission", "choose a port of 1024 or more"),
}


def listen(options: ListenOptions) -> socket.socket:
    """A listening socket. Raises NotPossible, and UsageError for what is no name."""
    shown = f"[{options.address}]" if ":" in options.address else options.address
    what = f"cannot listen on {shown}:{options.port}"
    try:
        # of a name such as localhost its IPv4 address, which clients try sooner or later
        found = sorted(
            socket.getaddrinfo(options.address or "::", options.port, type=socket.SOCK_STREAM),
            key=lambda one: one[0] != socket.AF_INET,
        )
        try:
            return _bound(found[0][0], found[0][4])
        except OSError as error:
            if options.address or error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                raise
            # a kernel without IPv6
            return _bound(socket.AF_INET, ("0.0.0.0", options.port))
    except UnicodeError:
        raise UsageError(f"{what}: no such address", "name an address of this host") from None
    except socket.gaierror:
        raise NotPossible(f"{what}: no such address", "name an address of this host") from None
    except OSError as error:
        why, hint = _NOT_LISTENING.get(error.errno or 0, (error.strerror or str(error), ""))
        raise NotPossible(f"{what}: {why}", hint) from None


def _bound(family: int, address: Any) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        # the port is free although connections of the previous exporter linger
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            made.setsockopt(socket.SOL_SOCKET, option, _KERNEL_BUFFER)
        if family == socket.AF_INET6 and address[0] == "::":
            # IPv4, too; FreeBSD and bindv6only refuse it otherwise
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        made.bind(address)
        made.listen(_BACKLOG)
    except BaseException:
        made.close()
        raise
    return made
