"""Packs zfstune into one file for each machine; called by `make dist`.

The file is a zip that Python runs. Packing the same sources with the same Python writes the same
bytes.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import importlib.util
import io
import json
import lzma
import marshal
import sys
import tokenize
import zipfile
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import install

HERE = Path(__file__).resolve().parent
SOURCES = HERE.parents[1] / "build/dist/src"
LICENCES = "zfstune/inside/licences.json"
LIMIT = 1_000_000  # bytes of a file
# Python reads a file that is no whole zip as text, stops at its first line, and prints this name,
# or its beginning, after "encoding problem" or "unknown encoding". For env(1) it is a comment.
HEAD = b"#!/usr/bin/env -S python3 -I # coding:zfstune-is-cut-short.copy-the-file-again\n"
# Byte code of all would not fit. First what every command loads, then by how much a second of its
# start matters; the longest prefix decides.
BYTE_CODE = (
    *("zfstune/", "zfstrace/", "zfs_linux/", "zfstune/term/", "zfstune/trace/"),
    *("zfstune/rules/", "zfstune/tunables/", "zfstune/changes/", "zfstune/diagnose/"),
    *("zfstune/params/", "zfstune/inside/", "zfstune/advise/", "zfstune/bench/"),
    *("zfstrace/flame/", "zfstune/flame/", "zfstune/html/", "zfstune/report/"),
    *("zfstune/tune/", "zfstune/experiment/", "zfs_freebsd/"),
)
MACHINES = {62: "x86_64", 183: "aarch64"}  # e_machine in elf(5)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def contents(library: bytes) -> dict[str, bytes]:
    """All files by their names, with as much byte code as LIMIT leaves room for."""
    files = {
        "__main__.py": bare((HERE / "main.py").read_bytes()),
        "zfstrace/bpf/libzfstrace.so.xz": lzma.compress(library, preset=9),
    }
    for name, data in modules().items():
        files[name] = bare(data) if name.endswith(".py") else data
    room = LIMIT - len(HEAD) - 22 - sum(weight(name, data) for name, data in files.items())
    sources = [name for name in files if name.endswith(".py") and "/" in name]
    for name in sorted(sources, key=lambda name: (priority(name), name)):
        code = byte_code(name, files[name])
        room -= weight(f"{name}c", code)
        if room < 0:
            break
        files[f"{name}c"] = code
    return files


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
    """A module without docstrings and comments, a fifth of its compressed size. Every statement
    stays in its line, for tracebacks."""
    lines = source.decode().split("\n")
    gone = [
        (*token.start, *token.end)
        for token in tokenize.tokenize(io.BytesIO(source).readline)
        if token.type == tokenize.COMMENT
    ]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None and node.body[1:]:
            text = node.body[0]
            assert text.end_lineno is not None and text.end_col_offset is not None
            gone.append((text.lineno, text.col_offset, text.end_lineno, text.end_col_offset))
    for first, column, last, end in gone:
        rest = lines[last - 1].encode()[end:].decode() if last > first else ""
        lines[first - 1] = lines[first - 1][:column] + rest
        lines[first:last] = [""] * (last - first)
    return "\n".join(line.rstrip() for line in lines).encode()


def byte_code(name: str, source: bytes) -> bytes:
    """A .pyc for this version of Python, which others pass over. It is not compared with its
    source, which is in the same file."""
    code = compile(source, name, "exec", dont_inherit=True)
    unchecked = (0b01).to_bytes(4, "little")
    return b"".join(
        (importlib.util.MAGIC_NUMBER, unchecked, importlib.util.source_hash(source))
    ) + marshal.dumps(code)


def deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def weight(name: str, data: bytes) -> int:
    """Bytes of the zip that a file takes: two headers with its name, and the packed content."""
    return 30 + 46 + 2 * len(name) + len(data if name.endswith(".xz") else deflated(data))


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
            packed = not name.endswith(".xz")
            entry.compress_type = zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED
            archive.writestr(entry, data, compresslevel=9)


def machine(library: bytes) -> str:
    """What uname(2) calls the machine of a shared object."""
    return MACHINES[int.from_bytes(library[18:20], "little")]


def write(folder: Path, name: str, data: bytes) -> Path:
    """Writes a file, and SHA256SUMS of all that users may download from the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / name
    made.write_bytes(data)
    print(f"{made}: {len(data):,} bytes")
    sums = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(folder.iterdir())
        if path.suffix in (".pyz", ".whl")
    ]
    (folder / "SHA256SUMS").write_text("".join(sums))
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
