"""The histogram: properties of the Python side, and its agreement with the C side."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.paths import ROOT
from support.samples import from_values

from zfstrace import hist
from zfstrace.bpf import binding
from zfstrace.hist import BUCKETS, Hist, Table

LIBRARY = ROOT / "tracers/libzfstrace/libzfstrace.so"
TIMES = st.integers(0, 2**44)
SAMPLES = st.lists(TIMES, min_size=1, max_size=200)


@pytest.fixture(scope="module")
def clib() -> ctypes.CDLL:
    # `make test` builds it first: a missing library is a failure, not a reason to skip
    assert LIBRARY.exists(), f"{LIBRARY.name} is not built, run `make`"
    return binding.load(str(LIBRARY))


@given(TIMES)
def test_a_value_lies_in_its_bucket(value: int) -> None:
    bucket = hist.index(value)
    assert hist.low(bucket) <= value
    assert value < hist.low(bucket + 1) or bucket == BUCKETS - 1


@given(st.integers(64, 2**42 - 1))
def test_a_bucket_is_at_most_a_32nd_of_its_value(value: int) -> None:
    bucket = hist.index(value)
    assert (hist.low(bucket + 1) - hist.low(bucket)) * 32 <= value


def test_buckets_are_contiguous() -> None:
    assert [hist.index(hist.low(bucket)) for bucket in range(BUCKETS)] == list(range(BUCKETS))
    assert hist.low(BUCKETS) == 2**42


@given(SAMPLES, st.integers(0, 1000))
def test_a_quantile_is_near_the_true_one(values: list[int], permille: int) -> None:
    rank = max(1, -(-len(values) * permille // 1000))
    true = min(sorted(values)[rank - 1], 2**42)
    got = from_values(values).quantile(permille)
    assert got <= max(values)
    if true < 2**42:
        assert abs(got - true) <= max(1, true / 31)


@given(SAMPLES)
def test_quantiles_do_not_fall(values: list[int]) -> None:
    h = from_values(values)
    quantiles = [h.quantile(permille) for permille in range(0, 1001, 50)]
    assert quantiles == sorted(quantiles)


@given(SAMPLES, SAMPLES)
def test_a_merge_is_as_if_counted_together(one: list[int], other: list[int]) -> None:
    assert from_values(one).merge(from_values(other)) == from_values(one + other)


@given(SAMPLES, st.lists(TIMES, max_size=50))
def test_a_difference_is_the_interval(earlier: list[int], later: list[int]) -> None:
    before = from_values(earlier)
    delta = before.merge(from_values(later)).subtract(before)
    want = from_values(later)
    assert (delta.count, delta.sum_ns, delta.buckets) == (want.count, want.sum_ns, want.buckets)
    assert delta.max_ns >= want.max_ns
    if want.max_ns < hist.low(BUCKETS - 1):  # the last bucket has no upper bound
        assert delta.max_ns <= want.max_ns * 33 / 32 + 1


counts = st.dictionaries(st.integers(0, 49), st.integers(1, 2**64 - 1))


def table(counts: Mapping[int, int]) -> Table:
    return Table.of(bytes((ctypes.c_uint64 * 50)(*(counts.get(i, 0) for i in range(50)))))


@given(counts)
def test_a_table_has_the_buckets_that_are_not_empty(want: dict[int, int]) -> None:
    found = table(want)
    assert found == want
    assert (len(found), found.total()) == (len(want), sum(want.values()))


@given(counts, counts)
def test_a_table_knows_what_was_added(earlier: dict[int, int], later: dict[int, int]) -> None:
    """No bucket ever shrinks."""
    later = {i: max(n, earlier.get(i, 0)) for i, n in (earlier | later).items()}
    added = {i: n - earlier.get(i, 0) for i, n in later.items() if n > earlier.get(i, 0)}
    assert table(later).since(table(earlier)) == added
    assert table(added).plus(table(earlier)) == later
    one, other = (Hist(1, 1, 2**40, table(buckets)) for buckets in (later, earlier))
    plain = [Hist(1, 1, 2**40, buckets) for buckets in (later, earlier)]
    assert one.subtract(other) == plain[0].subtract(plain[1])
    assert one.subtract(other).merge(other) == plain[0].subtract(plain[1]).merge(plain[1])


def test_an_empty_histogram_has_zero_quantiles() -> None:
    assert Hist().quantile(500) == 0
    assert Hist().subtract(Hist()) == Hist()
    assert Hist().rows() == ()


def test_a_torn_count_is_no_error() -> None:
    # the kernel had added to count, not yet to the bucket
    assert Hist(2, 10, 7, {5: 1}).quantile(1000) == 7


def _random_values(n: int) -> list[int]:
    rng = random.Random(20261121)
    return [rng.getrandbits(rng.randrange(1, 65)) for _ in range(n)]


def test_index_agrees_with_c(clib: ctypes.CDLL) -> None:
    c_index = clib.zfstrace_hist_index
    wrong = [v for v in _random_values(1_000_000) if c_index(v) != hist.index(v)]
    assert wrong == []


def test_low_agrees_with_c(clib: ctypes.CDLL) -> None:
    for bucket in range(BUCKETS + 1):
        assert clib.zfstrace_hist_low(bucket) == hist.low(bucket)


def test_quantile_agrees_with_c(clib: ctypes.CDLL) -> None:
    rng = random.Random(7)
    for _ in range(300):
        bits = rng.randrange(1, 46)
        h = from_values(rng.getrandbits(bits) for _ in range(rng.randrange(1, 400)))
        assert_quantiles_agree(clib, h)


@given(
    st.dictionaries(st.integers(0, BUCKETS - 1), st.integers(1, 2**40), max_size=20),
    st.integers(0, 2**43),
    st.integers(0, 3),
)
def test_quantile_agrees_with_c_also_when_torn(
    clib: ctypes.CDLL, buckets: dict[int, int], max_ns: int, extra: int
) -> None:
    assert_quantiles_agree(clib, Hist(sum(buckets.values()) + extra, 0, max_ns, buckets))


def assert_quantiles_agree(clib: ctypes.CDLL, h: Hist) -> None:
    c = binding.CHist(count=h.count, sum_ns=h.sum_ns, max_ns=h.max_ns)
    for bucket, n in h.buckets.items():
        c.bucket[bucket] = n
    for permille in (0, 1, 500, 900, 990, 999, 1000):
        got = clib.zfstrace_hist_quantile(ctypes.byref(c), permille)
        assert got == h.quantile(permille), permille
