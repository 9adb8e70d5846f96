"""A model of how OpenZFS uses its parameters: functions written from the sources of 2.1.11, 2.2.9,
2.3.9 and 2.4.4, and named after theirs. It takes nothing from the catalogue or the guard, which are
judged by it.

A function raises Broken for a value that it must not meet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import isqrt

K, M, G = 1 << 10, 1 << 20, 1 << 30
Version = tuple[int, int]
VERSIONS: tuple[Version, ...] = ((2, 1), (2, 2), (2, 3), (2, 4))

SPA_MAXBLOCKSIZE = 16 * M
MIN_ARC_MAX = 64 * M  # DMU_MAX_ACCESS
# sizeof: the head of a block of the log, and of its records (include/sys/zil.h)
ZIL_CHAIN, LR_CREATE, LR_SETSAXATTR = 184, 104, 48
ZIL_MIN_BLKSZ = 4 * K
DXATTR_MAX_ENTRY_SIZE, MAXNAMELEN, MAXPATHLEN = 32 * K, 256, 4096

DIRTY, WRLOG = "zfs_dirty_data_max", "zfs_wrlog_data_max"
DELAY, SCALE = "zfs_delay_min_dirty_percent", "zfs_delay_scale"
LOW = "zfs_vdev_async_write_active_min_dirty_percent"
HIGH = "zfs_vdev_async_write_active_max_dirty_percent"
LEAST, MOST = "zfs_vdev_async_write_min_active", "zfs_vdev_async_write_max_active"
# whose set handlers (param_set_arc_long(), _u64(), _int(), _min(), _max()) call arc_tuning_update()
TUNED = {
    "zfs_arc_min",
    "zfs_arc_max",
    "zfs_arc_meta_limit",
    "zfs_arc_meta_limit_percent",
    "zfs_arc_meta_min",
    "zfs_arc_grow_retry",
    "zfs_arc_shrink_shift",
    "zfs_arc_p_min_shift",
    "zfs_arc_min_prefetch_ms",
    "zfs_arc_min_prescient_prefetch_ms",
    "zfs_arc_lotsfree_percent",
    "zfs_arc_sys_free",
    "zfs_arc_dnode_limit",
    "zfs_arc_dnode_limit_percent",
}
CLASSES = (
    "sync_read",
    "sync_write",
    "async_read",
    "scrub",
    "rebuild",
    "removal",
    "initializing",
    "trim",
)


class Broken(AssertionError):
    """The kernel divides by zero, overruns a buffer, fails an assertion, or stops."""


# --- module/zfs/arc.c


@dataclass
class Arc:
    """The variables that parameters change; sizes in bytes. meta_min and meta_limit are those of
    2.1 only."""

    version: Version
    memory: int
    c_min: int = 0
    c_max: int = 0
    meta_min: int = 0
    meta_limit: int = 0
    dnode_limit: int = 0
    sys_free: int = 0
    grow_retry: int = 5
    shrink_shift: int = 7
    no_grow_shift: int = 5
    min_prefetch_ms: int = 1000
    min_prescient_prefetch_ms: int = 6000
    lotsfree_percent: int = 10

    def arc_init(self, param: Mapping[str, int]) -> None:
        """With the options that the module is loaded with; module/os/linux/zfs/arc_os.c has
        arc_default_max() and arc_set_sys_free()."""
        allmem = self.memory
        self.c_min = max(allmem // 32, 32 * M)
        if self.version < (2, 3):
            self.c_max = max(allmem // 2, self.c_min)
        else:
            rest = allmem - G if allmem >= G else self.c_min
            self.c_max = max(allmem * 5 // 8, rest)
        wmark = min(max(4 * isqrt(allmem // K) * K, 128 * K), 64 * M)
        self.sys_free = 3 * (wmark + wmark * 150 // 100) + allmem // 32
        most = param.get("zfs_arc_max", 0)
        if MIN_ARC_MAX <= most < allmem:
            self.c_max = most
            if self.c_min >= most:
                self.c_min = max(most // 2, 32 * M)
        percent = min(param.get("zfs_arc_dnode_limit_percent", 10), 100)
        whole = self.c_max
        if self.version == (2, 1):
            self.meta_min = SPA_MAXBLOCKSIZE
            share = min(param.get("zfs_arc_meta_limit_percent", 75), 100) * self.c_max // 100
            whole = self.meta_limit = max(self.meta_min, share)
        self.dnode_limit = percent * whole // 100
        self.arc_tuning_update(param)

    def arc_tuning_update(self, param: Mapping[str, int]) -> None:
        def of(name: str, default: int = 0) -> int:
            return param.get(f"zfs_arc_{name}", default)

        least, most = of("min"), of("max")
        if least and 2 * SPA_MAXBLOCKSIZE <= least <= self.c_max:
            self.c_min = least
        if MIN_ARC_MAX <= most < self.memory and most > self.c_min:
            if most != self.c_max:
                self.meta_limit = min(self.meta_limit, most)
                whole = self.meta_limit if self.version == (2, 1) else most
                self.dnode_limit = min(self.dnode_limit, whole)
            self.c_max = most
        if self.version == (2, 1):
            self._metadata_2_1(of("meta_min"), of("meta_limit"), of("meta_limit_percent", 75))
            limit = of("dnode_limit") or (
                min(of("dnode_limit_percent", 10), 100) * self.meta_limit // 100
            )
            if self.meta_min <= limit <= self.meta_limit:
                self.dnode_limit = limit
        else:
            self.dnode_limit = of("dnode_limit") or (
                min(of("dnode_limit_percent", 10), 100) * self.c_max // 100
            )
        self.grow_retry = of("grow_retry") or self.grow_retry
        if of("shrink_shift"):
            self.shrink_shift = of("shrink_shift")
            self.no_grow_shift = min(self.no_grow_shift, self.shrink_shift - 1)
        self.min_prefetch_ms = of("min_prefetch_ms") or self.min_prefetch_ms
        self.min_prescient_prefetch_ms = (
            of("min_prescient_prefetch_ms") or self.min_prescient_prefetch_ms
        )
        if of("lotsfree_percent", 10) <= 100:
            self.lotsfree_percent = of("lotsfree_percent", 10)
        if of("sys_free"):
            self.sys_free = min(of("sys_free"), self.memory)

    def _metadata_2_1(self, least: int, most: int, percent: int) -> None:
        if least != self.meta_min and SPA_MAXBLOCKSIZE <= least <= self.c_max:
            self.meta_min = least
            self.meta_limit = max(self.meta_limit, least)
            self.dnode_limit = max(self.dnode_limit, least)
        limit = most or min(percent, 100) * self.c_max // 100
        if self.meta_min <= limit <= self.c_max:
            self.meta_limit = limit

    def stats(self) -> dict[str, int]:
        """What arcstats has of them."""
        found = {
            "c_min": self.c_min,
            "c_max": self.c_max,
            "arc_dnode_limit": self.dnode_limit,
            "arc_sys_free": self.sys_free,
            "memory_all_bytes": self.memory,
        }
        if self.version == (2, 1):
            found |= {"arc_meta_limit": self.meta_limit, "arc_meta_min": self.meta_min}
        return found


def asked(param: Mapping[str, int], arc: Arc) -> None:
    """Raises Broken unless the limits that are set are in force."""
    for name, limit in (("max", arc.c_max), ("min", arc.c_min), ("sys_free", arc.sys_free)):
        if param.get(f"zfs_arc_{name}", 0) not in (0, limit):
            raise Broken(f"arc_tuning_update ignores zfs_arc_{name}, {limit} is in force")
    if arc.version > (2, 1) and param["zfs_arc_dnode_limit"] not in (0, arc.dnode_limit):
        raise Broken(f"zfs_arc_dnode_limit is not in force, {arc.dnode_limit} is")


# --- readers that may run while parameters are written: moments are states in order, of which a
# thread that reads several times may meet any, a later read a later one


def vdev_queue_max_async_writes(moments: Sequence[Mapping[str, int]]) -> None:
    """module/zfs/vdev_queue.c, all versions. The compiler may read the variables in any order,
    and zfs_dirty_data_max twice."""

    def of(name: str) -> set[int]:
        return {state[name] for state in moments}

    limits = of(DIRTY)
    least = {limit * percent // 100 for limit, percent in product(limits, of(LOW))}
    most = {limit * percent // 100 for limit, percent in product(limits, of(HIGH))}
    if least & most:
        raise Broken(f"vdev_queue_max_async_writes divides by 0 with {min(least & most)} dirty")
    if max(of(LEAST)) > min(of(MOST)):
        raise Broken("vdev_queue_max_async_writes interpolates below zero")
    if min(of(LEAST)) < 1:
        raise Broken("vdev_queue_max_async_writes is 0, a sync with little dirty data never ends")


def dmu_tx_delay(moments: Sequence[Mapping[str, int]]) -> None:
    """module/zfs/dmu_tx.c, after dmu_tx_wait() has seen that dirty < zfs_dirty_data_max; all
    versions, the log's part from 2.1.6 on."""
    last = len(moments)
    for i, first in enumerate(moments):
        for j in range(i, last):
            second = moments[j]
            for k in range(i, last):
                dirty = moments[k][DIRTY]
                floor = second[DIRTY] * second[DELAY] // 100
                floor = min(floor, second[DIRTY] * first[DELAY] // 100)
                if floor < dirty < first[DIRTY]:
                    raise Broken(f"dmu_tx_delay divides by 0 with {dirty} dirty")
                log = moments[k].get(WRLOG, 0)
                if k >= j and first.get(WRLOG, 0) * first[DELAY] // 100 < log < second.get(
                    WRLOG, 0
                ):
                    raise Broken(f"dmu_tx_delay divides by 0 with a log of {log}")


def dmu_tx_delay_product(param: Mapping[str, int]) -> None:
    """module/zfs/dsl_pool.c says of zfs_delay_scale: the product must fit 64 bits."""
    for name in (DIRTY, WRLOG):
        if param[SCALE] * param.get(name, 0) >= 1 << 64:
            raise Broken(f"zfs_delay_scale * {name} overflows")


# --- values that are used one by one


def zil_alloc(param: Mapping[str, int], version: Version) -> None:
    """module/zfs/zil.c. zil_lwb_commit() (2.1), zil_lwb_assign() (2.2 on): a record is not split
    unless it is of a write. module/zfs/zfs_log.c: zfs_log_symlink(), zfs_log_setsaxattr() (2.2
    on). 2.2.4 rounds the size down to ZIL_MIN_BLKSZ, those before write past it."""
    size = param["zil_maxblocksize"]
    if size % ZIL_MIN_BLKSZ:
        raise Broken("zil_lwb_write_issue clears and writes beyond the log block")
    record = LR_CREATE + MAXNAMELEN + MAXPATHLEN
    if version >= (2, 2):
        record = max(record, LR_SETSAXATTR + MAXNAMELEN + DXATTR_MAX_ENTRY_SIZE)
    if -(-record // 8) * 8 > size - ZIL_CHAIN:
        raise Broken("a log record does not fit a block")


def spa_sync_deferred_frees(param: Mapping[str, int]) -> None:
    """module/zfs/spa.c and zio.c, all versions: of pass 1 nothing can be deferred."""
    if param["zfs_sync_pass_deferred_free"] <= 1:
        raise Broken("spa_sync_deferred_frees runs in the pass that defers")


def spa_sync_adjust_vdev_max_queue_depth(param: Mapping[str, int]) -> None:
    """module/zfs/spa.c, up to 2.3."""
    depth = param[MOST] * param.get("zfs_vdev_queue_depth_pct", 1000)
    if depth < 100 or depth >= 1 << 32:
        raise Broken("spa_sync_adjust_vdev_max_queue_depth lets no allocation through")


def vdev_queue_class_to_issue(param: Mapping[str, int]) -> None:
    """module/zfs/vdev_queue.c, all versions: each class and the whole must be let through."""
    for name in ISSUING:
        if param[name] < 1:
            raise Broken(f"vdev_queue_class_to_issue never issues, {name} is {param[name]}")
    if param["zfs_vdev_nia_credit"] < 1:
        raise Broken("vdev_queue_class_max_active is 0 for a scrub beside other I/O")


def arc_evict_state(param: Mapping[str, int]) -> None:
    """module/zfs/arc.c, all versions: eviction must get on."""
    for name in ("zfs_arc_evict_batch_limit", "zfs_arc_evict_batches_limit"):
        if param.get(name, 1) < 1:
            raise Broken("arc_evict_state evicts nothing")


def dmu_free_long_range(param: Mapping[str, int]) -> None:
    """module/zfs/dmu.c, all versions: a limit of 0 waits after each part."""
    if not param["zfs_per_txg_dirty_frees_percent"] * param[DIRTY] // 100:
        raise Broken("dmu_free_long_range waits for a txg after each part")


def txg_sync_thread(param: Mapping[str, int]) -> None:
    """module/zfs/txg.c, all versions."""
    if not 1 <= param["zfs_txg_timeout"] <= (1 << 31) // 1000:
        raise Broken("txg_sync_thread does not wait, or overflows ticks")


class Kernel:
    """A loaded module: parameters, and what they have made of the ARC."""

    def __init__(self, version: Version, memory: int, options: Mapping[str, int]) -> None:
        self.version, self.param = version, dict(options)
        self.arc = Arc(version, memory)
        self.arc.arc_init(self.param)
        self.rest()

    def rest(self) -> None:
        """Every reader is done."""
        self.moments = [self._throttle()]

    def _throttle(self) -> dict[str, int]:
        names = (DIRTY, WRLOG, DELAY, LOW, HIGH, LEAST, MOST)
        return {name: self.param[name] for name in names if name in self.param}

    def write(self, name: str, value: int, *, quiet: bool = True) -> None:
        """quiet: every reader of an earlier state is done."""
        self.param[name] = value
        if name in TUNED:
            self.arc.arc_tuning_update(self.param)
        if quiet:
            del self.moments[:-1]
        if name in self.moments[-1]:
            self.moments.append(self._throttle())

    def judge(self, names: Iterable[str]) -> None:
        """Runs the functions that read these parameters after a write. Raises Broken."""
        for name in names:
            for function in READERS.get(name, ()):
                function(self.param)
            if name in self.moments[-1]:
                vdev_queue_max_async_writes(self.moments)
                dmu_tx_delay(self.moments)
            if name in TUNED:
                asked(self.param, self.arc)
            if name == "zil_maxblocksize":
                zil_alloc(self.param, self.version)

    def everything(self) -> tuple[dict[str, int], dict[str, int]]:
        return dict(self.param), {**vars(self.arc), "version": 0}


ISSUING = ("zfs_vdev_max_active", MOST, *(f"zfs_vdev_{kind}_max_active" for kind in CLASSES))
READERS: dict[str, tuple[Callable[[Mapping[str, int]], None], ...]] = {
    **dict.fromkeys(ISSUING, (vdev_queue_class_to_issue,)),
    "zfs_vdev_nia_credit": (vdev_queue_class_to_issue,),
    DIRTY: (dmu_tx_delay_product, dmu_free_long_range),
    WRLOG: (dmu_tx_delay_product,),
    SCALE: (dmu_tx_delay_product,),
    "zfs_per_txg_dirty_frees_percent": (dmu_free_long_range,),
    "zfs_sync_pass_deferred_free": (spa_sync_deferred_frees,),
    "zfs_txg_timeout": (txg_sync_thread,),
    "zfs_vdev_queue_depth_pct": (spa_sync_adjust_vdev_max_queue_depth,),
    MOST: (spa_sync_adjust_vdev_max_queue_depth, vdev_queue_class_to_issue),
    "zfs_arc_evict_batch_limit": (arc_evict_state,),
    "zfs_arc_evict_batches_limit": (arc_evict_state,),
}
