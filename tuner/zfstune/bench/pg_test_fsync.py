"""PostgreSQL's pg_test_fsync as a load of `zfstune bench`.

It always runs all its tests, in a fixed order, and ends each by SIGALRM after a number of seconds.
The same signal skips the tests that are not wanted.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path

from zfstrace import processes
from zfstune.bench.child import Child
from zfstune.bench.load import NOTHING, Rate, Test, Unable, Watcher, too_late
from zfstune.term.signals import Stop

DEBIAN = Path("/usr/lib/postgresql")
_LATE_S = 120.0
_LOOK_S = 0.02

# Section and label of each test.
_ONE = "Compare file sync methods using one 8kB write"
PLACES = {
    "fdatasync": (_ONE, "fdatasync"),
    "fsync": (_ONE, "fsync"),
    "o_dsync": (_ONE, "open_datasync"),
    "two-fdatasync": ("Compare file sync methods using two 8kB writes", "fdatasync"),
    "plain": ("Non-sync'ed 8kB writes", "write"),
}

_SECTION = re.compile(r"(Compare|Test|Non-sync)[^\n]*:")
_LINE = re.compile(
    r" +(?P<label>\S[^\n]*?) {2,}(?:(?P<rate>\d+\.\d+) ops/sec +(?P<usecs>\d+) usecs/op|n/a\*?)"
)


@dataclass(frozen=True)
class Line:
    """A test in its output. per_s is None for "n/a"."""

    section: str
    label: str
    per_s: float | None
    usecs: int | None


def parse_text(text: str) -> tuple[list[Line], tuple[str, str] | None]:
    """The finished tests in its output, and (section, label) of the running one, which the output
    ends with; None if there is none. Other lines are ignored."""
    lines = []
    section = ""
    *whole, open_line = text.split("\n")
    for line in whole:
        if _SECTION.fullmatch(line):
            section = line.removesuffix(":")
        elif found := _LINE.fullmatch(line):
            rate, usecs = found["rate"], found["usecs"]
            lines.append(
                Line(
                    section,
                    found["label"],
                    float(rate) if rate else None,
                    int(usecs) if usecs else None,
                )
            )
    label = open_line.strip()
    # the label is written in one piece with its padding
    running = (section, label) if label and open_line.endswith(" ") and section else None
    return lines, running


def find() -> PgTestFsync | None:
    """The one in PATH, or the newest in Debian's directories; None if none runs."""
    paths = sorted(DEBIAN.glob("*/bin/pg_test_fsync"), key=_version)
    path = shutil.which("pg_test_fsync") or (str(paths[-1]) if paths else None)
    if not path:
        return None
    said = processes.output([path, "--version"], 10)
    version = re.search(r"\d[\w.]*", said)
    return PgTestFsync(path, f"pg_test_fsync {version[0]}") if version else None


def _version(path: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", path.parts[-3]))


class PgTestFsync:
    """Implements zfstune.bench.load.Load. Its file always has 16 MiB."""

    def __init__(self, path: str, name: str) -> None:
        self.name = name
        self._path = path

    def lacks(self, test: Test) -> str:
        if test.name in PLACES:
            return ""
        return "pg_test_fsync has only one writer; install fio"

    def run(
        self, test: Test, where: Path, seconds: float, stop: Stop, watch: Watcher = NOTHING
    ) -> Rate | None:
        file = where / "pg_test_fsync.out"
        argv = [self._path, "-s", "86400", "-f", str(file)]
        with Child(argv, pipe=True) as child:
            try:
                return self._follow(child, test, seconds, stop, watch)
            finally:
                # it removes its file on SIGTERM, but not on SIGKILL
                child.close()
                file.unlink(missing_ok=True)

    def _follow(
        self, child: Child, test: Test, seconds: float, stop: Stop, watch: Watcher
    ) -> Rate | None:
        """Skips all tests but the wanted one, and ends that after its time."""
        wanted = PLACES[test.name]
        deadline = stop.now() + int((seconds + _LATE_S) * 1e9)
        began = 0
        text = ""
        over = False
        while stop.now() < deadline:
            if stop.wait(0):
                if began and not over:
                    watch.ended()
                return None
            if began and not over:
                watch.tick()
            ready = self._read(child)
            if ready == "":
                # in an earlier test: O_DIRECT with 2 kB is an error on ZFS 2.3 and later
                error = child.failure()
                raise error if began else Unable(str(error), "use --with fio")
            text += ready or ""
            lines, running = parse_text(text)
            for line in lines:
                if (line.section, line.label) == wanted:
                    return self._rate(line, test)
            if running == wanted and not began:
                watch.begun()
                began = stop.now()
            elif running == wanted and stop.now() - began < seconds * 1e9:
                continue
            elif running is not None:
                if running == wanted and not over:
                    over = True
                    watch.ended()
                # repeatedly: it ignores a signal that comes before its clock starts
                child.signal(signal.SIGALRM)
        raise too_late(self.name, _LATE_S)

    def _read(self, child: Child) -> str | None:
        """New output; "" at its end, None when there is none yet."""
        assert child.process.stdout
        pipe = child.process.stdout.fileno()
        ready, _, _ = select.select([pipe], [], [], _LOOK_S)
        return os.read(pipe, 65536).decode(errors="replace") if ready else None

    def _rate(self, line: Line, test: Test) -> Rate:
        if line.per_s is None:
            raise Unable(
                f"{self.name} has no {line.label} on this file system (n/a)", "use --with fio"
            )
        return Rate(test, line.per_s, None, None, self.name)
