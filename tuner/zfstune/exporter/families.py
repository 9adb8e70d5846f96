"""Families of prometheus_client, from what the kernel has counted.

A histogram of the kernel has buckets of at most 1/32 of their value (zfstrace.hist); one of
Prometheus has bounds at 1, 2 and 5. A value counts below the first bound that is not under the last
value of its bucket, so that it never counts below a bound that it exceeds.
"""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.samples import Exemplar, Sample

from zfstrace.hist import BUCKETS, Hist, Table, index, low
from zfstune.exporter.bounded import label
from zfstune.exporter.metrics import METRICS, Spec
from zfstune.term.units import MS, SECOND, US

BOUNDS_NS = (
    *(n * US for n in (50, 100, 200, 500)),
    *(n * MS for n in (1, 2, 5, 10, 20, 50, 100, 200, 500)),
    *(n * SECOND for n in (1, 2, 5, 10, 20)),
)
LE = (*(repr(ns / SECOND) for ns in BOUNDS_NS), "+Inf")
# An older exemplar says nothing about what a graph shows now.
_EXEMPLAR_S = 300.0

Labels = tuple[str, ...]
Value = TypeVar("Value")


@functools.lru_cache(maxsize=1)
def _places() -> tuple[int, ...]:
    """The index in LE of each bucket of zfstrace.hist."""
    return tuple(bisect_left(BOUNDS_NS, low(bucket + 1) - 1) for bucket in range(BUCKETS))


def place(ns: int) -> int:
    """The index in LE of a value."""
    return _places()[index(max(0, ns))]


def added(now: Hist, before: Hist) -> tuple[Iterable[tuple[int, int]], int]:
    """What a session has counted between two of its states: (bucket, count) of each, and the sum in
    ns."""
    if not (before.count or before.sum_ns):
        return now.buckets.items(), now.sum_ns
    gained = now.subtract(before).buckets
    sum_ns = max(0, now.sum_ns - before.sum_ns)
    moved = not isinstance(now.buckets, Table) and any(
        now.buckets.get(bucket, 0) < count for bucket, count in before.buckets.items()
    )
    if moved:
        # only the mean of these values is known, and it is another one now (commits that bypassed
        # the log on FreeBSD): what has moved is not new
        return _first(gained, now.count - before.count), sum_ns
    return gained.items(), sum_ns


def _first(counts: Mapping[int, int], most: int) -> Iterator[tuple[int, int]]:
    for bucket, count in counts.items():
        if most > 0:
            yield bucket, min(count, most)
        most -= count


class Shown(NamedTuple):
    """A value with what is known about it."""

    ns: int
    at_s: float
    labels: dict[str, str]


class Series:
    """A histogram of Prometheus for one set of labels. Nothing in it ever goes back."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self.counts = [0] * len(LE)
        self.sum_ns = 0
        self._exemplars: dict[int, Shown] = {}
        # made once: most of the time of a scrape would go into these
        self._labels = dict(labels)
        self._buckets = [{**labels, "le": le} for le in LE]

    @property
    def count(self) -> int:
        return sum(self.counts)

    def add(self, now: Hist, before: Hist) -> None:
        """Adds what a session has counted between two of its states."""
        counts, sum_ns = added(now, before)
        places = _places()
        for bucket, count in counts:
            self.counts[places[bucket]] += count
        self.sum_ns += sum_ns

    def observe(self, ns: int) -> None:
        """Adds a value."""
        self.counts[place(ns)] += 1
        self.sum_ns += max(0, ns)

    def show(self, one: Shown) -> None:
        """Makes a value, which is counted, the exemplar of its bucket if it is the slowest of the
        last minutes."""
        where = place(one.ns)
        old = self._exemplars.get(where)
        if old is None or one.ns >= old.ns or abs(one.at_s - old.at_s) > _EXEMPLAR_S:
            labels = {name: label(text)[:40] for name, text in one.labels.items() if text}
            self._exemplars[where] = one._replace(labels=labels)

    def samples(self, name: str, now_s: float) -> Iterator[Sample]:
        """As HistogramMetricFamily would make them, in half the time."""
        total = 0
        for i, count in enumerate(self.counts):
            total += count
            exemplar, shown = None, self._exemplars.get(i)
            if shown and abs(now_s - shown.at_s) <= _EXEMPLAR_S:
                exemplar = Exemplar(shown.labels, shown.ns / SECOND, round(shown.at_s, 3))
            yield Sample(f"{name}_bucket", self._buckets[i], total, None, exemplar)
        yield Sample(f"{name}_count", self._labels, total)
        yield Sample(f"{name}_sum", self._labels, self.sum_ns / SECOND)


class Histograms:
    """All series of a histogram of the table."""

    def __init__(self, name: str) -> None:
        self._spec = METRICS[name]
        self._series: dict[Labels, Series] = {}

    def at(self, *labels: str) -> Series:
        """The series of these label values, made if there is none."""
        found = self._series.get(labels)
        if found is None:
            found = self._series[labels] = Series(_named(self._spec.labels, labels))
        return found

    def get(self, *labels: str) -> Series | None:
        return self._series.get(labels)

    def end(self, dataset: str) -> None:
        """Ends the series of a dataset."""
        self._series = _without(dataset, self._spec, self._series)

    def family(self, now_s: float) -> Metric:
        family = HistogramMetricFamily(
            self._spec.name, self._spec.help, labels=list(self._spec.labels)
        )
        for series in self._series.values():
            family.samples.extend(series.samples(self._spec.name, now_s))
        return family


class Counters:
    """All series of a counter of the table; scale divides what is added. None of them ever goes
    back."""

    def __init__(self, name: str, scale: int = 1) -> None:
        self._spec, self._scale = METRICS[name], scale
        self._sums: dict[Labels, int] = {}

    def add(self, number: int, *labels: str) -> None:
        """Adds a number; 0 makes the series visible before its first event, which increase() would
        miss otherwise."""
        self._sums[labels] = self._sums.get(labels, 0) + max(0, number)

    def at_least(self, number: int, *labels: str) -> None:
        """Brings a series to a number that was counted elsewhere, unless that has gone back."""
        self._sums[labels] = max(number, self._sums.get(labels, 0))

    def end(self, dataset: str) -> None:
        """Ends the series of a dataset."""
        self._sums = _without(dataset, self._spec, self._sums)

    def family(self) -> Metric:
        family = CounterMetricFamily(
            self._spec.name, self._spec.help, labels=list(self._spec.labels)
        )
        for labels, number in self._sums.items():
            value = number if self._scale == 1 else number / self._scale
            family.add_metric(labels, value)
        return family


def _without(dataset: str, spec: Spec, found: dict[Labels, Value]) -> dict[Labels, Value]:
    at = spec.labels.index("dataset")
    return {labels: value for labels, value in found.items() if labels[at] != dataset}


class Rising:
    """Counters of the module, which begin anew when it is loaded again: sums that do not. module
    says which one is loaded (Parameters.identity())."""

    def __init__(self, counters: Counters, module: Callable[[], str]) -> None:
        self._counters, self._module = counters, module
        self._last: dict[Labels, tuple[int, str]] = {}

    def set(self, number: int, *labels: str) -> None:
        """The present value of one."""
        if labels not in self._last:
            self._last[labels] = 0, self._module()
        last, of = self._last[labels]
        if number < last:
            module = self._module()
            if module == of:
                # a CPU that goes offline takes its part of the sum along until the kernel has
                # added it to the others' (lib/percpu_counter.c)
                return
            last, of = 0, module
        self._last[labels] = number, of
        self._counters.add(number - last, *labels)


def _named(names: Sequence[str], labels: Labels) -> dict[str, str]:
    if len(names) != len(labels):
        raise ValueError(f"{labels} for {names}")
    return dict(zip(names, labels))


def gauge(name: str, values: Mapping[Labels, float]) -> Metric:
    """A gauge of the table; it has only these series."""
    spec = METRICS[name]
    family = GaugeMetricFamily(spec.name, spec.help, labels=list(spec.labels))
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family


def one(name: str, value: float | None) -> Metric:
    """A gauge without labels; without a series if the value is not known."""
    return gauge(name, {} if value is None else {(): value})


def info(name: str, found: Iterable[Labels]) -> Metric:
    """An info of the table, 1 for each of these label values."""
    spec = METRICS[name]
    family = InfoMetricFamily(spec.name[: -len("_info")], spec.help)
    for labels in found:
        family.add_metric([], _named(spec.labels, labels))
    return family
