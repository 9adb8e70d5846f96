"""Traces on FreeBSD from kstats alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from zfs_freebsd.kstat import Kstats
from zfstrace.arc import ArcState
from zfstrace.kstat.reads import FIELDS, Objset
from zfstrace.kstat.txgs import TxgRow
from zfstrace.types import Losses, Probe


class SysctlTxgs:
    """Implements zfstrace.kstat.txgs.Source."""

    def __init__(self, kstats: Kstats, parameter: Callable[[str], int | None]) -> None:
        self._kstats, self._parameter = kstats, parameter

    def pools(self) -> list[str]:
        return self._kstats.pools()

    def rows(self, pool: str) -> list[TxgRow]:
        return self._kstats.txg_rows(pool)

    def timeout_s(self) -> int | None:
        return self._parameter("zfs_txg_timeout")

    def now_ns(self) -> int:
        # gethrtime() and CLOCK_MONOTONIC are nanouptime() (include/os/freebsd/spl/sys/time.h)
        return time.monotonic_ns()


def objsets(kstats: Kstats, pool: str | None) -> Iterator[Objset]:
    """What the kstats of the datasets in use have counted."""
    for name in [pool] if pool else kstats.pools():
        for number, node in kstats.objsets(name).items():
            found = [kstats.objset_field(node, field) for field in FIELDS]
            reads, read, writes, written = (n if isinstance(n, int) else -1 for n in found)
            # -1: it was unmounted a moment ago
            if min(reads, read, writes, written) >= 0:
                yield name, number, (reads, read, writes, written)


class ArcStats:
    """Implements zfstrace.host.ArcSession."""

    def __init__(self, read: Callable[[], dict[str, int]]) -> None:
        self._read = read

    def state(self) -> ArcState:
        return ArcState(self._read(), None)

    def refresh(self) -> None:
        """Nothing to do: state() reads."""

    def losses(self) -> Losses:
        return Losses()

    def probes(self) -> tuple[Probe, ...]:
        return ()

    def close(self) -> None:
        """Nothing to undo: nothing is attached."""
