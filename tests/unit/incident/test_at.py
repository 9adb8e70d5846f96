"""--at: which moment of a file is meant."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from support import incidents

from zfstune.errors import UsageError
from zfstune.incident import at
from zfstune.incident.intervals import load
from zfstune.incident.reader import Reader
from zfstune.incident.times import ns_of

# ten minutes around midnight
SPAN = (ns_of(incidents.BEGIN) or 0, ns_of(incidents.END) or 0)


def found(text: str, span: tuple[int, int] = SPAN) -> str:
    return at.shown(at.find(at.parse(text), span, "x"))


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("23:58", "2026-11-26 23:58:00 UTC"),
        ("0:03", "2026-11-27 00:03:00 UTC"),
        ("00:03:20", "2026-11-27 00:03:20 UTC"),
        # the file begins within that minute
        ("23:56", "2026-11-26 23:56:40 UTC"),
        ("00:06", "2026-11-27 00:06:00 UTC"),
        ("00:06:40", "2026-11-27 00:06:40 UTC"),
        ("2026-11-27T00:03Z", "2026-11-27 00:03:00 UTC"),
        ("2026-11-27 00:03", "2026-11-27 00:03:00 UTC"),
        ("2026-11-26T23:58:05.123Z", "2026-11-26 23:58:05 UTC"),
        ("23:58Z", "2026-11-26 23:58:00 UTC"),
    ],
)
def test_a_moment_in_the_file(text: str, moment: str) -> None:
    assert found(text) == moment


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        # as `date -Iminutes`, `-Iseconds`, `--rfc-3339=seconds` and `+%H:%M%z` write it
        ("2026-11-27T01:03+01:00", "2026-11-27 00:03:00 UTC"),
        ("2026-11-27T01:03:20+01:00", "2026-11-27 00:03:20 UTC"),
        ("2026-11-27 01:03:20+01:00", "2026-11-27 00:03:20 UTC"),
        ("01:03+0100", "2026-11-27 00:03:00 UTC"),
        # on both sides of midnight there
        ("2026-11-27T00:58+01:00", "2026-11-26 23:58:00 UTC"),
        ("2026-11-26T18:33-05:30", "2026-11-27 00:03:00 UTC"),
        ("00:58+01:00", "2026-11-26 23:58:00 UTC"),
        ("18:33-05:30", "2026-11-27 00:03:00 UTC"),
        ("14:03:20+14:00", "2026-11-27 00:03:20 UTC"),
        ("0:03-00:00", "2026-11-27 00:03:00 UTC"),
    ],
)
def test_a_moment_with_an_offset(text: str, moment: str) -> None:
    assert found(text) == moment


def test_a_moment_with_an_offset_is_the_same_as_in_utc() -> None:
    """For each minute of the file and each zone that has been in use."""
    first, _ = SPAN
    begin = datetime.fromtimestamp(first // 10**9, UTC)
    for minute in range(10):
        utc = begin + timedelta(minutes=minute)
        for quarters in range(-12 * 4, 14 * 4 + 1):
            there = utc.astimezone(timezone(timedelta(minutes=15 * quarters)))
            for text in (there.isoformat(timespec="minutes"), there.strftime("%H:%M:%S%z")):
                asked = at.find(at.parse(text), SPAN, "x")
                exact = first + minute * 60 * 10**9
                # one without seconds is the whole minute
                assert asked == (max(first, exact - 40 * 10**9) if "T" in text else exact), text


def test_a_time_of_day_is_the_last_such_time_of_the_file() -> None:
    first, last = SPAN
    assert found("12:00", (first, last + 3 * 86_400 * 10**9)) == "2026-11-29 12:00:00 UTC"
    assert found("00:03", (first, last + 3 * 86_400 * 10**9)) == "2026-11-30 00:03:00 UTC"


@pytest.mark.parametrize(
    "text",
    [
        *("12:00", "23:56:39", "00:06:41", "00:07", "2026-11-26T00:03Z", "2199-01-01T00:00Z"),
        *("00:03+01:00", "2026-11-27T00:03+01:00", "1970-01-01T00:00+01:00"),
    ],
)
def test_a_moment_outside_is_refused_with_the_span_of_the_file(text: str) -> None:
    with pytest.raises(UsageError) as error:
        found(text)
    assert str(error.value) == f"--at: {text} is not in x"
    assert error.value.hint == "it is from 2026-11-26 23:56:40 UTC to 2026-11-27 00:06:40 UTC"


@pytest.mark.parametrize(
    "text",
    [
        *("", "3", "24:00", "12:60", "12:00:60", "now", "2026-13-01T00:00Z", "1969-01-01T00:00Z"),
        *("2201-01-01T00:00Z", "x" * 10_000, "\x1b[2J"),
        *("03:05+25:00", "03:05+15:00", "03:05+01:60", "03:05+1:00", "03:05+01", "03:05Z+01:00"),
        *("2026-11-27T00:03+01:00Z", "2026-11-27T00:03 CET", "2026-11-27T00:03+", "+01:00", "Z"),
        *("24:00+01:00", "2026-11-27+01:00"),
    ],
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as error:
        at.parse(text)
    assert str(error.value).startswith("--at: ") and "\n" not in str(error.value)
    assert "write it like 03:05" in error.value.hint


@pytest.mark.parametrize(
    ("text", "step"),
    [
        (None, incidents.SLOW[0]),
        ("00:03:25", 40),
        ("00:03:30", 40),
        ("00:03:31", 41),
        ("23:56:40", 0),
        ("00:06:40", 59),
    ],
)
def test_the_interval_that_has_the_moment(tmp_path: Path, text: str | None, step: int) -> None:
    with Reader(str(incidents.write(tmp_path / "x"))) as reader:
        incident = load(reader)
    chosen = at.choose(incident, at.parse(text) if text else None)
    assert chosen.time == incidents.moment(step)


def test_in_a_gap_it_is_the_next_one(tmp_path: Path) -> None:
    path = incidents.write(tmp_path / "x", incidents.records([3, 30]))
    with Reader(str(path)) as reader:
        incident = load(reader)
    assert at.choose(incident, at.parse("23:59")).time == incidents.moment(30)
    assert at.choose(incident, at.parse("00:06")).time == incidents.moment(30)


def test_the_worst_is_that_of_the_pool(tmp_path: Path) -> None:
    rows = list(incidents.records([3, 4]))
    for row in rows:
        if row["type"] == "light_summary" and row["pool"] == "tank" and row["dataset"] is None:
            other = {"p99": 10**10} if row["time"] == incidents.moment(3) else {"p99": 10**8}
            row["latency"] |= other
        if row["type"] == "fsync_summary" and row["pool"] == "idle":
            row["latency"] |= {"p99": 5 if row["time"] == incidents.moment(3) else 9}
    with Reader(str(incidents.write(tmp_path / "x", rows))) as reader:
        incident = load(reader)
    assert at.choose(incident, None).time == incidents.moment(3)
    assert at.choose(incident, None, "tank").time == incidents.moment(3)
    assert at.choose(incident, None, "idle").time == incidents.moment(4)


def test_without_an_interval_there_is_no_moment(tmp_path: Path) -> None:
    with Reader(str(incidents.write(tmp_path / "x", []))) as reader:
        incident = load(reader)
    with pytest.raises(UsageError, match="has no interval"):
        at.choose(incident, None)
