"""Scenario: known reasons to sleep or to run, to be found in the stacks of `zfstune flame`.

flame.py few: fewer kinds. Disks: vdb with slow flushes (pool tank), vdc plain (pool fast).
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from labkit import (
    Json,
    busy,
    finish,
    fio,
    make_pool,
    programs,
    progress,
    run,
    sh,
    sync_writes,
    whole,
)

EVENTS = Path("/sys/kernel/tracing/kprobe_events")


class Recorder:
    """`zfstune flame ...` that has attached when the constructor returns."""

    def __init__(self, key: str, *args: str) -> None:
        self.output = Path(f"/out/{key}.folded")
        self.stderr = Path(f"/tmp/{key}.err")
        command = ["zfstune", "flame", *args, "--duration", "1h", "-o", str(self.output)]
        start = time.monotonic()
        with self.stderr.open("w") as err:
            self.process = subprocess.Popen(command, stderr=err)
        while "recording" not in self.stderr.read_text():
            if self.process.poll() is not None or time.monotonic() > start + 120:
                raise RuntimeError(f"{command} did not attach: {self.stderr.read_text()}")
            time.sleep(0.05)
        self.begun = time.monotonic()

    def stop(self) -> Json:
        seconds = time.monotonic() - self.begun
        self.process.send_signal(signal.SIGINT)
        self.process.wait(120)
        text = self.output.read_text() if self.output.exists() else ""
        lines = [line.rpartition(" ") for line in text.splitlines()]
        return {
            "counts": {stack: int(weight) for stack, _, weight in lines},
            "status": self.process.returncode,
            "stderr": self.stderr.read_text(),
            "seconds": seconds,
            "reading": time.monotonic() - self.begun - seconds,
        }


@contextmanager
def recorded(results: Json, key: str, *args: str) -> Iterator[None]:
    """Records the body into results[key]."""
    progress(key)
    recorder = Recorder(key, *args)
    try:
        yield
    finally:
        results[key] = recorder.stop()


def waits(pool: str) -> Json:
    """A load of four threads; the times of their fsyncs, from fio."""
    job = fio(
        f"/{pool}/db",
        "--fsync=1",
        "--number_ios=41",
        "--numjobs=4",
        "--thread",
        "--group_reporting",
        name="waits",
        size="16M",
    )["jobs"][0]["sync"]["lat_ns"]
    sh(f"rm -f /{pool}/db/waits*")
    return {"fsyncs": job["N"], "total_ns": job["N"] * job["mean"]}


def sleepers(results: Json) -> None:
    """The same load seen in two ways, and by its process."""
    # on a busy host threads run for longer, and fio counts that, too: the median of three is judged
    for key in ("off_cpu", "off_cpu_2", "off_cpu_3"):
        with recorded(results, key):
            theirs = waits("tank")
        results[key]["fio"] = theirs
    with recorded(results, "wakeup", "--wakeup", "--pool", "tank"):
        waits("tank")
    if whole(results, "pid"):
        of_a_process(results)


def of_a_process(results: Json) -> None:
    script = (
        "import os, time\nfd = os.open('/tank/db/pid', os.O_WRONLY | os.O_CREAT)\ninput()\n"
        "for i in range(20):\n os.pwrite(fd, b'x' * 8192, 0)\n os.fsync(fd)\n time.sleep(0.05)\n"
        "input()\n"
    )
    writer = subprocess.Popen(["python3", "-uc", script], stdin=subprocess.PIPE)
    assert writer.stdin
    with busy("/tank/db"), recorded(results, "pid", "--pid", str(writer.pid)):
        writer.stdin.write(b"\n")
        writer.stdin.flush()
        time.sleep(8)
    writer.communicate(b"\n")


def runners(results: Json) -> None:
    with busy("/fast/db"), recorded(results, "on_cpu", "--on-cpu"):
        time.sleep(8)
    if not whole(results, "zip"):
        return
    sh("zfs create -o compression=gzip-9 fast/zip")
    with recorded(results, "zip", "--on-cpu", "--all-zfs"):
        sh("head -c 24M /dev/urandom | base64 > /fast/zip/file; sync /fast/zip/file")


def syncing(results: Json) -> None:
    with recorded(results, "txg_sync", "--txg-sync"):
        sh("dd if=/dev/zero of=/fast/db/dd bs=1M count=200; zpool sync fast")
    sh("rm /fast/db/dd")
    if not whole(results, "all_zfs"):
        return
    with busy("/fast/db"), recorded(results, "all_zfs", "--all-zfs"):
        time.sleep(6)


def two_pools(results: Json) -> None:
    with busy("/tank/db"), busy("/fast/db"):
        with recorded(results, "both"):
            time.sleep(4)
        with recorded(results, "fast_only", "--pool", "fast"):
            time.sleep(4)
        with recorded(results, "tank_sync_only", "--txg-sync", "--pool", "tank"):
            time.sleep(1)
            sh("zpool sync tank; zpool sync fast")


def ends(results: Json) -> None:
    """What a recording leaves behind, however it ends."""
    progress("ends")
    results["programs_after"] = programs()
    recorder = Recorder("killed", "--wakeup")
    recorder.process.kill()
    recorder.process.wait()
    results["programs_after_kill"] = programs()
    old = Path("/out/old.svg")
    old.write_text("old")
    command = ["zfstune", "flame", "--duration", "1s", "-o", str(old)]
    results["nothing"] = run(command)
    results["nothing_left"] = old.read_text()
    results["events_left"] = EVENTS.read_text()
    with busy("/fast/db"):
        results["svg"] = run([*command, "--pool", "fast"])
    results["svg_begins"] = old.read_text()[:5]
    results["no_pool"] = run(["zfstune", "flame", "--pool", "nope"])
    results["links_left"] = sh("bpftool link list")


def main() -> None:
    results: Json = {}
    make_pool("tank", "/dev/mapper/vdb-delay")
    make_pool("fast", "/dev/vdc")
    for pool in ("tank", "fast"):
        sh(f"zfs create {pool}/db")
        sync_writes(f"/{pool}/db/warm", 3)  # creates the log
    sleepers(results)
    runners(results)
    syncing(results)
    if whole(results, "both", "fast_only", "tank_sync_only"):
        two_pools(results)
    ends(results)
    finish(results)


main()
