"""Files that were made to do harm, through the real commands: no traceback, no escape code, and one
line on what is wrong."""

from __future__ import annotations

import copy
import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import incidents
from support.errors import ONE_ERROR
from support.hostile import EVIL, raw

from zfstrace.types import Json
from zfstune import cli
from zfstune.incident.reader import MOST_RECORDS

Run = Callable[..., tuple[int, str, str]]

MOST = (1 << 64) - 1
_MOST = 24
DEEP: Any = []
for _ in range(30):
    DEEP = [DEEP]
VALUES: list[Any] = [
    None,
    True,
    0,
    -1,
    MOST,
    MOST + 1,
    10**40,
    1.5,
    -0.0,
    1e308,
    float("nan"),
    float("inf"),
    "",
    EVIL,
    EVIL * 5000,
    "tank",
    "1970-01-01T00:00:00Z",
    "2200-12-31T23:59:59.999Z",
    "9999-01-01T00:00:00Z",
    [],
    {},
    DEEP,
    [None, EVIL, MOST, {}],
    {EVIL: EVIL, "flush": MOST, "dirty_hard": {"count": 1, "total_ns": MOST, "max_ns": 0}},
    [[0, MOST, MOST], [MOST, 0, 0]],
]
VIEWS = ("fsync", "slow", "txg", "throttle", "device", "arc", "read")
RECORDS = {record["type"]: record for record in incidents.one_of_each()}
# the view that shows most of a record
VIEW_OF = {
    "light_window": "fsync",
    "fsync_summary": "fsync",
    "light_summary": "fsync",
    "slow_fsync": "slow",
}


def commands(file: Path) -> Iterator[list[str]]:
    """All that read a file."""
    yield ["trace", "--from", str(file)]
    for view in VIEWS:
        yield of_view(view, file)
    yield ["trace", "fsync", "--light", "--from", str(file)]
    yield ["trace", "fsync", "--histogram", "--from", str(file)]
    yield ["trace", "--json", "--from", str(file), "--at", "00:03"]
    yield ["diagnose", "--from", str(file)]
    yield ["diagnose", "--json", "--from", str(file), "--at", "00:03"]
    yield ["report", "--from", str(file), "-o", "-"]


def of_view(view: str, file: Path) -> list[str]:
    over = ["--over", "1ns"] if view == "slow" else []
    return ["trace", view, *over, "--from", str(file)]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command; its status, stdout and stderr are those of a sane program."""
    monkeypatch.setattr("zfstune.changes.recovery.if_needed", lambda _who: None)

    def run(words: list[str]) -> tuple[int, str, str]:
        capsys.readouterr()
        status = cli.main(words)
        out, err = capsys.readouterr()
        assert status in (0, 1, 2, 3), err
        assert "Traceback" not in err
        assert raw(out) == set()
        assert raw(err) == set()
        if status in (2, 3):
            assert re.search(rf"{ONE_ERROR}\Z", err), err
            assert out == "" or out.startswith("--- ")
        return status, out, err

    return run


def paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places in a record; of a list only the first entry, and of hundreds of measurements of
    one kind only the first ones."""
    if at:
        yield at
    if isinstance(value, dict):
        for name in list(value)[:_MOST]:
            yield from paths(value[name], (*at, name))
    elif isinstance(value, list) and value:
        yield from paths(value[0], (*at, 0))


def changed(record: Json, at: tuple[Any, ...], value: Any) -> Json:
    found = copy.deepcopy(record)
    place: Any = found
    for step in at[:-1]:
        place = place[step]
    place[at[-1]] = value
    return found


def line(record: Json) -> str:
    # with NaN, as a hostile writer would
    return json.dumps(record)


OPEN = [RECORDS["interval"], RECORDS["light_summary"]]


@pytest.mark.parametrize("name", RECORDS)
def test_each_field_with_each_value(run: Run, tmp_path: Path, name: str) -> None:
    """All at once: what is refused is left out and said."""
    record = RECORDS[name]
    made = [changed(record, at, value) for at in paths(record) for value in VALUES]
    made += [{k: v for k, v in record.items() if k != left} for left in record]
    file = tmp_path / "x"
    file.write_bytes(incidents.packed(*map(line, [incidents.first(), *OPEN, *made, *OPEN])))
    view = VIEW_OF.get(name, name)
    for words in commands(file):
        if words[1] in VIEWS and words[1] != view:
            continue
        status, _, err = run(words)
        assert status != 3
        if status != 2:
            assert "left out: " in err


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize("value", [0, 1, MOST, -(1 << 63)])
def test_each_number_alone_and_all_of_them(run: Run, tmp_path: Path, name: str, value: int) -> None:
    record = RECORDS[name]
    numbers = [at for at in paths(record) if type(_at(record, at)) is int and at[0] != "schema"]
    every = record
    for at in numbers:
        every = changed(every, at, value)
    file = tmp_path / "x"
    view = VIEW_OF.get(name, name)
    for one in [every, *(changed(record, at, value) for at in numbers)]:
        before = [] if name == "interval" else [RECORDS["interval"]]
        file.write_bytes(incidents.packed(*map(line, [incidents.first(), *before, one])))
        run(of_view(view, file) if view in VIEWS else ["diagnose", "--from", str(file)])
    file.write_bytes(incidents.packed(*map(line, [incidents.first(), every])))
    for words in (["trace"], ["diagnose"], ["report", "-o", "-"]):
        run([*words, "--from", str(file)])


def _at(record: Json, at: tuple[Any, ...]) -> Any:
    found: Any = record
    for step in at:
        found = found[step]
    return found


@pytest.mark.parametrize("at", list(paths(incidents.first())), ids=str)
def test_each_field_of_the_header(run: Run, tmp_path: Path, at: tuple[Any, ...]) -> None:
    file = tmp_path / "x"
    for value in VALUES:
        head = changed(incidents.first(), at, value)
        file.write_bytes(incidents.packed(*map(line, [head, *RECORDS.values()])))
        run(["trace", "--from", str(file)])
        run(["report", "--from", str(file), "-o", "-"])


@settings(max_examples=60)
@given(st.data())
def test_bytes_that_were_changed(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    """In the gzip, and in the lines."""
    text = "\n".join(map(line, [incidents.first(), *RECORDS.values()])).encode()
    packed = data.draw(st.booleans())
    given_bytes = bytearray(gzip.compress(text, mtime=0) if packed else text)
    for _ in range(data.draw(st.integers(1, 8))):
        place = data.draw(st.integers(0, len(given_bytes) - 1))
        given_bytes[place] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(0, len(given_bytes)))
    cut = data.draw(st.booleans())
    file = tmp_path_factory.mktemp("bytes") / "x"
    file.write_bytes(bytes(given_bytes[:end] if cut else given_bytes))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("zfstune.changes.recovery.if_needed", lambda _who: None)
        for words in (["trace"], ["diagnose"], ["report", "-o", str(file.with_suffix(".html"))]):
            assert cli.main([*words, "--from", str(file)]) in (0, 1, 2)


def bomb(what: bytes, count: int, tail: bytes = b"") -> bytes:
    pack = zlib.compressobj(9, wbits=31)
    parts = [pack.compress(what) for _ in range(count)]
    return b"".join(parts) + pack.compress(tail) + pack.flush()


HEAD = line(incidents.first()).encode() + b"\n"
MANY = b'{"type":"note","time":"2026-11-27T00:00:00Z","text":""}\n'


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "is no incident file"),
        (b"\x1f\x8b", "is cut short before its header"),
        (b"\x1f\x8bxxxxxxxxxxxx", "is damaged before its header"),
        (b"PK\x03\x04", "is no incident file"),
        (b"[" * 100_000, "is no incident file"),
        (bomb(b" " * (1 << 20), 100), "more than 64 MiB when unpacked"),
        (bomb(b" " * (2 << 20) + b"\n", 1), "is no incident file"),
        (bomb(HEAD, 1) + bomb(b"\0" * (1 << 20), 100), "more than 64 MiB when unpacked"),
        (bomb(HEAD, 1) + bomb(MANY * 1000, 201), f"more than {MOST_RECORDS:,} records"),
        (bomb(HEAD, 1) + bomb(b"\n" * 1000, 201), f"more than {MOST_RECORDS:,} records"),
        (HEAD + b" " * (65 << 20), "has more than 64 MiB"),
        (line(incidents.first(schema=2)).encode(), "has schema 2: this zfstune reads only 1"),
        (line(incidents.first(schema=10**15)).encode(), "has schema 1000000: "),
        (line(incidents.first(schema="1")).encode(), "has no schema"),
        (line(incidents.first(time_to="2026-01-01T00:00:00Z")).encode(), "ends before it begins"),
        (line(incidents.first(host=[])).encode(), "in its header host is no object"),
        (HEAD, "has no interval"),
    ],
)
def test_files_that_are_refused(run: Run, tmp_path: Path, data: bytes, problem: str) -> None:
    file = tmp_path / "x"
    file.write_bytes(data)
    status, out, err = run(["trace", "--from", str(file)])
    assert (status, out) == (2, "")
    assert problem in err


def test_a_bomb_takes_little_memory(tmp_path: Path) -> None:
    """25 kB of gzip took 238 MB once."""
    import tracemalloc

    from zfstune.incident.intervals import load
    from zfstune.incident.reader import Reader

    brackets = b'{"type":"txg","x":[' + b"[]," * 300_000 + b"[]]}\n"
    rows = line(RECORDS["light_summary"]).encode() + b"\n"
    for data in (brackets * 4, rows * 1500, MANY * 8000):
        file = tmp_path / "x"
        file.write_bytes(bomb(HEAD, 1) + bomb(data, 1))
        assert file.stat().st_size < 400_000
        tracemalloc.start()
        with Reader(str(file)) as reader:
            load(reader)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert most < 40 << 20


def test_a_name_that_nobody_writes_to_is_not_waited_for(run: Run, tmp_path: Path) -> None:
    import os

    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for source in (pipe, tmp_path, Path("/dev/null"), Path("/dev/zero")):
        for words in (["trace"], ["diagnose"], ["report", "-o", "-"]):
            status, _, err = run([*words, "--from", str(source)])
            assert status == 2
            assert f"{source} is not a regular file" in err


@pytest.mark.parametrize("source", ["x\0y", "x" * 5000, f"/nowhere/{EVIL}"])
def test_odd_names_are_errors_of_one_line(run: Run, source: str) -> None:
    for words in (["trace"], ["diagnose"], ["report", "-o", "-"]):
        status, _, err = run([*words, "--from", source])
        assert status == 2
        assert "cannot read" in err
