"""Messages for the person at the terminal, on stderr."""

from __future__ import annotations

import sys

from zfstune.term.outlet import outlet


def say(text: str) -> None:
    """Prints a line on stderr, after `zfstune: `; never waits for the reader."""
    outlet(sys.stderr).line(f"zfstune: {text}")
