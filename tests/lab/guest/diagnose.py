"""Scenario: `zfstune diagnose` under each cause that can be made on purpose, several times with
other numbers, and on pools that are well; each once more while a flight recorder runs, whose file
is asked when all is over and ZFS is not loaded. The arguments are how many runs of each, and of
which (all by default), with commas between them; a third one, "few": no record of a pool that
is well.

Disks: vdb and vdc plain, vde limited in bandwidth and operations, vdd and vdf for log devices.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from diagnosing import MAPPER, Runs, loaded, pool, python, writer
from exporting import unloaded, until
from recorded import Recorded

from labkit import (
    Json,
    finish,
    make_pool,
    programs,
    progress,
    run,
    sh,
    suspended_pool,
    sync_writes,
    whole,
)

PARAMETERS = Path("/sys/module/zfs/parameters")
MIB = 1 << 20


def crowd(directory: str, threads: int) -> list[str]:
    return (
        f"fio --name=crowd --directory={directory} --rw=write --bs=8k --size=4M --fsync=1 --thread "
        f"--numjobs={threads} --time_based --runtime=36000 --group_reporting --output=/dev/null"
    ).split()


def bulk(directory: str, jobs: int = 1) -> list[str]:
    """Writes as fast as it may, without an fsync."""
    return (
        f"fio --name=bulk --directory={directory} --rw=write --bs=1M --size=300M --time_based "
        f"--runtime=36000 --numjobs={jobs} --thread --output=/dev/null"
    ).split()


@contextlib.contextmanager
def delayed(disk: str, read: int = 0, write: int = 0, flush: int = 0) -> Iterator[str]:
    """A disk with delays in ms; its path."""
    name = f"{disk}-slow"
    sectors = int(sh(f"blockdev --getsz /dev/{disk}"))
    legs = " ".join(f"/dev/{disk} 0 {ms}" for ms in (read, write, flush))
    sh(f"dmsetup create {name} --table '0 {sectors} delay {legs}'; udevadm settle")
    try:
        yield f"/dev/mapper/{name}"
    finally:
        remove(name)


def remove(name: str) -> None:
    """Takes a dm device away, which may be open for a while after its pool was destroyed."""
    deadline = time.monotonic() + 60
    while Path(f"/dev/mapper/{name}").exists():
        sh(f"udevadm settle; dmsetup remove --retry {name}", check=time.monotonic() > deadline)


@contextlib.contextmanager
def parameters(**values: int) -> Iterator[None]:
    before = {name: (PARAMETERS / name).read_text() for name in values}
    try:
        for name, value in values.items():
            (PARAMETERS / name).write_text(str(value))
        yield
    finally:
        for name, text in before.items():
            (PARAMETERS / name).write_text(text)


def healthy(runs: Runs, i: int) -> None:
    between = (0.0, 0.02, 0.1)[i % 3]
    files = 1 + i % 2
    with (
        pool("/dev/vdb"),
        loaded(*(writer(f"/tank/db/{n}", between=between) for n in range(files))),
    ):
        runs.diagnose("healthy", {"between_s": between, "files": files}, [])


def healthy_log(runs: Runs, i: int) -> None:
    """A log device, and now and then a larger transaction."""
    size = (8192, 32768, 65536)[i % 3]
    with pool("/dev/vdb", "/dev/vdd"), loaded(writer("/tank/db/a", size, 0.02)):
        runs.diagnose("healthy_log", {"bytes": size}, [])


def idle(runs: Runs, i: int) -> None:
    """No fsyncs; in every other run there are writes."""
    with pool("/dev/vdb"), loaded(*([bulk("/tank/bulk")] if i % 2 else [])):
        runs.diagnose("idle", {"writes": i % 2}, ["throttled_writers"] if i % 2 else [])


def slow_flush(runs: Runs, i: int) -> None:
    ms = (25, 40, 80)[i % 3]
    with (
        delayed("vdc", flush=ms) as disk,
        pool(disk),
        loaded(writer("/tank/db/a"), writer("/tank/db/b")),
    ):
        runs.diagnose("slow_flush", {"flush_ms": ms}, ["slow_flush"])


def slow_log(runs: Runs, i: int) -> None:
    ms = (25, 40, 80)[i % 3]
    with (
        delayed("vdd", write=ms) as log,
        pool("/dev/vdb", log),
        loaded(writer("/tank/db/a")),
    ):
        runs.diagnose("slow_log", {"write_ms": ms}, ["slow_log_write"])


def slow_vdev(runs: Runs, i: int) -> None:
    """One of two log devices that are used in turns."""
    ms = (25, 40, 80)[i % 3]
    with (
        delayed("vdd", write=ms) as log,
        pool("/dev/vdb", f"{log} /dev/vdf"),
        loaded(writer("/tank/db/a", 65536), writer("/tank/db/b", 65536)),
    ):
        runs.diagnose("slow_vdev", {"write_ms": ms}, ["slow_vdev"], seconds=30)


def log_bypassed(runs: Runs, i: int) -> None:
    ms = (10, 25, 50)[i % 3]
    with (
        delayed("vdc", write=ms) as disk,
        pool(disk, "/dev/vdd", "-o logbias=throughput"),
        loaded(writer("/tank/db/a")),
    ):
        runs.diagnose("log_bypassed", {"write_ms": ms}, ["log_bypassed"])


def committers(runs: Runs, i: int) -> None:
    threads = (24, 48, 64)[i % 3]
    with pool("/dev/vdb"), loaded(crowd("/tank/db", threads)):
        runs.diagnose("committers", {"threads": threads}, ["committers"])


def commit_timeout(runs: Runs, i: int) -> None:
    percent = (400, 700, 1000)[i % 3]
    with (
        delayed("vdc", flush=5, write=5) as disk,
        pool(disk),
        parameters(zfs_commit_timeout_pct=percent),
        loaded(crowd("/tank/db", 3)),
    ):
        runs.diagnose("commit_timeout", {"percent": percent}, ["commit_timeout"])


def dragged_data(runs: Runs, i: int) -> None:
    size = (8, 16, 24)[i % 3]
    with pool("/dev/vdb"), loaded(writer("/tank/db/a", size * MIB, 0.2)):
        runs.diagnose("dragged_data", {"mib": size}, ["dragged_data"], seconds=40)


def mapped(runs: Runs, i: int) -> None:
    size = (4, 6, 8)[i % 3]
    with pool("/dev/vdb"):
        Path("/tank/db/mapped").write_bytes(bytes(size * MIB))
        sh("zpool sync tank")
        with loaded(python(MAPPER, "/tank/db/mapped", size * MIB)):
            runs.diagnose("mmap", {"mib": size}, ["mmap"], seconds=40)


def write_throttle(runs: Runs, i: int) -> None:
    """It holds up write(2), up to 2.1.11 also commits; what slows the fsyncs down besides is the
    same load."""
    limit = (32, 48, 64)[i % 3]
    first = ["txg_saturates", "throttled_commit", "throttled_writers"]
    with (
        pool("/dev/vde"),
        parameters(zfs_dirty_data_max=limit * MIB),
        loaded(bulk("/tank/bulk", 2), writer("/tank/db/a", between=0.02)),
    ):
        among = ["throttled_writers"]
        runs.diagnose("write_throttle", {"mib": limit}, first, among, seconds=30)


def txg_saturates(runs: Runs, i: int) -> None:
    limit = (96, 144, 192)[i % 3]
    with (
        pool("/dev/vde"),
        parameters(zfs_dirty_data_max=limit * MIB),
        loaded(bulk("/tank/bulk"), writer("/tank/db/a", between=0.02)),
    ):
        runs.diagnose("txg_saturates", {"mib": limit}, ["txg_saturates"], seconds=40)


def txg_fallback(runs: Runs, i: int) -> None:
    """First commits, each of which creates a log."""
    count = (8, 12, 16)[i % 3]
    with pool("/dev/vdb"):
        for n in range(count):
            sh(f"zfs create tank/new{n}")

        def commit() -> None:
            for n in range(count):
                sync_writes(f"/tank/new{n}/file", 1 + i % 3)

        runs.diagnose(
            "txg_fallback",
            {"datasets": count},
            ["first_commit", "fallback_unknown"],
            (),
            commit,
            30,
        )


def failing_log(runs: Runs, i: int) -> None:
    good = (10, 20, 40)[i % 3]
    sectors = int(sh("blockdev --getsz /dev/vdf"))
    sh(f"dmsetup create frail --table '0 {sectors} linear /dev/vdf 0'; udevadm settle")

    def fail() -> None:
        sync_writes("/tank/db/good", good)
        sh("dmsetup suspend frail")
        sh(f"dmsetup load frail --table '0 {sectors} error'")
        sh("dmsetup resume frail")
        sync_writes("/tank/db/bad", 20)

    try:
        with pool("/dev/vdb", "/dev/mapper/frail"):
            first = ["fallback_error", "fallback_unknown"]
            runs.diagnose("failing_log", {"good": good}, first, (), fail)
    finally:
        sh("udevadm settle; dmsetup remove --retry frail")


def cpu(runs: Runs, i: int) -> None:
    """The writer may only run where hogs of a better priority do. On a preemptible kernel it
    loses most of its time before it waits, which is `issue`."""
    hogs = (3, 4, 6)[i % 3]
    hog = ["taskset", "-c", "0", "sh", "-c", "while :; do :; done"]
    slow = ["taskset", "-c", "0", "nice", "-n", "10"]
    with (
        pool("/dev/vdb"),
        loaded(*([hog] * hogs)),
        loaded(writer("/tank/db/a"), nice=slow),
    ):
        runs.diagnose("cpu", {"hogs": hogs}, ["cpu", "issue"])


def zvol_serial(runs: Runs, i: int) -> None:
    """The module has one thread for volumes; many requests are in flight."""
    depth = (8, 16, 32)[i % 3]
    with delayed("vdc", flush=5) as disk, pool(disk):
        sh("zfs create -V 256M -o volblocksize=8k tank/vol; udevadm settle")
        load = (
            "fio --name=vol --filename=/dev/zvol/tank/vol --rw=randwrite --bs=8k --direct=1 "
            f"--sync=1 --ioengine=libaio --iodepth={depth} --thread --time_based "
            "--runtime=36000 --output=/dev/null"
        )
        with loaded(load.split()):
            runs.diagnose("zvol_serial", {"depth": depth}, ["zvol_serial"])


def in_need(results: Json) -> None:
    """Pools that need help, and one that does not exist. Last, since a pool may not come back."""
    progress("in need")

    def asked(name: str) -> Json:
        return run(["zfstune", "diagnose", name, "--duration", "5s"])

    found: Json = {"unknown": asked("tnak")}
    make_pool(disk="mirror /dev/vdb /dev/vdc")
    sh("zpool offline tank vdc")
    with loaded(writer("/tank/a", between=0.02)):
        found["degraded"] = asked("tank")
    sh("zpool destroy tank")
    with suspended_pool("/dev/vdf") as found["state"]:
        found["suspended"] = asked("frail")
    results["in_need"] = found


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


def one_thread_for_volumes() -> None:
    """Reloads the module; both are fixed when it is loaded."""
    options = [
        f"{name}=1" for name in ("zvol_threads", "zvol_num_taskqs") if (PARAMETERS / name).exists()
    ]
    sh("modprobe -r zfs")
    sh(f"modprobe zfs {' '.join(options)}")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    wanted = sys.argv[2].split(",") if len(sys.argv) > 2 else []
    sh("modprobe dm-delay")
    runs, recorded = Runs(), Recorded()
    failed: Json = {}
    results: Json = {"runs": runs.found, "recorded": recorded.found, "failed": failed}
    results["cpus"] = os.cpu_count()
    results["date"] = time.strftime("%Y-%m-%d", time.gmtime())
    for scenario in (*SCENARIOS, zvol_serial):
        name = scenario.__name__
        if wanted and name not in wanted:
            continue
        try:
            if scenario is zvol_serial:
                one_thread_for_volumes()
            for i in range(count):
                scenario(runs, i)
            if scenario is not healthy or whole(results, name):
                scenario(recorded, 0)
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            # the others are worth their time all the same
            progress(f"{name} failed: {error}")
            failed[name] = str(error)
            sh("zpool destroy -f tank", check=False)
        # the results so far stay, whatever happens
        finish(results)
    until("the module unloaded", unloaded)
    recorded.answer()
    results["loaded"] = Path("/sys/module/zfs").exists()
    sh("modprobe zfs")
    in_need(results)
    results["programs_left"] = programs()
    finish(results)


main()
