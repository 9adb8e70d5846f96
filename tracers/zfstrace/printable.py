"""Text of others, as it can be shown."""

from __future__ import annotations


def printable(text: str) -> str:
    """A program may call itself anything, also escape codes: what cannot be printed becomes ``?``,
    line breaks included."""
    return "".join(c if c.isprintable() else "?" for c in text)
