"""Writes incident files: gzip of a header, the records and the end, within the reader's limits."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Union

from zfstrace import files
from zfstrace.types import Json
from zfstune.incident import fields
from zfstune.incident.lines import MOST_BYTES, MOST_LINE
from zfstune.incident.reader import MOST_RECORDS
from zfstune.term.json import clean

# gzip's format; without a name and a time, so that the same records make the same file
_WBITS = 31
_LEVEL = 6
# Room for the end.
_END_BYTES = 256
MOST_FILE = 20 << 20
_PIECE = 1 << 16

Target = Union[Path, str, int]


@dataclass(frozen=True)
class Written:
    """How many records were written, how many bytes the file has, and how many records had no room
    in it."""

    records: int
    bytes: int
    left_out: int = 0


def encode(record: Json) -> bytes:
    """A line without its line break; numbers that JSON does not have are null."""
    try:
        text = json.dumps(record, separators=(",", ":"), allow_nan=False)
    except ValueError:
        text = json.dumps(clean(record), separators=(",", ":"), allow_nan=False)
    return text.encode()


def write(
    target: Target, header: Json, records: Iterable[Json], *, most_bytes: int = MOST_FILE
) -> Written:
    """Writes a whole file. target is its path or an open descriptor, which stays open; header has
    the fields of fields.HEADER, records those of fields.RECORDS, the oldest first. A record that
    would exceed most_bytes or a limit of the reader is left out, and so are all after it.

    A path is replaced when the file is complete, and is only for its owner, because names of
    datasets and programs are in it. Raises OSError; the previous file then remains.
    """
    made = _Pieces(header, records, most_bytes)
    if isinstance(target, int):
        for piece in made:
            left = memoryview(piece)
            while left:
                left = left[os.write(target, left) :]
    else:
        files.write(Path(target), made, 0o600)
    return Written(made.records, made.bytes, made.left_out)


class _Pieces:
    """The bytes of a file, in pieces, and what they hold."""

    def __init__(self, header: Json, records: Iterable[Json], most_bytes: int) -> None:
        self._header, self._given, self._most = header, records, most_bytes
        self.records = self.bytes = self.left_out = 0
        self._unpacked = 0

    def __iter__(self) -> Iterator[bytes]:
        pack = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WBITS)
        for line in self._lines():
            piece = pack.compress(line)
            if piece:
                self.bytes += len(piece)
                yield piece
        piece = pack.flush()
        self.bytes += len(piece)
        yield piece

    def _lines(self) -> Iterator[bytes]:
        head: Json = {"schema": fields.SCHEMA, "type": fields.HEADER_TYPE}
        first = encode(head | _without(self._header)) + b"\n"
        self._unpacked = len(first)
        yield first
        full = False
        for record in self._given:
            line = b"" if full else encode(record) + b"\n"
            # what the compressor holds back is less than a piece
            full = full or (
                self._unpacked + len(line) > MOST_BYTES - _END_BYTES
                or self.records >= MOST_RECORDS
                or self.bytes + _PIECE + len(line) // 4 > self._most
            )
            if full or len(line) > MOST_LINE:
                self.left_out += 1
                continue
            self._unpacked += len(line)
            self.records += 1
            yield line
        end: Json = {"schema": fields.SCHEMA, "type": fields.END_TYPE, "records": self.records}
        yield encode({**end, "left_out": self.left_out}) + b"\n"


def _without(header: Json) -> Json:
    return {name: one for name, one in header.items() if name not in ("schema", "type")}
