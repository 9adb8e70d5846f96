"""A FreeBSD host: names, checks, parameters and kstats from sysctl(3)."""

from __future__ import annotations

import time
from pathlib import Path

from zfs_freebsd import checks
from zfs_freebsd.boot import Order, by_name
from zfs_freebsd.dtrace import probes, scripts
from zfs_freebsd.kstat import Kstats
from zfs_freebsd.sysctl import Mib, Sysctl
from zfstrace import processes
from zfstrace.base_host import BaseHost
from zfstrace.disk import Disk, Scratch
from zfstrace.errors import NotSupported, UnknownName
from zfstrace.host import (
    ArcSession,
    CostSession,
    DeviceSession,
    FsyncSession,
    LightSession,
    ReadSession,
    StackSession,
    ThrottleSession,
    TxgSession,
)
from zfstrace.kstat.txgs import TxgRow
from zfstrace.recording import StackOptions
from zfstrace.types import Check, FsyncOptions, LightOptions, ProbeSurvey, Tool, TraceOptions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zfs_freebsd.parameters import FreeBSDParameters, Names

_VERSION = "vfs.zfs.version.module"


class FreeBSDHost(BaseHost):
    """Implements zfstrace.host.Host.

    names gives the sysctls by the Linux names of parameters, order is for boot.BootFiles. Tests set
    root, which has /etc, /boot and /dev, and library, which replaces libc.
    """

    def __init__(
        self,
        names: Names,
        order: Order = by_name,
        root: str | Path = "/",
        library: str | None = None,
    ) -> None:
        super().__init__()
        self._names, self._order, self._root = names, order, Path(root)
        self._sysctl = Sysctl(library)
        self._kstats = Kstats(self._sysctl)

    # --- names

    def loaded(self) -> bool:
        return bool(self.version())

    def version(self) -> str:
        return self._sysctl.get_text(_VERSION)

    def pools(self) -> list[str]:
        return self._kstats.pools()

    def dataset_names(self) -> list[str]:
        found = (
            self._name(node)
            for pool in self.pools()
            for node in self._kstats.objsets(pool).values()
        )
        return sorted(name for name in found if name)

    def _learn_names(self) -> None:
        for pool in self.pools():
            for objset, node in self._kstats.objsets(pool).items():
                if (pool, objset) not in self._by_objset and (name := self._name(node)):
                    self._by_objset[pool, objset] = name

    def _learn_mounts(self) -> None:
        from zfs_freebsd import mounts

        self._by_dev.update(mounts.datasets())

    def _objset_name(self, pool: str, objset: int) -> str:
        return self._name(self._kstats.objset(pool, objset))

    def _name(self, node: Mib) -> str:
        name = self._kstats.objset_field(node, "dataset_name")
        return name if isinstance(name, str) else ""

    def process_error(self, pid: int) -> str | None:
        return None if processes.exists(pid) else f"there is no process {pid}"

    # --- parameters and kstats

    def parameter(self, name: str) -> int | None:
        return self.parameters().read(name)

    def parameters(self) -> FreeBSDParameters:
        from zfs_freebsd.parameters import FreeBSDParameters

        return FreeBSDParameters(self._sysctl, self._names, self._order, self._root)

    def memory_bytes(self) -> int:
        return self._sysctl.get_int("hw.physmem") or 0

    def kstat(self, name: str) -> dict[str, int]:
        values = self._kstats.named(name)
        return {key: value for key, value in values.items() if isinstance(value, int)}

    def _arcstats(self) -> dict[str, int]:
        return self.kstat("arcstats")

    def txg_rows(self, pool: str) -> list[TxgRow]:
        return self._kstats.txg_rows(pool)

    def written(self, pool: str) -> tuple[int, dict[int, int]]:
        now, found = time.monotonic_ns(), {}
        for objset, node in self._kstats.objsets(pool).items():
            count = self._kstats.objset_field(node, "nwritten")
            if isinstance(count, int):
                found[objset] = count
        return now, found

    def pools_blocking_detach(self) -> list[str]:
        return []  # dtrace(1) ends even while writers wait

    def pool_state(self, pool: str) -> str:
        return self._kstats.text(pool, "misc", "state").strip()

    # --- what tracing needs

    def checks(self) -> list[Check]:
        return checks.of_host(self._sysctl, self._kstats, self.version(), self._root)

    def survey(self) -> ProbeSurvey:
        # as root, dtrace(1) would load missing modules
        if scripts.why_not(self._root)[0]:
            return ProbeSurvey()
        return ProbeSurvey(probes.of_host(probes.run), "ctf")

    def tools(self) -> list[Tool]:
        return scripts.tools(self._root)

    # --- traces

    def open_fsync_trace(self, options: FsyncOptions) -> FsyncSession:
        from zfs_freebsd.dtrace.fsync import ScriptedFsyncs

        self._require_zfs()
        objset = self._locate(options.dataset) if options.dataset else 0
        return self._follow(ScriptedFsyncs(options, objset, self.parameter))

    def open_throttle_trace(self, options: TraceOptions) -> ThrottleSession:
        from zfs_freebsd.dtrace.throttle import ScriptedThrottle

        self._require_zfs()
        return self._follow(ScriptedThrottle(options.pool, options.pid, self.parameter))

    def open_device_trace(self, options: TraceOptions) -> DeviceSession:
        from zfs_freebsd.dtrace.device import ScriptedDevices

        self._require_zfs()
        return self._follow(ScriptedDevices(options.pool))

    def open_stack_trace(self, options: StackOptions) -> StackSession:
        from zfs_freebsd.dtrace.stacks import ScriptedStacks

        self._require_zfs()
        return ScriptedStacks(options)

    def open_light_trace(self, options: LightOptions) -> LightSession:
        raise NotSupported(
            "cannot trace lightly: a D script has all of its probes or none",
            "leave out --light; docs/performance.md says what a trace costs",
        )

    def open_cost_trace(self) -> CostSession:
        raise NotSupported(
            "cannot count what tracing costs: FreeBSD does not time the actions of dtrace(1)",
            "compare the rate of a load (`zfstune bench --no-trace`) with and without a trace",
        )

    def disk(self, path: str) -> Disk | None:
        from zfs_freebsd import disks

        return disks.inspect(path)

    def scratch(self, path: str) -> Scratch:
        raise NotSupported(f"{path}: disks are only erased on Linux", "measure in a directory")

    def erase(self, disk: Scratch) -> None:
        raise NotSupported(f"{disk.path}: disks are only erased on Linux")

    def open_txg_trace(self, options: TraceOptions) -> TxgSession:
        from zfs_freebsd.traces import SysctlTxgs
        from zfstrace.kstat.txgs import KstatTxgs

        self._require_zfs()
        source = SysctlTxgs(self._kstats, self.parameter)
        if options.kstat:
            return KstatTxgs(options.pool, source)
        from zfs_freebsd.dtrace.txg import ScriptedTxgs

        return self._follow(ScriptedTxgs(options.pool, source))

    def open_arc_trace(self, options: TraceOptions) -> ArcSession:
        from zfs_freebsd.traces import ArcStats

        self._require_zfs()
        if options.kstat:
            return ArcStats(self._arcstats)
        from zfs_freebsd.dtrace.arc import ScriptedArc

        return self._follow(ScriptedArc(self._arcstats))

    def open_read_trace(self, options: TraceOptions) -> ReadSession:
        self._require_zfs()
        objset = self._locate(options.dataset) if options.dataset else 0
        if options.kstat:
            from zfs_freebsd.traces import objsets
            from zfstrace.kstat.reads import KstatReads

            self._refuse_pid(options)
            return KstatReads(lambda: objsets(self._kstats, options.pool), self._arcstats)
        from zfs_freebsd.dtrace.read import ScriptedReads

        return self._follow(ScriptedReads(options, objset, self._arcstats))

    def _locate(self, dataset: str) -> int:
        """The object set id. Raises UnknownName."""
        for objset, node in self._kstats.objsets(dataset.split("/", 1)[0]).items():
            if self._name(node) == dataset:
                return objset
        raise UnknownName(f"dataset {dataset} is not in use here", "mount it first")
