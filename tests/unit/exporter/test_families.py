"""Histograms and counters of Prometheus from those of the kernel."""

from __future__ import annotations

import itertools
from array import array
from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.samples import from_values

from zfstrace.hist import BUCKETS, Hist, Table, index, low
from zfstune.exporter.families import (
    BOUNDS_NS,
    LE,
    Counters,
    Histograms,
    Rising,
    Series,
    Shown,
    place,
)
from zfstune.term.units import MS, SECOND, US

TIMES = st.integers(min_value=0, max_value=60 * SECOND)


def series(*values: int) -> Series:
    made = Series({"pool": "tank"})
    made.add(from_values(values), Hist())
    return made


def as_kernel(hist: Hist) -> Hist:
    """The same as libzfstrace returns it."""
    counts = array("Q", [hist.buckets.get(i, 0) for i in range(BUCKETS)])
    return Hist(hist.count, hist.sum_ns, hist.max_ns, Table.of(counts.tobytes()))


def test_bounds_are_1_2_5_from_50_us_to_20_s() -> None:
    assert LE[:4] == ("5e-05", "0.0001", "0.0002", "0.0005")
    assert LE[-3:] == ("10.0", "20.0", "+Inf")
    assert BOUNDS_NS[0] == 50 * US and BOUNDS_NS[-1] == 20 * SECOND
    assert [float(le) for le in LE[:-1]] == [ns / SECOND for ns in BOUNDS_NS]


@given(TIMES)
def test_a_value_never_counts_below_a_bound_that_it_exceeds(ns: int) -> None:
    exact = bisect_left(BOUNDS_NS, ns)
    assert place(ns) >= exact
    # and it is off by its bucket at most, 1/32
    assert place(ns) <= bisect_left(BOUNDS_NS, ns + ns // 32 + 1)


def test_a_value_counts_with_the_end_of_its_bucket() -> None:
    at = index(50 * US)
    assert low(at) <= 50 * US < low(at + 1)
    assert place(low(at)) == 1  # its bucket ends above 50 us
    assert place(low(at) - 1) == 0
    assert place(10**15) == len(LE) - 1


@given(st.lists(TIMES, max_size=20), st.lists(TIMES, max_size=20))
def test_increments_sum_to_the_whole(first: list[int], more: list[int]) -> None:
    whole, before, after = series(*first, *more), from_values(first), from_values(first + more)
    for states in ((before, after), (as_kernel(before), as_kernel(after))):
        made = Series({"pool": "tank"})
        made.add(states[0], Hist())
        made.add(states[1], states[0])
        made.add(states[1], states[1])
        assert made.counts == whole.counts
        assert made.sum_ns == sum(first + more)
        assert made.count == len(first + more)


def test_values_whose_mean_moves_are_counted_once() -> None:
    """Commits that bypassed the log on FreeBSD: all of them are in the bucket of their mean."""
    was = Hist(100, 100 * MS, MS, {index(MS): 100})
    now = Hist(110, 600 * MS, 500 * MS, {index(600 * MS // 110): 110})
    made = Series({"pool": "tank"})
    made.add(was, Hist())
    made.add(now, was)
    assert made.count == 110 and made.sum_ns == 600 * MS


def test_the_sum_is_exact_even_if_it_was_read_before_its_bucket() -> None:
    made = Series({"pool": "tank"})
    states = [Hist(), Hist(0, 5 * MS, 5 * MS, {}), from_values([5 * MS, 7 * MS])]
    for before, now in itertools.pairwise(states):
        made.add(now, before)
    assert (made.count, made.sum_ns) == (2, 12 * MS)


def test_buckets_are_cumulative_and_inf_is_the_count() -> None:
    samples = list(series(60 * US, 3 * MS, 3 * MS, 30 * SECOND).samples("x", 0))
    values = {sample.labels.get("le"): sample.value for sample in samples if "le" in sample.labels}
    assert values["5e-05"] == 0 and values["0.0001"] == 1
    assert values["0.002"] == 1 and values["0.005"] == 3
    assert values["20.0"] == 3 and values["+Inf"] == 4
    tail = {sample.name: sample.value for sample in samples[-2:]}
    assert tail == {"x_count": 4, "x_sum": pytest.approx(30.00606)}


def test_the_slowest_of_a_bucket_is_its_exemplar() -> None:
    made = series(110 * MS, 150 * MS, 150 * MS)
    for ns, comm in ((150 * MS, "slow"), (110 * MS, "fast")):
        made.show(Shown(ns, 1000.0, {"comm": comm, "txg": ""}))
    (shown,) = (s.exemplar for s in made.samples("x", 1001) if s.exemplar)
    assert shown.labels == {"comm": "slow"} and shown.value == 0.15
    # one of the last minutes takes its place, and in the end there is none
    made.show(Shown(110 * MS, 1400.0, {"comm": "later"}))
    (shown,) = (s.exemplar for s in made.samples("x", 1401) if s.exemplar)
    assert shown.labels == {"comm": "later"}
    assert not [s for s in made.samples("x", 1800) if s.exemplar]


def test_an_exemplar_of_the_future_is_old() -> None:
    """The clock was set back."""
    made = series(110 * MS, 150 * MS)
    made.show(Shown(150 * MS, 100_000.0, {"comm": "ahead"}))
    assert not [s for s in made.samples("x", 1000) if s.exemplar]
    made.show(Shown(110 * MS, 1000.0, {"comm": "now"}))
    (shown,) = (s.exemplar for s in made.samples("x", 1001) if s.exemplar)
    assert shown.labels == {"comm": "now"}


def test_counters_of_a_module_go_on_when_it_is_loaded_again() -> None:
    counters = Counters("zfstune_zil_kstat_total")
    loaded = ["first"]
    rising = Rising(counters, lambda: loaded[-1])
    for number in (100, 130):
        rising.set(number, "commit")
    loaded.append("second")
    for number in (4, 4, 9):
        rising.set(number, "commit")
    (sample,) = counters.family().samples
    assert sample.value == 139


def test_a_sum_over_fewer_cpus_for_a_moment_is_no_other_module() -> None:
    counters = Counters("zfstune_zil_kstat_total")
    rising = Rising(counters, lambda: "the same")
    for number in (1000, 1010, 520, 1005, 1020):
        rising.set(number, "commit")
    (sample,) = counters.family().samples
    assert sample.value == 1020


def test_a_counter_does_not_go_back() -> None:
    counters = Counters("zfstune_zil_kstat_total")
    counters.add(5, "commit")
    counters.add(-3, "commit")
    counters.at_least(2, "commit")
    (sample,) = counters.family().samples
    assert sample.value == 5


def test_labels_are_those_of_the_table() -> None:
    with pytest.raises(ValueError, match="tank"):
        Histograms("zfstune_zil_commit_duration_seconds").at("tank")
