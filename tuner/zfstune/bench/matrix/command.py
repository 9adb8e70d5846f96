"""`zfstune bench --matrix`: the rows of a report, one after the other, on scratch disks."""

from __future__ import annotations

import argparse
import difflib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from zfstrace.errors import TraceError
from zfstrace.host import Host
from zfstrace.scratch import Scratch
from zfstrace.types import SCHEMA, Json
from zfstune.bench import load as bench_load
from zfstune.bench import scratch
from zfstune.bench.load import BenchFailed, Load, Rate, Test
from zfstune.bench.matrix import pools, text
from zfstune.bench.matrix import rows as bench_rows
from zfstune.bench.matrix.rows import Matrix, Row
from zfstune.bench.measure import Measured, measure
from zfstune.bench.scratch import DISK_BYTES, SLOG_BYTES, Wanted
from zfstune.errors import DONE, NEGATIVE, NotPossible, UsageError
from zfstune.host import open_host
from zfstune.preflight import require_tracing
from zfstune.term.log import say
from zfstune.term.progress import Progress
from zfstune.term.signals import Stop
from zfstune.term.table import style_of
from zfstune.term.units import SECOND

_PROGRAMS = ("zpool", "zfs", "wipefs")
_EXT4 = ("mkfs.ext4", "mount", "umount")
# What making and destroying take, about; only for the time that is left.
_AROUND_NS = 6 * SECOND


@dataclass
class Result:
    """A row as far as it was measured; failed says why it is not whole."""

    row: Row
    measured: list[Measured] = field(default_factory=list)
    failed: str | None = None

    def to_json(self, matrix: Matrix, limit_per_s: float | None) -> Json:
        """As a ``bench_row`` object of the schema."""
        row = self.row
        return {
            "schema": SCHEMA,
            "type": "bench_row",
            "matrix": matrix.name,
            "row": row.id,
            "label": row.label,
            "kind": row.kind,
            "on": row.on,
            "dataset": dict(row.dataset),
            "reported": dict(row.reported),
            "words": row.words,
            "device_per_s": limit_per_s,
            "tests": [one.to_json() for one in self.measured],
            "failed": self.failed,
        }


@dataclass
class Found:
    """What was measured of a matrix."""

    matrix: Matrix
    zfs: str
    results: list[Result] = field(default_factory=list)
    interrupted: bool = False
    left: list[str] = field(default_factory=list)

    @property
    def rates(self) -> dict[tuple[str, str], float]:
        """Per second, by row and test."""
        return {
            (result.row.id, one.rate.test.name): one.rate.per_s
            for result in self.results
            for one in result.measured
        }

    @property
    def heading(self) -> str:
        """By what it was measured: the version of ZFS, and the programs."""
        tools = dict.fromkeys(one.rate.tool for r in self.results for one in r.measured)
        return ", ".join((f"ZFS {self.zfs or '?'}", *tools))

    def limit(self, row: Row) -> float | None:
        """Of the raw device that the row's syncs wait for, where that was measured."""
        return self.rates.get((row.limit or "", "fdatasync"))

    def measured(self, row_id: str, test: str) -> Measured | None:
        for result in self.results:
            for one in result.measured:
                if (result.row.id, one.rate.test.name) == (row_id, test):
                    return one
        return None

    @property
    def whole(self) -> bool:
        failed = any(result.failed for result in self.results)
        return not (self.interrupted or self.left or failed or self.lost)

    @property
    def lost(self) -> int:
        """What the traces could not count."""
        return sum(one.lost for result in self.results for one in result.measured)

    def to_json(self) -> Json:
        """The end of the output, as a ``bench_matrix`` object of the schema."""
        rates = self.rates
        base = bench_rows.base(self.matrix, rates)
        return {
            "schema": SCHEMA,
            "type": "bench_matrix",
            "matrix": self.matrix.name,
            "zfs": self.zfs,
            "first": base.id if base else None,
            "pairs": [
                {
                    "test": pair.test,
                    "one": pair.one,
                    "other": pair.other,
                    "reported": round(pair.reported, 4),
                    "measured": round(pair.measured, 4),
                    "agrees": pair.agrees,
                }
                for pair in bench_rows.pairs(self.matrix, rates)
            ],
            "interrupted": self.interrupted,
            "left": self.left,
        }


def run(args: argparse.Namespace) -> int:
    """The command. Raises CommandError and TraceError before anything is written."""
    matrix = _matrix(args)
    if not args.disk:
        raise UsageError("--disk is missing, name the disks that may be erased")
    rows = _rows(matrix, args)
    host = open_host()
    _require(host, rows)
    load = bench_load.find_load()
    for line in pools.leftovers(host):
        say(line)
    wanted = [Wanted("--disk", path, DISK_BYTES) for path in args.disk]
    wanted += [Wanted("--slog", args.slog, SLOG_BYTES)] if args.slog else []
    found = scratch.confirm(host, wanted, args.force_erase, yes=args.yes)
    bench = Bench(args, matrix, host, load, found[: len(args.disk)], *found[len(args.disk) :])
    with Stop(sys.stdout) as stop:
        done = bench.run(rows, stop)
    _show(done, args)
    return DONE if done.whole else NEGATIVE


def _matrix(args: argparse.Namespace) -> Matrix:
    if args.matrix not in bench_rows.MATRICES:
        raise UsageError(
            f"--matrix: no matrix {args.matrix!r}, there is {', '.join(bench_rows.MATRICES)}"
        )
    return bench_rows.load(args.matrix)


def _rows(matrix: Matrix, args: argparse.Namespace) -> list[Row]:
    """Those that are wanted and can be measured on these disks."""
    ids = [row.id for row in matrix.rows]
    for name in args.rows or ():
        if name not in ids:
            near = difflib.get_close_matches(name, ids, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(ids)}"
            raise UsageError(f"--rows: no row {name!r}, {hint}")
    rows = [row for row in matrix.rows if row.id in (args.rows or ids)]
    without = [row for row in rows if args.slog or "slog" not in row.on]
    if not without:
        raise UsageError("--slog is missing, all of these rows need a log device")
    if len(without) < len(rows):
        say(f"without --slog {len(rows) - len(without)} of {len(rows)} rows are left out")
    return without


def _require(host: Host, rows: Sequence[Row]) -> None:
    """Raises NotPossible."""
    require_tracing(host.checks(), "zfs")
    if os.geteuid() != 0:
        raise NotPossible("disks can only be erased by root, run it as root")
    wanted = [*_PROGRAMS]
    if any(row.kind in ("ext4", "zvol") for row in rows):
        wanted += _EXT4
    if any(row.kind == "raw" for row in rows):
        wanted.append("fio")
    for name in wanted:
        if not shutil.which(name):
            raise NotPossible(
                f"{name} is not installed, some rows need it, install it or choose others by --rows"
            )


class StuckStop(Stop):
    """Also ends a test when nothing can be written: what waits for a pool then does not end."""

    def __init__(self, stop: Stop, stuck: Callable[[], str]) -> None:
        self._stop, self._stuck = stop, stuck
        self.reader_gone = False

    @property
    def asked(self) -> bool:  # type: ignore[override]
        return self._stop.asked or self._stop.reader_gone or bool(self._stuck())

    def now(self) -> int:
        return self._stop.now()

    def wait(self, ns: int) -> bool:
        return bool(self._stuck()) or self._stop.wait(ns) or bool(self._stuck())


class Bench:
    """A run on certain disks."""

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
        self._found = Found(matrix, host.version())

    def run(self, rows: Sequence[Row], stop: Stop) -> Found:
        """Measures the rows until stop; takes all away in every case. Raises nothing that is
        expected."""
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

    def _row(self, row: Row, stop: Stop, progress: Progress, head: str) -> Result:
        result = Result(row)
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
                    result.failed = f"{why}, see dmesg"
        except (BenchFailed, TraceError) as error:
            result.failed = str(error)
        except OSError as error:
            result.failed = f"{error.filename or row.label}: {error.strerror or error}"
        if stop.asked and len(result.measured) < len(row.tests) and not result.failed:
            result.failed = "interrupted"
        return result

    def _log(self, row: Row) -> list[Scratch]:
        return [self._slog] if self._slog and "slog" in row.on else []

    def _measure(
        self,
        row: Row,
        place: pools.Place,
        stop: Stop,
        progress: Progress,
        head: str,
    ) -> Iterator[Measured]:
        if row.kind == "raw":
            rate = bench_load.raw(place.path, self._seconds, stop)
            if rate:
                test = Test(row.tests[0], rate.test.label, rate.test.sync)
                rate = Rate(test, rate.per_s, rate.p50_ns, rate.p99_ns, rate.tool, rate.count)
                yield Measured(rate, None, "not on ZFS", 0)
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

    def _print(self, result: Result) -> None:
        if self._args.json:
            limit = self._found.limit(result.row)
            print(json.dumps(result.to_json(self._matrix, limit)), flush=True)


def _show(found: Found, args: argparse.Namespace) -> None:
    if args.json:
        print(json.dumps(found.to_json()))
    else:
        print("\n".join(text.view(found, style_of(sys.stdout))))
    if args.html is not None:
        from zfstune.bench.matrix import html

        html.save(found, args.html)
        say(f"the page is {args.html}")
