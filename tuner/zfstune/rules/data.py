"""The data of rule files. They are written as TOML and read as JSON (scripts/compile_rules.py)."""

from __future__ import annotations

import json
from typing import Any

from zfstrace import packaged


def read(package: str, name: str) -> dict[str, Any]:
    """What rule file `name` of a package holds: "zfstune.diagnose", "causes"."""
    data: dict[str, Any] = json.loads(packaged.read(package, f"{name}.json"))
    return data
