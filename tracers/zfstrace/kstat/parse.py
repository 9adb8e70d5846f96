"""Parses kstats of ZFS: numbers, and the text of history lists, the same on all systems.

A kstat may change while it is read: malformed lines are skipped, never an error.
"""

from __future__ import annotations

from typing import Union

from zfstrace.strict import strict_zip

Value = Union[int, str]


def is_number(word: str) -> bool:
    """Whether a word is a decimal number of at most 20 digits."""
    digits = word.removeprefix("-")
    # isdigit() alone accepts superscripts, and int() 4300 digits
    return digits.isascii() and digits.isdigit() and len(digits) <= 20


def parse_history(text: str) -> list[dict[str, Value]]:
    """The rows of a history list (txgs, reads), oldest first, by the names in its header.

    spa_txg_history_show_header() in module/zfs/spa_stats.c; on FreeBSD an empty line precedes it
    (module/os/freebsd/spl/spl_kstat.c, kstat_sysctl_raw()). All versions.
    """
    names: list[str] = []
    rows: list[dict[str, Value]] = []
    for line in text.split("\n"):
        words = line.split()
        if not names:
            # a line of numbers may precede the header
            if words and not is_number(words[0]):
                names = words
        elif len(words) == len(names):
            rows.append(
                {
                    name: int(word) if is_number(word) else word
                    for name, word in strict_zip(names, words)
                }
            )
    return rows
