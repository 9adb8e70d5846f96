"""A Linux host: names, checks, and events from libzfstrace."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from zfs_linux import checks, kstat, mounts
from zfstrace.base_host import BaseHost
from zfstrace.disk import Dev, Disk, Scratch
from zfstrace.errors import UnknownName
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
from zfstrace.kstat.txgs import TxgRow, parse_txgs
from zfstrace.types import (
    WRITES_BLOCKED,
    Check,
    FsyncOptions,
    LightOptions,
    ProbeSurvey,
    Tool,
    TraceOptions,
)
from zfstrace.zpool import list as zpool_list

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zfs_linux.parameters import LinuxParameters
    from zfstrace.recording import StackOptions

_SPARE_VDEVS = 16


class LinuxHost(BaseHost):
    """Implements zfstrace.host.Host. /proc and /sys are looked up below root, where tests put
    recorded ones."""

    def __init__(self, root: str | Path = "/") -> None:
        super().__init__()
        self._proc = Path(root) / "proc"
        self._sys = Path(root) / "sys"
        self._kstat = self._proc / "spl/kstat/zfs"
        self._mountinfo = ""
        # the kstats of each pool whose datasets have a name
        self._named: dict[str, frozenset[str]] = {}

    def loaded(self) -> bool:
        return (self._sys / "module/zfs").is_dir()

    def pools(self) -> list[str]:
        return kstat.pools(self._kstat)

    def dataset_names(self) -> list[str]:
        self._learn_names()
        mounted = set(mounts.parse_mountinfo(self._read_mounts()).values())
        in_use = {
            self._by_objset[pool, objset]
            for pool in self.pools()
            for objset in kstat.objsets(self._kstat, pool)
            if (pool, objset) in self._by_objset
        }
        return sorted(in_use | {name for name in mounted if "@" not in name})

    def _learn_names(self) -> None:
        # Reads only the kstats that are new: with thousands of datasets, a call costs one directory
        # listing per pool.
        before, self._named = self._named, {}
        for pool in self.pools():
            files, unnamed = kstat.files(self._kstat, pool), set()
            for file in files - before.get(pool, frozenset()):
                objset = kstat.objset(file)
                if objset is None:
                    continue
                name = self._objset_name(pool, objset)
                if name:
                    self._by_objset[pool, objset] = name
                else:
                    unnamed.add(file)
            self._named[pool] = files - unnamed
        self._learn_mounts()

    def _learn_mounts(self) -> None:
        text = self._read_mounts()
        if text != self._mountinfo:
            self._mountinfo = text
            # device numbers are reused after an unmount: the current mount wins
            self._by_dev.update(mounts.parse_mountinfo(text))

    def _in_use(self) -> tuple[set[tuple[str, int]], set[Dev]]:
        objsets = {
            (pool, objset) for pool in self.pools() for objset in kstat.objsets(self._kstat, pool)
        }
        return objsets, set(mounts.parse_mountinfo(self._mountinfo))

    def _read_mounts(self) -> str:
        return kstat.read(self._proc / "self/mountinfo")

    def _objset_name(self, pool: str, objset: int) -> str:
        return kstat.dataset_name(kstat.read(self._kstat / pool / f"objset-0x{objset:x}")) or ""

    def process_error(self, pid: int) -> str | None:
        status = kstat.read(self._proc / str(pid) / "status")
        if not status:
            return f"there is no process {pid}"
        for line in status.split("\n"):
            name, _, value = line.partition(":")
            if name == "Tgid" and value.strip() != str(pid):
                return f"{pid} is a thread of process {value.strip()}"
        return None

    def has_ended(self, pid: int) -> bool:
        """Whether there is no process with that number."""
        return not (self._proc / str(pid)).exists()

    def checks(self) -> list[Check]:
        return checks.of_host(self._proc, self._sys, self.pools())

    def survey(self) -> ProbeSurvey:
        from zfstrace.bpf import binding  # ctypes is slow to load

        return binding.survey()

    def tools(self) -> list[Tool]:
        from zfs_linux import tools

        return tools.of_host(self._proc.parent)

    def open_fsync_trace(self, options: FsyncOptions) -> FsyncSession:
        from zfs_linux.traces import TracedFsyncs

        self._require_zfs()
        objset, dev = 0, (0, 0)
        if options.dataset is not None:
            objset, dev = self._locate(options.dataset)
        room = options.max_datasets or self._room()
        return self._follow(TracedFsyncs(options, self, objset, dev, room))

    def open_light_trace(self, options: LightOptions) -> LightSession:
        from zfs_linux.light import LightTrace, Limits

        def limits() -> Limits:
            objset, dev = self._locate(options.dataset) if options.dataset else (0, (0, 0))
            return {
                "pool": options.pool,
                "objset": objset,
                "dev": dev,
                "pid": options.pid or 0,
                "max_datasets": self._room(),
            }

        self._require_zfs()
        return self._follow(LightTrace(options, limits, self))

    def parameter(self, name: str) -> int | None:
        return kstat.read_number(self._sys / "module/zfs/parameters" / name)

    def parameters(self) -> LinuxParameters:
        from zfs_linux.parameters import LinuxParameters

        return LinuxParameters(self._sys.parent)

    def memory_bytes(self) -> int:
        for line in kstat.read(self._proc / "meminfo").splitlines():
            words = line.split()
            if words[:1] == ["MemTotal:"]:
                return int(words[1]) * 1024
        return 0

    def version(self) -> str:
        return kstat.read(self._sys / "module/zfs/version").strip()

    def kstat(self, name: str) -> dict[str, int]:
        values = kstat.parse_named(kstat.read(self._kstat / name))
        return {key: value for key, value in values.items() if isinstance(value, int)}

    def txg_rows(self, pool: str) -> list[TxgRow]:
        return parse_txgs(kstat.read(self._kstat / pool / "txgs"))

    def _kstats_ahead_ns(self) -> int:
        # the two drift apart only slowly
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW) - time.monotonic_ns()

    def written(self, pool: str) -> tuple[int, dict[int, int]]:
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        found = {}
        for number, path in kstat.objsets(self._kstat, pool).items():
            count = kstat.count(kstat.read(path), "nwritten")
            if count is not None:
                found[number] = count
        return now, found

    def pool_state(self, pool: str) -> str:
        return kstat.read(self._kstat / pool / "state").strip()

    def pools_blocking_detach(self) -> list[str]:
        # a thread that writes there may spin in the kernel (seen on ZFS 2.3.9), and BPF programs
        # are removed only when every thread has left the code that calls them
        return [pool for pool in self.pools() if self.pool_state(pool) in WRITES_BLOCKED]

    def disk(self, path: str) -> Disk | None:
        from zfs_linux import disks

        return disks.inspect(path, self._sys)

    def scratch(self, path: str) -> Scratch:
        from zfs_linux import scratch

        return scratch.inspect(path, self._sys.parent)

    def erase(self, disk: Scratch) -> None:
        from zfs_linux import scratch

        scratch.erase(disk)

    def open_txg_trace(self, options: TraceOptions) -> TxgSession:
        from zfs_linux.traces import ProcTxgs, TracedTxgs
        from zfstrace.kstat.txgs import KstatTxgs

        self._require_zfs()
        timeout = self._sys / "module/zfs/parameters/zfs_txg_timeout"
        source = ProcTxgs(self._kstat, timeout)
        if options.kstat:
            return KstatTxgs(options.pool, source)
        from zfstrace.bpf.pools import TxgTrace

        trace = TxgTrace(pool=options.pool, no_fentry=options.no_fentry)
        return TracedTxgs(trace, source)

    def open_throttle_trace(self, options: TraceOptions) -> ThrottleSession:
        from zfs_linux.traces import ThrottleWithParams

        self._require_zfs()
        return self._follow(ThrottleWithParams(options, self))

    def open_device_trace(self, options: TraceOptions) -> DeviceSession:
        from zfstrace.bpf.pools import DeviceTrace

        self._require_zfs()
        return DeviceTrace(
            pool=options.pool,
            max_vdevs=self._vdev_room([options.pool] if options.pool else self.pools()),
            no_fentry=options.no_fentry,
            table_mib=options.table_mib,
        )

    def open_arc_trace(self, options: TraceOptions) -> ArcSession:
        from zfs_linux.traces import ArcStats

        self._require_zfs()
        return ArcStats(self._kstat / "arcstats", options)

    def open_read_trace(self, options: TraceOptions) -> ReadSession:
        from zfs_linux.reads import TracedReads, arcstats, objsets
        from zfstrace.kstat.reads import KstatReads

        self._require_zfs()
        objset, dev = self._locate(options.dataset) if options.dataset else (0, (0, 0))
        if options.kstat:
            self._refuse_pid(options)
            return KstatReads(
                lambda: objsets(self._kstat, options.pool), lambda: arcstats(self._kstat)
            )
        return self._follow(TracedReads(self._kstat, options, objset, dev, self._room()))

    def open_stack_trace(self, options: StackOptions) -> StackSession:
        from zfs_linux.traces import NamedStacks

        self._require_zfs()
        return NamedStacks(options, self._proc / "kallsyms", self._pool_of)

    def open_cost_trace(self) -> CostSession:
        from zfs_linux.traces import ThrottleWithParams, TracedFsyncs
        from zfstrace.bpf.cost import CostTrace
        from zfstrace.bpf.pools import ArcTrace, DeviceTrace, TxgTrace
        from zfstrace.bpf.read import ReadTrace

        self._require_zfs()
        room = self._room()
        vdevs = self._vdev_room(self.pools())
        return CostTrace(
            {
                "fsync": lambda: TracedFsyncs(FsyncOptions(), self, 0, (0, 0), room),
                "txg": TxgTrace,
                "throttle": lambda: ThrottleWithParams(TraceOptions(), self),
                "device": lambda: DeviceTrace(max_vdevs=vdevs),
                "arc": ArcTrace,
                "read": lambda: ReadTrace(max_datasets=room),
            }
        )

    def _pool_of(self, dev: Dev) -> str | None:
        name = self.dataset_name("", 0, dev)
        return name.split("/", 1)[0].split("@", 1)[0] if name else None

    def _room(self) -> int:
        """How many datasets a trace should tell apart: those in use and some spare. libzfstrace
        knows how many its memory allows."""
        return 32 + sum(len(kstat.objsets(self._kstat, pool)) for pool in self.pools())

    def _vdev_room(self, pools: Sequence[str]) -> int:
        """How many vdevs a trace should tell apart, with some spare: a disk may be replaced, a pool
        imported. Pools for which zpool(8) has no answer count as some, too."""
        found = zpool_list.of_each(pools, self.vdev_names)
        return _SPARE_VDEVS + sum(len(found.get(pool, ())) or _SPARE_VDEVS for pool in pools)

    def _locate(self, dataset: str) -> tuple[int, Dev]:
        """Object set id (0 if unknown) and device number ((0, 0) if not mounted). Raises
        UnknownName."""
        pool = dataset.split("/", 1)[0]
        objset = 0
        for number, path in kstat.objsets(self._kstat, pool).items():
            if kstat.dataset_name(kstat.read(path)) == dataset:
                objset = number
        for dev, name in mounts.parse_mountinfo(self._read_mounts()).items():
            if name == dataset:
                return objset, dev
        if not objset:
            raise UnknownName(f"dataset {dataset} is not in use here", "mount it first")
        return objset, (0, 0)
