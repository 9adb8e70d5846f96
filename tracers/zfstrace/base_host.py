"""What the hosts have in common."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import Protocol, TypeVar
from weakref import WeakSet

from zfstrace.disk import Dev
from zfstrace.errors import NotSupported, NoZfs
from zfstrace.kstat.txgs import TxgRow, txg_state
from zfstrace.params import Parameters
from zfstrace.txg import TxgState
from zfstrace.types import TraceOptions
from zfstrace.zpool import list as zpool_list

# How long the rows of a txgs kstat are reused: a burst of slow fsyncs must not read a hundred rows
# for each.
_TXGS_NS = 100_000_000
# Containers come and go by the thousand in months. So many names are remembered beside those in
# use, and rows of txgs for so many pools.
MOST_NAMES, _MOST_POOLS = 65_536, 64


class Ticking(Protocol):
    """A trace that needs regular attention."""

    def tick(self) -> None:
        """Called every second; does nothing once the trace is closed. Raises TraceError."""
        ...


AnyTicking = TypeVar("AnyTicking", bound=Ticking)
Key = TypeVar("Key", bound=Hashable)


class BaseHost(ABC):
    """Names by number, the state of txgs, zpool(8), and the running traces. Implements a part of
    zfstrace.host.Host: the methods that are not abstract."""

    def __init__(self) -> None:
        self._by_objset: dict[tuple[str, int], str] = {}
        self._by_dev: dict[Dev, str] = {}
        self._txgs: dict[str, tuple[int, list[TxgRow]]] = {}
        self._running: WeakSet[Ticking] = WeakSet()

    @abstractmethod
    def loaded(self) -> bool: ...

    @abstractmethod
    def parameters(self) -> Parameters: ...

    @abstractmethod
    def txg_rows(self, pool: str) -> list[TxgRow]: ...

    @abstractmethod
    def _learn_names(self) -> None:
        """Adds new datasets in use to _by_objset. Must be cheap."""

    @abstractmethod
    def _learn_mounts(self) -> None:
        """Adds mounted file systems to _by_dev."""

    @abstractmethod
    def _objset_name(self, pool: str, objset: int) -> str:
        """The current name of a dataset; "" when it is not in use."""

    def _in_use(self) -> tuple[set[tuple[str, int]], set[Dev]]:
        """The keys of _by_objset and _by_dev that must not be forgotten. Called seldom."""
        return set(), set()

    def tick(self) -> None:
        """Host.tick(): names first, then each running trace, whatever becomes of the others. Raises
        the first error at the end."""
        first: Exception | None = None
        for step in (self._remember_names, *(trace.tick for trace in list(self._running))):
            try:
                step()
            except Exception as error:
                first = first or error
        if first:
            raise first

    def _remember_names(self) -> None:
        self._learn_names()
        if max(len(self._by_objset), len(self._by_dev)) > MOST_NAMES:
            objsets, devs = self._in_use()
            forget(self._by_objset, objsets)
            forget(self._by_dev, devs)

    def _follow(self, trace: AnyTicking) -> AnyTicking:
        """Includes a trace in tick() for as long as it is referenced."""
        self._running.add(trace)
        return trace

    def dataset_name(self, pool: str, objset: int, dev: Dev) -> str | None:
        """Host.dataset_name(): by the kstat of the object set, or by what is mounted."""
        if pool and objset:
            # read each time: a dataset may be renamed, a pool re-created under its name
            name = self._objset_name(pool, objset)
            if name:
                self._by_objset[pool, objset] = name
            name = self._by_objset.get((pool, objset), "")
            if name:
                return name
        if dev == (0, 0):
            return None
        if dev not in self._by_dev:
            self._learn_mounts()
        return self._by_dev.get(dev)

    def txg_state(self, pool: str, start_ns: int, end_ns: int) -> TxgState | None:
        """Host.txg_state(), from rows of the kstat that are at most 0.1 s old."""
        now = time.monotonic_ns()
        read_ns, rows = self._txgs.get(pool, (0, []))
        if not rows or now - read_ns > _TXGS_NS:
            rows = self.txg_rows(pool)
            if len(self._txgs) >= _MOST_POOLS:
                self._txgs.clear()
            self._txgs[pool] = now, rows
        ahead = self._kstats_ahead_ns()
        return txg_state(rows, start_ns + ahead, end_ns + ahead)

    def _kstats_ahead_ns(self) -> int:
        """The current lead of the kstats' clock over CLOCK_MONOTONIC."""
        return 0

    def vdev_names(self, pool: str) -> dict[int, str]:
        return zpool_list.names(pool)

    def data_vdevs(self, pool: str) -> int:
        return zpool_list.data_vdevs(pool)

    def log_vdevs(self, pool: str) -> int | None:
        return zpool_list.log_vdevs(pool)

    @staticmethod
    def _refuse_pid(options: TraceOptions) -> None:
        if options.pid:
            raise NotSupported(
                "cannot count the reads of a process: kstats do not tell processes apart",
                "leave out --pid, or --source kstat",
            )

    def _require_zfs(self) -> None:
        """Raises NoZfs."""
        if not self.loaded():
            raise NoZfs("ZFS is not loaded", f"run `{self.parameters().loading()}`")


def forget(names: dict[Key, str], in_use: set[Key]) -> None:
    """Drops the oldest names that are not in use when there are more than MOST_NAMES, and an eighth
    of these at once, so that it is seldom called."""
    if len(names) <= MOST_NAMES:
        return
    spare = len(names) - MOST_NAMES * 7 // 8
    for key in [key for key in names if key not in in_use][:spare]:
        del names[key]
