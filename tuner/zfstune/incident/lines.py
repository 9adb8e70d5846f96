"""The lines of a file that anybody may have sent: gzip or not, never more in memory than a line.

25 kB of gzip can be 64 MB of text, a name can be a pipe that nobody writes to, and a line can have
no end. So the file must be regular, and it is unpacked in pieces, each of which is limited.
"""

from __future__ import annotations

import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterator

from zfstune.errors import UsageError

MOST_BYTES = 64 << 20
MOST_LINE = 1 << 20
_PIECE = 1 << 16
# Empty ones cost time, and add nothing to what is unpacked.
_MOST_PARTS = 100_000
_GZIP = b"\x1f\x8b"
# gzip's format only
_WBITS = 31

Read = Callable[[int], bytes]


class Input:
    """A file, "-" for standard input. begin is what it begins with, broken says why it cannot be
    read to its end, "" if it can."""

    def __init__(self, source: str, hint: str, fd: int | None = None) -> None:
        """fd is a descriptor of it that is open already, and is closed with it. Raises
        UsageError."""
        self.name = "standard input" if source == "-" else source
        self.broken = ""
        self._hint = hint
        if fd is None:
            fd = -1 if source == "-" else _opened(source, hint)
        self._fd = fd
        self._read: Read = (
            sys.stdin.buffer.read if source == "-" else lambda most: os.read(self._fd, most)
        )
        try:
            self.begin = self._first()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    @property
    def packed(self) -> bool:
        """Whether it is gzip."""
        return self.begin.startswith(_GZIP)

    def _first(self) -> bytes:
        found = b""
        # a pipe may give one byte at a time
        while len(found) <= MOST_LINE:
            piece = self._piece()
            found += piece
            if not piece or b"\n" in piece or found.startswith(_GZIP):
                break
        return found

    def _piece(self) -> bytes:
        try:
            return self._read(_PIECE)
        except OSError as error:
            why = error.strerror or error
            raise UsageError(f"cannot read {self.name}: {why}", self._hint) from None

    def pieces(self) -> Iterator[bytes]:
        """All of its bytes as they are, in pieces. Raises UsageError for too many."""
        size, piece = 0, self.begin
        while piece:
            size += len(piece)
            if size > MOST_BYTES:
                raise UsageError(f"{self.name} has more than {MOST_BYTES >> 20} MiB", self._hint)
            yield piece
            piece = self._piece()

    def unpacked(self) -> Iterator[bytes]:
        """The same of what is in the gzip, if it is one."""
        if not self.packed:
            yield from self.pieces()
            return
        size = 0
        for piece in self._unzipped():
            size += len(piece)
            if size > MOST_BYTES:
                raise UsageError(
                    f"{self.name} has more than {MOST_BYTES >> 20} MiB when unpacked", self._hint
                )
            yield piece

    def _unzipped(self) -> Iterator[bytes]:
        unpack = zlib.decompressobj(_WBITS)
        begun, parts = False, 1
        for piece in self.pieces():
            left = piece
            while left:
                begun = True
                try:
                    made = unpack.decompress(left, _PIECE)
                except zlib.error:
                    self.broken = "damaged"
                    return
                left = unpack.unconsumed_tail
                if made:
                    yield made
                if unpack.eof:
                    # several parts, one after the other, are one file; tar(1) and tapes add zeros
                    left, begun, parts = unpack.unused_data.lstrip(b"\0"), False, parts + 1
                    unpack = zlib.decompressobj(_WBITS)
                    if parts > _MOST_PARTS:
                        self.broken = "damaged"
                        return
        yield from self._rest(unpack)
        if begun and not unpack.eof:
            self.broken = "cut short"

    def _rest(self, unpack: zlib._Decompress) -> Iterator[bytes]:
        """What the decompressor has not given out yet."""
        try:
            while made := unpack.decompress(unpack.unconsumed_tail, _PIECE):
                yield made
        except zlib.error:
            self.broken = "damaged"

    def lines(self) -> Iterator[bytes | None]:
        """Its lines without their ends; None for one that is too long. What follows the last line
        break is a line, too, if the file is whole: a writer may leave it out."""
        rest = b""
        skipping = False
        for piece in self.unpacked():
            *whole, last = piece.split(b"\n")
            for part in whole:
                line, rest = rest + part, b""
                yield None if skipping or len(line) > MOST_LINE else line
                skipping = False
            rest += last
            if len(rest) > MOST_LINE:
                rest, skipping = b"", True
        if skipping:
            yield None
        elif rest and not self.broken:
            yield rest


def _opened(source: str, hint: str) -> int:
    """A descriptor of a regular file; never waits for who would write into a pipe."""
    try:
        fd = os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read {source}: {why}", hint) from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise UsageError(f"{source} is not a regular file", hint)
    return fd
