"""Hides passwords in what is printed."""

from __future__ import annotations

import re

_SCHEME = r"[a-z][a-z0-9+.-]*://[^\s/:@?]*:"

_SECRETS = (
    # up to the last @: SQLAlchemy takes nearly every character in a password
    (re.compile(rf"^((?:--\w+=)?{_SCHEME}).*@", re.IGNORECASE | re.DOTALL), r"\1***@"),
    (re.compile(rf"({_SCHEME})\S*@", re.IGNORECASE), r"\1***@"),
    (
        re.compile(
            r"(\w*(?:password|passwd|pwd|odbc_connect)=)('[^']*'|\"[^\"]*\"|[^&\s]+)",
            re.IGNORECASE,
        ),
        r"\1***",
    ),
)


def masked(text: str) -> str:
    """A text (a URL, a word of a command line) with *** for each recognizable password: in a URL,
    or after password= and the like."""
    for pattern, shown in _SECRETS:
        text = pattern.sub(shown, text)
    return text
