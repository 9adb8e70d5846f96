"""Runs the rows of a matrix."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence

from zfstrace.disk import Scratch
from zfstrace.errors import TraceError
from zfstrace.host import Host
from zfstune.bench import load as bench_load
from zfstune.bench import programs, scratch
from zfstune.bench.load import BenchFailed, Load, Rate, Test
from zfstune.bench.matrix import pools
from zfstune.bench.matrix.result import MatrixResult, RowResult
from zfstune.bench.matrix.rows import Matrix, ReportRow
from zfstune.bench.measure import MeasuredTest, measure
from zfstune.term.progress import Progress
from zfstune.term.signals import Stop
from zfstune.term.table import style_of
from zfstune.term.units import SECOND

# About the time to create and destroy; only for the estimate of the time left.
_AROUND_NS = 6 * SECOND


class StuckStop(Stop):
    """Also ends a test when nothing can be written: its fsyncs would not return."""

    def __init__(self, stop: Stop, stuck: Callable[[], str]) -> None:
        self._stop, self._stuck = stop, stuck
        self.reader_gone = False

    @property
    def asked(self) -> bool:  # type: ignore[override]
        """Whether to stop: by a signal, a reader that is gone, or a pool that blocks writes."""
        return self._stop.asked or self._stop.reader_gone or bool(self._stuck())

    def now(self) -> int:
        """CLOCK_MONOTONIC in ns."""
        return self._stop.now()

    def wait(self, ns: int) -> bool:
        """Waits like Stop.wait(), and is also True when nothing can be written."""
        return bool(self._stuck()) or self._stop.wait(ns) or bool(self._stuck())


class MatrixBench:
    """A run of the command on these disks."""

    def __init__(
        self,
        args: argparse.Namespace,
        matrix: Matrix,
        host: Host,
        load: Load,
        disks: Sequence[Scratch],
        slog: Scratch | None = None,
    ) -> None:
        self._args, self._host, self._load = args, host, load
        self._matrix, self._disks, self._slog = matrix, disks, slog
        self._seconds = args.duration / SECOND
        self._found = MatrixResult(matrix, host.version())

    def run(self, rows: Sequence[ReportRow], stop: Stop) -> MatrixResult:
        """Measures the rows until stop, and always removes everything. Failures go into the
        result."""
        found = self._found
        tests = sum(len(row.tests) for row in rows)
        needed = tests * self._args.duration + len(rows) * _AROUND_NS
        progress = Progress(sys.stderr, stop.now() + needed)
        style = style_of(sys.stderr)
        try:
            for number, row in enumerate(rows):
                bar = style.bar(number / len(rows), 20)
                head = f"[{bar:<20}] {number + 1}/{len(rows)} {row.label}"
                progress.line(f"{number + 1}/{len(rows)} {row.label}")
                result = self._row(row, stop, progress, head)
                found.results.append(result)
                found.interrupted = stop.asked or stop.reader_gone
                self._print(result)
                if result.failed:
                    progress.line(f"{row.id}: {result.failed}")
                goes_on = self._args.keep_going or not result.failed
                if found.interrupted or found.left or not goes_on:
                    break
        finally:
            progress.end()
            used = [*self._disks, *([self._slog] if self._slog else [])]
            found.left += scratch.blank(self._host, used)
            scratch.tell([f"left: {line}" for line in found.left])
        return found

    def _row(self, row: ReportRow, stop: Stop, progress: Progress, head: str) -> RowResult:
        result = RowResult(row)
        try:
            disks = [*(self._disks if "disks" in row.on else ()), *self._log(row)]
            for disk in disks:
                self._host.erase(disk)
            with pools.made_for(row, self._host, self._disks, self._slog, self._found.left) as (
                place,
                made,
            ):
                until = StuckStop(stop, made.stuck)
                for one in self._measure(row, place, until, progress, head):
                    result.measured.append(one)
                if why := made.stuck():
                    result.failed = f"{why}; see dmesg"
        except (BenchFailed, TraceError) as error:
            result.failed = error.in_one_line()
        except OSError as error:
            result.failed = f"{error.filename or row.label}: {error.strerror or error}"
        if stop.asked and len(result.measured) < len(row.tests) and not result.failed:
            result.failed = "interrupted"
        return result

    def _log(self, row: ReportRow) -> list[Scratch]:
        return [self._slog] if self._slog and "slog" in row.on else []

    def _measure(
        self,
        row: ReportRow,
        place: pools.Target,
        stop: Stop,
        progress: Progress,
        head: str,
    ) -> Iterator[MeasuredTest]:
        if row.kind == "raw":
            rate = programs.raw(place.path, self._seconds, stop)
            if rate:
                test = Test(row.tests[0], rate.test.label, rate.test.sync)
                rate = Rate(test, rate.per_s, rate.p50_ns, rate.p99_ns, rate.tool, rate.count)
                yield MeasuredTest(rate, None, "not on ZFS", 0)
            return
        tests = [test for test in bench_load.TESTS if test.name in row.tests]
        yield from measure(
            self._host,
            self._load,
            tests,
            place.path,
            place.pool,
            self._seconds,
            stop,
            lambda test, done: progress.status(
                f"{head}: {test.name if test else 'warm-up'} {done:.0%}"
            ),
        )

    def _print(self, result: RowResult) -> None:
        if self._args.json:
            limit = self._found.limit(result.row)
            print(json.dumps(result.to_json(self._matrix, limit)), flush=True)
