"""Limits of `zfstune check`: what is read, and what perfdata says of it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zfstune.check.limits import UNITS, Limit, parse, plain
from zfstune.errors import UsageError
from zfstune.term.units import MS

INF = float("inf")


def by_guidelines(text: str, value: float) -> bool:
    """Whether a range alerts, as the development guidelines of the monitoring plugins define it
    (Threshold and Ranges)."""
    match = re.fullmatch(r"(@?)(?:(~|[-0-9.]*):)?([-0-9.]*)", text)
    assert match, text
    start = -INF if match[2] == "~" else float(match[2] or 0)
    end = float(match[3]) if match[3] else INF
    inside = start <= value <= end
    return inside if match[1] else not inside


@pytest.mark.parametrize(
    ("given", "limit", "perfdata"),
    [
        ("fsync.p99=20ms", Limit(0, 20 * MS), "0.02"),
        ("fsync.p99=1ms:20ms", Limit(MS, 20 * MS), "0.001:0.02"),
        ("arc.hit=80%:", Limit(80, INF), "80:"),
        ("arc.hit=80:", Limit(80, INF), "80:"),
        ("txg.dirty=@60%:80.5%", Limit(60, 80.5, True), "@60:80.5"),
        ("fsync.rate=~:1000/s", Limit(-INF, 1000), "~:1000"),
        ("lost=0", Limit(0, 0), "0"),
        ("lost=@0", Limit(0, 0, True), "@0"),
        ("arc.size=4G", Limit(0, 4 << 30), "4294967296"),
    ],
)
def test_ranges_are_those_of_the_guidelines(given: str, limit: Limit, perfdata: str) -> None:
    ((name, found),) = parse([given]).items()
    assert name == given.partition("=")[0]
    assert found == limit
    unit = UNITS["size" if name == "arc.size" else "time" if "p99" in name else "count"]
    assert found.perfdata(unit) == perfdata


BOUND = st.integers(0, 10**12)


@given(BOUND, BOUND, BOUND, st.booleans(), st.booleans(), st.booleans())
def test_perfdata_says_what_is_judged(
    one: int, other: int, value: int, endless: bool, bottomless: bool, inside: bool
) -> None:
    low, high = min(one, other), max(one, other)
    limit = Limit(-INF if bottomless else low, INF if endless else high, inside)
    if endless and bottomless:
        return
    assert by_guidelines(limit.perfdata(UNITS["count"]), value) == limit.bad(value)
    assert by_guidelines(limit.perfdata(UNITS["time"]), float(plain(value / 10**9))) == limit.bad(
        value
    )


@given(st.floats(0, 1e15))
def test_perfdata_has_no_exponent(value: float) -> None:
    assert re.fullmatch(r"[0-9]+(\.[0-9]{1,9})?", plain(value))
    assert float(plain(value)) == pytest.approx(value, abs=1e-9)


@given(st.text())
def test_any_text_is_a_limit_or_a_usage_error(text: str) -> None:
    for name in ("", "fsync.p99=", "arc.hit="):
        try:
            parse([name + text])
        except UsageError as error:
            assert error.hint


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ("fsync.p99", "no limit"),
        ("fsync.p99=", "no limit"),
        ("fsync.p99=20", "no unit"),
        ("fsync.p99=20ms:10ms", "not a range"),
        ("fsync.p99=:", "not a range"),
        ("fsync.p99=@", "not a range"),
        ("fsync.p99=@@5ms", "not a"),
        ("fsync.p99=1ms,fsync.p99=2ms", "two limits"),
        ("fsync.p98=1ms", "no metric 'fsync.p98'"),
        ("arc.hit=eighty", "not a number"),
        ("lost=-1", "not a number"),
        ("", "no metric ''"),
    ],
)
def test_a_wrong_limit_is_refused(given: str, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        parse([given])


def test_a_limit_may_come_in_a_list_or_by_itself() -> None:
    assert parse(["fsync.p99=1ms,lost=0", "arc.hit=9:"]).keys() == {"fsync.p99", "lost", "arc.hit"}
