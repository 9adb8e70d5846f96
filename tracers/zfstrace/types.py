"""The results of traces, and their JSON schema.

One object per line, ``"schema": 1``, times in ns as integers. A field that a platform cannot fill
is null. The types have no behaviour but to_json().
"""

from __future__ import annotations

from dataclasses import asdict, astuple, dataclass, field
from operator import add
from typing import Any, Protocol, Union

from zfstrace.hist import Hist

SCHEMA = 1
Json = dict[str, Any]

# The name of the sum of all that has no entry in the kernel's tables.
OTHERS = "<others>"


@dataclass(frozen=True)
class Probe:
    """A place in the kernel that is watched.

    how is ``fentry``, ``kprobe``, ``tracepoint``, ``found`` (could be attached) or ``missing``;
    cost is what its absence costs, why the reason it is missing, or a kprobe where fentry is
    possible. tracer is the tracer that it belongs to: ``fsync``, ``txg`` ... merges names a stage
    that is not measured without the probe, followed by the stages that then include its time; it is
    empty when there is none.
    """

    name: str
    symbol: str
    how: str
    required: bool
    cost: str
    why: str
    tracer: str = "fsync"
    merges: tuple[str, ...] = ()

    @property
    def missing(self) -> bool:
        """Whether it could not be found or attached."""
        return self.how == "missing"


def merged(merges: tuple[str, ...]) -> str:
    """The cost of a probe's absence, from its merges; "" when that is empty."""
    stage, *others = (f"`{name}`" for name in merges or ("",))
    return f"{stage} is part of {' or '.join(others)}" if others else ""


@dataclass(frozen=True)
class Losses:
    """Counts of what could not be measured; see struct zfstrace_losses for each."""

    start: int = 0
    missed: int = 0
    event: int = 0
    log_block: int = 0
    overflow: int = 0
    unfinished: int = 0
    skipped: int = 0
    cut: int = 0

    @property
    def lost(self) -> int:
        """Operations or events that are missing in the output."""
        return self.start + self.missed + self.event

    def plus(self, other: Losses) -> Losses:
        """Those of two sessions."""
        return Losses(*map(add, astuple(self), astuple(other)))

    def since(self, earlier: Losses) -> Losses:
        """The losses since an earlier state; unfinished is the current count."""
        return Losses(
            self.start - earlier.start,
            self.missed - earlier.missed,
            self.event - earlier.event,
            self.log_block - earlier.log_block,
            self.overflow - earlier.overflow,
            self.unfinished,
            self.skipped - earlier.skipped,
            self.cut - earlier.cut,
        )

    def to_json(self) -> Json:
        """``losses`` in the schema: all but unfinished, which is no loss."""
        return {
            "start": self.start,
            "return": self.missed,
            "event": self.event,
            "log_block": self.log_block,
            "overflow": self.overflow,
            "skipped": self.skipped,
        }


class Identified(Protocol):
    """The counts of a dataset: DatasetCounts, ReadCounts, CommitCounts."""

    @property
    def pool(self) -> str: ...

    @property
    def objset(self) -> int: ...

    @property
    def dev(self) -> tuple[int, int]: ...

    @property
    def rest(self) -> bool: ...


def same_dataset(one: Identified, other: Identified) -> bool:
    """Whether both are of one dataset, also after it was mounted again."""
    mine, its = ((counts.pool, counts.objset, counts.rest) for counts in (one, other))
    return mine == its and (one.objset != 0 or one.dev == other.dev)


@dataclass(frozen=True)
class DatasetCounts:
    """The counts of a dataset since the session began.

    objset 0 and dev (0, 0) mean unknown, as does an empty pool. rest marks the sum of the datasets
    without an entry. kinds and stages are in the order of stages.KINDS and stages.STAGES.
    """

    pool: str
    objset: int
    dev: tuple[int, int]
    rest: bool
    commits: int
    errors: int
    no_zil: int
    kinds: tuple[int, ...]
    total: Hist
    stages: tuple[Hist, ...]


@dataclass(frozen=True)
class SlowEvent:
    """A slow operation as reported by the kernel. start_ns is CLOCK_MONOTONIC, wall_ns the same in
    ns since 1970, None where the tracer does not know it; dataset is an index into the session's
    datasets; dirty_bytes is the pool's dirty data at the end, None when unknown."""

    start_ns: int
    total_ns: int
    stage_ns: tuple[int, ...]
    object: int
    dataset: int
    pid: int
    tid: int
    kind: str
    comm: str
    dirty_bytes: int | None = None
    wall_ns: int | None = None


@dataclass(frozen=True)
class StageSummary:
    """One stage of the operations in a summary, times in ns. count is the number of operations that
    spent time in it."""

    name: str
    total_ns: int
    count: int
    p50: int
    p99: int
    max: int

    def to_json(self) -> Json:
        """A ``stage`` of the schema; written out, since asdict() takes ten times as long."""
        return {
            "name": self.name,
            "total_ns": self.total_ns,
            "count": self.count,
            "p50": self.p50,
            "p99": self.p99,
            "max": self.max,
        }


@dataclass(frozen=True)
class Latency:
    """The latency of whole operations, in ns."""

    mean: int
    p50: int
    p90: int
    p99: int
    p999: int
    max: int


@dataclass(frozen=True)
class FsyncSummary:
    """The operations of a pool (dataset None) or of one dataset over duration_ns.

    pool is None when unknown. latency is None when count is 0. no_zil counts operations without a
    ZIL commit. time is the end of the interval, ISO 8601, UTC.
    """

    pool: str | None
    dataset: str | None
    time: str
    duration_ns: int
    count: int
    errors: int
    commits: int
    no_zil: int
    kinds: dict[str, int]
    latency: Latency | None
    stages: tuple[StageSummary, ...]
    histogram: tuple[tuple[int, int, int], ...]
    losses: Losses
    probes: tuple[Probe, ...]
    note: str | None = None

    @property
    def zil(self) -> bool:
        """False if no operation needed a ZIL commit or waited for a txg instead (sync=disabled);
        True without operations."""
        waited = any(s.name == "txg_fallback" and s.count for s in self.stages)
        return waited or not (self.count and self.no_zil == self.count)

    def to_json(self) -> Json:
        """A ``fsync_summary`` object of the schema."""
        return {
            "schema": SCHEMA,
            "type": "fsync_summary",
            "time": self.time,
            "pool": self.pool,
            "dataset": self.dataset,
            "duration_ns": self.duration_ns,
            "count": self.count,
            "lost": self.losses.lost,
            "losses": self.losses.to_json(),
            "unfinished": self.losses.unfinished,
            "errors": self.errors,
            "commits": self.commits,
            "zil": self.zil,
            "no_zil": self.no_zil,
            "kinds": self.kinds,
            "latency": asdict(self.latency or _NO_LATENCY),
            "stages": [stage.to_json() for stage in self.stages],
            "histogram": [list(row) for row in self.histogram],
            "probes": probes_to_json(self.probes),
            "note": self.note,
        }


@dataclass(frozen=True)
class _NoLatency:
    """The keys of Latency when there was no operation."""

    mean: None = None
    p50: None = None
    p90: None = None
    p99: None = None
    p999: None = None
    max: None = None


_NO_LATENCY = _NoLatency()


def probes_to_json(probes: tuple[Probe, ...]) -> Json:
    """attached: names; how: how each is attached, by name; missing: name, cost, why of each."""
    there = [probe for probe in probes if not probe.missing]
    return {
        "attached": [probe.name for probe in there],
        "missing": [
            {"name": probe.name, "cost": probe.cost, "why": probe.why}
            for probe in probes
            if probe.missing
        ],
        "how": {probe.name: probe.how for probe in there},
    }


@dataclass(frozen=True)
class SlowFsync:
    """One slow operation. time is its beginning, ISO 8601, UTC; times in ns.

    object is the inode number, 0 for the whole dataset. txg_state is what the pool's transaction
    groups did meanwhile: ``syncing``, ``quiescing``, ``open``, or None when unknown; txg is the
    number of the group that did it, and txg_sync_ns how long that group had been syncing. throttle
    is throttle.ThrottleState.to_json(), None when unknown.
    """

    time: str
    pid: int
    tid: int
    comm: str
    pool: str | None
    dataset: str | None
    object: int
    total_ns: int
    stages: dict[str, int]
    txg_state: str | None
    kind: str
    txg: int | None = None
    txg_sync_ns: int | None = None
    throttle: Json | None = None

    def to_json(self) -> Json:
        """A ``slow_fsync`` object of the schema."""
        return {"schema": SCHEMA, "type": "slow_fsync", **asdict(self)}


@dataclass(frozen=True)
class FsyncOptions:
    """What to trace. None means all; slow_ns 0 reports no individual operations; table_mib limits
    the kernel's memory for the tables of a trace by BPF, in MiB, 0 meaning 256."""

    pool: str | None = None
    dataset: str | None = None
    pid: int | None = None
    slow_ns: int = 0
    no_fentry: bool = False
    max_datasets: int = 0
    table_mib: int = 0


@dataclass(frozen=True)
class LightOptions:
    """What a light trace is of, None meaning all, and its windows: one of window_ns at a random
    time in each every_ns, and another when a commit took slow_ns (0: never)."""

    pool: str | None
    dataset: str | None
    pid: int | None
    slow_ns: int
    every_ns: int
    window_ns: int
    no_fentry: bool = False


@dataclass(frozen=True)
class TraceOptions:
    """Limits of all traces but that of fsyncs. None means all; kstat means without BPF, where
    possible. Only the trace of reads has a dataset. table_mib as in FsyncOptions."""

    pool: str | None = None
    pid: int | None = None
    no_fentry: bool = False
    kstat: bool = False
    dataset: str | None = None
    table_mib: int = 0


AnyOptions = Union[FsyncOptions, LightOptions, TraceOptions]


@dataclass(frozen=True)
class Check:
    """A fact about a host, for ``zfstune doctor``.

    status is ``ok``, ``missing`` (something cannot be measured) or ``blocking`` (nothing can); kind
    groups checks: ``zfs``, ``kernel``, ``privilege``, ``library``, ``kstat``. cost is the
    consequence, fix what to do about it.
    """

    name: str
    kind: str
    value: str
    status: str = "ok"
    cost: str = ""
    fix: str = ""


@dataclass(frozen=True)
class ProbeSurvey:
    """The probes that a host has; none is attached. layout is the source of the layouts of ZFS
    structures: ``btf``, ``search`` or ``ctf``."""

    probes: tuple[Probe, ...] = field(default_factory=tuple)
    layout: str = ""


@dataclass(frozen=True)
class Tool:
    """A one-file tool for a host where nothing can be installed. runner is what it needs,
    ``bpftrace``, ``bcc`` or ``dtrace``; why says why it would not work here, "" if it would."""

    name: str
    runner: str
    why: str


# Pool states in which writes block.
WRITES_BLOCKED = ("SUSPENDED", "FAULTED", "UNAVAIL")
