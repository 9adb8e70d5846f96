"""Untrusted text, made safe to print."""

from __future__ import annotations


def printable(text: str) -> str:
    """Replaces what is not printable by ``?``, line breaks included: the name of a program may
    contain escape codes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "?" for c in text)
