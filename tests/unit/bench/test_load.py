"""fio and pg_test_fsync: their output, recorded and made up, and their runs.

The recordings in tests/data/bench come from Debian's programs on ext4, half a second or a second
for each test, and one of pg_test_fsync on ZFS; fio with the options of fio.options()."""

from __future__ import annotations

import copy
import io
import json
import math
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import fake_programs
from support.paths import DATA
from support.waiting import alive, wait_for

from zfstune.bench import fio, pg_test_fsync
from zfstune.bench.child import Child
from zfstune.bench.load import TESTS, BenchFailed, Rate, Test, Unable, Watcher, committers
from zfstune.bench.programs import find_load, raw
from zfstune.errors import NotPossible
from zfstune.term.signals import Stop

BY_NAME = {test.name: test for test in TESTS}
BENCH = DATA / "bench"
FDATASYNC, PLAIN = BY_NAME["fdatasync"], BY_NAME["plain"]
RECORDED = {
    "fdatasync": FDATASYNC,
    "odsync": BY_NAME["o_dsync"],
    "two": BY_NAME["two-fdatasync"],
    "plain": PLAIN,
    "committers": committers(4),
}


def recorded(version: str, name: str) -> str:
    return (BENCH / f"fio-{version}-{name}.json").read_text()


# --- fio


@pytest.mark.parametrize("name", RECORDED)
@pytest.mark.parametrize("version", ["3.33", "3.39"])
def test_recorded_output_of_fio_is_read(version: str, name: str) -> None:
    test = RECORDED[name]
    rate = fio.parse_json(recorded(version, name), test, f"fio {version}")
    job = json.loads(recorded(version, name))["jobs"][0]
    writes = job["write"]["total_ios"]
    assert rate.count == writes // test.writes
    # fio's own rate counts all writes
    assert rate.per_s * test.writes == pytest.approx(job["write"]["iops"], rel=0.01)
    assert rate.p50_ns is not None
    assert rate.p99_ns is not None
    assert 0 < rate.p50_ns <= rate.p99_ns
    assert rate.tool == f"fio {version}"


def test_notes_of_fio_before_its_json_are_skipped() -> None:
    text = recorded("3.39", "two")
    noted = f"fio: a note {{odd}}\nand another\n{text}"
    test = RECORDED["two"]
    assert fio.parse_json(noted, test, "fio") == fio.parse_json(text, test, "fio")


@given(st.text())
def test_text_that_is_not_from_fio_is_an_error(text: str) -> None:
    with pytest.raises(BenchFailed):
        fio.parse_json(text, FDATASYNC, "fio")


PATHS = (
    ("jobs",),
    ("jobs", 0, "error"),
    ("jobs", 0, "write"),
    ("jobs", 0, "write", "runtime"),
    ("jobs", 0, "write", "total_ios"),
    ("jobs", 0, "sync", "lat_ns", "N"),
    ("jobs", 0, "sync", "lat_ns", "percentile"),
    ("jobs", 0, "sync", "lat_ns", "percentile", "50.000000"),
)
ODD: st.SearchStrategy[Any] = (
    st.none()
    | st.integers()
    | st.floats()
    | st.text(max_size=3)
    | st.lists(st.integers())
    | st.just({})
)


@given(st.sampled_from(PATHS), ODD, st.sampled_from(list(RECORDED)))
def test_odd_values_of_fio_give_a_number_or_an_error(
    path: tuple[Any, ...], value: Any, name: str
) -> None:
    """A rate, or an error of one line."""
    found = json.loads(recorded("3.39", name))
    inner = found
    for key in path[:-1]:
        inner = inner.setdefault(key, {}) if isinstance(inner, dict) else inner[key]
    inner[path[-1]] = copy.deepcopy(value)
    try:
        rate = fio.parse_json(json.dumps(found), RECORDED[name], "fio")
    except BenchFailed as error:
        assert "\n" not in str(error)
    else:
        assert math.isfinite(rate.per_s)
        assert rate.per_s > 0


def test_fio_is_asked_for_the_syncs_of_the_test() -> None:
    def words(test: Test) -> set[str]:
        return set(fio.options(test, 1.5))

    assert "--fdatasync=1" in words(FDATASYNC)
    assert "--fdatasync=2" in words(BY_NAME["two-fdatasync"])
    assert "--fsync=1" in words(BY_NAME["fsync"])
    assert "--sync=dsync" in words(BY_NAME["o_dsync"])
    assert not [word for word in words(PLAIN) if "sync=" in word]
    assert {"--numjobs=7", "--runtime=1500ms", "--bs=8192"} <= words(committers(7))
    assert fio.escaped(Path("/a:b\\c")) == "/a\\:b\\\\c"


# --- pg_test_fsync


@pytest.mark.parametrize("version", ["15", "17"])
def test_recorded_output_of_pg_test_fsync_is_read(version: str) -> None:
    lines, running = pg_test_fsync.parse_text((BENCH / f"pg_test_fsync-{version}.txt").read_text())
    assert running is None
    assert len(lines) == 18
    found = {(line.section, line.label): line for line in lines}
    for place in pg_test_fsync.PLACES.values():
        per_s, usecs = found[place].per_s, found[place].usecs
        assert per_s is not None
        assert usecs is not None
        assert 1e6 / per_s == pytest.approx(usecs, abs=1)
    lacks = [line.label for line in lines if line.per_s is None]
    assert lacks == ["fsync_writethrough"] * 2


def test_output_of_pg_test_fsync_that_ends_with_an_error_is_read() -> None:
    """Of PostgreSQL 17.11 on ZFS 2.3.9, where it ended with an error at its writes of 2 kB."""
    lines, running = pg_test_fsync.parse_text((BENCH / "pg_test_fsync-17-zfs.txt").read_text())
    assert len(lines) == 13
    assert running == ("Compare open_sync with different write sizes", "8 *  2kB open_sync writes")


@pytest.mark.parametrize("version", ["15", "17"])
def test_no_test_of_pg_test_fsync_ends_before_it_began(version: str) -> None:
    """Its output ends behind a label while that test runs: no test ends before it began."""
    text = (BENCH / f"pg_test_fsync-{version}.txt").read_text()
    all_lines, _ = pg_test_fsync.parse_text(text)
    for end in range(len(text)):
        lines, _ = pg_test_fsync.parse_text(text[:end])
        assert lines == all_lines[: len(lines)]
    results = re.finditer(r"[ \d]{9}\.\d{3} ops/sec", text)
    running = [pg_test_fsync.parse_text(text[: result.start()])[1] for result in results]
    assert running == [(line.section, line.label) for line in all_lines if line.per_s]


LABEL = st.text("abcdefgh_", min_size=1, max_size=20)
RATE = st.none() | st.floats(0.001, 1e7).map(lambda rate: round(rate, 3))


@given(st.lists(st.tuples(st.sampled_from(["Compare x", "Test y"]), LABEL, RATE)))
def test_generated_output_of_pg_test_fsync_is_read_back(
    tests: list[tuple[str, str, float | None]],
) -> None:
    text = "5 seconds per test\n"
    for section, label, rate in tests:
        result = (
            f"{'n/a':>21}" if rate is None else f"{rate:13.3f} ops/sec  {1e6 / rate:6.0f} usecs/op"
        )
        text += f"\n{section}:\n(a remark)\n        {label:<30}{result}\n"
    lines, running = pg_test_fsync.parse_text(text)
    assert [(line.section, line.label, line.per_s) for line in lines] == tests
    assert running is None


@given(st.text())
def test_any_text_from_pg_test_fsync_is_read(text: str) -> None:
    pg_test_fsync.parse_text(text)


# --- runs


class Noting(Watcher):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def begun(self) -> None:
        self.seen.append("begun")

    def tick(self) -> None:
        if self.seen[-1] != "tick":
            self.seen.append("tick")

    def ended(self) -> None:
        self.seen.append("ended")


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty PATH, and nothing where Debian has it."""
    path = tmp_path / "bin"
    path.mkdir()
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.setattr(pg_test_fsync, "DEBIAN", tmp_path / "postgresql")
    return path


def run(
    name: str, where: Path, wanted: str | None = None, seconds: float = 0.1
) -> tuple[Rate, Noting]:
    watch = Noting()
    with Stop(io.StringIO()) as stop:
        rate = find_load(wanted).run(BY_NAME[name], where, seconds, stop, watch)
    assert rate is not None
    return rate, watch


def test_fio_runs_in_the_directory(programs: Path, tmp_path: Path) -> None:
    fake_programs.fio(programs, seconds=0.2)
    rate, watch = run("fdatasync", tmp_path)
    assert rate.per_s == pytest.approx(2000)
    assert watch.seen == ["begun", "tick", "ended"]
    log = (programs / "fio.log").read_text()
    assert f"--directory={tmp_path}" in log
    assert "--overwrite=1" in log


def test_a_failure_of_fio_says_why(programs: Path, tmp_path: Path) -> None:
    fake_programs.fio(programs, fails=True)
    with pytest.raises(BenchFailed, match=r"status 1: fio: io_u error .* No space left on device"):
        run("fdatasync", tmp_path)


def test_the_raw_device_is_measured_by_fio(programs: Path) -> None:
    with Stop(io.StringIO()) as stop:
        with pytest.raises(NotPossible, match="without fio"):
            raw(Path("/dev/nothing"), 0.1, stop)
        fake_programs.fio(programs)
        rate = raw(Path("/dev/nothing"), 0.1, stop)
    assert rate is not None
    assert rate.test.name == "raw"
    log = (programs / "fio.log").read_text()
    assert "--filename=/dev/nothing" in log
    assert "--direct=1" in log


@pytest.mark.parametrize("name", pg_test_fsync.PLACES)
def test_only_the_wanted_test_of_pg_test_fsync_takes_its_time(
    programs: Path, tmp_path: Path, name: str
) -> None:
    """Only the wanted test takes its time, and gives the result."""
    fake_programs.pg_test_fsync(programs)
    start = time.monotonic()
    rate, watch = run(name, tmp_path, seconds=0.2)
    assert 0.2 <= time.monotonic() - start < 10
    lines, _ = pg_test_fsync.parse_text((BENCH / "pg_test_fsync-17.txt").read_text())
    (line,) = [one for one in lines if (one.section, one.label) == pg_test_fsync.PLACES[name]]
    assert rate.per_s == line.per_s
    assert (rate.count, rate.p50_ns, rate.tool) == (None, None, "pg_test_fsync 17.11")
    assert watch.seen == ["begun", "tick", "ended"]
    assert [one.name for one in tmp_path.iterdir()] == ["bin"]


def test_an_early_end_of_pg_test_fsync_says_why(programs: Path, tmp_path: Path) -> None:
    text = "import sys\nif '--version' in sys.argv: print('x 17')\nelse: sys.exit('no room')\n"
    fake_programs.install(programs, "pg_test_fsync", text)
    with pytest.raises(BenchFailed, match="pg_test_fsync ended with status 1: no room"):
        run("fsync", tmp_path)


def test_a_test_that_pg_test_fsync_cannot_reach_asks_for_fio(
    programs: Path, tmp_path: Path
) -> None:
    """On ZFS 2.3 and later it fails at its writes of 2 kB, before the test without syncs."""
    path = fake_programs.pg_test_fsync(programs)
    ends = 'if "4 *  4kB" in line: sys.exit("pg_test_fsync: error: write failed: Invalid argument")'
    text = path.read_text()
    path.write_text(
        text.replace("    if not line.endswith", f"    {ends}\n    if not line.endswith")
    )
    with pytest.raises(Unable, match=r"status 1: .*Invalid argument") as error:
        run("plain", tmp_path)
    assert error.value.hint == "use --with fio"
    fake_programs.fio(programs)
    assert run("plain", tmp_path)[0].tool == "fio 3.39"
    assert run("two-fdatasync", tmp_path)[0].tool == "pg_test_fsync 17.11"


def test_the_newest_pg_test_fsync_of_debian_is_taken(programs: Path, tmp_path: Path) -> None:
    for version in ("9.6", "13", "17"):
        directory = tmp_path / "postgresql" / version
        directory.mkdir(parents=True)
        fake_programs.install(
            directory / "bin", "pg_test_fsync", f"print('pg_test_fsync (PostgreSQL) {version}.4')"
        )
    found = pg_test_fsync.find()
    assert found
    assert found.name == "pg_test_fsync 17.4"


def test_pg_test_fsync_is_preferred_to_fio(programs: Path) -> None:
    for wanted in (None, "fio", "pg_test_fsync"):
        with pytest.raises(NotPossible, match="installed") as error:
            find_load(wanted)
        assert error.value.hint
    fake_programs.pg_test_fsync(programs)
    alone = find_load()
    assert alone.name == "pg_test_fsync 17.11"
    assert [test.name for test in TESTS if alone.lacks(test)] == ["committers-2", "committers-8"]
    fake_programs.fio(programs)
    both = find_load()
    assert both.name == alone.name
    assert not any(map(both.lacks, TESTS))
    assert find_load("fio").name == "fio 3.39"
    assert find_load("pg_test_fsync").name == alone.name
    with pytest.raises(NotPossible):
        (programs / "fio").unlink()
        find_load("fio")


@pytest.mark.parametrize("name", ["fdatasync", "committers-8"])
def test_stop_ends_the_program(programs: Path, tmp_path: Path, name: str) -> None:
    fake_programs.fio(programs, seconds=60)
    fake_programs.pg_test_fsync(programs)
    watch = Noting()
    with Stop(io.StringIO()) as stop:
        asked = threading.Timer(0.3, lambda: setattr(stop, "asked", True))
        asked.start()
        start = time.monotonic()
        assert find_load().run(BY_NAME[name], tmp_path, 60, stop, watch) is None
        asked.join()
    assert time.monotonic() - start < 10
    assert watch.seen.count("begun") == watch.seen.count("ended") <= 1
    assert [one.name for one in tmp_path.iterdir()] == ["bin"]


def test_children_end_with_what_they_started(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    with Child(["/bin/sh", "-c", f"sleep 60 & echo $! > {file}; wait"]) as child:
        wait_for(lambda: file.exists() and file.read_text())
        assert child.running()
    wait_for(lambda: not alive(int(file.read_text())))


def test_a_missing_program_is_an_error() -> None:
    with pytest.raises(BenchFailed, match="cannot be run: No such file"):
        Child(["/nowhere/fio"])
