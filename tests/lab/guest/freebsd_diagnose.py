"""Scenario: `zfstune diagnose` on FreeBSD under each cause that can be made on purpose there,
several times with other numbers, and on pools that are well. Its arguments are those of
diagnose.py.

Disks: vtbd1 plain, vtbd2 with slow flushes, vtbd3 limited in bandwidth and operations, vtbd4 and
vtbd5 for log devices.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from diagnosing import MAPPER, Runs, bulk, crowd, loaded, pool, python, writer

from labkit import Json, finish, parameters, progress, run, sh, sync_writes

MIB = 1 << 20
PLAIN, FLUSH, LIMITED, LOG, OTHER_LOG = (f"/dev/vtbd{n}" for n in range(1, 6))


@contextlib.contextmanager
def delayed(disk: str, ms: int = 0) -> Iterator[str]:
    """A disk whose writes take so much longer, and may fail; gnop(8) does not delay its flushes."""
    delay = f"-d {ms} -q 0 -x 100" if ms else ""
    sh(f"kldload -n geom_nop; gnop create {delay} {disk}")
    try:
        yield f"{disk}.nop"
    finally:
        sh(f"gnop destroy -f {disk}.nop")


def healthy(runs: Runs, i: int) -> None:
    between, files = (0.02, 0.1, 0.0)[i % 3], 1 + i % 2
    writers = (writer(f"/tank/db/{n}", between=between) for n in range(files))
    with pool(PLAIN), loaded(*writers):
        runs.diagnose("healthy", {"between_s": between, "files": files}, [])


def healthy_log(runs: Runs, i: int) -> None:
    """A log device, and now and then a larger transaction."""
    size = (8192, 32768, 65536)[i % 3]
    with pool(PLAIN, LOG), loaded(writer("/tank/db/a", size, 0.02)):
        runs.diagnose("healthy_log", {"bytes": size}, [])


def idle(runs: Runs, _i: int) -> None:
    with pool(PLAIN):
        runs.diagnose("idle", {"writes": 0}, [])


def slow_flush(runs: Runs, i: int) -> None:
    files = (1, 2, 4)[i % 3]
    with pool(FLUSH), loaded(*(writer(f"/tank/db/{n}") for n in range(files))):
        runs.diagnose("slow_flush", {"files": files}, ["slow_flush"])


def slow_log(runs: Runs, i: int) -> None:
    ms = (25, 40, 80)[i % 3]
    with delayed(LOG, ms) as log, pool(PLAIN, log), loaded(writer("/tank/db/a")):
        runs.diagnose("slow_log", {"write_ms": ms}, ["slow_log_write"])


def slow_vdev(runs: Runs, i: int) -> None:
    """One of two log devices that are used in turns."""
    ms = (25, 40, 80)[i % 3]
    with (
        delayed(LOG, ms) as log,
        pool(PLAIN, f"{log} {OTHER_LOG}"),
        loaded(writer("/tank/db/a", 65536), writer("/tank/db/b", 65536)),
    ):
        runs.diagnose("slow_vdev", {"write_ms": ms}, ["slow_vdev"], seconds=30)


def log_bypassed(runs: Runs, i: int) -> None:
    ms = (10, 25, 50)[i % 3]
    with (
        delayed(PLAIN, ms) as disk,
        pool(disk, LOG, "-o logbias=throughput"),
        loaded(writer("/tank/db/a")),
    ):
        runs.diagnose("log_bypassed", {"write_ms": ms}, ["log_bypassed"])


def committers(runs: Runs, i: int) -> None:
    """They keep an emulated CPU busy, and sleep often: the scheduler runs little beside them, and
    the tracer would not start in minutes. So it is given priority, as docs/freebsd.md advises."""
    threads = (24, 48, 64)[i % 3]
    with pool(PLAIN), loaded(crowd("/tank/db", threads)):
        runs.diagnose("committers", {"threads": threads}, ["committers"], prefix=("rtprio", "31"))


def commit_timeout(runs: Runs, i: int) -> None:
    percent = (400, 700, 1000)[i % 3]
    with (
        delayed(PLAIN, 10) as disk,
        pool(disk),
        parameters(zfs_commit_timeout_pct=percent),
        loaded(crowd("/tank/db", 3)),
    ):
        runs.diagnose("commit_timeout", {"percent": percent}, ["commit_timeout"])


def dragged_data(runs: Runs, i: int) -> None:
    size = (8, 16, 24)[i % 3]
    with pool(PLAIN), loaded(writer("/tank/db/a", size * MIB, 0.2)):
        runs.diagnose("dragged_data", {"mib": size}, ["dragged_data"], seconds=40)


def mapped(runs: Runs, i: int) -> None:
    size = (4, 6, 8)[i % 3]
    with pool(PLAIN):
        Path("/tank/db/mapped").write_bytes(bytes(size * MIB))
        sh("zpool sync tank")
        with loaded(python(MAPPER, "/tank/db/mapped", size * MIB)):
            runs.diagnose("mmap", {"mib": size}, ["mmap"], seconds=40)


def write_throttle(runs: Runs, i: int) -> None:
    """It holds up write(2), not commits; the same load also slows the fsyncs down."""
    limit = (32, 48, 64)[i % 3]
    with (
        pool(LIMITED),
        parameters(zfs_dirty_data_max=limit * MIB),
        loaded(bulk("/tank/bulk/a"), bulk("/tank/bulk/b"), writer("/tank/db/a", between=0.02)),
    ):
        first, among = ["txg_saturates", "throttled_writers"], ["throttled_writers"]
        runs.diagnose("write_throttle", {"mib": limit}, first, among, seconds=30)


def txg_saturates(runs: Runs, i: int) -> None:
    limit = (96, 144, 192)[i % 3]
    with (
        pool(LIMITED),
        parameters(zfs_dirty_data_max=limit * MIB),
        loaded(bulk("/tank/bulk/a"), writer("/tank/db/a", between=0.02)),
    ):
        runs.diagnose("txg_saturates", {"mib": limit}, ["txg_saturates"], seconds=40)


def txg_fallback(runs: Runs, i: int) -> None:
    """First commits, each of which creates a log."""
    count = (8, 12, 16)[i % 3]
    with pool(PLAIN):
        for n in range(count):
            sh(f"zfs create tank/new{n}")

        def commit() -> None:
            for n in range(count):
                sync_writes(f"/tank/new{n}/file", 1 + i % 3)

        first = ["first_commit", "fallback_unknown"]
        runs.diagnose("txg_fallback", {"datasets": count}, first, (), commit, 30)


def failing_log(runs: Runs, i: int) -> None:
    good = (10, 20, 40)[i % 3]

    def fail() -> None:
        sync_writes("/tank/db/good", good)
        sh(f"gnop configure -e 5 -w 100 {LOG}.nop")
        sync_writes("/tank/db/bad", 20)

    with delayed(LOG) as log, pool(PLAIN, log):
        first = ["fallback_error", "fallback_unknown"]
        runs.diagnose("failing_log", {"good": good}, first, (), fail)


def cpu(runs: Runs, i: int) -> None:
    """The writer may only run where hogs of a better priority do."""
    hogs = (3, 4, 6)[i % 3]
    hog = ["cpuset", "-l", "0", "sh", "-c", "while :; do :; done"]
    slow = ["cpuset", "-l", "0", "nice", "-n", "10"]
    with pool(PLAIN), loaded(*([hog] * hogs)), loaded(writer("/tank/db/a"), nice=slow):
        runs.diagnose("cpu", {"hogs": hogs}, ["cpu", "issue"])


SCENARIOS = (
    healthy,
    healthy_log,
    idle,
    slow_flush,
    slow_log,
    slow_vdev,
    log_bypassed,
    committers,
    commit_timeout,
    dragged_data,
    mapped,
    write_throttle,
    txg_saturates,
    txg_fallback,
    failing_log,
    cpu,
)


def main(count: int, only: list[str]) -> None:
    runs = Runs()
    failed: Json = {}
    # dtrace's buffers are of a size, and one emulated CPU may not get to empty them in time
    results: Json = {
        "lost_percent": 1,
        "runs": runs.found,
        "failed": failed,
        "cpus": os.cpu_count(),
    }
    results["date"] = time.strftime("%Y-%m-%d", time.gmtime())
    for scenario in SCENARIOS:
        name = scenario.__name__
        if only and name not in only:
            continue
        try:
            for i in range(count):
                scenario(runs, i)
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            # the others are worth their time all the same
            progress(f"{name} failed: {error}")
            failed[name] = str(error)
            sh("zpool destroy -f tank", check=False)
        # the results so far stay, whatever happens
        finish(results)
    results["programs_left"] = run(["pgrep", "-l", "dtrace"])["stdout"].splitlines()
    finish(results)


main(int(sys.argv[1]), sys.argv[2].split(",") if len(sys.argv) > 2 else [])
