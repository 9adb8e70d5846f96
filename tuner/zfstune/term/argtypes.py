"""Argument types for argparse. They raise ArgumentTypeError; a second line of its message is the
hint."""

from __future__ import annotations

import argparse
import re

from zfstune.term.units import parse_size, parse_span

MOST_JOBS = 1024


def span(text: str) -> int:
    """A time of more than 0, in ns."""
    try:
        return parse_span(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def positive(text: str) -> int:
    """A whole number, 1 or more."""
    if not re.fullmatch(r"[0-9]{1,9}", text) or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 1 or more")
    return int(text)


def job_counts(text: str) -> list[int]:
    """The numbers of threads for --jobs, without duplicates."""
    found = [positive(one) for one in text.split(",")]
    if max(found) > MOST_JOBS:
        raise argparse.ArgumentTypeError(f"{max(found)} is too many\nuse {MOST_JOBS} at most")
    return list(dict.fromkeys(found))


def file_size(text: str) -> int:
    """The bytes for --size, rounded down to whole writes of 8 kB."""
    try:
        found = parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not 64 << 10 <= found <= 1 << 40:
        raise argparse.ArgumentTypeError(f"{text!r} is out of range\nuse 64K to 1T")
    return found // 8192 * 8192


def names(text: str) -> list[str]:
    """A list of names separated by commas, without duplicates."""
    found = text.split(",")
    if not all(found):
        raise argparse.ArgumentTypeError(f"{text!r} has an empty name")
    return list(dict.fromkeys(found))
