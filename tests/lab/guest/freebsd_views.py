"""Scenario: the views of the write path on FreeBSD beside ZFS's own counters, causes of slow fsyncs
made on purpose, flame graphs, and the one-file D scripts; freebsd_views.py few: without the
overview and all but one kind of flame graph.

Disks: vtbd1 plain (pool tank), vtbd2 with slow flushes (pool slow), vtbd3 with slow writes (pool
late), vtbd4 for a log device that is slow and then fails.
"""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dscripts import Script

from labkit import (
    Json,
    Tracer,
    finish,
    kstat,
    make_pool,
    parameters,
    progress,
    run,
    sh,
    sync_writes,
    traced,
    txg_rows,
    whole,
)

MIB = 1 << 20
DIRTY_MAX = 4 * MIB  # so little that the disk is slower than dd, even where the CPU is emulated
VIEWS = ("txg", "throttle", "device", "arc")


@contextmanager
def busy(path: str) -> Iterator[None]:
    """Fsyncs of a file until the end of the body."""
    script = f"import labkit\nwhile True:\n labkit.sync_writes({path!r}, 16)"
    load = subprocess.Popen([sys.executable, "-c", script], cwd=Path(__file__).parent)
    try:
        yield
    finally:
        load.kill()
        load.wait()


def delta(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    return {name: value - before[name] for name, value in after.items()}


def write_throttled() -> None:
    """More than the limit of dirty data, by dd; then a txg that somebody waits for."""
    with parameters(zfs_dirty_data_max=DIRTY_MAX):
        sh("dd if=/dev/zero of=/tank/bulk bs=1m count=24 2>/dev/null; zpool sync tank")


def views(results: Json) -> None:
    """All views by one command, which attaches once, and txgs from kstats alone."""
    progress("views: attaching")
    sh("zpool sync tank")
    tracers = {
        "all": Tracer("--pool", "tank", "--interval", "1h"),
        "kstat": Tracer("txg", "tank", "--source", "kstat"),
    }
    before = {name: kstat(name) for name in ("dmu_tx", "arcstats")}
    progress("views: load")
    write_throttled()
    sync_writes("/tank/flushed", 53)
    sh("zpool sync tank; zinject -a; cat /tank/bulk > /dev/null")  # nothing of it is cached
    time.sleep(6)  # one txg by the timer
    results["txgs"], after = txg_rows("tank"), {name: kstat(name) for name in before}
    time.sleep(1)
    found = {name: tracer.rows() for name, tracer in tracers.items()}
    results["views"] = {view: [r for r in found["all"] if r["type"] == view] for view in VIEWS}
    results["views"]["kstat"] = found["kstat"]
    results["ends"] = {
        name: {"status": tracer.process.returncode, "stderr": tracer.stderr.read_text()}
        for name, tracer in tracers.items()
    }
    results["dmu_tx"] = delta(before["dmu_tx"], after["dmu_tx"])
    results["arcstats"] = {"before": before["arcstats"], "after": after["arcstats"]}


def mapped(path: str) -> None:
    """Each page of a file through a mapping, then one fsync; three times."""
    with Path(path).open("r+b") as f, mmap.mmap(f.fileno(), 0) as m:
        for _ in range(3):
            for offset in range(0, len(m), mmap.PAGESIZE):
                m[offset] = 1
            os.fsync(f.fileno())


def hogged(path: str, n: int) -> None:
    """The writer may only run where four hogs of a better priority do."""
    hogs = [
        subprocess.Popen(["cpuset", "-l", "0", "sh", "-c", "while :; do :; done"]) for _ in range(4)
    ]
    script = f"import labkit\nlabkit.sync_writes({path!r}, {n})"
    writer = ["cpuset", "-l", "0", "nice", "-n", "10", sys.executable, "-c", script]
    try:
        subprocess.run(writer, cwd=Path(__file__).parent, check=True)
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def throttled(path: str, n: int) -> None:
    """Beside a bulk writer that the throttle delays."""
    with parameters(zfs_dirty_data_max=DIRTY_MAX):
        bulk = subprocess.Popen(
            "while :; do dd if=/dev/zero of=/tank/bulk bs=1m count=100 2>/dev/null; done",
            shell=True,
            start_new_session=True,
        )
        before = kstat("dmu_tx")["dmu_tx_dirty_delay"]
        while kstat("dmu_tx")["dmu_tx_dirty_delay"] == before:
            time.sleep(0.1)
        sync_writes(path, n)
        os.killpg(bulk.pid, signal.SIGKILL)
        bulk.wait()


def log_device(results: Json) -> None:
    """A log device that is slow and then fails under load."""
    sh("gnop create -d 40 -q 0 -x 100 vtbd4; zpool add -f tank log /dev/vtbd4.nop")
    sync_writes("/tank/slow_log/file", 13)
    before = kstat("zil")
    sh("gnop configure -x 0 -e 5 -w 100 vtbd4.nop")
    sync_writes("/tank/failing/file", 9)
    results["failing"] = delta(before, kstat("zil"))


def causes(results: Json) -> None:
    """Each in a dataset of its own, under one trace; slow fsyncs are reported as well."""
    sh("zfs create tank/imported")
    sync_writes("/tank/imported/warm", 3)
    sh("zpool export tank; zpool import tank")
    for name in ("calm", "mapped", "hogged", "throttled", "slow_log", "failing"):
        sh(f"zfs create tank/{name}")
        sync_writes(f"/tank/{name}/warm", 3)  # creates the log
    for i in range(5):
        sh(f"zfs create tank/new{i}")
    Path("/tank/mapped/file").write_bytes(bytes(8 * MIB))
    sh("zpool sync tank")
    progress("causes: attaching")
    slow = Tracer("slow", "--over", "30ms", "slow")
    with traced(results, "causes", "fsync"):
        progress("causes: load")
        sync_writes("/tank/calm/file", 61)
        sync_writes("/slow/file", 23)
        sync_writes("/late/file", 19)
        mapped("/tank/mapped/file")
        sync_writes("/tank/imported/file", 1)
        for i in range(5):
            sync_writes(f"/tank/new{i}/file", 1)
        progress("causes: hog")
        hogged("/tank/hogged/file", 41)
        progress("causes: throttle")
        throttled("/tank/throttled/file", 29)
        progress("causes: log")
        log_device(results)
        time.sleep(0.5)
    # every dataset commits as a log device goes, but not by zil_commit()
    sh("gnop configure -w 0 vtbd4.nop; zpool clear tank; zpool remove tank vtbd4.nop")
    results["slow"] = {"rows": slow.rows(), "status": slow.process.returncode}


def overview(results: Json) -> None:
    if not whole(results, "overview"):
        return
    progress("overview")
    with busy("/tank/busy"):
        results["overview"] = run(["zfstune", "trace", "--duration", "4s"], timeout=600)


def flame(results: Json) -> None:
    """Each kind, as text and as a picture."""
    more = ("wakeup", "on-cpu") if whole(results, "wakeup", "on-cpu") else ()
    with busy("/slow/busy"):
        for kind in ("off-cpu", *more):
            progress(kind)
            svg, folded = (Path(f"/out/{kind}.{suffix}") for suffix in ("svg", "folded"))
            command = ["zfstune", "flame", f"--{kind}", "--duration", "6s", "-o", str(folded)]
            done = run(command, timeout=600)
            convert = run(["zfstune", "flame", "convert", str(folded), "-o", str(svg)])
            results[kind] = done | {
                "folded": folded.read_text() if folded.exists() else "",
                "convert": convert,
                "svg": svg.read_text() if svg.exists() else "",
            }


def tools(results: Json) -> None:
    """The scripts that the scenario freebsd_counts does not run, each with what it must see."""
    results["tools"] = {}

    def tool(name: str, *args: str, load: Any) -> None:
        script = Script(name, *args)
        load()
        time.sleep(1.2)
        results["tools"][name] = script.stop()

    def commits() -> None:
        sync_writes("/slow/file", 23)

    def txgs() -> None:
        for i in range(7):
            Path(f"/slow/txg{i}").write_bytes(bytes(MIB))
            sh("zpool sync slow")
        results["slow_txgs"] = txg_rows("slow")

    tool("zfsflush.d", load=commits)
    tool("fsyncstack.d", load=commits)
    tool("txgstate.d", "slow", load=txgs)
    before = kstat("dmu_tx")
    tool("zfsthrottle.d", "tank", load=write_throttled)
    results["tools"]["zfsthrottle.d"]["dmu_tx"] = delta(before, kstat("dmu_tx"))
    tool("arcstate.d", load=lambda: sh("zinject -a; cat /tank/bulk > /dev/null"))


STEPS = (views, causes, overview, flame, tools)


def main(only: list[str]) -> None:
    results: Json = {"comm": Path(sys.executable).resolve().name}
    make_pool()
    for name, disk in (("slow", "/dev/vtbd2"), ("late", "/dev/vtbd3")):
        make_pool(name, disk)
        sync_writes(f"/{name}/file", 3)  # creates the log
    for step in STEPS:
        if only in ([], ["few"]) or step.__name__ in only:
            step(results)
            finish(results)


main(sys.argv[1:])
