"""Lines for the person at the terminal, which are not output."""

from __future__ import annotations

import sys

from zfstune.term.outlet import outlet


def say(text: str) -> None:
    """To the person, not into the output; does not wait for them."""
    outlet(sys.stderr).line(f"zfstune: {text}")
