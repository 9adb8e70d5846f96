"""A slow disk: a server of NBD's protocol that QEMU reads and writes through, for guests whose
kernel cannot delay requests itself (FreeBSD's gnop(8) delays no flush).

    slow_disk.py SOCKET FILE READ WRITE FLUSH

SOCKET and FILE are numbers of inherited descriptors, the others delays in milliseconds. A request
is carried out at once and answered when its delay is over, and many can be under way.
The protocol: https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md, its old handshake.
"""

from __future__ import annotations

import errno
import heapq
import os
import select
import socket
import struct
import sys
import time
from dataclasses import dataclass, field

READ, WRITE, DISCONNECT, FLUSH = range(4)
_HELLO = struct.Struct(">8sQQI124x")
_HELLO_MAGIC = 0x00420281861253
_FLAGS = 1 << 0 | 1 << 2  # has flags, sends flushes
_REQUEST = struct.Struct(">IHHQQI")
_REQUEST_MAGIC = 0x25609513
_REPLY = struct.Struct(">IIQ")
_REPLY_MAGIC = 0x67446698


@dataclass
class SlowDisk:
    """The disk in file descriptor `file`; delays_s by type of request."""

    connection: socket.socket
    file: int
    delays_s: dict[int, float]
    _received: bytearray = field(default_factory=bytearray)
    _answers: list[tuple[float, int, bytes]] = field(default_factory=list)  # a heap, by time
    _count: int = 0

    def serve(self) -> None:
        """Serves until QEMU has ended."""
        size = os.fstat(self.file).st_size
        self.connection.sendall(_HELLO.pack(b"NBDMAGIC", _HELLO_MAGIC, size, _FLAGS))
        while True:
            self._answer()
            wait_s = self._answers[0][0] - time.monotonic() if self._answers else None
            if not select.select([self.connection], [], [], wait_s and max(wait_s, 0.0))[0]:
                continue
            data = self.connection.recv(1 << 20)
            if not data:
                return
            self._received += data
            if not self._handle():
                return

    def _answer(self) -> None:
        """Sends the answers that are due."""
        while self._answers and self._answers[0][0] <= time.monotonic():
            self.connection.sendall(heapq.heappop(self._answers)[2])

    def _handle(self) -> bool:
        """Carries out the requests that are complete; False once QEMU wants to end."""
        while len(self._received) >= _REQUEST.size:
            magic, _, kind, cookie, offset, length = _REQUEST.unpack_from(self._received)
            if magic != _REQUEST_MAGIC:
                raise SystemExit("slow_disk: not a request of NBD's")
            if kind == DISCONNECT:
                return False
            end = _REQUEST.size + (length if kind == WRITE else 0)
            if len(self._received) < end:
                return True
            content = bytes(self._received[_REQUEST.size : end])
            del self._received[:end]
            code, found = self._do(kind, offset, length, content)
            answer = _REPLY.pack(_REPLY_MAGIC, code, cookie) + found
            self._count += 1  # keeps answers in order that are due at the same time
            due = time.monotonic() + self.delays_s.get(kind, 0.0)
            heapq.heappush(self._answers, (due, self._count, answer))
        return True

    def _do(self, kind: int, offset: int, length: int, content: bytes) -> tuple[int, bytes]:
        """The error number, 0 for none, and what was read."""
        try:
            if kind == READ:
                found = os.pread(self.file, length, offset)
                return 0, found.ljust(length, b"\0")
            if kind == WRITE:
                os.pwrite(self.file, content, offset)
            elif kind == FLUSH:
                os.fdatasync(self.file)
            else:
                return errno.EINVAL, b""
        except OSError as error:
            return error.errno or errno.EIO, b""
        return 0, b""


def main() -> None:
    """Serves the disk of the command line."""
    port, file, read, write, flush = map(int, sys.argv[1:])
    delays_s = {READ: read / 1000, WRITE: write / 1000, FLUSH: flush / 1000}
    SlowDisk(socket.socket(fileno=port), file, delays_s).serve()


if __name__ == "__main__":
    main()
