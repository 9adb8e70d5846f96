"""`zfstune tools`: lists the one-file tools, and copies them out."""

from __future__ import annotations

import argparse
import difflib
import json
import stat
import sys
from pathlib import Path

from zfstrace import files
from zfstrace.printable import printable
from zfstrace.strict import strict_zip
from zfstune.errors import DONE, NotPossible, UsageError
from zfstune.inside import held
from zfstune.term.table import aligned, style_of, wrap

_ABOUT = 58  # columns
HERE = "freebsd" if sys.platform.startswith("freebsd") else "linux"


def run(args: argparse.Namespace) -> int:
    """The command."""
    tools = held.tools()
    if args.what == "list":
        _list([tool for tool in tools if args.system in (None, tool["system"])], args.json)
        return DONE
    if not args.directory:
        raise UsageError("DIR is empty", "write . for the current directory")
    system = args.system or HERE
    wanted = _chosen([tool for tool in tools if tool["system"] == system], args.names, system)
    written = extract(wanted, Path(args.directory), force=args.force)
    if args.json:
        paths = [str(path) for path in written]
        print(json.dumps({"schema": 1, "type": "extracted", "files": paths}))
    else:
        for path in written:
            print(printable(str(path)))
    return DONE


def _list(tools: held.Rows, as_json: bool) -> None:
    keys = ("name", "runner", "system", "about")
    if as_json:
        told = [{key: tool[key] for key in keys} for tool in tools]
        print(json.dumps({"schema": 1, "type": "tools", "tools": told}))
        return
    rows = [("TOOL", "FOR", "SYSTEM", "SHOWS")]
    for tool in tools:
        first, *more = wrap(tool["about"], width=_ABOUT)
        rows.append((tool["name"], tool["runner"], tool["system"], first))
        rows += [("", "", "", line) for line in more]
    head, *lines = aligned(rows, "<<<<")
    print(style_of(sys.stdout).paint(head, "bold"))
    for line in lines:
        print(line)


def _chosen(tools: held.Rows, names: list[str], system: str) -> held.Rows:
    """The tools of these names, all without any. Raises UsageError."""
    known = {tool["name"]: tool for tool in tools}
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else "see `zfstune tools list`"
            raise UsageError(f"no tool {name!r} for {system}", hint)
    return [known[name] for name in dict.fromkeys(names)] if names else tools


def extract(tools: held.Rows, directory: Path, *, force: bool = False) -> list[Path]:
    """Writes tools into a directory, which is made if its parent is there, and returns their paths.
    Writes nothing if a file is in the way that differs, without force. Raises NotPossible."""
    paths = [directory / tool["name"] for tool in tools]
    path = directory
    try:
        directory.mkdir(exist_ok=True)
        if not force:
            for tool, path in strict_zip(tools, paths):
                _require_same(path, tool["text"])
        for tool, path in strict_zip(tools, paths):
            files.write(path, [tool["text"].encode()], 0o755)
    except OSError as error:
        why = error.strerror or str(error)
        raise NotPossible(f"cannot write {str(path)!r}: {why}", "name another DIR") from None
    return paths


def _require_same(path: Path, text: str) -> None:
    """Raises NotPossible if a file is there that differs."""
    data = text.encode()
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    # a pipe, which would wait for its writer, is not opened, nor is a file of another size read
    same = stat.S_ISREG(found.st_mode) and found.st_size == len(data)
    if not same or path.read_bytes() != data:
        raise NotPossible(
            f"{str(path)!r} is there, and differs", "name another DIR, or add --force"
        )
