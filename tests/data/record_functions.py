#!/usr/bin/env python3
"""Records in which of four versions of OpenZFS the functions are that the catalogue names as the
sources of its bounds, from a git clone: record_functions.py CLONE > zfs_functions.txt

A line has the file, the function, and for each version y or -. Directories are left out: a file
of both systems counts where either has the function.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

VERSIONS = ("2.1.11", "2.2.9", "2.3.9", "2.4.4")
CATALOGUE = Path(__file__).parents[2] / "tuner/zfstune/tunables/parameters.toml"


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
    print("# Written by record_functions.py from OpenZFS", *VERSIONS)
    for file, function in named:
        there = (defines(clone, f"zfs-{version}", file, function) for version in VERSIONS)
        print(file, function, "".join("y" if one else "-" for one in there))


def defines(clone: str, tag: str, file: str, function: str) -> bool:
    """Whether such a file has it; a definition begins a line with its name."""
    pattern, place = rf"^{function}\(", f"module/*/{file}"
    command = ["git", "-C", clone, "grep", "-q", "-E", pattern, tag, "--", place]
    return subprocess.run(command, check=False).returncode == 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: record_functions.py CLONE")
    main(sys.argv[1])
