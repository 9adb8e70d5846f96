"""The ring: bounded, in order, and the same after a restart."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.recording import NOON, Busy

from zfstrace.clock import iso_utc
from zfstrace.types import Json
from zfstune.incident import lines, reader
from zfstune.incident.times import ns_of
from zfstune.record.interval import picked
from zfstune.record.ring import Chunk, Limits, Ring, chunk_of, encode, members
from zfstune.term.units import SECOND

TEN = 10 * SECOND
AHEAD = NOON - 100 * SECOND


def interval(end: int, *rows: Json) -> list[Json]:
    first = {"schema": 1, "type": "interval", "time": iso_utc(end), "duration_ns": TEN}
    return [first, *rows]


def note(end: int, text: str = "x") -> Json:
    return {"schema": 1, "type": "note", "time": iso_utc(end), "text": text}


def records(ring: Ring, *span: int) -> list[Json]:
    return [json.loads(line) for chunk in ring.chunks(*span) for line in chunk.lines()]


def fill(ring: Ring, count: int, start: int = NOON, text: str = "x") -> int:
    """So many intervals of 10 s; returns when the last one ended."""
    for i in range(1, count + 1):
        end = start + i * TEN
        ring.add(interval(end, note(end, text)), end - TEN, end, AHEAD)
    return start + count * TEN


def test_the_limits_are_within_those_of_readers() -> None:
    limits = Limits()
    assert limits.text + (1 << 20) < lines.MOST_BYTES
    assert limits.records + 1000 < reader.MOST_RECORDS
    assert limits.line < lines.MOST_LINE


@pytest.mark.parametrize(("datasets", "hours"), [(4, 6), (8, 6)])
def test_six_hours_of_a_busy_host_fit_in_8_mib(datasets: int, hours: float) -> None:
    """Two pools, each with so many datasets with commits in each interval. Chunks are of a minute,
    so ten minutes of rows, again and again, are as large as hours of new ones."""
    busy, plain = Busy(datasets), 0
    made = [busy.rows(NOON + i * TEN) for i in range(60)]
    ring, end = Ring(), NOON
    for i in range(6 * 360):
        end += TEN
        rows = made[i % len(made)]
        if i < len(made):
            plain += sum(len(json.dumps(row)) + 1 for found in rows.values() for row in found)
        pick = picked(rows)
        assert not pick.left_out
        ring.add(interval(end, *pick.records), end - TEN, end, AHEAD)
        assert ring.memory <= 8 << 20
    span = (ring.end - ring.begin) / (3600 * SECOND)
    print(
        f"\n2 x {datasets} datasets: {span:.2f} h, {ring.records:,} records, "
        f"{36 * plain / 2**20:.1f} MiB as --json, {ring.text / 2**20:.1f} MiB of lines, "
        f"{ring.memory / 2**20:.2f} MiB in memory"
    )
    assert span >= hours - 1 / 60


def test_what_is_older_than_the_span_goes() -> None:
    ring = Ring(Limits(span=600 * SECOND))
    end = fill(ring, 200)
    assert end - ring.begin <= 660 * SECOND
    assert ring.end == end
    found = [ns_of(one["time"]) or 0 for one in records(ring)]
    assert found == sorted(found)


def test_a_part_of_the_time_is_whole_chunks() -> None:
    ring = Ring()
    fill(ring, 60)
    begin, end = NOON + 200 * SECOND, NOON + 300 * SECOND
    times = [ns_of(one["time"]) or 0 for one in records(ring, begin, end)]
    assert times[0] <= begin + TEN and times[-1] >= end
    assert begin - 60 * SECOND <= times[0] and times[-1] <= end + 70 * SECOND


@pytest.mark.parametrize("hours", [1, -1])
def test_after_the_clock_is_set_all_times_are_of_the_new_one(hours: int) -> None:
    ring, step = Ring(), hours * 3600 * SECOND
    fill(ring, 60)
    end = NOON + 600 * SECOND
    ring.add(interval(end + TEN + step), end + step, end + TEN + step, AHEAD + step)
    steps = 0
    while not ring.restamp(AHEAD + step, 2):
        steps += 1
        assert ring.records == len(records(ring))
    assert steps >= 4
    times = [ns_of(one["time"]) or 0 for one in records(ring) if one["type"] == "interval"]
    assert times == [NOON + step + i * TEN for i in range(1, 62)]
    assert ring.begin == NOON + step
    assert ring.restamp(AHEAD + step, 0)
    assert ring.text == sum(chunk.text for chunk in ring.chunks())


@pytest.mark.parametrize("hours", [1, 5, 8, 1000])
def test_a_clock_that_is_set_far_ahead_makes_nothing_old(hours: int) -> None:
    """Though chunks are corrected later, a few at a time."""
    ring, step = Ring(), hours * 3600 * SECOND
    fill(ring, 600)
    end = NOON + 600 * TEN
    for i in range(1, 4):
        span = end + (i - 1) * TEN + step, end + i * TEN + step
        ring.add(interval(span[1]), *span, AHEAD + step)
        ring.restamp(AHEAD + step, 2)
    assert ring.restamp(AHEAD + step)
    times = [ns_of(one["time"]) or 0 for one in records(ring) if one["type"] == "interval"]
    assert times == [NOON + step + i * TEN for i in range(1, 604)]


def test_measurements_of_a_diagnosis_are_corrected_too() -> None:
    ring = Ring()
    found = {"type": "diagnosis", "time": iso_utc(NOON), "measurements": {"time": iso_utc(NOON)}}
    ring.add([found], NOON, NOON, AHEAD)
    assert ring.restamp(AHEAD + 3600 * SECOND)
    (one,) = records(ring)
    assert one["time"] == one["measurements"]["time"] == iso_utc(NOON + 3600 * SECOND)


def test_a_clock_that_is_slewed_back_keeps_the_order() -> None:
    ring = Ring()
    fill(ring, 3)
    end = NOON + 30 * SECOND
    ring.add(interval(end + TEN), end - SECOND // 2, end - SECOND // 4, AHEAD - SECOND // 2)
    (chunk,) = ring.chunks()
    assert (chunk.begin, chunk.end) == (NOON, end)


def test_a_line_that_is_too_long_is_counted() -> None:
    ring = Ring()
    ring.add([note(NOON, "x" * (300 << 10)), note(NOON)], NOON, NOON, AHEAD)
    assert (ring.dropped, ring.records) == (1, 1)


def test_numbers_that_json_does_not_have_are_null() -> None:
    assert json.loads(encode({"a": float("nan"), "b": [float("inf"), "\udcff"]})) == {
        "a": None,
        "b": [None, "\udcff"],
    }


def test_an_earlier_ring_is_continued_before_the_present_one() -> None:
    old, new = Ring(), Ring()
    end = fill(old, 20)
    fill(new, 3, end + 60 * SECOND)
    new.restore(old.chunks())
    assert new.begin == NOON
    assert len(records(new)) == new.records == 46
    assert [chunk.end for chunk in new.chunks()] == sorted(chunk.end for chunk in new.chunks())
    # what overlaps would be out of order
    again = Ring()
    fill(again, 3, NOON)
    again.restore(old.chunks())
    assert again.records == 6


def test_members_are_the_chunks_that_were_written() -> None:
    chunks = [chunk_of([b"{}"] * 3, 0, 0, 0), chunk_of([b"[]"], 0, 0, 0)]
    data = b"".join(chunk.data for chunk in chunks)
    assert list(members(data, 100)) == [(chunks[0].data, b"{}\n" * 3), (chunks[1].data, b"[]\n")]
    for broken in (
        data[:-1],
        data[:30],
        data[:40] + b"x" + data[41:],
        b"x",
        gzip.compress(b"")[:5],
    ):
        with pytest.raises(ValueError, match=r"."):
            list(members(broken, 100))
    with pytest.raises(ValueError, match="too large"):
        list(members(gzip.compress(b"\0" * 1000), 100))


LINES = st.lists(st.binary(max_size=3000).map(bytes.hex), max_size=4)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 300 * SECOND),
            st.sampled_from([0, 0, 0, 0, 3600 * SECOND, -3600 * SECOND, SECOND // 3]),
            LINES,
            st.sampled_from(["add", "add", "add", "restamp", "read"]),
        ),
        max_size=60,
    ),
    st.integers(8 << 10, 40 << 10),
    st.integers(2, 60),
)
def test_no_limit_is_exceeded_and_all_is_json_in_order(
    steps: list[tuple[int, int, list[str], str]], memory: int, most: int
) -> None:
    """Whatever is added, and however the wall clock is set."""
    limits = Limits(memory=memory, span=1800 * SECOND, text=64 << 10, records=most, line=4096)
    ring = Ring(limits)
    steady, ahead, number = 100 * SECOND, AHEAD, 0
    for passed, step, texts, what in steps:
        steady, ahead = steady + passed, ahead + step
        if what == "restamp":
            ring.restamp(ahead, 1)
        elif what == "add":
            end = steady + ahead
            added: list[Json] = [
                {**note(end, text), "number": number + i} for i, text in enumerate(texts)
            ]
            number += len(added)
            ring.add(added, end - passed, end, ahead)
        _check(ring, limits)
    ring.restamp(ahead)
    _check(ring, limits)
    found = [json.loads(line) for chunk in ring.chunks() for line in chunk.lines()]
    numbers = [one["number"] for one in found]
    assert numbers == sorted(set(numbers))
    times = [ns_of(one["time"]) or 0 for one in found]
    # a clock that is slewed may go back by less than a step
    assert all(later - earlier > -SECOND for earlier, later in pairwise(times))


def _check(ring: Ring, limits: Limits) -> None:
    chunks: list[Chunk] = ring.chunks()
    assert ring.memory <= limits.memory
    assert ring.records == sum(chunk.records for chunk in chunks) <= limits.records
    assert ring.text == sum(chunk.text for chunk in chunks) <= limits.text
    for chunk in chunks:
        lines_of: list[Any] = [json.loads(line) for line in chunk.lines()]
        assert len(lines_of) == chunk.records
