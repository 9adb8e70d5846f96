#!/usr/bin/env python3
"""Records in which of four versions of OpenZFS the functions are that the catalogue names as the
sources of its bounds, from a git clone: record_functions.py CLONE > zfs_functions.txt

A line has the file, the function, and for each version y or -. Directories are left out: a file
of both systems counts where either has the function.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

from record_parameters import VERSIONS, files

CATALOGUE = Path(__file__).parents[2] / "tuner/zfstune/parameters.toml"
_FUNCTION = re.compile(r"^(\w+)\([^;]*?\)\s*\{", re.MULTILINE)


def functions(source: str) -> list[tuple[str, str]]:
    """``a.c f(), g(), b.c h(): why`` as [("a.c", "f"), ("a.c", "g"), ("b.c", "h")]."""
    found, file = [], ""
    for word in source.partition(": ")[0].replace(",", "").split():
        if word.endswith("()"):
            found.append((file, word.removesuffix("()")))
        else:
            file = word
    return found


def main(clone: str) -> None:
    parameters = tomllib.loads(CATALOGUE.read_text())["parameter"].values()
    named = sorted({one for entry in parameters for one in functions(entry.get("source", ""))})
    there: list[set[tuple[str, str]]] = []
    for version in VERSIONS:
        defined = set()
        for path, text in files(clone, version, "module"):
            name = path.rpartition("/")[2]
            if any(name == file for file, _ in named):
                defined |= {(name, function) for function in _FUNCTION.findall(text)}
        there.append(defined)
    print("# Written by record_functions.py from OpenZFS", *VERSIONS)
    for one in named:
        print(*one, "".join("y" if one in defined else "-" for defined in there))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: record_functions.py CLONE")
    main(sys.argv[1])
