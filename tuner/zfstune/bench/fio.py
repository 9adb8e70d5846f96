"""fio as a load of `zfstune bench`: its command line, and its JSON."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zfstrace import processes
from zfstune.bench.child import Child
from zfstune.bench.load import BLOCK, NOTHING, SIZE, BenchFailed, Rate, Test, Watcher, too_late
from zfstune.term.signals import Stop
from zfstune.term.units import MS

# Time beside the test itself: a slow disk needs it for the files.
_LATE_S = 120.0
_LOOK_NS = 50 * MS
_SYNC = {"fdatasync": "--fdatasync", "fsync": "--fsync"}


def find(size: int = SIZE) -> Fio | None:
    """The fio in PATH, for files of size bytes each; None if none runs."""
    path = shutil.which("fio")
    if not path:
        return None
    version = processes.output([path, "--version"], 10).strip()
    return Fio(path, version.replace("-", " ", 1) or "fio", size) if version else None


class Fio:
    """Implements zfstune.bench.load.Load. size is of each file, in bytes."""

    def __init__(self, path: str, name: str, size: int) -> None:
        self.name = name
        self._path, self._size = path, size

    def lacks(self, test: Test) -> str:
        return ""

    def run(
        self, test: Test, where: Path, seconds: float, stop: Stop, watch: Watcher = NOTHING
    ) -> Rate | None:
        # as a database overwrites its log: no test extends a file
        place = [f"--directory={escaped(where)}", f"--size={self._size}", "--overwrite=1"]
        return self._run(test, place, seconds, stop, watch)

    def raw(self, device: Path, seconds: float, stop: Stop) -> Rate | None:
        """8 kB and fdatasync on a device, past the cache; DESTROYS its data. None when
        interrupted. Raises BenchFailed."""
        test = Test("raw", "the device itself, fdatasync", "fdatasync")
        place = [f"--filename={escaped(device)}", "--direct=1"]
        return self._run(test, place, seconds, stop, NOTHING)

    def _run(
        self, test: Test, place: Sequence[str], seconds: float, stop: Stop, watch: Watcher
    ) -> Rate | None:
        deadline = stop.now() + int((seconds + _LATE_S) * 1e9)
        watch.begun()
        with Child([self._path, *options(test, seconds), *place]) as child:
            while child.running():
                if stop.wait(_LOOK_NS):
                    break
                watch.tick()
                if stop.now() > deadline:
                    raise too_late(self.name, _LATE_S)
            ended = not child.running()
            watch.ended()
            if not ended:
                return None
            if child.process.returncode:
                # a signal may have reached it first
                if stop.wait(0):
                    return None
                raise child.failure()
            return parse_json(child.output(), test, self.name)


def options(test: Test, seconds: float) -> list[str]:
    """The arguments of a test, without those that name its file."""
    words = [
        "--name=bench",
        "--rw=write",
        f"--bs={BLOCK}",
        "--ioengine=psync",
        "--fallocate=none",
        "--invalidate=0",
        "--time_based",
        f"--runtime={round(seconds * 1000)}ms",
        "--thread",
        f"--numjobs={test.jobs}",
        "--group_reporting",
        "--output-format=json",
    ]
    if test.sync == "o_dsync":
        words.append("--sync=dsync")
    elif test.sync != "none":
        words.append(f"{_SYNC[test.sync]}={test.writes}")
    return words


def escaped(path: Path) -> str:
    """fio separates names by colons."""
    return str(path).replace("\\", "\\\\").replace(":", "\\:")


def parse_json(text: str, test: Test, tool: str) -> Rate:
    """The rate in the output of --output-format=json, which notes may precede. Raises
    BenchFailed."""
    start = 0 if text.startswith("{") else text.find("\n{") + 1
    try:
        found = json.loads(text[start:])
        job = found["jobs"][0]
        error = int(job["error"])
        runtime_ms = int(job["write"]["runtime"])
        synced = test.sync in _SYNC
        times = job["sync"]["lat_ns"] if synced else job["write"]["clat_ns"]
        # total_ios of "sync" omits some kinds of syncs
        count = int(times["N"] if synced else job["write"]["total_ios"])
        percentiles = times.get("percentile", {})
        p50, p99 = (_time(percentiles, name) for name in ("50.000000", "99.000000"))
        per_s = count * 1000 / runtime_ms if runtime_ms > 0 else 0.0
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError, OverflowError):
        raise BenchFailed(
            f"{tool} printed no result in a known format", "use another program by --with"
        ) from None
    if error:
        raise BenchFailed(f"{tool} failed with error {error} of the system", "see dmesg")
    if per_s <= 0:
        raise BenchFailed(f"{tool} completed no sync", "use a longer --duration")
    return Rate(test, per_s, p50, p99, tool, count)


def _time(percentiles: dict[str, Any], name: str) -> int | None:
    value = percentiles.get(name)
    return None if value is None else int(value)
