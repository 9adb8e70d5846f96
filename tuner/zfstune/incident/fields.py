"""Every field of an incident file: its kind, and its limits.

A field that is not here is dropped, and so is a record of a type that is not here. A field that
holds a name says what it names (`of`), so that anonymise.py finds all names. A field that a
recorder may leave out, or that a host may not know, is Maybe.
"""

from __future__ import annotations

from collections.abc import Mapping

from zfstune.incident.kinds import (
    Either,
    Flag,
    Kind,
    Listed,
    Mapped,
    Maybe,
    Number,
    Object,
    Text,
    Time,
    Tuple,
    Whole,
)

SCHEMA = 1
HEADER_TYPE = "incident"
END_TYPE = "end"

# What a name is of.
POOL, DATASET, PROGRAM, VDEV, HOST = "pool", "dataset", "program", "vdev", "host"
# a vdev's number, a program with its number, and a text in which names may be
GUID, PROCESS, LAYOUT, WORDS = "guid", "process", "layout", "words"

_COUNT = Whole()
_NS = Whole()
_SIGNED = Whole(low=-(1 << 63))
_SHARE = Number(0.0, 1.0)
_PID = Whole(high=(1 << 31) - 1)
_NAME = Text(128)
_PROSE = Text(4096, WORDS)
_POOL = Text(256, POOL)
_DATASET = Text(512, DATASET)
_VDEV = Text(512, VDEV)
_COMM = Text(64, PROGRAM)
_VALUE = Either((_SIGNED, Number(low=-1e18), Text(1024)))
_STAGES = Mapped(_NAME, _NS, 64)
_LOST = Either((_COUNT, Mapped(_NAME, _COUNT, 64)))

_LATENCY = Object({name: Maybe(_NS) for name in ("mean", "p50", "p90", "p99", "p999", "max")})
_SPREAD = Object(dict.fromkeys(("mean", "p50", "p99", "max"), _NS))
_LOSSES = Object(
    {
        name: Maybe(_COUNT)
        for name in ("start", "return", "event", "log_block", "overflow", "skipped")
    }
)
_PROBES = Object(
    {
        "attached": Listed(_NAME, 256),
        "missing": Listed(Object({"name": _NAME, "cost": Text(4096), "why": Text(4096)}), 256),
        "how": Mapped(_NAME, Text(32), 256),
    }
)
# what most rows begin with
_ROW: dict[str, Kind] = {"time": Time(), "duration_ns": _NS}

HEADER = Object(
    {
        "program": Text(64),
        "version": Text(64),
        "time_from": Time(),
        "time_to": Time(),
        # why it was written: a trigger, a signal, `record dump`
        "reason": Maybe(_PROSE),
        "anonymised": Maybe(Flag()),
        "host": Object(
            {
                "name": Maybe(Text(256, HOST)),
                "system": Maybe(Text(128)),
                "kernel": Maybe(Text(256)),
                "zfs": Maybe(Text(256)),
                "cpus": Maybe(Whole(high=1 << 20)),
                "memory_bytes": Maybe(_COUNT),
            }
        ),
        # those that are not at their default
        "parameters": Maybe(Mapped(_NAME, _VALUE, 1024)),
        # layout: the lines of `zpool status` on its vdevs
        "pools": Maybe(
            Mapped(
                _POOL,
                Object(
                    {
                        "state": Maybe(Text(32)),
                        "layout": Maybe(Listed(Text(512, LAYOUT), 1024)),
                    }
                ),
                256,
            )
        ),
        "interval_ns": Maybe(_NS),
        # since the recorder began, all in one or by view
        "lost": Maybe(_LOST),
    }
)

_FSYNC_SUMMARY: dict[str, Kind] = {
    **_ROW,
    "pool": Maybe(_POOL),
    "dataset": Maybe(_DATASET),
    "count": _COUNT,
    "lost": Maybe(_COUNT),
    "losses": Maybe(_LOSSES),
    "unfinished": Maybe(_COUNT),
    "errors": _COUNT,
    "commits": _COUNT,
    "no_zil": _COUNT,
    "kinds": Mapped(_NAME, _COUNT, 32),
    "latency": Maybe(_LATENCY),
    "stages": Listed(
        Object({"name": _NAME} | dict.fromkeys(("total_ns", "count", "p50", "p99", "max"), _NS)), 64
    ),
    "histogram": Maybe(Listed(Tuple((_NS, _NS, _COUNT)), 2048)),
    "probes": Maybe(_PROBES),
    "note": Maybe(Text(1024)),
}

_LIGHT_SUMMARY: dict[str, Kind] = {
    **_ROW,
    "pool": Maybe(_POOL),
    "dataset": Maybe(_DATASET),
    "commits": _COUNT,
    "latency": Maybe(_LATENCY),
    "log_blocks": _COUNT,
    "log_write": Maybe(_LATENCY),
    "flush": Maybe(_LATENCY),
    "estimated": Object(
        {
            "windows": _COUNT,
            "fsyncs": _COUNT,
            "lost": _COUNT,
            "stages": Listed(
                Object(
                    {"name": _NAME, "share": _SHARE, "low": Maybe(_SHARE), "high": Maybe(_SHARE)}
                ),
                64,
            ),
        }
    ),
    "lost": Maybe(_COUNT),
    "losses": Maybe(_LOSSES),
    "unfinished": Maybe(_COUNT),
    "probes": Maybe(_PROBES),
}

_LIGHT_WINDOW: dict[str, Kind] = {
    **_ROW,
    "pool": Maybe(_POOL),
    "dataset": Maybe(_DATASET),
    "cause": Object({"total_ns": _NS, "pid": _PID, "comm": _COMM}),
    "fsyncs": _COUNT,
    "stages": _STAGES,
}

_SLOW_FSYNC: dict[str, Kind] = {
    "time": Time(),
    "pid": _PID,
    "tid": _PID,
    "comm": _COMM,
    "pool": Maybe(_POOL),
    "dataset": Maybe(_DATASET),
    "object": _COUNT,
    "total_ns": _NS,
    "stages": _STAGES,
    "txg_state": Maybe(Text(32)),
    "kind": Text(32),
    "txg": Maybe(_COUNT),
    "txg_sync_ns": Maybe(_NS),
    "throttle": Maybe(
        Object(
            {
                "dirty_bytes": Maybe(_COUNT),
                "dirty_percent": Maybe(Number(high=1e9)),
                "delayed": Maybe(Flag()),
            }
        )
    ),
}

_TXG: dict[str, Kind] = {
    "time": Time(),
    "pool": _POOL,
    "txg": _COUNT,
    **{
        name: Maybe(_COUNT)
        for name in (
            "open_ns",
            "quiesce_ns",
            "wait_ns",
            "sync_ns",
            "passes",
            "dirty_bytes",
            "written_bytes",
            "writes",
            "delayed_tx",
            "delay_ns",
            "zil_sync_ns",
        )
    },
    "reason": Text(32),
    "source": Text(32),
}

_THROTTLE: dict[str, Kind] = {
    **_ROW,
    "pool": _POOL,
    "pid": _PID,
    "comm": _COMM,
    **dict.fromkeys(("count", "total_ns", "p50", "p99", "max"), _NS),
    "kinds": Mapped(_NAME, Object({"count": _COUNT, "total_ns": _NS, "max_ns": _NS}), 32),
    "dirty_bytes": Maybe(_COUNT),
    "dirty_data_max": Maybe(_COUNT),
    "lost": Maybe(_COUNT),
}

_DEVICE: dict[str, Kind] = {
    **_ROW,
    "pool": _POOL,
    "vdev": _VDEV,
    "guid": Whole(of=GUID),
    "class": _NAME,
    "count": _COUNT,
    "size": _COUNT,
    "queue": Maybe(_SPREAD),
    "device": _SPREAD,
    "active_mean": Maybe(Number(high=1e9)),
    "active_max": Maybe(_COUNT),
    "lost": Maybe(_COUNT),
}

_ARC: dict[str, Kind] = {
    **_ROW,
    **dict.fromkeys(("size", "target", "target_min", "target_max"), _COUNT),
    **dict.fromkeys(("demand_hits", "demand_misses", "evicted", "evict_skip"), _COUNT),
    **dict.fromkeys(("evict_not_enough", "memory_throttle"), _COUNT),
    **{name: Maybe(_COUNT) for name in ("demand_iohits", "waits", "wait_ns", "wait_max_ns")},
    "hit_ratio": Maybe(_SHARE),
    # negative when memory is short
    "memory_available": Maybe(_SIGNED),
    "no_grow": Flag(),
    "lost": Maybe(_COUNT),
}

_READ: dict[str, Kind] = {
    **_ROW,
    "pool": Maybe(_POOL),
    "dataset": _DATASET,
    **dict.fromkeys(("reads", "read_bytes", "writes", "write_bytes"), _COUNT),
    **{
        name: Maybe(_COUNT)
        for name in ("hits", "misses", "miss_bytes", "held", "held_ns", "errors")
    },
    "hit_ratio": Maybe(_SHARE),
    **{name: Maybe(_LATENCY) for name in ("read", "hit", "miss", "write")},
    "source": Text(32),
    "note": Maybe(Text(1024)),
    "lost": Maybe(_COUNT),
}

# The measurements with names in them; diagnose/quantities.py has all.
_MEASURED: dict[str, Kind] = {
    "pool": Maybe(_POOL),
    "dataset": Maybe(_DATASET),
    "flush_vdev": Maybe(_VDEV),
    "log_vdev": Maybe(_VDEV),
    "slow_vdev": Maybe(_VDEV),
    "throttle_program": Maybe(Text(128, PROCESS)),
}


_TEXTS = Listed(_PROSE, 64)
_DIAGNOSIS: dict[str, Kind] = {
    **_ROW,
    "pool": _POOL,
    "pool_state": Maybe(Text(32)),
    "verdict": Text(32),
    "summary": _PROSE,
    "causes": Listed(
        Object(
            {
                "id": _NAME,
                "number": Whole(high=1 << 20),
                "title": _PROSE,
                "certainty": Text(32),
                "why": _PROSE,
                "share_p99": Maybe(_SHARE),
                "share_total": Maybe(_SHARE),
                "evidence": _TEXTS,
                "next": _TEXTS,
                "alike": _TEXTS,
            }
        ),
        128,
    ),
    "rest": Maybe(
        Object(
            {
                "share_p99": Maybe(_SHARE),
                "share_total": Maybe(_SHARE),
                "owners": Maybe(Mapped(_NAME, _SHARE, 16)),
            }
        )
    ),
    "not_judged": Maybe(Listed(Object({"id": _NAME, "missing": _NAME}), 128)),
    "measurements": Mapped(_NAME, Maybe(Either((Whole(), Text(1024)))), 1024, _MEASURED),
    "lost": Maybe(_COUNT),
    "missing_views": Maybe(Mapped(_NAME, _PROSE, 32)),
    # what began it: a trigger, or the clock
    "reason": Maybe(_PROSE),
}

# type of a record: its fields
RECORDS: Mapping[str, Object] = {
    # opens an interval. off: the views that were not attached, and why
    "interval": Object({**_ROW, "off": Maybe(Mapped(_NAME, _PROSE, 32)), "lost": Maybe(_LOST)}),
    "fsync_summary": Object(_FSYNC_SUMMARY),
    "light_summary": Object(_LIGHT_SUMMARY),
    "light_window": Object(_LIGHT_WINDOW),
    "slow_fsync": Object(_SLOW_FSYNC),
    "txg": Object(_TXG),
    "throttle": Object(_THROTTLE),
    "device": Object(_DEVICE),
    "arc": Object(_ARC),
    "read": Object(_READ),
    "diagnosis": Object(_DIAGNOSIS),
    "parameter_change": Object(
        {
            "time": Time(),
            "name": _NAME,
            "old": Maybe(_VALUE),
            "new": Maybe(_VALUE),
            "by": Maybe(Text(64)),
        }
    ),
    "pool_state": Object({"time": Time(), "pool": _POOL, "state": Maybe(Text(32))}),
    # anything else that a reader should know: a gap, a trigger
    "note": Object({"time": Time(), "text": _PROSE}),
}
END = Object({"records": _COUNT, "left_out": Maybe(_COUNT)})
