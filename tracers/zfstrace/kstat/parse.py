"""What the kstats of ZFS have in common on all systems: numbers, and the text of the history
lists.

A kstat may change while it is read: lines that make no sense are left out, never an error.
"""

from __future__ import annotations

from zfstrace.txg import TxgState

Value = int | str


def is_number(word: str) -> bool:
    """Decimal, of 64 bits at most."""
    digits = word.removeprefix("-")
    # not isdigit() alone: it takes superscripts, and int() takes 4300 digits
    return digits.isascii() and digits.isdigit() and len(digits) <= 20


def parse_history(text: str) -> list[dict[str, Value]]:
    """The rows of a history list (txgs, reads), oldest first, by the names in its header.

    spa_txg_history_show_header() in module/zfs/spa_stats.c; on FreeBSD an empty line comes
    before it (module/os/freebsd/spl/spl_kstat.c, kstat_sysctl_raw()). All versions.
    """
    names: list[str] = []
    rows: list[dict[str, Value]] = []
    for line in text.split("\n"):
        words = line.split()
        if not names:
            # a line of numbers may come before the header
            if words and not is_number(words[0]):
                names = words
        elif len(words) == len(names):
            rows.append(
                {
                    name: int(word) if is_number(word) else word
                    for name, word in zip(names, words, strict=True)
                }
            )
    return rows


def txg_state(rows: list[dict[str, Value]], start_ns: int, end_ns: int) -> TxgState | None:
    """What the txgs of a pool did between two moments of the kstats' clock (gethrtime():
    CLOCK_MONOTONIC_RAW on Linux, CLOCK_MONOTONIC on FreeBSD).

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
