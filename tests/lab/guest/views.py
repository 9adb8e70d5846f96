"""Scenario: the views of the write path, each under a load of which ZFS's own counters,
kept beside, tell what it must show; views.py few: without `zfstune check`."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from labkit import (
    Json,
    Tracer,
    finish,
    kstat,
    make_pool,
    parameters,
    programs,
    progress,
    run,
    sh,
    sync_writes,
    txg_rows,
    whole,
)

EVENTS = Path("/sys/kernel/tracing/kprobe_events")
MIB = 1 << 20


@contextmanager
def views(results: Json, key: str, **commands: str) -> Iterator[dict[str, Tracer]]:
    """Traces the body by several commands at once, and notes the change of the dmu_tx kstat
    between the first that is attached and the first that ends."""
    tracers = {name: Tracer(*command.split()) for name, command in commands.items()}
    before = kstat("dmu_tx")
    try:
        yield tracers
    finally:
        after = kstat("dmu_tx")
        results[key] = {
            name: {"rows": tracer.rows(), "stderr": tracer.stderr.read_text()}
            for name, tracer in tracers.items()
        }
        results[key]["status"] = {n: t.process.returncode for n, t in tracers.items()}
        results[key]["dmu_tx"] = {n: after[n] - before[n] for n in after}


def write_and_sync(results: Json) -> None:
    """512 MiB by dd, then sync(1): the txgs' bytes are known; then idle for the timer."""
    progress("dd 512 MiB")
    sh("zpool sync tank")
    with views(
        results, "dd", txg="txg tank", kstat="txg tank --source kstat", device="device tank"
    ):
        with parameters(zfs_dirty_data_max=128 * MIB):
            sh("dd if=/dev/zero of=/tank/big bs=1M count=512 2>/dev/null; sync")
        time.sleep(6)
        sh("echo x > /tank/small; zpool sync tank")
        time.sleep(1.5)
    sh("rm /tank/big")
    results["dd"]["bytes"] = 512 * MIB
    results["dd"]["kstat_rows"] = txg_rows("tank")


def throttled(results: Json) -> None:
    progress("throttle")
    with views(results, "delay", throttle="throttle tank", txg="txg tank"):
        # so little that even an unused disk is slower than dd
        with parameters(zfs_dirty_data_max=32 * MIB):
            sh("zpool sync tank")  # the txg that is open now is not completely known
            sh("dd if=/dev/zero of=/tank/slow bs=1M count=400 2>/dev/null")
            sh("zpool sync tank")
        time.sleep(1)
    # hardly any delay on the way to the limit: writers run into it, as a rule with the first file
    with views(results, "hard", throttle="throttle tank"):
        with parameters(zfs_dirty_data_max=32 * MIB, zfs_delay_scale=1):
            until = time.monotonic() + 60
            before = kstat("dmu_tx")["dmu_tx_dirty_over_max"]
            while kstat("dmu_tx")["dmu_tx_dirty_over_max"] < before + 10:
                if time.monotonic() > until:
                    raise RuntimeError("the writer does not run into the limit")
                sh("dd if=/dev/zero of=/tank/slow bs=1M count=120 2>/dev/null; sync")
        time.sleep(1)
    with views(results, "wrlog", throttle="throttle tank"):
        with parameters(zfs_wrlog_data_max=MIB // 2):
            # small writes: what they would need in the log counts, fsync or not
            sh("dd if=/dev/zero of=/tank/log bs=8k count=4000 2>/dev/null; sync")
        time.sleep(1)
    with views(results, "slow", slow="slow --over 1us tank") as tracers:
        with parameters(zfs_dirty_data_max=64 * MIB):
            bulk = subprocess.Popen(
                "while dd if=/dev/zero of=/tank/bulk bs=1M count=3000 2>/dev/null; do :; done",
                shell=True,
                start_new_session=True,
            )
            until = time.monotonic() + 120
            sync_writes("/tank/slowfile", 101)
            while '"delayed": true' not in tracers["slow"].stdout.read_text():
                if time.monotonic() > until:
                    raise RuntimeError("no fsync was seen while a writer was held up")
                sync_writes("/tank/slowfile", 10)
            os.killpg(bulk.pid, signal.SIGKILL)
            bulk.wait()
        time.sleep(1)


def two_pools(results: Json) -> None:
    progress("two pools")
    make_pool("side", "/dev/vdc")
    commands = {"throttle": "throttle tank", "txg": "txg tank", "device": "device tank"}
    with views(results, "tank_only", **commands, all_txg="txg", all_device="device"):
        with parameters(zfs_dirty_data_max=48 * MIB):
            sh("dd if=/dev/zero of=/side/big bs=1M count=100 2>/dev/null; sync")
            sync_writes("/tank/one", 103)
            sh("zpool sync")
        time.sleep(1)
    sh("zpool destroy side")


def reads_and_scrub(results: Json) -> None:
    progress("scrub, ARC")
    sh("rm -f /tank/bulk /tank/slow; dd if=/dev/zero of=/tank/big bs=1M count=200; zpool sync tank")
    used = int(sh("zfs get -Hpo value used tank"))
    sh("zpool export tank; zpool import tank")  # nothing of it is cached now
    with views(results, "read", arc="arc --interval 1s", device="device tank"):
        sh("cat /tank/big > /dev/null; cat /tank/small /tank/small > /dev/null")
        time.sleep(1)
    with views(results, "scrub", device="device tank", txg="txg tank"):
        sh("zpool scrub -w tank")
        time.sleep(0.5)
    results["scrub"]["used"] = used
    results["arcstats"] = kstat("arcstats")


def flushing(results: Json) -> None:
    """What one writer and eight at once flush, under all views, while no txg syncs by itself:
    nothing is on its way as the trace begins and ends."""
    progress("flushes")
    commands = {"device": "device tank", "txg": "txg tank", "throttle": "throttle tank"}
    with parameters(zfs_txg_timeout=600):
        sh("zpool sync tank")
        with (
            views(results, "flush", **commands, fsync="fsync tank", arc="arc"),
            flushes_queued("vdb") as queued,
        ):
            # not fio: it leaves out the fsync after its last write
            sync_writes("/tank/flushed", 331)
            with ThreadPoolExecutor(8) as pool:
                list(pool.map(lambda i: sync_writes(f"/tank/flushed{i}", 101), range(8)))
            sh("zpool sync tank")
    results["flush"]["queued"] = queued


@contextmanager
def flushes_queued(disk: str) -> Iterator[list[int]]:
    """After the body, how many flushes were handed to the kernel's queue of a disk. The disk's
    own counter has those that come together as one. A plain trace event: whatever else runs, it
    misses none."""
    block = Path("/sys/block") / disk
    numbers = {(d / "dev").read_text().strip() for d in (block, *block.glob(f"{disk}*"))}
    instance = Path("/sys/kernel/tracing/instances/flushes")
    event = instance / "events/block/block_bio_queue"
    instance.mkdir()
    queued: list[int] = []
    try:
        (instance / "buffer_size_kb").write_text("8192")
        (event / "filter").write_text('nr_sector == 0 && rwbs ~ "F*"')
        (event / "enable").write_text("1")
        yield queued
        (event / "enable").write_text("0")
        lines = (instance / "trace").read_text().splitlines()
        of = [line.partition("block_bio_queue: ")[2].split() for line in lines if line[0] != "#"]
        queued.append(sum(fields[0].replace(",", ":") in numbers for fields in of))
    finally:
        (event / "enable").write_text("0")
        instance.rmdir()


def overview(results: Json) -> None:
    progress("overview")
    load = subprocess.Popen(
        "exec fio --name=load --directory=/tank --rw=write --bs=8k --size=16M --fsync=1 "
        "--thread --time_based --runtime=3600 --output=/dev/null",
        shell=True,
    )
    results["overview"] = run(["zfstune", "trace", "--duration", "6s"])
    results["overview_json"] = run(["zfstune", "trace", "--duration", "6s", "--json"])
    if whole(results, "check"):
        checked(results)
    load.kill()
    load.wait()
    results["overview_programs"] = programs()


def checked(results: Json) -> None:
    """The plugin, under a load; as nobody, who has kstats only."""
    check = ["zfstune", "check", "tank", "--duration", "4s", "--json"]
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]
    results["check"] = {
        name: run([*who, *check, *more])
        for name, who, more in (
            ("all", [], ["--show", "fsync.p99,fsync.rate,zil.commits,device.flush.p99,lost"]),
            ("bad", [], ["--crit", "fsync.p99=1ns"]),
            ("kstats", nobody, ["--warn", "txg.sync.p99=1h", "--show", "zil.commits,arc.size"]),
            ("nobody", nobody, ["--warn", "fsync.p99=1s"]),
        )
    }


def leaving(results: Json) -> None:
    """The pool, then the module, goes away under every view."""
    progress("export, import, unload")
    sh("dmesg -C")
    names = ("txg", "throttle", "device", "arc", "fsync")
    tracers = {name: Tracer(name) for name in names}
    sync_writes("/tank/a", 11)
    sh("zpool export tank; zpool import tank")
    sync_writes("/tank/a", 13)
    sh("zpool sync tank")
    time.sleep(1)
    results["exported"] = {
        n: {"rows": t.rows(), "status": t.process.returncode, "stderr": t.stderr.read_text()}
        for n, t in tracers.items()
    }
    sh("zpool export tank")
    # fentry holds the module, kprobes do not
    tracer = Tracer("txg")
    if "fentry" in run(["bpftool", "prog", "show"])["stdout"]:
        results["held"] = run(["modprobe", "-r", "zfs"])
    tracer.stop()
    tracers = {name: Tracer(name, "--no-fentry", json_lines=False) for name in names}
    results["unload"] = run(["modprobe", "-r", "zfs"])
    results["unloaded"] = {}
    for name, tracer in tracers.items():
        tracer.process.wait(60)
        results["unloaded"][name] = {
            "status": tracer.process.returncode,
            "stdout": tracer.stdout.read_text(),
            "stderr": tracer.stderr.read_text(),
        }
    sh("modprobe zfs")
    tracer = Tracer("fsync", "--no-fentry", json_lines=False)
    sh("modprobe -r zfs; modprobe zfs")  # anew before the tracer may notice
    tracer.process.wait(60)
    results["reloaded"] = {
        "status": tracer.process.returncode,
        "stderr": tracer.stderr.read_text(),
    }
    sh("modprobe -r zfs")
    results["unloaded_programs"] = programs()
    results["unloaded_events"] = EVENTS.read_text()
    results["dmesg"] = sh("dmesg | grep -E 'Oops|BUG:|WARNING:' || true")
    sh("modprobe zfs; zpool import tank")


def main() -> None:
    results: Json = {}
    make_pool()
    write_and_sync(results)
    throttled(results)
    two_pools(results)
    reads_and_scrub(results)
    flushing(results)
    overview(results)
    leaving(results)
    finish(results)


main()
