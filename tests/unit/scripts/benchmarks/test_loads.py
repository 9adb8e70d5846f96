"""What fsyncs take of the CPUs: with made-up times, and processes that really write."""

from __future__ import annotations

import itertools
import multiprocessing
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import loads
from benchmarks.loads import Load, Reference


def test_the_time_that_threads_ran_is_that_of_all_cpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Linux 6.12 prints it, shortened."""
    file = tmp_path / "schedstat"
    file.write_text(
        "version 16\n"
        "timestamp 4294949284\n"
        "cpu0 0 0 61190 27035 33393 8413 5160172938 1063306229 34083\n"
        "domain0 MC 3 1 2 3\n"
        "cpu1 0 0 53071 23180 29170 9069 4839827062 985013551 29813\n"
        "domain0 MC 3 1 2 3\n"
    )
    monkeypatch.setattr(loads, "SCHEDSTAT", file)
    assert loads.cpu_ns() == 10_000_000_000


class Machine(Reference):
    """On which the loop takes so long, one time after the other."""

    STEPS = 2

    def __init__(self, *takes: int) -> None:
        self._takes = itertools.cycle(takes)
        super().__init__()
        self._takes = itertools.cycle(takes)
        self.usual = 100.0

    def ns(self) -> int:
        return next(self._takes)


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Three processes that do two fsyncs in each of three pieces."""
    monkeypatch.setattr(loads, "sh", lambda command: "")
    yield Load(str(tmp_path).lstrip("/"), 3, 2, 3)
    loads.jobs.cache_clear()
    for process in multiprocessing.active_children():
        process.kill()
        process.join()


def clock(monkeypatch: pytest.MonkeyPatch, *took: int) -> None:
    """CPU time that passes during each piece."""
    times = (time for one in took for time in (0, one))
    monkeypatch.setattr(loads, "cpu_ns", lambda: next(times))


def test_a_measurement_is_of_all_jobs_and_their_fsyncs(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each job has a file of its own, and the time is divided by what all did; the median of pieces
    counts."""
    clock(monkeypatch, 6000, 7000, 90000)
    assert loads.cpu_per_fsync(load, Machine(100)) == pytest.approx(7000 / 6)
    assert {path.name for path in tmp_path.iterdir()} == {"file0", "file1", "file2"}


def test_time_is_in_relation_to_the_loop(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the second piece all takes half as long again, in the third twice as long."""
    clock(monkeypatch, 6000, 9000, 12000)
    assert loads.cpu_per_fsync(load, Machine(100, 100, 200, 200)) == pytest.approx(1000)


def test_the_time_of_the_tool_itself_is_taken_off(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = itertools.count(0, 3000)
    clock(monkeypatch, 9000, 9000, 9000)
    assert loads.cpu_per_fsync(load, Machine(100), lambda: next(own)) == 1000


def test_a_load_is_repeated_for_the_cycle_of_a_tool(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = itertools.count(100.0, 2.0)
    monotonic = SimpleNamespace(monotonic=lambda: next(now), sleep=lambda _: None)
    monkeypatch.setattr(loads, "time", monotonic)
    clock(monkeypatch, *[6000] * 6)
    # five times 2 s pass, of which the first two have too few pieces to ask
    assert loads.cpu_per_fsync(load, Machine(100), seconds=8.0) == 1000
    assert next(now) == 110.0


def test_the_loop_takes_what_it_usually_takes() -> None:
    machine = Reference()
    taken = [machine.ns() for _ in range(5)]
    assert min(taken) > 0 and machine.usual / 20 < max(taken)


def test_a_txg_ends_before_each_few_pieces(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(loads, "sh", said.append)
    monkeypatch.setattr(loads, "PIECES_OF_TXG", 2)
    for _ in itertools.islice(loads.pieces(load), 3):
        said.append("piece")
    sync = f"zpool sync {load.pool}"
    assert said == [sync, "piece", "piece", sync, "piece"]


def test_a_job_that_fails_is_no_measurement(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    clock(monkeypatch, 9000)
    nowhere = replace(load, dataset=f"{load.dataset}/nothing")
    with pytest.raises(RuntimeError, match=r"3 of 3 jobs failed: .*No such file or directory"):
        loads.cpu_per_fsync(nowhere, Machine(100))


def test_a_piece_that_was_broken_off_is_not_taken_for_the_next(load: Load) -> None:
    """Its processes would answer for it later; the next one has others."""

    def late(*_: object) -> None:
        raise TimeoutError

    endless = replace(load, jobs=1, fsyncs=10**9)
    piece = loads.jobs(endless)
    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(TimeoutError):
            piece()
    finally:
        signal.signal(signal.SIGALRM, before)
    for process in multiprocessing.active_children():
        process.join()  # all have been killed
    assert loads.jobs(endless) is not piece
