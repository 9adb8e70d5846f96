"""Triggers: `fsync.p99>200ms for 30s` parsed, and asked at the end of each interval.

A trigger is of each pool by itself. It fires once, and again only after it has been untrue.
"""

from __future__ import annotations

import difflib
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from zfstrace.types import Json
from zfstune.errors import UsageError
from zfstune.term.units import (
    SECOND,
    format_count,
    format_percent,
    format_time,
    parse_span,
    parse_time,
)

# Rows of one interval by view, as the recorder gets them.
Rows = Mapping[str, Sequence[Json]]
# In the place of a view: one row with the losses of each view in the interval. Rows of the views do
# not suffice, as a view without any may have lost something, too.
LOST = "lost"
# Values by pool; "" for what is of the whole host.
Values = Mapping[str, float]

_LONGEST_FOR_NS = 3600 * SECOND
_TRIGGER = re.compile(
    r"\s*([A-Za-z0-9_.]+)\s*(>=|<=|>|<)\s*([0-9][^\s]*)(?:\s+for\s+(\S+))?\s*", re.ASCII
)
_OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_LIKE = "write it like 'fsync.p99>200ms for 30s'"


@dataclass(frozen=True)
class Unit:
    """How a value is read (raises ValueError) and shown; example is one."""

    read: Callable[[str], float]
    show: Callable[[float], str]
    example: str


def _number(suffix: str) -> Callable[[str], float]:
    def read(text: str) -> float:
        match = re.fullmatch(rf"([0-9]{{1,15}}(?:\.[0-9]{{1,6}})?)(?:{suffix})?", text)
        if not match:
            raise ValueError(f"{text!r} is not a number")
        return float(match[1])

    return read


UNITS = {
    "time": Unit(parse_time, lambda v: format_time(round(v)), "200ms"),
    "rate": Unit(_number("/s"), lambda v: f"{v:.1f}/s" if v < 100 else f"{v:,.0f}/s", "100/s"),
    "share": Unit(_number("%"), lambda v: format_percent(v / 100), "80%"),
    "count": Unit(_number(""), lambda v: format_count(round(v)), "10"),
}


@dataclass(frozen=True)
class Metric:
    """views: one of them has it. values makes it from the rows of an interval and its length in ns;
    a pool without it is left out."""

    name: str
    unit: str
    views: tuple[str, ...]
    meaning: str
    values: Callable[[Rows, int], Values]
    # a latency, which nothing has while a pool hangs
    hangs: bool = False
    most: float = math.inf


def _pools(rows: Iterable[Json], kind: str) -> dict[str, Json]:
    """The rows of pools as a whole."""
    return {
        str(row.get("pool") or ""): row
        for row in rows
        if row.get("type") == kind and row.get("dataset") is None
    }


def _fsyncs(rows: Rows) -> tuple[dict[str, Json], str]:
    """The rows of pools, and the name of their count: in a light trace an fsync is known by its
    commit."""
    if "fsync" in rows:
        return _pools(rows["fsync"], "fsync_summary"), "count"
    return _commits(rows), "commits"


def _commits(rows: Rows) -> dict[str, Json]:
    """The rows of pools. The view fsync, which takes the place of light where there are no light
    traces, knows a commit by its fsync."""
    if "light" in rows:
        return _pools(rows["light"], "light_summary")
    return _pools(rows.get("fsync", ()), "fsync_summary")


def _latency(found: Mapping[str, Json], name: str) -> Values:
    return {
        pool: float(row["latency"][name])
        for pool, row in found.items()
        if (row.get("latency") or {}).get(name) is not None
    }


def _of_fsyncs(name: str) -> Callable[[Rows, int], Values]:
    return lambda rows, _duration_ns: _latency(_fsyncs(rows)[0], name)


def _of_commits(name: str) -> Callable[[Rows, int], Values]:
    return lambda rows, _duration_ns: _latency(_commits(rows), name)


def _of_blocks(name: str) -> Callable[[Rows, int], Values]:
    """The p99 of a field of light traces; in the view fsync of the stage of that name, which is
    what fsyncs waited of it."""
    light = _most("light", f"{name}.p99")

    def values(rows: Rows, duration_ns: int) -> Values:
        if "light" in rows:
            return light(rows, duration_ns)
        return {
            pool: float(stage["p99"])
            for pool, row in _commits(rows).items()
            for stage in row.get("stages") or ()
            if stage["name"] == name and stage["count"]
        }

    return values


def _rate(found: Mapping[str, Json], count: str, duration_ns: int) -> Values:
    return {
        pool: (row.get(count) or 0) * SECOND / max(1, duration_ns) for pool, row in found.items()
    }


def _fsync_rate(rows: Rows, duration_ns: int) -> Values:
    return _rate(*_fsyncs(rows), duration_ns)


def _commit_rate(rows: Rows, duration_ns: int) -> Values:
    return _rate(_commits(rows), "commits", duration_ns)


def _unfinished(rows: Rows, _duration_ns: int) -> Values:
    found, _ = _fsyncs(rows)
    return {"": float(max(row.get("unfinished") or 0 for row in found.values()))} if found else {}


def _errors(rows: Rows, _duration_ns: int) -> Values:
    found = _pools(rows.get("fsync", ()), "fsync_summary")
    return {pool: float(row.get("errors") or 0) for pool, row in found.items()}


def _most(view: str, name: str, **wanted: str) -> Callable[[Rows, int], Values]:
    """The largest value of a field in the rows of a view, by pool."""

    def values(rows: Rows, _duration_ns: int) -> Values:
        found: dict[str, float] = {}
        for row in rows.get(view, ()):
            value = row
            for part in name.split("."):
                value = (value or {}).get(part)  # type: ignore[assignment]
            if isinstance(value, (int, float)) and all(row.get(k) == v for k, v in wanted.items()):
                pool = str(row.get("pool") or "")
                found[pool] = max(found.get(pool, 0.0), float(value))
        return found

    return values


def _sum(view: str, name: str, by: Callable[[float, int], float]) -> Callable[[Rows, int], Values]:
    """The sum of a field over the rows of a view, by pool."""

    def values(rows: Rows, duration_ns: int) -> Values:
        if view not in rows:
            return {}
        found: dict[str, float] = {}
        for row in rows[view]:
            pool = str(row.get("pool") or "")
            found[pool] = found.get(pool, 0.0) + float(row.get(name) or 0)
        # nothing waited: that is known, too
        found = found or {"": 0.0}
        return {pool: by(value, max(1, duration_ns)) for pool, value in found.items()}

    return values


def _per_second(value: float, duration_ns: int) -> float:
    return value * SECOND / duration_ns


def _percent(value: float, duration_ns: int) -> float:
    return 100 * value / duration_ns


def _hits(rows: Rows, _duration_ns: int) -> Values:
    shares = [row["hit_ratio"] for row in rows.get("arc", ()) if row.get("hit_ratio") is not None]
    return {"": 100 * min(shares)} if shares else {}


def _lost(rows: Rows, _duration_ns: int) -> Values:
    return {"": float(sum(sum(row.values()) for row in rows.get(LOST, ())))}


# The first is the better one.
_FSYNCS, _COMMITS = ("fsync", "light"), ("light", "fsync")
_ANY = ("light", "fsync", "txg", "throttle", "device", "arc")
_QUANTILES = (("p50", "median"), ("p99", "p99"), ("p999", "p99.9"), ("max", "longest"))
_METRICS = (
    *(
        Metric(
            f"fsync.{name}",
            "time",
            _FSYNCS,
            f"{what} of fsyncs (light: commits)",
            _of_fsyncs(name),
            hangs=True,
        )
        for name, what in _QUANTILES
    ),
    Metric("fsync.rate", "rate", _FSYNCS, "fsyncs per second (light: commits)", _fsync_rate),
    Metric("fsync.unfinished", "count", _FSYNCS, "under way at the end, host-wide", _unfinished),
    Metric("fsync.errors", "count", ("fsync",), "fsyncs that returned an error", _errors),
    *(
        Metric(
            f"commit.{name}",
            "time",
            _COMMITS,
            f"{what} of ZIL commits (fsync: fsyncs)",
            _of_commits(name),
            hangs=True,
        )
        for name, what in _QUANTILES
    ),
    Metric("commit.rate", "rate", _COMMITS, "ZIL commits per second", _commit_rate),
    Metric("log.p99", "time", _COMMITS, "p99 of log blocks", _of_blocks("log_write")),
    Metric("flush.p99", "time", _COMMITS, "p99 of cache flushes", _of_blocks("flush")),
    Metric("txg.sync", "time", ("txg",), "longest sync of a txg", _most("txg", "sync_ns")),
    Metric("txg.open", "time", ("txg",), "longest time that one was open", _most("txg", "open_ns")),
    Metric(
        "throttle.waits",
        "rate",
        ("throttle",),
        "waits of writers per second",
        _sum("throttle", "count", _per_second),
    ),
    Metric(
        "throttle.time",
        "share",
        ("throttle",),
        "waiting writers, 100 % is one all the time",
        _sum("throttle", "total_ns", _percent),
    ),
    Metric("throttle.max", "time", ("throttle",), "longest wait", _most("throttle", "max")),
    Metric(
        "device.log.p99",
        "time",
        ("device",),
        "p99 of synchronous writes, slowest vdev",
        _most("device", "device.p99", **{"class": "sync_write"}),
    ),
    Metric(
        "device.flush.p99",
        "time",
        ("device",),
        "p99 of cache flushes, slowest vdev",
        _most("device", "device.p99", **{"class": "flush"}),
    ),
    Metric("arc.hit", "share", ("arc",), "demand reads that were hits", _hits, most=100.0),
    Metric(
        "arc.waits",
        "rate",
        ("arc",),
        "waits for eviction per second",
        _sum("arc", "waits", _per_second),
    ),
    Metric(LOST, "count", _ANY, "what the traces could not count", _lost),
)
METRICS: Mapping[str, Metric] = {metric.name: metric for metric in _METRICS}


@dataclass(frozen=True)
class Trigger:
    """text is what was given; it fires when the comparison has been true for hold_ns."""

    text: str
    metric: Metric
    compare: str
    limit: float
    hold_ns: int = 0

    def true_of(self, value: float) -> bool:
        return _OPERATORS[self.compare](value, self.limit)


@dataclass(frozen=True)
class Fired:
    """pool is "" for the whole host."""

    trigger: Trigger
    pool: str
    value: float

    @property
    def reason(self) -> str:
        """For the head of the file, and people."""
        unit = UNITS[self.trigger.metric.unit]
        where = f" on {self.pool}" if self.pool else ""
        return f"trigger {self.trigger.text}: {unit.show(self.value)}{where}"


def parse(text: str) -> Trigger:
    """`METRIC>VALUE` or `METRIC<VALUE`, and ` for TIME`. Raises UsageError."""
    match = _TRIGGER.fullmatch(text) if len(text) <= 200 else None
    if not match:
        begin = re.match(r"\s*([A-Za-z0-9_.]+)", text[:200], re.ASCII)
        if begin:
            known(begin[1])
        raise UsageError(f"--trigger {text[:200]!r} is no trigger", _LIKE)
    name, compare, value, hold = match.groups()
    known(name)
    metric = METRICS[name]
    unit = UNITS[metric.unit]
    try:
        limit = unit.read(value)
    except ValueError as error:
        what, _, _ = str(error).partition("\n")
        raise UsageError(
            f"--trigger {text!r}: {what}", f"write '{name}{compare}{unit.example}'"
        ) from None
    if not any(_OPERATORS[compare](end, limit) for end in (0.0, metric.most)):
        raise UsageError(
            f"--trigger {text!r} can never fire: {name} is never {compare}{value}",
            f"write '{name}{compare}{unit.example}'",
        )
    shown = f"{name}{compare}{value}" + (f" for {hold}" if hold else "")
    return Trigger(shown, metric, compare, limit, _hold(text, hold) if hold else 0)


def _hold(text: str, hold: str) -> int:
    try:
        found = parse_span(hold)
    except ValueError as error:
        what, _, hint = str(error).partition("\n")
        raise UsageError(f"--trigger {text!r}: {what}", hint or _LIKE) from None
    if found > _LONGEST_FOR_NS:
        raise UsageError(f"--trigger {text!r}: {hold} is more than an hour", "use 1h at most")
    return found


def known(name: str) -> None:
    """Raises UsageError for a metric that does not exist."""
    if name not in METRICS:
        near = difflib.get_close_matches(name, METRICS, 1)
        guess = f"did you mean {near[0]}? " if near else ""
        raise UsageError(f"no metric {name!r}", f"{guess}choose from: {', '.join(METRICS)}")


def require_views(triggers: Sequence[Trigger], views: Sequence[str]) -> None:
    """Raises UsageError for a trigger that none of these views can fire."""
    for one in triggers:
        if not set(one.metric.views) & set(views):
            wanted = " or ".join(one.metric.views)
            raise UsageError(
                f"--trigger {one.text!r} can never fire: {one.metric.name} needs the view {wanted}",
                f"add it: --views {','.join((*views, one.metric.views[0]))}",
            )


class Watch:
    """The state of all triggers. A pool whose value is not known any more is not true. A trigger
    has to be true for least_ns, whatever it says: a dump ends an interval, which may then be of a
    second. A pool without a value in one that is shorter than that stays as it was."""

    def __init__(self, triggers: Sequence[Trigger], least_ns: int = 0) -> None:
        self.triggers = triggers
        self._least_ns = least_ns
        # for how long each has been true, and whether it has fired
        self._true: dict[tuple[int, str], tuple[int, bool]] = {}
        # the value of the worst pool in the last interval, None if it was not known
        self.last: dict[str, float | None] = {one.text: None for one in triggers}
        self._hangs = _Hang()

    def ended(self, rows: Rows, duration_ns: int) -> list[Fired]:
        """An interval ended with these rows; the triggers that fire now."""
        fired: list[Fired] = []
        states: dict[tuple[int, str], tuple[int, bool]] = {}
        hangs = self._hangs.ended(rows, duration_ns)
        for i, one in enumerate(self.triggers):
            values = (one.metric.hangs and hangs) or one.metric.values(rows, duration_ns)
            worst = max if one.compare.startswith(">") else min
            self.last[one.text] = worst(values.values()) if values else None
            if duration_ns < self._least_ns:
                # a pool of which one second shows nothing is no better for it
                states |= {
                    key: state
                    for key, state in self._true.items()
                    if key[0] == i and key[1] not in values
                }
            for pool, value in values.items():
                if not one.true_of(value):
                    continue
                held, before = self._true.get((i, pool), (0, False))
                held += duration_ns
                now = before or held >= max(one.hold_ns, self._least_ns)
                states[i, pool] = held, now
                if now and not before:
                    fired.append(Fired(one, pool, value))
        self._true = states
        return fired


class _Hang:
    """For how long no fsync or commit of any pool has ended although one has begun. Of that there
    is no latency; what was under way already when the interval began takes longer than it."""

    def __init__(self) -> None:
        self._waiting = False
        self._since_ns = 0

    def ended(self, rows: Rows, duration_ns: int) -> Values:
        """That time as the latency of each pool; {} if something has ended, or nothing waits."""
        found, count = _fsyncs(rows)
        waited = self._waiting
        self._waiting = any(row.get("unfinished") for row in found.values())
        if not (waited and self._waiting) or any(row.get(count) for row in found.values()):
            self._since_ns = 0
            return {}
        self._since_ns += duration_ns
        return dict.fromkeys(found, float(self._since_ns))
