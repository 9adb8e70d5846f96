"""Types of arguments of the command line."""

from __future__ import annotations

import argparse
import re

from zfstune.term import units
from zfstune.term.units import parse_size


def span(text: str) -> int:
    """The type of an option that is a time."""
    try:
        return units.parse_span(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def number(text: str) -> int:
    """The type of an option that is a number of 1 or more."""
    if not re.fullmatch(r"[0-9]{1,9}", text) or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 1 or more")
    return int(text)


_LEAST_SIZE = 64 << 10

_MOST_JOBS = 1024


def numbers(text: str) -> list[int]:
    """The type of --jobs."""
    found = [number(one) for one in text.split(",")]
    if max(found) > _MOST_JOBS:
        raise argparse.ArgumentTypeError(f"{max(found)} is too many, {_MOST_JOBS} at most")
    return list(dict.fromkeys(found))


def size(text: str) -> int:
    """The type of --size."""
    try:
        found = parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if found < _LEAST_SIZE or found > 1 << 40:
        raise argparse.ArgumentTypeError(f"{text!r} is not within 64K and 1T")
    # whole writes
    return found // 8192 * 8192


def words(text: str) -> list[str]:
    """The type of an option that is a list of names."""
    found = text.split(",")
    if not all(found):
        raise argparse.ArgumentTypeError(f"{text!r} has an empty name in it")
    return list(dict.fromkeys(found))
