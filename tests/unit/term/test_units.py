"""Times and sizes, in and out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zfstune.term import units
from zfstune.term.units import (
    MS,
    SECOND,
    format_percent,
    format_short,
    format_size,
    format_span,
    format_time,
    parse_size,
    parse_time,
)


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("500us", 500_000),
        ("500\u00b5s", 500_000),
        ("10ms", 10 * MS),
        ("1.5s", 1_500 * MS),
        ("0.001ms", 1_000),
        ("5m", 300 * SECOND),
        ("1h", 3600 * SECOND),
        ("7ns", 7),
        ("0s", 0),
    ],
)
def test_times_are_parsed(text: str, ns: int) -> None:
    assert parse_time(text) == ns


@pytest.mark.parametrize(
    "text", ["", "10", "ten", "-5s", "10 parsecs", "1e3s", "9" * 15 + "h", "٣s"]
)
def test_invalid_times_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write it like"):
        parse_time(text)


@pytest.mark.parametrize(("text", "size"), [("64M", 64 << 20), ("1g", 1 << 30), ("4096", 4096)])
def test_sizes_are_parsed(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "M", "-1", "1.5G", "1X"])
def test_invalid_sizes_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write it like"):
        parse_size(text)


@given(st.text())
def test_any_text_is_a_time_or_refused(text: str) -> None:
    try:
        assert parse_time(text) >= 0
    except ValueError as error:
        assert str(error)


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1_000, "1.00 us"),
        (9_996, "10.0 us"),
        (99_960, "100 us"),
        (999_400, "999 us"),
        (999_600, "1.00 ms"),
        (1_234_567, "1.23 ms"),
        (999_600_000, "1.00 s"),
        (45_600_000_000, "45.6 s"),
        (7_300 * SECOND, "7300 s"),
    ],
)
def test_times_are_formatted(ns: int, text: str) -> None:
    assert format_time(ns) == text


@given(st.integers(0, 999 * SECOND))
def test_formatted_times_are_short_and_near(ns: int) -> None:
    text = format_time(ns)
    assert len(text) <= 8
    assert abs(parse_time(text.replace(" ", "")) - ns) <= max(1, ns * 0.006)


def test_spans_rates_and_counts_are_formatted() -> None:
    assert format_span(10 * SECOND) == "10.0 s"
    assert format_span(312 * SECOND) == "5 m 12 s"
    assert format_span(7500 * SECOND) == "2 h 5 m"
    assert units.format_rate(5, 10 * SECOND) == "0.5/s"
    assert units.format_rate(12345, SECOND) == "12,345/s"
    assert units.format_rate(1, 0) == "0.0/s"
    assert units.format_count(1234567) == "1,234,567"


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0"),
        (1023, "1023"),
        (1024, "1.00K"),
        (64 << 20, "64.0M"),
        ((1 << 20) - 1, "1.00M"),
        (999 << 10, "999K"),
        (1000 << 10, "0.98M"),
        (3 << 30, "3.00G"),
        (-5 << 20, "-5.00M"),
    ],
)
def test_sizes_are_formatted(size: int, text: str) -> None:
    assert format_size(size) == text


@given(st.integers(0, 1 << 69))
def test_sizes_and_counts_are_short(number: int) -> None:
    assert len(format_size(number)) <= 5
    assert number >= 10**12 or len(format_short(number)) <= 5


@pytest.mark.parametrize(
    ("number", "text"), [(99_999, "99999"), (123_456, "123k"), (999_600, "1.00M"), (5e9, "5.00G")]
)
def test_large_numbers_are_shortened(number: int, text: str) -> None:
    assert format_short(number) == text


@pytest.mark.parametrize(
    ("share", "text"), [(0, "0 %"), (0.003, "0.3 %"), (0.72, "72 %"), (1, "100 %")]
)
def test_shares_are_formatted(share: float, text: str) -> None:
    assert format_percent(share) == text
