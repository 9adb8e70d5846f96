"""A made-up incident: ten minutes of a database on a pool of disks that end in slow flushes."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from support.fake_host import FakeHost
from support.samples import (
    PROBES,
    arc,
    counts,
    ios,
    read_state,
    reads,
    slow_event,
    txg,
    vdev,
    waits,
)

from zfstrace import arc as arcs
from zfstrace import device, light_summary, read, read_summary, throttle
from zfstrace.clock import iso_utc
from zfstrace.light import CommitCounts, KeptRow, Sample, SlowCommit, Window
from zfstrace.stages import NAMES
from zfstrace.summary import Span, summarize
from zfstrace.types import Json, Losses, SlowFsync
from zfstune.diagnose.judge import judge
from zfstune.diagnose.quantities import Observed, Single, measure
from zfstune.incident import writer
from zfstune.incident.times import ns_of
from zfstune.term.units import MS, SECOND

STEP_NS = 10 * SECOND
BEGIN, END = "2026-11-26T23:56:40.000Z", "2026-11-27T00:06:40.000Z"
HEADER: Json = {
    "program": "zfstune",
    "version": "0.9",
    "time_from": BEGIN,
    "time_to": END,
    "reason": "fsync.p99>200ms for 30s on tank",
    "host": {
        "name": "db1.example.net",
        "system": "Linux",
        "kernel": "6.12.43-amd64",
        "zfs": "2.3.2",
        "cpus": 16,
        "memory_bytes": 64 << 30,
    },
    "parameters": {"zfs_txg_timeout": 10, "zfs_vdev_scheduler": "none"},
    "pools": {
        "tank": {
            "state": "ONLINE",
            "layout": ["tank ONLINE", "  mirror-0 ONLINE", "    sda ONLINE", "    sdb ONLINE"],
        },
        "idle": {"state": "ONLINE", "layout": ["idle ONLINE", "  sdc ONLINE"]},
    },
    "interval_ns": STEP_NS,
    "lost": {"fsync": 0, "light": 7},
}
# when flushes are slow, as numbers of intervals
SLOW = range(40, 46)


def moment(step: int) -> str:
    """The end of an interval."""
    begin = ns_of(BEGIN)
    assert begin is not None
    return iso_utc(begin + (step + 1) * STEP_NS)


def host() -> Any:
    return FakeHost()


def records(steps: Iterable[int] = range(60), *, full: bool = True) -> Iterator[Json]:
    """The records of these intervals; without full, those of a light trace."""
    for step in steps:
        yield from interval(step, full=full)


def interval(step: int, *, full: bool = True) -> Iterator[Json]:
    """One interval, with a row of each type."""
    slow = step in SLOW
    flush = [(180 if slow else 2) * MS + i * 10_000 for i in range(50 if slow else 400)]
    span = Span(moment(step), STEP_NS, Losses(missed=2 if slow else 0), PROBES)
    off = {} if full else {"fsync": "not asked for", "device": "above the budget"}
    lost = {"light": 2} if slow else {}
    yield _record("interval", step, duration_ns=STEP_NS, off=off, lost=lost)
    yield from light_rows(flush, span)
    if full:
        yield from (row.to_json() for row in _fsyncs(flush, span))
        yield from (row.to_json() for row in _devices(flush, span))
        yield from (row.to_json() for row in _reads(span))
    yield txg(5000 + step, time=span.time, sync_ns=(6 if slow else 1) * SECOND).to_json()
    if slow:
        yield from (row.to_json() for row in _throttled(span))
    yield arcs.row(arc(step + 2), arc(step + 1), span.time, STEP_NS, Losses()).to_json()
    if slow:
        yield slow_fsync(step).to_json()
        yield kept(step).to_json()
    if step == SLOW[-1]:
        yield parameter_change(step)
        yield _record("pool_state", step, pool="tank", state="DEGRADED")
        yield _record("note", step, text="trigger: fsync.p99>200ms on tank")
    if step % 15 == 10 or step == SLOW[3]:
        yield diagnosis(step, 180 * MS if slow else 2 * MS)


def _record(kind: str, step: int, **given: Any) -> Json:
    return {"schema": 1, "type": kind, "time": moment(step), **given}


def _fsyncs(flush: list[int], span: Span) -> list[Any]:
    many = counts(objset=68, stages={"flush": flush, "log_write": [MS] * len(flush)})
    return summarize([many], host(), span)


def light_rows(flush: list[int], span: Span) -> Iterator[Json]:
    """The rows of a light trace."""
    from support.samples import from_values

    hist = from_values(ns + MS for ns in flush)
    one = CommitCounts("tank", 68, (0, 0), False, hist, from_values([MS]), from_values(flush))
    window = Window(span.time, 2 * SECOND, (_sample(sum(flush), len(flush)),))
    windows = [window, window, window]
    rows = light_summary.rows([one], windows, host(), span)
    yield from (row.to_json() for row in rows)


def _sample(flush_ns: int, count: int) -> Sample:
    times = {"flush": flush_ns, "log_write": MS * count}
    return Sample("tank", 68, (0, 0), False, count, tuple(times.get(name, 0) for name in NAMES))


def _devices(flush: list[int], span: Span) -> list[Any]:
    disks = [vdev(guid, sync_write=ios([MS] * len(flush)), flush=ios(flush)) for guid in (1, 2)]
    return device.rows(disks, {1: "sda", 2: "sdb"}, span.time, STEP_NS, span.losses)


def _reads(span: Span) -> list[Any]:
    state = read_state(reads(hit=[20_000] * 90, miss=[9 * MS] * 10, write=[50_000] * 40))
    return read_summary.rows(read.since(state, read_state()), host(), span)


def _throttled(span: Span) -> list[Any]:
    found = [waits(comm="postgres", dirty_hard=[2 * SECOND, SECOND], dirty_delay=[MS] * 30)]
    return throttle.rows(found, span.time, STEP_NS, 4 << 30, Losses())


def slow_fsync(step: int) -> SlowFsync:
    event = slow_event(flush=200 + step, log_write=4, batch_wait=1)
    return SlowFsync(
        time=moment(step),
        pid=event.pid,
        tid=event.tid,
        comm=event.comm,
        pool="tank",
        dataset="tank/db",
        object=event.object,
        total_ns=event.total_ns,
        stages=dict(zip(NAMES, event.stage_ns, strict=True)),
        txg_state="syncing",
        kind="fdatasync",
        txg=5000 + step,
        txg_sync_ns=2 * SECOND,
        throttle={"dirty_bytes": 3 << 30, "dirty_percent": 75.0, "delayed": True},
    )


def kept(step: int) -> KeptRow:
    stages = dict.fromkeys(NAMES, 0) | {"flush": 4 * SECOND}
    cause = SlowCommit(2 * SECOND, 4711, "postgres")
    return KeptRow(moment(step), 2 * SECOND, "tank", "tank/db", cause, 30, stages)


def parameter_change(step: int) -> Json:
    return _record("parameter_change", step, name="zfs_txg_timeout", old=5, new=10, by="other")


def diagnosis(step: int, flush_ns: int, pool: str = "tank") -> Json:
    """Of slow flushes, if they are."""
    span = Span(moment(step), STEP_NS, Losses(), ())
    row, *datasets = [one for one in _fsyncs([flush_ns] * 400, span) if one.pool == "tank"]
    times = tuple({"flush": flush_ns, "log_write": MS}.get(name, 0) for name in NAMES)
    seen = Observed(
        pool=pool,
        state="ONLINE",
        time=span.time,
        version="zfs-2.3.2-1",
        duration_ns=STEP_NS,
        unfinished=0,
        log_vdevs=0,
        fsync=row,
        singles=[Single(flush_ns + MS, times, "tank/db", 1 + i % 4, False) for i in range(400)],
        datasets=datasets,
        txgs=[txg(5000 + step, time=span.time)],
        throttle=[],
        devices=_devices([flush_ns] * 400, span),
        arc=[arcs.row(arc(2), arc(1), span.time, STEP_NS, Losses())],
        zil={"zil_commit_count": 400, "zil_commit_writer_count": 400},
        parameters={"zfs_commit_timeout_pct": 10, "zfs_dirty_data_max": 4 << 30},
    )
    beside = {"lost": 3, "missing_views": {"device": "above the budget"}, "reason": "trigger"}
    return judge(measure(seen)).to_json() | beside


def write(
    path: Path,
    given: Iterable[Json] | None = None,
    header: Mapping[str, Any] | None = None,
    *,
    full: bool = True,
) -> Path:
    """A whole file."""
    writer.write(path, {**HEADER, **(header or {})}, records(full=full) if given is None else given)
    return path


def packed(*lines: bytes | str | Json) -> bytes:
    """A file of these lines, as they are."""
    made = [
        json.dumps(line).encode() if isinstance(line, dict) else line if isinstance(line, bytes)
        else line.encode()
        for line in lines
    ]  # fmt: skip
    pack = zlib.compressobj(wbits=31)
    return pack.compress(b"".join(line + b"\n" for line in made)) + pack.flush()


def first(**given: Any) -> Json:
    """A header as a line."""
    return {"schema": 1, "type": "incident", **HEADER, **given}


def one_of_each() -> list[Json]:
    """A record of each type."""
    found: dict[str, Json] = {}
    for record in [*interval(SLOW[3]), *interval(SLOW[-1])]:
        # a pool without fsyncs has no latency
        if record.get("dataset", "") is not None:
            found.setdefault(record["type"], record)
    return list(found.values())
