"""Files of the system's configuration."""

from __future__ import annotations

import os
from pathlib import Path


def replace_text(path: Path, text: str, mode: int = 0o644) -> None:
    """Puts a whole file in place at once, on stable storage. Raises OSError, and then the file
    of before is there."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(fd, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError:
        new.unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
