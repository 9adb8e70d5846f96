"""TLS for the exporter's port: certificates from files, read again when these change."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from zfstune.errors import CommandError, NotPossible, UsageError
from zfstune.term.log import say as say_on_stderr

# A chain of certificates has some kilobytes, all the CAs of a distribution 250.
MOST_BYTES = 4 << 20

# How often a pair that does not load is tried, if it does not change
AGAIN_S = 10.0

# What a client has sent is decrypted in such pieces; then it is the turn of another client.
PIECE = 4096

_CERTIFICATE = b"CERTIFICATE-----"
_KEY = b"PRIVATE KEY-----"


@dataclass(frozen=True)
class TlsOptions:
    """PEM files: the certificate with its chain, its key, and the CAs of clients that may connect;
    without client_ca anybody may."""

    cert: Path
    key: Path
    client_ca: Path | None = None

    def files(self) -> tuple[Path, ...]:
        return (self.cert, self.key, *((self.client_ca,) if self.client_ca else ()))


def tls_options(cert: Path | None, key: Path | None, client_ca: Path | None) -> TlsOptions | None:
    """The options of the command line; None without TLS. Raises UsageError if one is missing."""
    if cert and key:
        return TlsOptions(cert, key, client_ca)
    if not (cert or key or client_ca):
        return None
    missing = "--tls-key" if cert else "--tls-cert"
    raise UsageError(f"{missing} is missing", "TLS needs --tls-cert and --tls-key")


class Tls:
    """Wraps accepted connections; not for several threads at once.

    Raises UsageError and NotPossible at start. Later a pair that does not load, as while a renewal
    has written one file of two, leaves the previous one in use: a scrape with the old certificate
    is better than none. errors() is called with "certificate" then, and say() with a line.
    """

    def __init__(
        self,
        options: TlsOptions,
        errors: Callable[[str], None] = lambda _what: None,
        say: Callable[[str], None] = say_on_stderr,
    ) -> None:
        self._options = options
        self._errors, self._say = errors, say
        # before the files are read: a change meanwhile is seen by the next look
        self._seen = _stamps(options)
        self._context = _load(options)
        self._broken = False
        self._again_at = 0.0

    def wrap(self, connection: socket.socket) -> Secured:
        """The server's end of TLS on a connection; the handshake is still to be done."""
        self._renew()
        return Secured(connection, self._context)

    def _renew(self) -> None:
        """Looks at the files at each connection: the kernel has their inodes in memory, and an
        interval would be one more time that somebody who renews must know."""
        now = _stamps(self._options)
        if now == self._seen and not (self._broken and time.monotonic() >= self._again_at):
            return
        self._seen = now
        # perhaps only descriptors were lacking
        self._again_at = time.monotonic() + AGAIN_S
        try:
            self._context = _load(self._options)
        except CommandError as error:
            self._errors("certificate")
            if not self._broken:
                self._say(f"the previous certificate stays in use: {error.in_one_line()}")
            self._broken = True
            return
        if self._broken:
            self._say("the new certificate is in use")
        self._broken = False


_Got = TypeVar("_Got")


class Secured:
    """TLS on a connection that does not block. All that reads or writes may raise OSError, which
    ssl.SSLWantReadError and ssl.SSLWantWriteError are, too: call it again when that is possible.

    OpenSSL itself would read from the socket for as long as a client sends new keys or asks for a
    renegotiation, and the port would serve nobody else.
    """

    def __init__(self, connection: socket.socket, context: ssl.SSLContext) -> None:
        self._socket = connection
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=True)
        self._left = memoryview(b"")

    def do_handshake(self) -> None:
        self._read(self._tls.do_handshake)

    def recv(self, most: int, /) -> bytes:
        return self._read(lambda: self._tls.read(most))

    def send(self, data: memoryview, /) -> int:
        self._flush()
        sent = self._tls.write(data)
        # the next call sends what has to wait
        with contextlib.suppress(ssl.SSLWantWriteError):
            self._flush()
        return sent

    def end(self) -> None:
        """Sends all that is left, and the end of TLS; the client's is not waited for."""
        with contextlib.suppress(OSError):
            self._tls.unwrap()
        self._flush()

    def _read(self, call: Callable[[], _Got]) -> _Got:
        """What a call returns that reads, which gets one piece at most."""
        # first: for a client that takes no answers none are made
        self._flush()
        if not self._in.pending:
            with contextlib.suppress(BlockingIOError):
                piece = self._socket.recv(PIECE)
                if piece:
                    self._in.write(piece)
                else:
                    self._in.write_eof()
        try:
            return call()
        finally:
            # answers of TLS, and the alert that tells what is wrong
            with contextlib.suppress(OSError):
                self._flush()

    def _flush(self) -> None:
        while self._left or self._out.pending:
            self._left = self._left or memoryview(self._out.read())
            try:
                sent = self._socket.send(self._left)
            except BlockingIOError:
                raise ssl.SSLWantWriteError from None
            self._left = self._left[sent:]


_Stamp = tuple[int, int, int, int]


def _stamps(options: TlsOptions) -> tuple[_Stamp | None, ...]:
    """What changes with a file, also when it is replaced through a symbolic link as certbot has
    them; None: it cannot be looked at."""
    return tuple(map(_stamp, options.files()))


def _stamp(path: Path) -> _Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _load(options: TlsOptions) -> ssl.SSLContext:
    """A context of these files. Raises UsageError and NotPossible, which name the file at fault:
    OpenSSL names none."""
    _require(options.cert, _CERTIFICATE, "certificate")
    _require(options.key, _KEY, "private key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # a renegotiation of TLS 1.2 would cost us much more than the client
    context.options |= ssl.OP_NO_RENEGOTIATION
    _load_pair(context, options)
    if options.client_ca:
        _require(options.client_ca, _CERTIFICATE, "certificate")
        context.verify_mode = ssl.CERT_REQUIRED
        _load_authorities(context, options.client_ca)
    return context


def _require(path: Path, mark: bytes, what: str) -> None:
    """Raises UsageError or NotPossible if a file cannot be read or has no such PEM block."""
    try:
        data = _read(path)
    except PermissionError:
        raise NotPossible(
            f"cannot read {path}: no permission", "let the exporter's user read it"
        ) from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", "name a PEM file") from None
    if mark not in data:
        raise UsageError(f"cannot use {path}: there is no {what} in it", "name a PEM file")


def _read(path: Path) -> bytes:
    # a pipe would make the open wait for its writer
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(0, "not a regular file")
        return file.read(MOST_BYTES)


def _load_pair(context: ssl.SSLContext, options: TlsOptions) -> None:
    # _load_authorities() parses certificates without a key: so it is known whose fault it is
    _load_authorities(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), options.cert)
    asked = []

    def password() -> str:
        # without this function OpenSSL would ask at the terminal
        asked.append(True)
        return ""

    try:
        context.load_cert_chain(options.cert, options.key, password)
    except (OSError, ValueError) as error:
        if asked:
            hint = "write it without a password by `openssl pkey -in OLD -out NEW`"
            raise UsageError(f"cannot use {options.key}: it is encrypted", hint) from None
        if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            what = f"cannot use {options.key}: it is not the key of {options.cert}"
            raise UsageError(what, "name the key and the certificate of one pair") from None
        raise UsageError(
            f"cannot use {options.key} with {options.cert}: {_why(error)}",
            "check them by `openssl pkey` and `openssl x509`",
        ) from None


def _load_authorities(context: ssl.SSLContext, path: Path) -> None:
    try:
        context.load_verify_locations(path)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"cannot use {path}: {_why(error)}", "check it by `openssl x509`"
        ) from None


def _why(error: Exception) -> str:
    """OpenSSL's reason, such as "ee key too small"; of a damaged file it often has none."""
    if isinstance(error, ssl.SSLError):
        return error.reason.replace("_", " ").lower() if error.reason else "it is damaged"
    return getattr(error, "strerror", None) or str(error)
