#!/usr/bin/env python3
"""Writes the D scripts of both systems: source/NAME.d, with words from freebsd.toml and linux.toml,
becomes freebsd/NAME.d and linux/NAME.d, each self-contained."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import tomllib

if sys.version_info < (3, 11):
    sys.exit("generate: error: Python 3.11 or newer is needed")

HERE = Path(__file__).resolve().parent
SYSTEMS = ("freebsd", "linux")
# Scripts for one system only: on Linux fanotify(7) reports who writes a parameter, and reads are no
# business of tests that compare it with libzfstrace.
ONLY = {"sysctlwrite-json.d": "freebsd", "zfsread-json.d": "freebsd"}
MARK = "#!/usr/sbin/dtrace -Zs\n"
NOTE = """\
/*
 * {system}. Generated from source/{name} by generate.py: edit that file.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */

"""


def tools(system: str) -> list[str]:
    """The names of a system's scripts; the other files in source/ are parts of them."""
    return sorted(
        path.name
        for path in (HERE / "source").glob("*.d")
        if path.read_text().startswith(f"/*\n * {path.name}  ")
        and ONLY.get(path.name, system) == system
    )


def script(name: str, system: str) -> str:
    """The text of a script. Raises KeyError for a word that the system's table lacks."""
    table = tomllib.loads((HERE / f"{system}.toml").read_text())
    note = NOTE.format(system=table["SYSTEM"], name=name)
    return MARK + note + _expand((HERE / "source" / name).read_text(), table)


def _expand(text: str, table: dict[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        word = match[1]
        if word.startswith("include "):
            part = (HERE / "source" / word.removeprefix("include ")).read_text()
            return _expand(part, table).rstrip("\n")
        return table[word].strip("\n")

    return re.sub(r"\{\{([^{}]+)\}\}", value, text)


def main() -> None:
    for system in SYSTEMS:
        for name in tools(system):
            path = HERE / system / name
            path.write_text(script(name, system))
            path.chmod(0o755)


if __name__ == "__main__":
    main()
