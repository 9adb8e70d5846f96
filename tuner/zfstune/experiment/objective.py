"""The objective and the limits of a session, as users write them: ``fsync.p99``,
``fsync.p99=0.7,fsync.p50=0.3``, ``write.throughput>=-5%``.

The ValueErrors are `WHAT: WHY`, with the hint on a second line."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """A number of a block. fsyncs is the number of fsyncs that a block needs before its number is
    worth comparing; 0 for a metric that is not about fsyncs. calls is the same of reads, or writes:
    a block with fewer does not have the metric. source is what it needs beside the trace of fsyncs:
    "reads", the trace of reads and writes, "arcstats", the kstat, or "".

    With fewer than 1 / (1 - q), quantile q is the largest value: a candidate whose true p99 is
    three times as high looks equal in blocks of twenty fsyncs (docs/statistics.md).
    """

    name: str
    unit: str  # "ns", "bytes/s" or "share"
    less_is_better: bool
    fsyncs: int
    words: str
    calls: int = 0
    source: str = ""


THROUGHPUT = "write.throughput"

METRICS = {
    metric.name: metric
    for metric in (
        Metric("fsync.p50", "ns", True, 10, "median fsync"),
        Metric("fsync.p99", "ns", True, 100, "p99 of fsync"),
        Metric("fsync.p999", "ns", True, 1000, "p99.9 of fsync"),
        Metric("fsync.mean", "ns", True, 10, "mean fsync"),
        Metric(THROUGHPUT, "bytes/s", False, 0, "write throughput"),
        Metric("write.p99", "ns", True, 0, "p99 of write", 100, "reads"),
        Metric("read.p99", "ns", True, 0, "p99 of read", 100, "reads"),
        Metric("read.mean", "ns", True, 0, "mean read", 10, "reads"),
        Metric("arc.miss", "share", True, 0, "share of reads that miss the cache", 10, "arcstats"),
    )
}

_WEIGHT = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6})?|\.[0-9]{1,6})")
_LIMIT = re.compile(r"([^<>=]*)(<=|>=)\s*([+-]?)\s*([0-9]{1,4}(?:\.[0-9]{1,4})?)\s*%\s*")


def metric(name: str) -> Metric:
    """By its name. Raises ValueError."""
    found = METRICS.get(name.strip())
    if found is None:
        what = f"no metric {name.strip()!r}" if name.strip() else "a metric is missing"
        raise ValueError(f"{what}\nchoose from {', '.join(METRICS)}")
    return found


@dataclass(frozen=True)
class Objective:
    """Metrics with weights that sum to 1."""

    weights: tuple[tuple[Metric, float], ...]

    @classmethod
    def parse(cls, text: str) -> Objective:
        """One name, or NAME=WEIGHT,NAME=WEIGHT. Raises ValueError."""
        found: dict[str, float] = {}
        for part in text.split(","):
            name, equals, weight = part.partition("=")
            one = metric(name)
            if one.name in found:
                raise ValueError(f"{one.name} is given twice\ngive it one weight")
            found[one.name] = _weight(part, weight) if equals else 1.0
        total = sum(found.values())
        return cls(tuple((METRICS[name], weight / total) for name, weight in found.items()))

    def value(self, metrics: Mapping[str, float]) -> float:
        """The cost of a block (less is better): the weighted geometric mean, in which a throughput
        is inverted. Raises ValueError if a metric is missing or not a positive number."""
        return math.exp(
            sum(
                (weight if one.less_is_better else -weight) * _log(one, metrics.get(one.name))
                for one, weight in self.weights
            )
        )

    def shown(self, change: float) -> float:
        """A change of the cost (ratio minus 1) as the change that users expect: a cost that is 20 %
        less is 25 % more throughput."""
        if any(one.less_is_better for one, _weight in self.weights):
            return change
        return math.inf if change <= -1 else 1 / (1 + change) - 1

    def words(self, change: float) -> str:
        """A change of the cost for a line of progress: ``fsync.p99 -38%``."""
        return f"{self} {self.shown(change):+.0%}"

    def fsyncs(self) -> int:
        """The number of fsyncs that a block needs."""
        return max(one.fsyncs for one, _weight in self.weights)

    def __str__(self) -> str:
        if len(self.weights) == 1:
            return self.weights[0][0].name
        return ",".join(f"{one.name}={weight:.3g}" for one, weight in self.weights)


@dataclass(frozen=True)
class Limit:
    """A bound on the change of a metric; share bounds its ratio minus 1."""

    metric: Metric
    share: float

    @classmethod
    def parse(cls, text: str) -> Limit:
        """``write.throughput>=-5%``, ``fsync.p50<=+20%``. Raises ValueError."""
        match = _LIMIT.fullmatch(text)
        if not match:
            raise ValueError(
                f"{text!r} is not a limit\nwrite it like write.throughput>=-5% or fsync.p50<=+20%"
            )
        name, sign, minus, percent = match.groups()
        one = metric(name)
        share = float(percent) / 100 * (-1 if minus == "-" else 1)
        if (sign == "<=") != one.less_is_better:
            right = "<=+20%" if one.less_is_better else ">=-5%"
            more = "more" if one.less_is_better else "less"
            raise ValueError(
                f"{text!r} limits the wrong side: {more} is worse\nwrite {one.name}{right}"
            )
        if share <= -1:
            raise ValueError(f"{text!r} is not a limit: no metric falls by 100 % or more")
        return cls(one, share)

    def allows(self, change: float) -> bool:
        """Whether a change (ratio minus 1) is within the limit."""
        return self.missed_by(change) <= 0

    def missed_by(self, change: float) -> float:
        """How far a change is beyond the limit, as a log ratio; 0 or less within it."""
        if change <= -1:
            return -math.inf if self.metric.less_is_better else math.inf
        beyond = math.log1p(change) - math.log1p(self.share)
        return beyond if self.metric.less_is_better else -beyond

    def __str__(self) -> str:
        sign = "<=" if self.metric.less_is_better else ">="
        return f"{self.metric.name}{sign}{self.share * 100:+.6g}%"


def _weight(part: str, text: str) -> float:
    if not _WEIGHT.fullmatch(text.strip()) or not float(text):
        raise ValueError(f"{part.strip()!r} has no weight\nwrite it like fsync.p99=0.7")
    return float(text)


def _log(one: Metric, value: float | None) -> float:
    if value is None and one.calls:
        what = "writes" if one.name.startswith("write.") else "reads"
        raise ValueError(f"a block has fewer than {one.calls} {what}: too few for {one.name}")
    if value is None or not 0 < value < math.inf:
        raise ValueError(f"{one.name} of a block is {value}, not a positive number")
    return math.log(value)
