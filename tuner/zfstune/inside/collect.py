"""What a checkout holds beside the commands; packers store it as tools.json and licences.json.

scripts/install.py imports this file, so it imports no other of zfstune.
"""

from __future__ import annotations

import re
from pathlib import Path

# The one-file tools of each system, below the checkout.
PATTERNS = {
    "linux": ("tracers/bpftrace/*.bt", "tracers/bcc/*.py", "tracers/dtrace/linux/*.d"),
    "freebsd": ("tracers/dtrace/freebsd/*.d",),
}
RUNNERS = {".bt": "bpftrace", ".py": "bcc", ".d": "dtrace"}


def tools(root: Path) -> list[dict[str, str]]:
    """Each tool: its name, its system, what runs it, what it shows, and its text; [] if root is no
    checkout."""
    return [
        {
            "name": path.name,
            "system": system,
            "runner": RUNNERS[path.suffix],
            "about": _about(path.stem, path.read_text(encoding="utf-8")),
            "text": path.read_text(encoding="utf-8"),
        }
        for system, patterns in PATTERNS.items()
        for pattern in patterns
        for path in sorted(root.glob(pattern))
    ]


def _about(stem: str, text: str) -> str:
    """The first sentence behind its name in the head of a tool."""
    found = re.search(rf"^[ *#]+{re.escape(stem)}(?:\.\w+)?  (.+(?:\n[ *#]+\w.*)*)", text, re.M)
    words = re.sub(r"\n[ *#]+", " ", found[1]) if found else ""
    return words.partition(". ")[0].rstrip(".")


def licences(root: Path, version: str) -> list[dict[str, str]]:
    """zfstune itself: name, version, licence by its SPDX expression, where its source is, and the
    text; [] if root is no checkout."""
    file = root / "LICENSE"
    if not file.is_file():
        return []
    return [
        {
            "name": "zfstune",
            "version": version,
            "licence": "BSD-2-Clause; its BPF programs: BSD-2-Clause OR GPL-2.0-only",
            "source": "",
            "text": file.read_text(encoding="utf-8"),
        }
    ]
