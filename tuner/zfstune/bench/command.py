"""`zfstune bench`: the cost of synchronous writes, and where their time goes."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from zfstrace.disk import Scratch
from zfstrace.host import Host
from zfstrace.printable import printable
from zfstune.bench import place as bench_place
from zfstune.bench import scratch
from zfstune.bench.load import SIZE, TESTS, Load, Test, bytes_needed, committers, committers_of
from zfstune.bench.measure import measure
from zfstune.bench.place import Place
from zfstune.bench.programs import find_load, raw
from zfstune.bench.scratch import Wanted
from zfstune.bench.text import PathResult, ProgressBar, end, heading, view
from zfstune.errors import DONE, NEGATIVE, NotPossible, UsageError
from zfstune.host import open_host
from zfstune.preflight import require_tracing
from zfstune.term.log import say
from zfstune.term.signals import Stop
from zfstune.term.table import Style, style_of
from zfstune.term.units import SECOND

_OF_MATRIX = {"disk": "--disk", "slog": "--slog", "rows": "--rows", "keep_going": "--keep-going"}
_OF_PATH = {
    "where": "PATH",
    "test": "--test",
    "jobs": "--jobs",
    "load": "--with",
    "size": "--size",
    "raw": "--raw",
    "stages": "--stages",
    "no_trace": "--no-trace",
}


def run(args: argparse.Namespace) -> int:
    """The command. Raises CommandError and TraceError."""
    if args.html is not None:
        _check_file(args.html)
    if args.matrix is not None:
        _refuse(args, _OF_PATH, "cannot be used with --matrix")
        from zfstune.bench.matrix import command as matrix_command

        return matrix_command.run(args)
    _refuse(args, _OF_MATRIX, "needs --matrix")
    if args.where is None:
        raise UsageError("PATH|DATASET is missing", "see `zfstune bench -h`")
    if args.raw is None and (args.force_erase or args.yes):
        raise UsageError("--yes and --force-erase need --raw or --matrix")
    tests = chosen(args.test, args.jobs)
    load = find_load(args.load, args.size or SIZE)
    host = open_host()
    place = bench_place.find(host, args.where)
    bench_place.check_room(place.path, bytes_needed(tests, args.size or SIZE))
    from zfstune.bench.matrix import pools

    for other in (*pools.leftovers(host), *map(_other, bench_place.others(place.path))):
        say(other)
    disk = None
    if args.raw is not None:
        wanted = [Wanted("--raw", args.raw)]
        (disk,) = scratch.confirm(host, wanted, args.force_erase, yes=args.yes)
    version = host.version() if place.pool else ""
    found = PathResult(place.name, load.name, version, args.duration / SECOND, disk=args.raw)
    with Stop(sys.stdout) as stop:
        bench = PathBench(args, host, load, place, found, stop, sys.stdout)
        done = False
        try:
            if disk:
                bench.measure_raw(disk)
            bench.measure(tests)
            done = True
        finally:
            # an error before the first result says all
            if done or found.rows or found.left:
                bench.show()
    return NEGATIVE if found.missing or found.left or bench.lost else DONE


class PathBench:
    """A run of the command on a path; found gets what it measures."""

    def __init__(
        self,
        args: argparse.Namespace,
        host: Host,
        load: Load,
        place: Place,
        found: PathResult,
        stop: Stop,
        out: TextIO,
    ) -> None:
        self._args, self._host, self._load = args, host, load
        self._place, self._found, self._stop, self._out = place, found, stop, out

    @property
    def lost(self) -> int:
        """The number of operations that the traces of all tests missed."""
        return sum(one.lost for one in self._found.rows)

    def measure_raw(self, disk: Scratch) -> None:
        """Measures the disk itself, and blanks it. Raises CommandError, TraceError."""
        found = self._found
        say(f"{disk.device}: the device itself ...")
        # fio opens it whatever has become of it while the question was open; this does not
        self._host.erase(disk)
        try:
            found.raw = raw(Path(disk.device), found.seconds, self._stop)
        finally:
            found.left += scratch.blank(self._host, [disk])

    def measure(self, tests: Sequence[Test]) -> None:
        """Runs the tests that the load can run. Raises CommandError."""
        found, stop = self._found, self._stop
        for test in tests:
            if why := self._load.lacks(test):
                found.missing.append(f"{test.name} was skipped: {why}")
        able = [test for test in tests if not self._load.lacks(test)]
        untraced = self._untraced()
        progress = ProgressBar(sys.stderr, able, found.seconds)
        try:
            with bench_place.directory(self._host, self._place, found.left) as path:
                for one in measure(
                    self._host,
                    self._load,
                    able,
                    path,
                    self._place.pool,
                    found.seconds,
                    stop,
                    progress,
                    dataset=self._place.dataset,
                    untraced=untraced,
                ):
                    found.rows.append(one)
                    if self._args.json:
                        # at once, in case a later test fails
                        print(json.dumps(found.to_json(one)), file=self._out, flush=True)
                    progress.row(one)
        finally:
            progress.end()
            if self._place.pool and not self._args.no_trace:
                whys = dict.fromkeys(one.untraced for one in found.rows if one.untraced)
                found.missing += [f"the stages were not measured: {why}" for why in whys]
            if len(found.rows) < len(able):
                rest = ", ".join(test.name for test in able[len(found.rows) :])
                found.missing.append(f"not measured: {rest}")

    def _untraced(self) -> str | None:
        """Why there can be no trace; None if there can."""
        if self._args.no_trace:
            return "--no-trace"
        if not self._place.pool:
            return f"{self._place.path} is not on ZFS"
        try:
            require_tracing(self._host.checks())
        except NotPossible as error:
            return error.in_one_line()
        return None

    def show(self) -> None:
        """Prints the results as text or, if they were printed as JSON, only the remarks; writes the
        page."""
        found, args, out = self._found, self._args, self._out
        if self._stop.reader_gone:
            return
        if args.json:
            # stdout has one kind of object; remarks go to stderr
            lines = [*found.missing, *found.left, *end(found, Style())]
            for line in [heading(found), *lines]:
                print(printable(line), file=sys.stderr)
        else:
            print("\n".join(view(found, style_of(out), stages=args.stages)), file=out, flush=True)
        if args.html is not None and found.rows:
            from zfstune.bench import html

            html.save(found, args.html)
            say(f"page: {args.html}")


def chosen(names: Sequence[str] | None, jobs: Sequence[int] | None) -> list[Test]:
    """The tests that --test and --jobs select; TESTS without either. Raises UsageError."""
    known = {test.name: test for test in TESTS}
    alone = [test for test in TESTS if test.jobs == 1]
    many = [committers(n) for n in jobs or ()]
    if names is None:
        return sorted([*alone, *many], key=_plain) if jobs else list(TESTS)
    tests = {}
    for name in names:
        n = committers_of(name)
        test = committers(n) if n else known.get(name)
        if test is None:
            raise UsageError(
                f"--test: no test {name!r}",
                f"choose from {', '.join(one.name for one in alone)}, committers-N",
            )
        tests[name] = test
    return list((tests | {test.name: test for test in many}).values())


def _plain(test: Test) -> bool:
    return test.sync == "none"


def _refuse(args: argparse.Namespace, options: dict[str, str], why: str) -> None:
    for name, option in options.items():
        if getattr(args, name) not in (None, False, []):
            raise UsageError(f"{option} {why}")


def _other(path: str) -> str:
    return f"{path} was left by another run; if none is in progress, remove it with `rm -r`"


def _check_file(name: str) -> None:
    """Before minutes of work. Raises UsageError."""
    path = Path(name)
    if name == "-" or path.is_dir() or not path.parent.is_dir():
        raise UsageError(f"--html {name}: cannot write a file there", "name another")
