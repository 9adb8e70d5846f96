"""The dump directory: never on ZFS, never anybody else's, never more than it may have."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.fake_host import FakeHost
from support.recording import NOON

from zfstrace import disk
from zfstrace.clock import iso_utc
from zfstrace.types import Json
from zfstune.errors import NotPossible
from zfstune.incident.reader import Reader
from zfstune.record.dumps import KEPT, SAVED, Dumps, Part, file_name, fitting
from zfstune.record.ring import Chunk, Ring, chunk_of, encode
from zfstune.term.units import SECOND

HEADER: Json = {
    "schema": 1,
    "type": "incident",
    "program": "zfstune",
    "version": "0.1.0",
    "time_from": iso_utc(NOON),
    "time_to": iso_utc(NOON + 60 * SECOND),
    "host": {},
}


def part(count: int = 3, text: str = "x") -> Part:
    """So many notes, each in a chunk of its own."""
    notes = (
        {"type": "note", "time": iso_utc(NOON + i * SECOND), "text": text} for i in range(count)
    )
    return Part([chunk_of([encode(one)], NOON, NOON, 0) for one in notes])


@pytest.fixture
def dumps(tmp_path: Path) -> Iterator[Dumps]:
    found = Dumps(tmp_path / "run" / "dumps")
    found.open(FakeHost())
    yield found
    found.close()


def files_of(dumps: Dumps) -> list[str]:
    return sorted(path.name for path in dumps.path.iterdir())


@contextlib.contextmanager
def at_most(size: int) -> Iterator[None]:
    """Files of this process grow no further, as on a full file system."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_it_is_made_for_its_user_alone(dumps: Dumps) -> None:
    assert stat.S_IMODE(dumps.path.stat().st_mode) == 0o700
    path = dumps.write("incident-a.jsonl.gz", HEADER, part())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_is_what_the_reader_reads(dumps: Dumps) -> None:
    path = dumps.write(file_name("db1", NOON), HEADER, part(7))
    assert path.name == "incident-db1-20261127T120000Z.jsonl.gz"
    with Reader(str(path)) as reader:
        assert [one["time"] for one in reader.records()] == [
            iso_utc(NOON + i * SECOND) for i in range(7)
        ]
        assert not reader.problems()


def test_the_file_of_a_whole_ring_is_read(dumps: Dumps) -> None:
    """As many chunks as a ring of six hours has, and more."""
    path = dumps.write("incident-a.jsonl.gz", HEADER, part(800))
    with Reader(str(path)) as reader:
        assert sum(1 for _ in reader.records()) == 800
        assert not reader.problems()


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("../../etc/x", "incident-_.._etc_x-"),
        ("a\x1b\n\udcff/", "incident-a____-"),
        ("", "incident-host-"),
        ("x" * 300, f"incident-{'x' * 64}-"),
    ],
)
def test_a_host_may_have_any_name(host: str, name: str) -> None:
    assert file_name(host, NOON).startswith(name)


@pytest.mark.parametrize("below", ["", "new", "new/deeper"])
def test_a_directory_on_zfs_is_refused_and_not_made(tmp_path: Path, below: str) -> None:
    host = FakeHost()
    host.devices[disk.dev_of(tmp_path)] = "tank/home"
    with pytest.raises(NotPossible, match=r"it is on ZFS \(tank/home\)") as caught:
        Dumps(tmp_path / below).open(host)
    assert "tmpfs" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_a_directory_where_others_write_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(NotPossible, match="others may write there"):
        Dumps(tmp_path).open(FakeHost())


def test_a_directory_that_others_can_replace_is_refused(tmp_path: Path) -> None:
    above = tmp_path / "above"
    (above / "dumps").mkdir(0o700, parents=True)
    above.chmod(0o777)
    with pytest.raises(NotPossible, match=r"others may write into .*/above \(mode 0777\)"):
        Dumps(above / "dumps").open(FakeHost())
    # where others may only add
    above.chmod(0o1777)
    found = Dumps(above / "dumps")
    found.open(FakeHost())
    found.close()


@pytest.mark.parametrize("kind", ["file", "link"])
def test_what_is_no_directory_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x"
    path.symlink_to(tmp_path) if kind == "link" else path.write_text("")
    with pytest.raises(NotPossible, match="symbolic link or not a directory"):
        Dumps(path).open(FakeHost())


def test_a_second_recorder_is_refused_while_the_first_runs(dumps: Dumps) -> None:
    second = Dumps(dumps.path)
    with pytest.raises(NotPossible, match="another recorder uses it"):
        second.open(FakeHost())
    dumps.close()
    second.open(FakeHost())
    second.close()


def test_the_newest_five_stay_by_their_time(dumps: Dumps) -> None:
    other = dumps.path / "incident-notes.txt"
    other.write_text("mine")
    for i in range(KEPT + 3):
        path = dumps.write(f"incident-{9 - i}.jsonl.gz", HEADER, part())
        os.utime(path, (i, i))
    # the last one was written before its time was set
    names = dumps.names()
    assert names == [f"incident-{9 - i}.jsonl.gz" for i in range(KEPT + 2, 2, -1)]
    assert other.exists()


def test_the_newest_stays_after_the_clock_was_set_back(dumps: Dumps) -> None:
    later = time.time() + 3600
    for i in range(KEPT):
        path = dumps.write(f"incident-{i}.jsonl.gz", HEADER, part())
        os.utime(path, (later + i, later + i))
    assert dumps.write("incident-new.jsonl.gz", HEADER, part()).exists()
    assert dumps.names() == [
        *(f"incident-{i}.jsonl.gz" for i in range(KEPT - 1, 0, -1)),
        "incident-new.jsonl.gz",
    ]


def test_two_within_a_second_have_two_names(dumps: Dumps) -> None:
    name = file_name("h", NOON)
    names = [dumps.write(name, HEADER, part()).name for _ in range(3)]
    assert len(set(names)) == len(dumps.names()) == 3


def test_a_full_file_system_leaves_nothing_behind(dumps: Dumps) -> None:
    kept = dumps.write("incident-a.jsonl.gz", HEADER, part())
    large = Part([Chunk(os.urandom(200_000), NOON, NOON, 1, 1, 0)])
    with at_most(64 << 10):
        for write in (
            lambda: dumps.write("incident-b.jsonl.gz", HEADER, large),
            lambda: dumps.save(HEADER, large),
            lambda: dumps.anonymous(HEADER, large),
        ):
            with pytest.raises(OSError, match="too large"):
                write()
    assert files_of(dumps) == [kept.name, "record.lock"]


def test_20_mb_are_not_exceeded(dumps: Dumps) -> None:
    chunks = [Chunk(bytes([i]) * 3_000_000, i, i, 10, 1, 0) for i in range(8)]
    found = fitting(chunks)
    assert [chunk.begin for chunk in found.chunks] == [2, 3, 4, 5, 6, 7]
    assert found.left_out == 20
    path = dumps.write("incident-a.jsonl.gz", HEADER, found)
    assert path.stat().st_size < 20_000_000


def test_a_file_without_a_name_is_for_one_reader(dumps: Dumps) -> None:
    (dumps.path / ".part").write_text("of a process that was killed")
    fd = dumps.anonymous(HEADER, part(2))
    assert os.fstat(fd).st_nlink == 0
    os.close(fd)
    assert files_of(dumps) == ["record.lock"]


def saved(dumps: Dumps) -> Ring:
    ring = Ring()
    for i in range(30):
        end = NOON + i * 10 * SECOND
        first = {"type": "interval", "time": iso_utc(end), "duration_ns": 10 * SECOND}
        ring.add([first, {"type": "note", "time": iso_utc(end), "text": "x"}], end, end, 0)
    dumps.save(HEADER, fitting(ring.chunks()))
    return ring


def test_a_saved_ring_comes_back_as_it_was(dumps: Dumps) -> None:
    ring = saved(dumps)
    found = dumps.load(7)
    assert [one.data for one in found] == [one.data for one in ring.chunks()]
    assert [one.records for one in found] == [one.records for one in ring.chunks()]
    assert (found[0].begin, found[-1].end) == (NOON - 10 * SECOND, ring.end)
    assert {one.ahead for one in found} == {7}
    with Reader(str(dumps.path / SAVED)) as reader:
        assert sum(1 for _ in reader.records()) == 60


def test_nothing_is_loaded_without_a_saved_ring(dumps: Dumps) -> None:
    assert dumps.load(0) == []


@pytest.mark.parametrize("size", range(0, 900, 37))
def test_a_saved_ring_that_is_cut_short_is_refused(dumps: Dumps, size: int) -> None:
    saved(dumps)
    path = dumps.path / SAVED
    assert path.stat().st_size > 900
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ValueError, match=r"."):
        dumps.load(0)


def test_a_saved_ring_is_not_read_through_a_link_or_from_a_fifo(dumps: Dumps) -> None:
    path = dumps.path / SAVED
    path.symlink_to("/etc/passwd")
    with pytest.raises(OSError, match="symbolic links"):
        dumps.load(0)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ValueError, match="no file"):
        dumps.load(0)


def test_when_the_last_automatic_one_was_is_known_to_the_next_process(dumps: Dumps) -> None:
    assert dumps.automatic_ns() is None
    dumps.mark_automatic(NOON)
    assert dumps.automatic_ns() == NOON
