"""Values as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zfstune.tunables import values
from zfstune.tunables.catalogue import UNITS

G, M = 1 << 30, 1 << 20


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("64M", "bytes", 64 * M),
        ("64MiB", "bytes", 64 * M),
        ("1.5g", "bytes", 3 * G // 2),
        ("10%", "bytes", 16 * G // 10),
        ("2.5 %", "bytes", 16 * G // 40),
        ("4096", "bytes", 4096),
        ("500us", "ns", 500_000),
        ("2ms", "ns", 2_000_000),
        ("500000", "ns", 500_000),
        ("30s", "ms", 30_000),
        ("5s", "s", 5),
        ("1m", "s", 60),
        ("7", "s", 7),
        ("30%", "percent", 30),
        ("30 %", "percent", 30),
        ("30", "percent", 30),
        ("10", "count", 10),
        ("on", "flag", 1),
        ("0", "flag", 0),
    ],
)
def test_values_are_read(text: str, unit: str, value: int) -> None:
    assert values.parse(text, unit, 16 * G) == value


@pytest.mark.parametrize(
    ("text", "unit", "message"),
    [
        ("64X", "bytes", "'64X' is not a size\nwrite it like 64M"),
        ("-1", "bytes", "is not a size"),
        ("1e9", "bytes", "is not a size"),
        ("500ms", "s", "is not a whole number of s\nwrite 1s"),
        ("5 parsecs", "s", "is not a time\nwrite it like 5s"),
        ("64M", "percent", "is not a percentage"),
        ("many", "count", "is not a number"),
        ("2", "flag", "is not on or off"),
        ("", "count", "write it like 10"),
        ("0x10", "count", "write it like 10"),
    ],
)
def test_invalid_values_say_why(text: str, unit: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        values.parse(text, unit, 16 * G)


def test_a_percentage_needs_the_memory() -> None:
    with pytest.raises(ValueError, match="whose size is unknown"):
        values.parse("10%", "bytes")


@given(st.integers(0, (1 << 64) - 1), st.sampled_from(UNITS))
def test_short_values_read_back_the_same(value: int, unit: str) -> None:
    value = value % 2 if unit == "flag" else value
    assert values.parse(values.short(value, unit), unit) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [(32 << 10, "32K"), (1536 << 10, "1536K"), (64 * M, "64M"), (401392 << 10, "411025408")],
)
def test_sizes_to_type_are_short_or_exact(value: int, text: str) -> None:
    assert values.short(value, "bytes") == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (64 * M, "bytes", "64M"),
        (401392 << 10, "bytes", "392M"),
        (1717986918, "bytes", "1.60G"),
        (0, "bytes", "0"),
        (500_000, "ns", "500 us"),
        (5, "s", "5 s"),
        (0, "s", "0 s"),
        (30_000, "ms", "30 s"),
        (1_234_567, "ns", "1.23 ms"),
        (30, "percent", "30 %"),
        (1, "flag", "1"),
    ],
)
def test_values_are_shown_with_their_unit(value: int, unit: str, text: str) -> None:
    assert values.show(value, unit) == text
