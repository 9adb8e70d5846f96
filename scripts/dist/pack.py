"""Packs zfstune into one file for each machine; called by `make dist`.

The file is a zip that Python runs. Packing the same sources with the same Python writes the same
bytes.
"""

from __future__ import annotations

import argparse
import ast
import fcntl
import hashlib
import importlib.util
import io
import json
import lzma
import marshal
import os
import sys
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import install

from dist import importer

HERE = Path(__file__).resolve().parent
SOURCES = HERE.parents[1] / "build/dist/src"
LICENCES = "zfstune/inside/licences.json"
LIMIT = 1_000_000  # bytes of a file
# Python reads a file that is no whole zip as text, stops at its first line, and prints this name,
# or its beginning, after "encoding problem" or "unknown encoding". For env(1) it is a comment.
HEAD = b"#!/usr/bin/env -S python3 -I # coding:zfstune-is-cut-short.copy-the-file-again\n"
# Byte code of all would not fit: first what every command loads, then what is run in incidents and
# by monitoring, then by how much a second of its start matters; the longest prefix decides.
BYTE_CODE = (
    *("zfstune/", "zfstrace/", "zfs_linux/", "zfstune/term/", "zfstune/rules/"),
    *("zfstune/tunables/", "zfstune/trace/", "zfstune/diagnose/", "zfstune/inside/"),
    *("zfstune/changes/", "zfstune/params/", "zfstune/check/", "zfstune/bench/"),
    # what those load after they have begun to work
    *("zfstune/changes/revert.py", "zfstune/changes/apply.py", "zfstune/trace/overview.py"),
    *("zfstune/trace/timeline.py", "zfstune/trace/cost.py", "zfstune/changes/session.py"),
    *("zfstune/changes/supervisor.py", "zfstune/changes/keep.py", "zfstune/changes/formats.py"),
    *("zfs_linux/scratch.py", "zfs_linux/disks.py", "zfs_linux/fanotify.py"),
    # a file of an incident is read at leisure, and what stays on for weeks starts once
    *("zfstune/trace/from_file.py", "zfstune/trace/rebuilt.py", "zfstune/diagnose/from_file.py"),
    *("zfs_linux/light.py", "zfstrace/light.py", "zfstrace/light_summary.py"),
    *("zfstune/trace/light.py", "zfstune/incident/", "zfstune/record/", "zfstune/exporter/"),
    *("zfstune/bench/html.py", "zfstune/advise/", "zfstune/flame/", "zfstrace/flame/"),
    *("zfstune/bench/matrix/", "zfstune/html/", "zfstune/report/"),
    *("zfstune/tune/", "zfstune/experiment/"),
)
# The last that there must be: what `make bench-start` measures loads no other.
NEEDED = BYTE_CODE.index("zfstune/bench/")
# What few commands read, and zfstrace.packaged can
SELDOM = (LICENCES, "zfstune/inside/tools.json")
# By machine, the filter that makes machine code smaller; every liblzma knows it.
BRANCHES = {"x86_64": (lzma.FILTER_X86,)}
MACHINES = {62: "x86_64", 183: "aarch64"}  # e_machine in elf(5)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def contents(library: bytes) -> dict[str, bytes]:
    """All files that Linux needs by their names, with as much byte code as LIMIT leaves room
    for."""
    start = bare((HERE / "importer.py").read_bytes())
    files = {
        "__main__.py": bare((HERE / "main.py").read_bytes()),
        "importer.py": start,
        "importer.pyc": byte_code("importer.py", start),
        "zfstrace/bpf/libzfstrace.so.xz": xz(library, BRANCHES.get(machine(library), ())),
    }
    sources = {}
    for name, data in sorted(modules().items()):
        if name.startswith("zfs_freebsd/"):
            continue
        if name.endswith(".py"):
            sources[name] = bare(data)
        elif name in SELDOM:
            files[f"{name}.xz"] = xz(data)
        else:
            files[name] = data
    # as one they take less than two thirds of what they take one by one
    files[importer.SOURCES] = xz(
        b"\0".join(name.encode() + b"\n" + source for name, source in sources.items())
    )
    files[importer.CODE] = codes(sources, LIMIT - len(pack({**files, importer.CODE: b""})))
    return files


def codes(sources: dict[str, bytes], room: int) -> bytes:
    """What Importer reads: all modules, with byte code of as many as there is room for."""
    held = dict.fromkeys(sources, b"")
    made = b""
    for name in sorted(sources, key=lambda name: (priority(name), name)):
        held[name] = deflated(marshal.dumps(compiled(name, sources[name])))
        # not deflated again: for its checksum, which zipimport does not look at
        more = zlib.compress(marshal.dumps(held, 2), 0)
        if len(more) > room:
            break
        made = more
    return made


def modules() -> dict[str, bytes]:
    """What install.modules() has, with the licences of what is linked into the library."""
    found = dict(install.modules())
    found[LICENCES] = json.dumps([*json.loads(found[LICENCES]), *linked()]).encode()
    return found


def linked() -> list[dict[str, str]]:
    """The licences of what is linked into the library, as collect.licences() gives ours."""
    found = []
    for line in (HERE / "sources.txt").read_text().splitlines():
        if not line.startswith("#"):
            name, version, licence, files, path, sum_ = line.split()
            texts = [(SOURCES / name / file).read_text() for file in files.split(",")]
            found.append(
                {
                    "name": name,
                    "version": version,
                    "licence": licence,
                    "source": f"{path} of Debian's archive, SHA-256 {sum_}",
                    "text": "\n".join(texts),
                }
            )
    return found


def priority(name: str) -> int:
    """The place in BYTE_CODE of a module's package."""
    return BYTE_CODE.index(max(filter(name.startswith, BYTE_CODE), key=len))


def bare(source: bytes) -> bytes:
    """A module indented by single spaces, without docstrings, comments and annotations of
    functions, which nothing reads: a third smaller when compressed. Every statement stays in its
    line, for tracebacks."""
    lines = [line.encode() for line in source.decode().split("\n")]
    for first, column, last, end in sorted(unread(source), reverse=True):
        rest = lines[last - 1][end:]
        lines[first - 1 : last] = [lines[first - 1][:column] + rest, *[b""] * (last - first)]
    text = b"\n".join(line.rstrip() for line in lines)
    within = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.Constant, ast.JoinedStr))
        for line in range(node.lineno, node.end_lineno or 0)
    }
    for number, line in enumerate(text.split(b"\n")):
        if number not in within:
            code = line.lstrip(b" ")
            lines[number] = b" " * ((len(line) - len(code)) // 4) + code
    return b"\n".join(lines)


def unread(source: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Where a module has what nobody reads: lines, from 1, and columns in bytes."""
    tokens = list(tokenize.tokenize(io.BytesIO(source).readline))
    arrows = []
    for token in tokens:
        column = len(token.line[: token.start[1]].encode())
        if token.type == tokenize.COMMENT:
            yield token.start[0], column, token.end[0], column + len(token.string.encode())
        elif token.exact_type == tokenize.RARROW:
            arrows.append((token.start[0], column))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None and node.body[1:]:
            yield place(node.body[0])
        if isinstance(node, ast.arg) and node.annotation:
            line, column, *_ = place(node)
            yield line, column + len(node.arg.encode()), *place(node.annotation)[2:]
        if isinstance(node, ast.FunctionDef) and node.returns:
            returned = place(node.returns)
            yield *max(arrow for arrow in arrows if arrow < returned), *returned[2:]


def place(node: ast.stmt | ast.arg | ast.expr) -> tuple[int, int, int, int]:
    """From its first line and column to its last."""
    assert node.end_lineno is not None and node.end_col_offset is not None
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


def compiled(name: str, source: bytes) -> CodeType:
    """A module's code for this version of Python."""
    return compile(source, name, "exec", dont_inherit=True)


def byte_code(name: str, source: bytes) -> bytes:
    """A .pyc for this version of Python, which others pass over. It is not compared with its
    source, which is in the same file."""
    unchecked = (0b01).to_bytes(4, "little")
    return b"".join(
        (importlib.util.MAGIC_NUMBER, unchecked, importlib.util.source_hash(source))
    ) + marshal.dumps(compiled(name, source))


def xz(data: bytes, first: tuple[int, ...] = ()) -> bytes:
    """Packed by LZMA, after these filters."""
    filters = [{"id": name} for name in first]
    last = {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}
    return lzma.compress(data, filters=[*filters, last])


def deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def pack(files: dict[str, bytes]) -> bytes:
    """The whole file."""
    made = io.BytesIO(HEAD)
    made.seek(len(HEAD))
    add(made, dict(sorted(files.items())))
    return made.getvalue()


def add(made: io.BytesIO, files: dict[str, bytes]) -> None:
    """Adds a zip with these files, in their order."""
    with zipfile.ZipFile(made, "a") as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name)  # of 1980
            entry.external_attr = 0o644 << 16
            entry.create_system = 3
            packed = not name.endswith((".xz", importer.CODE))
            entry.compress_type = zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED
            archive.writestr(entry, data, compresslevel=9)


def machine(library: bytes) -> str:
    """What uname(2) calls the machine of a shared object."""
    return MACHINES[int.from_bytes(library[18:20], "little")]


def write(folder: Path, name: str, data: bytes) -> Path:
    """Writes a file, and SHA256SUMS of all that users may download from the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / name
    alone = os.open(folder, os.O_RDONLY)
    try:
        # `make -j2 dist wheel`: the sum of a file that is half written would be wrong
        fcntl.flock(alone, fcntl.LOCK_EX)
        made.write_bytes(data)
        sums = [
            f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
            for path in sorted(folder.iterdir())
            if path.suffix in (".pyz", ".whl")
        ]
        (folder / "SHA256SUMS").write_text("".join(sums))
    finally:
        os.close(alone)
    print(f"{made}: {len(data):,} bytes")
    return made


def arguments(description: str) -> argparse.Namespace:
    """Those of a packer."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("libraries", nargs="+", type=Path, help="libzfstrace.so of each machine")
    parser.add_argument("--output", type=Path, default=Path("dist"), help="default: dist")
    return parser.parse_args()


def main() -> None:
    """Runs the command line."""
    given = arguments("Packs zfstune into one file for each machine.")
    for path in given.libraries:
        library = path.read_bytes()
        name = f"zfstune-{install.version()}-linux-{machine(library)}.pyz"
        data = pack(contents(library))
        if len(data) > LIMIT:
            sys.exit(f"pack: error: {name} has {len(data):,} bytes, more than {LIMIT:,}")
        write(given.output, name, data).chmod(0o755)


if __name__ == "__main__":
    main()
