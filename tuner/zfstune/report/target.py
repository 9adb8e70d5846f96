"""Where a page is written to."""

from __future__ import annotations

from pathlib import Path

from zfstune.errors import UsageError


def require_writable(target: Path) -> None:
    """Raises UsageError if no page can be written there."""
    if target.exists() and not target.is_file():
        raise UsageError(f"{target} is not a regular file", "name another")
    if not target.parent.is_dir():
        raise UsageError(f"directory {target.parent} does not exist", "create it first")
