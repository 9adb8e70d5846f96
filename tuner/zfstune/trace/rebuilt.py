"""The rows of traces from their JSON, as it comes checked from an incident file.

A later zfstune may know more stages, kinds of waits and classes of I/O. A new name is no new
schema, so what is not known here is summed where the unknown is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from zfstrace.arc import ArcRow
from zfstrace.device import CLASSES, DeviceRow, Spread
from zfstrace.light import KeptRow, LightRow, SlowCommit, StageShare
from zfstrace.read import ReadRow
from zfstrace.stages import NAMES
from zfstrace.throttle import KINDS, ThrottleRow, Waits
from zfstrace.txg import Txg
from zfstrace.types import (
    FsyncSummary,
    Json,
    Latency,
    Losses,
    Probe,
    SlowFsync,
    StageSummary,
)


def row(record: Json) -> Any:
    """The row of a record; None if it is not one of a trace."""
    make = _ROWS.get(record["type"])
    return make(record) if make else None


def _plain(record: Json, *others: str) -> Json:
    """The fields that are arguments as they are."""
    left_out = {"schema", "type", "lost", *others}
    return {name: value for name, value in record.items() if name not in left_out}


def _losses(record: Json) -> Losses:
    """Of a row that has only their sum they are all of one kind."""
    unfinished = record.get("unfinished") or 0
    parts = record.get("losses")
    if not parts:
        return Losses(start=record.get("lost") or 0, unfinished=unfinished)
    known = {name: parts[name] or 0 for name in ("start", "event", "log_block", "overflow")}
    return Losses(
        **known, missed=parts["return"] or 0, skipped=parts["skipped"] or 0, unfinished=unfinished
    )


def _probes(record: Json) -> tuple[Probe, ...]:
    found = record.get("probes")
    if not found:
        return ()
    how = found["how"]
    there = [Probe(name, "", how.get(name, "kprobe"), False, "", "") for name in found["attached"]]
    missing = [
        Probe(one["name"], "", "missing", False, one["cost"], one["why"])
        for one in found["missing"]
    ]
    return (*there, *missing)


def _latency(value: Mapping[str, int | None] | None) -> Latency | None:
    known = {name: ns for name, ns in (value or {}).items() if ns is not None}
    return Latency(**known) if len(known) == len(Latency.__dataclass_fields__) else None


def _fsync(record: Json) -> FsyncSummary:
    return FsyncSummary(
        **_plain(record, "losses", "probes", "unfinished", "latency", "stages", "histogram"),
        latency=_latency(record["latency"]) if record["count"] else None,
        stages=_stages(StageSummary(**stage) for stage in record["stages"]),
        histogram=tuple((low, high, n) for low, high, n in record["histogram"] or ()),
        losses=_losses(record),
        probes=_probes(record),
    )


def _stages(given: Iterable[StageSummary]) -> tuple[StageSummary, ...]:
    """All stages in their order."""
    found = {name: StageSummary(name, 0, 0, 0, 0, 0) for name in NAMES}
    for stage in given:
        name = stage.name if stage.name in found else "other"
        known = found[name]
        found[name] = StageSummary(
            name,
            known.total_ns + stage.total_ns,
            max(known.count, stage.count),
            max(known.p50, stage.p50),
            max(known.p99, stage.p99),
            max(known.max, stage.max),
        )
    return tuple(found.values())


def _times(stages: Mapping[str, int]) -> dict[str, int]:
    found = dict.fromkeys(NAMES, 0)
    for name, ns in stages.items():
        found[name if name in found else "other"] += ns
    return found


def _slow(record: Json) -> SlowFsync:
    return SlowFsync(**_plain(record, "stages"), stages=_times(record["stages"]))


def _light(record: Json) -> LightRow:
    estimated = record["estimated"]
    return LightRow(
        record["time"],
        record["duration_ns"],
        record["pool"],
        record["dataset"],
        record["commits"],
        _latency(record["latency"]),
        record["log_blocks"],
        _latency(record["log_write"]),
        _latency(record["flush"]),
        estimated["windows"],
        estimated["fsyncs"],
        estimated["lost"],
        tuple(StageShare(**one) for one in estimated["stages"]),
        _losses(record),
        _probes(record),
    )


def _kept(record: Json) -> KeptRow:
    cause = SlowCommit(**record["cause"])
    return KeptRow(
        **_plain(record, "cause", "stages"), cause=cause, stages=_times(record["stages"])
    )


def as_fsyncs(row: LightRow) -> FsyncSummary:
    """The commits of a light trace as a summary of fsyncs, for a view that has room only for the
    largest stages: their times are estimated from the shares."""
    total = row.latency.mean * row.commits if row.latency else 0
    stages = (
        StageSummary(one.name, round(one.share * total), row.commits if one.share else 0, 0, 0, 0)
        for one in row.shares
    )
    return FsyncSummary(
        row.pool,
        row.dataset,
        row.time,
        row.duration_ns,
        row.commits,
        0,
        row.commits,
        0,
        {},
        row.latency,
        _stages(stages),
        (),
        row.losses,
        row.probes,
    )


def _txg(record: Json) -> Txg:
    return Txg(**_plain(record))


def _throttle(record: Json) -> ThrottleRow:
    kinds = dict.fromkeys(KINDS, Waits())
    for name, one in record["kinds"].items():
        name = name if name in kinds else "unknown"
        known = kinds[name]
        kinds[name] = Waits(
            known.count + one["count"],
            known.total_ns + one["total_ns"],
            max(known.max_ns, one["max_ns"]),
        )
    return ThrottleRow(**_plain(record, "kinds"), kinds=kinds, losses=_losses(record))


def _device(record: Json) -> DeviceRow:
    name, queue = record["class"], record["queue"]
    return DeviceRow(
        **_plain(record, "class", "queue", "device"),
        io_class=name if name in CLASSES else "unknown",
        queue=None if queue is None else Spread(**queue),
        device=Spread(**record["device"]),
        losses=_losses(record),
    )


def _arc(record: Json) -> ArcRow:
    return ArcRow(**_plain(record), losses=_losses(record))


_READS = ("read", "hit", "miss", "write")


def _read(record: Json) -> ReadRow:
    times: Json = {name: _latency(record[name]) for name in _READS}
    return ReadRow(**_plain(record, *_READS), **times, losses=_losses(record))


_ROWS: Mapping[str, Callable[[Json], Any]] = {
    "fsync_summary": _fsync,
    "light_summary": _light,
    "light_window": _kept,
    "slow_fsync": _slow,
    "txg": _txg,
    "throttle": _throttle,
    "device": _device,
    "arc": _arc,
    "read": _read,
}
TYPES = tuple(_ROWS)
