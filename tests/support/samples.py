"""Samples of what a kernel would have counted, with the values that matter to a test; the rest is
unremarkable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from zfstrace import throttle
from zfstrace.arc import ArcState
from zfstrace.device import CLASSES, ClassCounts, DeviceCounts
from zfstrace.disk import Scratch
from zfstrace.hist import Hist, index
from zfstrace.kstat.txgs import TxgRow
from zfstrace.read import Op, ReadCounts, ReadState
from zfstrace.stages import KINDS, NAMES
from zfstrace.throttle import ThrottleCounts, Waits
from zfstrace.txg import Txg
from zfstrace.types import DatasetCounts, Probe, SlowEvent, merged
from zfstune.term.units import MS

PROBES = (
    Probe("zil_commit", "zil_commit_flags", "fentry", True, "nothing can be measured", ""),
    Probe(
        "cv_timedwait",
        "",
        "missing",
        False,
        merged(("batch_wait", "issue")),
        "no symbol",
        merges=("batch_wait", "issue"),
    ),
)


def from_values(values: Iterable[int]) -> Hist:
    """The histogram of the given values in ns."""
    buckets: dict[int, int] = {}
    count = total = highest = 0
    for value in values:
        bucket = index(value)
        buckets[bucket] = buckets.get(bucket, 0) + 1
        count += 1
        total += value
        highest = max(highest, value)
    return Hist(count, total, highest, buckets)


def counts(
    pool: str = "tank",
    objset: int = 54,
    *,
    dev: tuple[int, int] = (0, 0),
    stages: Mapping[str, Sequence[int]] | None = None,
    total: Sequence[int] = (),
    no_zil: int = 0,
    rest: bool = False,
    errors: int = 0,
) -> DatasetCounts:
    """A dataset with these times in ns. Without total, operation i takes the sum of the i-th values
    of the stages."""
    stages = stages or {}
    if not total and stages:
        longest = max(len(values) for values in stages.values())
        total = [sum(v[i] for v in stages.values() if i < len(v)) for i in range(longest)]
    hists = tuple(from_values(stages[n]) if n in stages else Hist() for n in NAMES)
    kinds = (len(total),) + (0,) * (len(KINDS) - 1)
    commits = len(total) - no_zil
    return DatasetCounts(
        pool, objset, dev, rest, commits, errors, no_zil, kinds, from_values(total), hists
    )


def waits(
    pool: str = "tank",
    pid: int = 4711,
    comm: str = "fio",
    *,
    rest: bool = False,
    dirty_bytes: int | None = 3 << 30,
    **kinds: Sequence[int],
) -> ThrottleCounts:
    """A process with waits of these times in ns."""
    return ThrottleCounts(
        pool,
        pid,
        comm,
        rest,
        {k: _waits(kinds.get(k, ())) for k in throttle.KINDS},
        from_values(ns for times in kinds.values() for ns in times),
        dirty_bytes,
    )


def _waits(times: Sequence[int]) -> Waits:
    return Waits(len(times), sum(times), max(times, default=0))


def ios(times: Sequence[int], queue: Sequence[int] = (), size: int = 4096) -> ClassCounts:
    """I/Os with these times at the device and in the queue, in ns, of size bytes each."""
    queued = from_values(queue or [1000] * len(times))
    n = len(times)
    return ClassCounts(n, n * size, queued, from_values(times), 2 * n, 3)


def vdev(guid: int, pool: str = "tank", **classes: ClassCounts) -> DeviceCounts:
    """A vdev that has done these I/Os, by class."""
    assert set(classes) <= set(CLASSES)
    return DeviceCounts(pool, guid, False, classes)


def txg(number: int, pool: str = "tank", **given: object) -> Txg:
    """An unremarkable txg; what is given replaces its fields."""
    fields: dict[str, object] = {
        "time": "2026-11-21T09:49:12.345Z",
        "pool": pool,
        "txg": number,
        "open_ns": 5_000_000_000,
        "quiesce_ns": 12_300,
        "wait_ns": 4_560,
        "sync_ns": 450_000_000,
        "passes": 5,
        "dirty_bytes": 64 << 20,
        "written_bytes": 70 << 20,
        "writes": 1000,
        "delayed_tx": 0,
        "delay_ns": 0,
        "reason": "timer",
        "zil_sync_ns": 4_500_000,
        "source": "bpf",
    }
    return Txg(**(fields | given))  # type: ignore[arg-type]


def txg_row(number: int, state: str = "C", birth_ns: int = 0, **given: int) -> TxgRow:
    """A row of the kstat; spans are 0 unless they are given."""
    spans = {"open_ns": 0, "quiesce_ns": 0, "wait_ns": 0, "sync_ns": 0}
    return TxgRow(number, state, birth_ns, **(spans | given))


ARC = {
    "size": 4 << 30,
    "c": 5 << 30,
    "c_min": 512 << 20,
    "c_max": 16 << 30,
    "demand_data_hits": 990,
    "demand_metadata_hits": 0,
    "demand_data_misses": 10,
    "demand_metadata_misses": 0,
    "demand_data_iohits": 3,
    "deleted": 100,
    "memory_throttle_count": 0,
    "arc_no_grow": 0,
}


def arc(times: int = 1, waits: Sequence[int] | None = (), **given: int) -> ArcState:
    """A cache whose counters are `times` those of ARC."""
    stats = {n: v if n[0] in "sca" else v * times for n, v in ARC.items()}
    return ArcState(stats | given, None if waits is None else from_values(waits))


def reads(
    pool: str = "tank",
    objset: int = 68,
    *,
    hit: Sequence[int] = (),
    miss: Sequence[int] = (),
    write: Sequence[int] = (),
    size: int = 4096,
    rest: bool = False,
    errors: int = 0,
    held: int = 0,
    held_ns: int = 0,
) -> ReadCounts:
    """A dataset with reads and writes of size bytes that took these times in ns."""
    hits, misses, writes = (
        Op(len(times), size * len(times), from_values(times)) for times in (hit, miss, write)
    )
    who = pool, objset, (0, 0), rest
    return ReadCounts(*who, hits, misses, writes, errors, held, held_ns)


def read_state(*datasets: ReadCounts, times: int = 1) -> ReadState:
    """These datasets, and a cache whose counters are `times` those of ARC."""
    return ReadState(datasets, arc(times).stats)


def slow_event(dataset: int = 0, comm: str = "postgres", **stages: int) -> SlowEvent:
    """An fdatasync with these ms in its stages."""
    times = tuple(stages.get(name, 0) * MS for name in NAMES)
    who = (17, dataset, 4711, 4712, "fdatasync", comm)
    return SlowEvent(10**9, sum(times), times, *who, dirty_bytes=3 << 30)


def scratch_disk(path: str = "/dev/sdx", **changed: Any) -> Scratch:
    """A blank disk of 4 GiB; what is given replaces its fields."""
    fields: dict[str, Any] = {
        "path": path,
        "device": path,
        "dev": (8, sum(path.encode())),
        "disk": (8, sum(path.encode())),
        "size_bytes": 4 << 30,
        "sector_bytes": 512,
        "model": "ACME",
        "in_use": None,
        "data": (),
    }
    return Scratch(**(fields | changed))


# A kstat of txgs: one is done, one syncs, one is open.
TXGS = """\
txg      birth            state ndirty       nread        nwritten     reads    writes   otime        qtime        wtime        stime       
4        1000             C     31744        0            122880       0        20       500          10           20           300         
5        1500             S     1024         0            0            0        0        400          10           20           0           
6        1900             O     0            0            0            0        0        0            0            0            0           
"""  # noqa: E501,W291 - as the kernel writes it
