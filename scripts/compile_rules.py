#!/usr/bin/env python3
"""Writes the rule files as JSON beside their TOML, which no command then has to parse: a reader of
TOML came with Python 3.11 only, and takes longer than most commands to start.

usage: scripts/compile_rules.py     (`make rules`; the JSON files are committed, since a checkout
must do without a build on FreeBSD)
"""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def sources() -> list[Path]:
    """The files; one of data is for scripts/freebsd-check."""
    return [*sorted((ROOT / "tuner").rglob("*.toml")), ROOT / "tests/data/dtrace_probes.toml"]


def compiled(source: Path) -> str:
    data = tomllib.loads(source.read_text(encoding="utf-8"))
    return json.dumps(data, ensure_ascii=False, indent=0) + "\n"


def main() -> int:
    for source in sources():
        source.with_suffix(".json").write_text(compiled(source), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
