"""Readers for the kstats of ZFS on Linux, /proc/spl/kstat/zfs.

A named kstat has a line of numbers, a line ``name type data``, then one line per
value (module/os/linux/spl/spl-kstat.c, all versions). History lists (txgs,
reads) have a header line of their own. A kstat may change while it is read:
lines that make no sense are left out, never an error.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from zfstrace.txg import TxgState

Value = int | str

_CHAR, _STRING = "0", "7"
# dmu_tx_assign has names with a space ("1024 ns"), dataset names may have them, too
_LINE = re.compile(r"(\S.*?)\s+([0-7])(?:\s+(.*))?")
_OBJSET = re.compile(r"objset-0x([0-9a-f]{1,16})")


def parse_named(text: str) -> dict[str, Value]:
    """The values of a named kstat: int, or str for the types char and string."""
    values: dict[str, Value] = {}
    body = text.partition("name")[2].split("\n")[1:]
    for line in body:
        match = _LINE.fullmatch(line)
        if not match:
            continue
        name, kind, value = match[1], match[2], match[3] or ""
        if kind in (_CHAR, _STRING):
            values[name] = value
        elif _is_number(value):
            values[name] = int(value)
    return values


def parse_history(text: str) -> list[dict[str, Value]]:
    """The rows of a history list, oldest first, by the names in its header."""
    names: list[str] = []
    rows: list[dict[str, Value]] = []
    for line in text.split("\n"):
        words = line.split()
        if not names:
            # a line of numbers may come before the header
            if words and not _is_number(words[0]):
                names = words
        elif len(words) == len(names):
            rows.append(
                {
                    name: int(word) if _is_number(word) else word
                    for name, word in zip(names, words, strict=True)
                }
            )
    return rows


def _is_number(word: str) -> bool:
    digits = word.removeprefix("-")
    # not isdigit() alone: it takes superscripts, and int() takes 4300 digits
    return digits.isascii() and digits.isdigit() and len(digits) <= 20


def txg_state(rows: list[dict[str, Value]], start_ns: int, end_ns: int) -> TxgState | None:
    """What the txgs of a pool did between two moments of the kstat's clock
    (CLOCK_MONOTONIC_RAW).

    rows are those of the ``txgs`` kstat (module/zfs/spa_stats.c). None when they do
    not reach back to the moment.
    """
    found = None
    for row in rows:
        txg, birth, opened, quiesced, waited, synced = (
            row.get(name) for name in ("txg", "birth", "otime", "qtime", "wtime", "stime")
        )
        if not (
            isinstance(txg, int)
            and isinstance(birth, int)
            and isinstance(opened, int)
            and isinstance(quiesced, int)
            and isinstance(waited, int)
            and isinstance(synced, int)
        ):
            continue
        letter = row.get("state")
        if birth <= end_ns:
            found = found or TxgState("open", txg)
        closed = birth + opened
        began = closed + quiesced + waited
        if letter == "S" and began <= end_ns:
            return TxgState("syncing", txg, end_ns - began)
        if letter == "C" and began <= end_ns and began + synced >= start_ns:
            return TxgState("syncing", txg, min(end_ns - began, synced))
        if letter == "Q" and closed <= end_ns:
            found = TxgState("quiescing", txg)
        if letter in ("W", "S", "C") and closed <= end_ns and closed + quiesced >= start_ns:
            found = TxgState("quiescing", txg)
    return found


def read(path: Path) -> str:
    """The text of a file in /proc or /sys; "" when it is not there or not for us."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def read_number(path: Path) -> int | None:
    """A file with one number, e.g. a module parameter; None without one."""
    text = read(path).strip()
    return int(text) if _is_number(text) else None


def pools(root: Path) -> list[str]:
    """Names of the imported pools, sorted; each has a directory under root."""
    try:
        return sorted(entry.name for entry in root.iterdir() if entry.is_dir())
    except OSError:
        return []


def objsets(root: Path, pool: str) -> dict[int, Path]:
    """Object set id -> path of its kstat, for the datasets in use of a pool."""
    found = {}
    # a pool may be exported at any moment
    with contextlib.suppress(OSError):
        for path in (root / pool).iterdir():
            match = _OBJSET.fullmatch(path.name)
            if match:
                found[int(match[1], 16)] = path
    return found


def dataset_name(text: str) -> str | None:
    """The dataset that an objset kstat belongs to."""
    name = parse_named(text).get("dataset_name")
    return name if isinstance(name, str) and name else None
