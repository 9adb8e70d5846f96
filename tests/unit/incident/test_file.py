"""What is written can be read: every type of record, whole files and parts of them."""

from __future__ import annotations

import gzip
import io
import json
import os
import zlib
from pathlib import Path
from typing import Any

import pytest
from support import incidents
from support.hostile import EVIL, raw

from zfstrace.types import Json
from zfstune.errors import UsageError
from zfstune.incident import fields, kinds, writer
from zfstune.incident.intervals import Incident, load
from zfstune.incident.reader import Reader, is_incident
from zfstune.trace import rebuilt


def read(path: Path) -> tuple[Reader, list[Json]]:
    with Reader(str(path)) as reader:
        return reader, list(reader.records())


def loaded(path: Path) -> Incident:
    with Reader(str(path)) as reader:
        return load(reader)


def some(path: Path, *lines: Any) -> Path:
    path.write_bytes(incidents.packed(incidents.first(), *lines))
    return path


def test_there_is_a_sample_of_each_type() -> None:
    assert {record["type"] for record in incidents.one_of_each()} == set(fields.RECORDS)


@pytest.mark.parametrize("record", incidents.one_of_each(), ids=lambda record: record["type"])
def test_a_record_comes_back_as_it_was(tmp_path: Path, record: Json) -> None:
    path = incidents.write(tmp_path / "x", [record])
    reader, (found,) = read(path)
    assert reader.problems() == []
    # what follows from other fields is not kept
    derived = {"zil"} if record["type"] == "fsync_summary" else set()
    known = {name: one for name, one in record.items() if name not in derived}
    if record["type"] == "light_summary":
        known["estimated"] = {k: v for k, v in known["estimated"].items() if k != "confidence"}
    assert {name: found[name] for name in known} == known
    assert all(found[name] is None for name in found.keys() - known.keys())


@pytest.mark.parametrize("record", incidents.one_of_each(), ids=lambda record: record["type"])
def test_a_row_is_the_same_again(tmp_path: Path, record: Json) -> None:
    """The dataclass that a view gets makes the same JSON."""
    _, (found,) = read(incidents.write(tmp_path / "x", [record]))
    row = rebuilt.row(found)
    assert (row is None) == (record["type"] not in rebuilt.TYPES)
    if row:
        assert row.to_json() == record


def test_names_of_a_later_version_are_summed_where_the_unknown_is(tmp_path: Path) -> None:
    by_type = {record["type"]: record for record in incidents.one_of_each()}
    fsync, throttled = by_type["fsync_summary"], by_type["throttle"]
    fsync["stages"].append(dict(fsync["stages"][7], name="teleport", total_ns=5, count=9))
    throttled["kinds"]["karma"] = {"count": 2, "total_ns": 7, "max_ns": 4}
    device = by_type["device"] | {"class": "teleport"}
    given = [fsync, throttled, device]
    rows = [rebuilt.row(one) for one in read(incidents.write(tmp_path / "x", given))[1]]
    other = rows[0].stages[-1]
    assert (other.name, other.total_ns, other.count) == ("other", 5, 9)
    assert rows[1].kinds["unknown"].total_ns == 7
    assert rows[2].io_class == "unknown"


def test_a_header_has_its_facts(tmp_path: Path) -> None:
    reader, _ = read(incidents.write(tmp_path / "x", []))
    assert reader.header == {**incidents.HEADER, "anonymised": None}
    assert reader.span[1] - reader.span[0] == 600 * 10**9


def test_a_file_is_for_its_owner_and_says_what_it_has(tmp_path: Path) -> None:
    records = list(incidents.records(range(5)))
    path = tmp_path / "x"
    written = writer.write(path, incidents.HEADER, records)
    assert (written.records, written.left_out) == (len(records), 0)
    assert written.bytes == path.stat().st_size
    assert path.stat().st_mode & 0o777 == 0o600
    lines = gzip.decompress(path.read_bytes()).splitlines()
    assert json.loads(lines[-1])["records"] == len(records) == len(lines) - 2


def test_a_descriptor_gets_the_same_bytes(tmp_path: Path) -> None:
    path = incidents.write(tmp_path / "x", incidents.records(range(3)))
    fd = os.open(tmp_path / "y", os.O_CREAT | os.O_WRONLY, 0o600)
    writer.write(fd, incidents.HEADER, incidents.records(range(3)))
    os.close(fd)
    assert (tmp_path / "y").read_bytes() == path.read_bytes()


def test_numbers_that_json_lacks_are_null(tmp_path: Path) -> None:
    record = next(one for one in incidents.one_of_each() if one["type"] == "arc")
    _, (found,) = read(incidents.write(tmp_path / "x", [record | {"hit_ratio": float("nan")}]))
    assert found["hit_ratio"] is None


def test_what_finds_no_room_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "x"
    words = (os.urandom(3000).hex() for _ in range(1000))
    notes = ({"type": "note", "time": incidents.BEGIN, "text": one} for one in words)
    written = writer.write(path, incidents.HEADER, notes, most_bytes=500_000)
    assert 50 < written.records < 1000
    assert written.records + written.left_out == 1000
    assert path.stat().st_size == written.bytes < 500_000
    reader, found = read(path)
    assert len(found) == written.records
    assert reader.problems() == [f"{path} had no room for {written.left_out} records more"]


def test_a_long_header_takes_room_from_the_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("lines", "writer"):
        monkeypatch.setattr(f"zfstune.incident.{module}.MOST_BYTES", 20_000)
    note = {"type": "note", "time": incidents.BEGIN, "text": "x"}
    parameters = {f"parameter_{i}": i for i in range(500)}
    path = tmp_path / "x"
    written = writer.write(path, {**incidents.HEADER, "parameters": parameters}, [note] * 1000)
    assert written.left_out > 0
    reader, found = read(path)
    assert len(found) == written.records > 0
    assert reader.problems() == [f"{path} had no room for {written.left_out} records more"]


def test_a_line_longer_than_a_reader_takes_is_left_out(tmp_path: Path) -> None:
    long = {"type": "note", "time": incidents.BEGIN, "text": "x" * (2 << 20)}
    note = long | {"text": "x"}
    path = tmp_path / "x"
    written = writer.write(path, incidents.HEADER, [note, long, note])
    assert (written.records, written.left_out) == (2, 1)
    assert len(read(path)[1]) == 2


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    def broken() -> Any:
        yield from incidents.records(range(1))
        raise OSError(28, "No space left on device")

    path = tmp_path / "x"
    path.write_text("old")
    with pytest.raises(OSError, match="No space"):
        writer.write(path, incidents.HEADER, broken())
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_plain_lines_and_several_parts_of_gzip_are_read_too(tmp_path: Path) -> None:
    path = incidents.write(tmp_path / "x", incidents.records(range(3)))
    text = gzip.decompress(path.read_bytes())
    whole = read(path)[1]
    plain = tmp_path / "plain"
    plain.write_bytes(text)
    lines = text.splitlines(keepends=True)
    parts = tmp_path / "parts"
    parts.write_bytes(b"".join(gzip.compress(line) for line in lines) + b"\0" * 600)
    for file in (plain, parts):
        reader, found = read(file)
        assert found == whole
        assert reader.problems() == []


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = incidents.write(tmp_path / "x", incidents.records(range(2)))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    with Reader("-") as reader:
        assert len(list(reader.records())) == len(read(path)[1])
        assert reader.name == "standard input"


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_a_file_cut_short_is_read_as_far_as_it_goes(tmp_path: Path, share: float) -> None:
    # noise, so that the gzip is not of one block
    notes = [
        {"type": "note", "time": incidents.BEGIN, "text": os.urandom(200).hex()} for _ in range(900)
    ]
    path = incidents.write(tmp_path / "x", notes)
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    reader, found = read(path)
    assert share * 0.5 < len(found) / 900 < share + 0.05
    (problem,) = reader.problems()
    assert problem == f"{path} is cut short after {len(found)} records"


def test_a_line_cut_in_the_middle_is_no_record(tmp_path: Path) -> None:
    path = tmp_path / "x"
    note = json.dumps({"type": "note", "time": incidents.BEGIN, "text": "x"})
    head = json.dumps(incidents.first())
    path.write_text(f"{head}\n{note}\n{note[:-3]}")
    reader, found = read(path)
    assert len(found) == 1
    assert "cut short after 2 records" in reader.problems()[0]


def test_a_changed_byte_is_found_by_its_sum(tmp_path: Path) -> None:
    path = incidents.write(tmp_path / "x", incidents.records(range(9)))
    data = bytearray(path.read_bytes())
    data[-6] ^= 1  # of the checksum
    path.write_bytes(data)
    reader, found = read(path)
    assert found
    assert reader.problems() == [f"{path} is damaged after {len(found)} records"]


def test_records_that_were_taken_out_are_missed(tmp_path: Path) -> None:
    note = {"type": "note", "time": incidents.BEGIN, "text": "x"}
    path = some(tmp_path / "x", note, {"type": "end", "records": 7})
    reader, _ = read(path)
    assert reader.problems() == [f"{path} has 1 record, but 7 were written to it"]


def test_what_is_refused_is_said(tmp_path: Path) -> None:
    note = {"type": "note", "time": incidents.BEGIN, "text": "x"}
    deep: Any = []
    for _ in range(13):
        deep = [deep]
    path = some(
        tmp_path / "x",
        {"type": "future"},
        {"type": "future"},
        {**note, "schema": 2},
        {**note, "time": "1969-12-31T23:59:59Z"},
        {**note, "x": deep},
        "{",
        "[]",
        note,
        {"type": "end", "records": 8},
        note,
    )
    reader, found = read(path)
    assert len(found) == 1
    assert reader.problems() == [
        f"{path} has 9 records, but 8 were written to it",
        f"8 records of {path} left out: unknown type (2), note of another schema, "
        "note.time is no time from 1970 to 2200, ...",
    ]
    assert {"no JSON", "no object", "nested too deeply", "after the end"} < set(reader.refused)


def test_texts_come_out_printable_and_not_too_long(tmp_path: Path) -> None:
    note = {"type": "note", "time": incidents.BEGIN, "text": EVIL + "x" * 10_000}
    _, (found,) = read(some(tmp_path / "x", note))
    assert raw(found["text"]) == set()
    assert len(found["text"]) == 4096


def test_unknown_fields_are_dropped(tmp_path: Path) -> None:
    note = {"type": "note", "time": incidents.BEGIN, "text": "x", "secret": "y"}
    _, (found,) = read(some(tmp_path / "x", note))
    assert set(found) == {"schema", "type", "time", "text"}


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        (kinds.Whole(), 1 << 64, "is out of range"),
        (kinds.Whole(), True, "is no whole number"),
        (kinds.Whole(), 1.0, "is no whole number"),
        (kinds.Number(0, 1), 1.01, "is out of range"),
        (kinds.Number(), "1", "is no number"),
        (kinds.Number(), float("inf"), "is out of range"),
        (kinds.Flag(), 0, "is neither true nor false"),
        (kinds.Text(), 1, "is no text"),
        (kinds.Time(), "2026-02-30T00:00:00Z", "is no time from 1970 to 2200"),
        (kinds.Time(), "2026-02-03T00:00:00+01:00", "is no time from 1970 to 2200"),
        (kinds.Listed(kinds.Whole(), 1), [1, 2], "has more than 1 entries"),
        (kinds.Listed(kinds.Whole(), 9), [1, "x"], "[] is no whole number"),
        (kinds.Tuple((kinds.Whole(),)), [1, 2], "is no list of 1"),
        (kinds.Mapped(kinds.Text(), kinds.Whole(), 1), {"a": 1, "b": 2}, "has more than 1"),
        (kinds.Mapped(kinds.Text(), kinds.Whole(), 9), {"a": None}, "{} is no whole number"),
        (kinds.Object({"a": kinds.Object({"b": kinds.Whole()})}), {"a": {}}, "a.b is no whole"),
        (kinds.Either((kinds.Whole(), kinds.Text())), [], "is no text"),
    ],
)
def test_a_kind_refuses(kind: kinds.Kind, value: Any, why: str) -> None:
    with pytest.raises(kinds.Refused) as error:
        kind.taken(value)
    assert str(error.value).startswith(why)


def test_a_number_of_a_million_digits_is_refused_at_once(tmp_path: Path) -> None:
    path = some(tmp_path / "x", '{"type": "note", "x": ' + "1" * 1_000_000 + "}")
    reader, found = read(path)
    assert (found, dict(reader.refused)) == ([], {"no JSON": 1})


@pytest.mark.parametrize(
    ("begin", "is_one"),
    [
        (b"\x1f\x8b\x08", True),
        (b'{"type": "incident"}\n{', True),
        (b'{"type": "diagnosis"}\n', False),
        (b'{"type": "inci', False),
        (b"", False),
    ],
)
def test_a_file_is_known_by_its_beginning(begin: bytes, is_one: bool) -> None:
    assert is_incident(begin) == is_one


def test_intervals_have_their_records(tmp_path: Path) -> None:
    incident = loaded(incidents.write(tmp_path / "x"))
    assert len(incident.intervals) == 60
    worst = incident.worst()
    assert worst
    assert worst.time == incidents.moment(incidents.SLOW[0])
    types = [record["type"] for record in worst.records()]
    assert types[0] == "interval"
    assert "slow_fsync" in types
    assert next(worst.records("txg"))["txg"] == 5000 + incidents.SLOW[0]
    assert incident.pools() == ["tank", "idle"]
    assert [one.time for one in incident.until(worst, 25 * 10**9)] == [
        incidents.moment(incidents.SLOW[0] - n) for n in (2, 1, 0)
    ]


def test_records_before_the_first_interval_are_kept(tmp_path: Path) -> None:
    note = {"type": "note", "time": incidents.BEGIN, "text": "x"}
    incident = loaded(incidents.write(tmp_path / "x", [note, *incidents.records(range(2))]))
    assert len(incident.intervals) == 3
    assert [one["type"] for one in incident.intervals[0].records()] == ["note"]


def test_intervals_out_of_order_are_put_in_order(tmp_path: Path) -> None:
    records = [*incidents.records([5]), *incidents.records([2])]
    incident = loaded(incidents.write(tmp_path / "x", records))
    assert [one.time for one in incident.intervals] == [incidents.moment(2), incidents.moment(5)]


def test_an_open_file_is_closed_after_an_error(tmp_path: Path) -> None:
    before = _open_files()
    path = tmp_path / "x"
    path.write_bytes(zlib.compress(b"x"))
    for _ in range(5):
        with pytest.raises(UsageError):
            Reader(str(path))
    assert _open_files() == before


def _open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))
