"""Writes stacks to files, in the format of the name's extension, whole or not at all."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from zfstrace import files
from zfstrace.flame.errors import FlameError, WriteFailed
from zfstrace.stacks import Stacks

STDOUT = "-"
_FORMATS = {
    ".folded": "folded",
    ".txt": "folded",
    ".svg": "svg",
    ".speedscope.json": "speedscope",
    ".pb.gz": "pprof",
}
_ALL = ("folded", "svg", "speedscope", "pprof")


def check_output(path: str, formats: Iterable[str] = _ALL) -> str:
    """The format of an output file; ``-`` is folded text on standard output.

    Raises FlameError if the name has none of these formats, its directory does not exist or is not
    writable, or it exists and is not a file.
    """
    if path == STDOUT:
        return "folded"
    ends = [end for end, name in _FORMATS.items() if name in set(formats)]
    name = Path(path).name
    end = next((end for end in ends if name.endswith(end) and name != end), None)
    if end is None:
        raise FlameError(f"unknown output format: {path!r}", f"end the name in {_words(ends)}")
    target = Path(path)
    if target.exists() and not (target.is_file() or target.is_symlink()):
        raise FlameError(f"cannot write {path}: not a regular file", "choose another name")
    if not target.parent.is_dir():
        raise FlameError(f"cannot write {path}: no directory {target.parent}", "create it")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise FlameError(
            f"cannot write {path}: no permission for {target.parent}", "choose another directory"
        )
    return _FORMATS[end]


def write(stacks: Stacks, path: str, *, inverted: bool = False, mode: int = 0o666) -> None:
    """Writes stacks in the format of path, which is replaced atomically or stays as it was.
    inverted puts the root of an SVG at the top. Raises FlameError (see :func:`check_output`) and
    WriteFailed."""
    kind = check_output(path)
    if kind == "svg":
        from zfstrace.flame import svg

        save(path, svg.render(stacks, inverted=inverted), mode)
    elif kind == "speedscope":
        from zfstrace.flame import speedscope

        save(path, speedscope.dump(stacks), mode)
    elif kind == "pprof":
        from zfstrace.flame import pprof

        save(path, [pprof.dump(stacks)], mode)
    else:
        from zfstrace.flame import folded

        save(path, folded.dump(stacks), mode)


def save(path: str, pieces: Iterable[str] | Iterable[bytes], mode: int = 0o666) -> None:
    """Writes the pieces of a file (see files.write()), or prints them if path is ``-``. Raises
    WriteFailed."""
    if path == STDOUT:
        for piece in pieces:
            sys.stdout.write(piece if isinstance(piece, str) else piece.decode())
        return
    try:
        files.write(Path(path), map(_bytes, pieces), mode)
    except OSError as error:
        why = error.strerror or str(error)
        raise WriteFailed(
            f"cannot write {path}: {why}", "free space or choose another path"
        ) from None


def _bytes(piece: str | bytes) -> bytes:
    return piece.encode(errors="replace") if isinstance(piece, str) else piece


def _words(ends: list[str]) -> str:
    return ", ".join(ends[:-1]) + " or " + ends[-1]
