"""The result of a session: one JSON object with its measurements, changes and conclusions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from zfstrace.types import SCHEMA, Json
from zfstune.experiment.found import Dropped, Found, Trial
from zfstune.experiment.objective import Objective
from zfstune.experiment.proof import LimitResult
from zfstune.experiment.runner import Record
from zfstune.term.units import SECOND


@dataclass(frozen=True)
class Circumstances:
    """The request, the host and the time. Times are ISO 8601 in UTC."""

    started: str
    ended: str
    seconds: float
    host: Json
    pool: str
    command: Sequence[str]
    objective: Objective
    budget_s: float
    block_s: float
    seed: int
    baseline: Mapping[str, int]
    undo_shell: Sequence[str]
    flame: Mapping[str, str | None] = field(default_factory=dict)


def session(
    about: Circumstances,
    state: str,
    note: str | None,
    found: Found,
    records: Sequence[Record],
    in_force: bool,
    overrides: Sequence[Json],
) -> Json:
    """The object that docs/tools/zfstune-tune.md describes. state is ``finished``, ``stopped``
    or ``failed``."""
    winner, outcome = found.winner, found.outcome
    proof = outcome.records if outcome else []
    changes = outcome.changes if outcome else {}
    proved_by = {record.number for record in proof}
    slowest = outcome.tails if outcome else None
    return {
        "schema": SCHEMA,
        "type": "tune_session",
        "state": state,
        "note": note or found.note,
        "more": found.more,
        "forecast": found.forecast,
        "unsettled": found.unsettled,
        "started": about.started,
        "ended": about.ended,
        "seconds": round(about.seconds, 1),
        "host": about.host,
        "pool": about.pool,
        "command": list(about.command),
        "objective": str(about.objective),
        "budget_s": about.budget_s,
        "block_s": about.block_s,
        "seed": about.seed,
        "verdict": _verdict(found, about.objective),
        "limits": [_limit(result) for result in (outcome.limits if outcome else ())],
        "tails": asdict(slowest) | {"ok": slowest.ok} if slowest else None,
        "changes": {name: asdict(change) for name, change in changes.items()},
        "soak": asdict(found.soak) | {"ok": found.soak.ok} if found.soak else None,
        "baseline": dict(about.baseline),
        "winner": winner.values if winner else None,
        "reasons": winner.reasons if winner else {},
        "in_force": in_force,
        "dropped": [_dropped(dropped, about.objective) for dropped in found.dropped],
        "noise": {"pairs": len(found.aa), "effect": found.effect, "ratios": found.aa},
        "trials": [_trial(trial, about.objective) for trial in found.trials],
        "blocks": [_block(record, proof=record.number in proved_by) for record in records],
        "histograms": {"before": _histogram(proof, "A"), "after": _histogram(proof, "B")},
        "stages": {"before": _stages(proof, "A"), "after": _stages(proof, "B")},
        "txgs": _txgs(records),
        "overrides": list(overrides),
        "lost": sum(record.block.lost for record in records),
        "flame": {"before": None, "after": None, "note": None} | dict(about.flame),
        "undo": "zfstune revert",
        "undo_shell": list(about.undo_shell),
        "keep": "zfstune keep",
    }


def _verdict(found: Found, objective: Objective) -> Json | None:
    """With changes as users expect them: of a throughput, not of its inverse."""
    if found.verdict is None:
        return None
    low, high = sorted(map(objective.shown, (found.verdict.low, found.verdict.high)))
    change = objective.shown(found.verdict.change)
    return asdict(replace(found.verdict, change=change, low=low, high=high))


def _trial(trial: Trial, objective: Objective) -> Json:
    return {
        "number": trial.number,
        "source": trial.candidate.source,
        "values": trial.candidate.values,
        "reasons": trial.candidate.reasons,
        "change": None if trial.change is None else objective.shown(trial.change),
        "pairs": trial.pairs,
        "note": trial.note,
    }


def _block(record: Record, *, proof: bool) -> Json:
    return {
        "number": record.number,
        # the blocks of an earlier proof were more of the race
        "phase": "trial" if record.phase == "confirm" and not proof else record.phase,
        "trial": record.trial,
        "label": record.label,
        "start_s": round(record.start_s, 1),
        "seconds": round(record.block.seconds, 2),
        "settle_s": round(record.settle_s, 1),
        "txgs": len(record.block.txgs),
        "fsyncs": record.block.fsyncs,
        "metrics": record.block.metrics,
    }


def _limit(result: LimitResult) -> Json:
    return {
        "text": str(result.limit),
        "change": result.change,
        "low": result.low,
        "high": result.high if math.isfinite(result.high) else None,
        "state": result.state,
        "ok": result.ok,
    }


def _dropped(dropped: Dropped, objective: Objective) -> Json:
    change = objective.shown(dropped.change)
    return {"names": list(dropped.names), "change": change, "why": dropped.why}


def _histogram(records: Sequence[Record], label: str) -> list[list[int]]:
    """All fsyncs under A or B: [low, high (ns), count]."""
    counts: Counter[tuple[int, int]] = Counter()
    for record in records:
        if record.label == label:
            for low, high, count in record.block.histogram:
                counts[low, high] += count
    return [[low, high, count] for (low, high), count in sorted(counts.items())]


def _stages(records: Sequence[Record], label: str) -> list[Json]:
    """Sums over the blocks under A or B; a percentile is the mean of theirs, weighted by counts."""
    sums: dict[str, Json] = {}
    for record in records:
        for stage in record.block.stages if record.label == label else ():
            into = sums.setdefault(
                stage["name"],
                {
                    "name": stage["name"],
                    "total_ns": 0,
                    "count": 0,
                    "p50": 0.0,
                    "p99": 0.0,
                    "max": 0,
                },
            )
            into["total_ns"] += stage["total_ns"]
            into["count"] += stage["count"]
            into["p50"] += stage["p50"] * stage["count"]
            into["p99"] += stage["p99"] * stage["count"]
            into["max"] = max(into["max"], stage["max"])
    for into in sums.values():
        for name in ("p50", "p99"):
            into[name] = round(into[name] / into["count"]) if into["count"] else 0
    return list(sums.values())


def _txgs(records: Sequence[Record]) -> list[Json]:
    """Each txg once; t_s is when it was done, in seconds since the session began."""
    found: dict[int, Json] = {}
    for record in records:
        rows = record.block.txgs
        if not rows:
            continue
        # kstats use another clock, so the last txg is taken to end with the block
        last_ns, end_s = rows[-1].end_ns, record.start_s + record.block.seconds
        for row in rows:
            found[row.txg] = {
                "t_s": round(end_s - (last_ns - row.end_ns) / SECOND, 2),
                "txg": row.txg,
                "sync_ns": row.sync_ns,
                "dirty_bytes": row.dirty_bytes or 0,
                "label": record.label,
            }
    return [found[txg] for txg in sorted(found)]
