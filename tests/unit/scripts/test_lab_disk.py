"""scripts/lab's slow disk, spoken to as QEMU does."""

from __future__ import annotations

import errno
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from zfslab import slow_disk
from zfslab.slow_disk import DISCONNECT, FLUSH, READ, WRITE

SIZE = 1 << 20


class Client:
    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        magic, _, self.size, self.flags = struct.unpack(">8sQQI124x", self._take(152))
        assert magic == b"NBDMAGIC"

    def _take(self, size: int) -> bytes:
        return self.connection.recv(size, socket.MSG_WAITALL)

    def send(
        self, kind: int, cookie: int, offset: int = 0, length: int = 0, data: bytes = b""
    ) -> None:
        head = struct.pack(">IHHQQI", 0x25609513, 0, kind, cookie, offset, length or len(data))
        self.connection.sendall(head + data)

    def answer(self, length: int = 0) -> tuple[int, int, bytes]:
        """Cookie, error number and data of the next answer."""
        magic, code, cookie = struct.unpack(">IIQ", self._take(16))
        assert magic == 0x67446698
        return cookie, code, self._take(length) if length else b""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    """Of a disk that delays flushes."""
    ours, theirs = socket.socketpair()
    ours.settimeout(30)
    file = tmp_path / "disk"
    file.write_bytes(b"")
    os.truncate(file, SIZE)
    with file.open("r+b") as opened, ours, theirs:
        numbers = (theirs.fileno(), opened.fileno())
        server = subprocess.Popen(
            [sys.executable, "-I", slow_disk.__file__, *map(str, numbers), "0", "0", "300"],
            pass_fds=numbers,
        )
        theirs.close()
        yield Client(ours)
        ours.close()
        assert server.wait(timeout=30) == 0


def test_a_disk_has_its_size_and_takes_flushes(client: Client) -> None:
    assert client.size == SIZE
    assert client.flags & 1 << 2


def test_what_was_written_is_read(client: Client) -> None:
    client.send(WRITE, 1, 4096, data=b"x" * 300_000)
    assert client.answer() == (1, 0, b"")
    client.send(READ, 2, 4095, length=3)
    assert client.answer(3) == (2, 0, b"\0xx")


def test_a_delayed_answer_holds_no_other_back(client: Client) -> None:
    client.send(FLUSH, 1)
    client.send(FLUSH, 2)
    client.send(READ, 3, length=1)
    assert client.answer(1)[0] == 3
    assert client.answer()[0] == 1
    assert client.answer()[0] == 2


def test_an_unknown_request_is_refused(client: Client) -> None:
    client.send(9, 1)
    assert client.answer() == (1, errno.EINVAL, b"")


def test_a_disk_ends_when_asked(client: Client) -> None:
    client.send(DISCONNECT, 1)
    assert client.connection.recv(1) == b""
