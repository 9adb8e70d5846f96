"""Scenario: `zfstune trace` as it works on FreeBSD (D scripts under dtrace(1), here their Linux
variant) beside libzfstrace, both at the same time, and beside ZFS's own kstats."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from labkit import (
    Json,
    Tracer,
    commits,
    finish,
    fio,
    kstat,
    make_pool,
    progress,
    run,
    sh,
    sync_writes,
)

CLI = ("python3", str(Path(__file__).with_name("dtrace_cli.py")))
PARAMETERS = Path("/sys/module/zfs/parameters")
TXGS = Path("/proc/spl/kstat/zfs/slow/txgs")


@contextmanager
def both(results: Json, key: str, *args: str) -> Iterator[None]:
    """The same view twice: by libzfstrace and by D scripts."""
    progress(f"{key}: attaching")
    ours, theirs = Tracer(*args), Tracer(*args, command=CLI)
    progress(f"{key}: attached after {theirs.attach_seconds:.0f} s")
    before = commits(), kstat("dmu_tx")
    yield
    time.sleep(0.3)  # the scripts print ten times a second
    after = commits(), kstat("dmu_tx")
    results[key] = {
        "dtrace": theirs.rows(),
        "status": theirs.process.returncode,
        "stderr": theirs.stderr.read_text(),
        "zfstune": ours.rows(),
        "kstat_commits": after[0] - before[0],
        "dmu_tx": {name: after[1][name] - before[1][name] for name in after[1]},
    }


def fsyncs(results: Json) -> None:
    with both(results, "fsync", "fsync"):
        sync_writes("/tank/db/file", 211)
        sync_writes("/tank/off/file", 17)
        sync_writes("/slow/file", 13)
    with both(results, "dataset", "fsync", "--dataset", "tank/db"):
        sync_writes("/tank/db/file", 19)
        sync_writes("/tank/two/file", 7)
    with both(results, "threads", "fsync", "tank"):
        fio("/tank/db", "--fsync=1", "--numjobs=8", "--thread", "--number_ios=32")


def slow(results: Json) -> None:
    with both(results, "slow", "slow", "--over", "30ms", "slow"):
        sync_writes("/slow/file", 23)


def throttled(results: Json) -> None:
    limit = PARAMETERS / "zfs_dirty_data_max"
    before = limit.read_text()
    with both(results, "throttle", "throttle", "tank"):
        limit.write_text(str(16 << 20))
        time.sleep(1.5)  # both read it again once a second
        sh("dd if=/dev/zero of=/tank/db/bulk bs=1M count=100 conv=fsync")
        limit.write_text(before)


def device(results: Json) -> None:
    sh("zpool sync slow; zpool sync slow")
    with both(results, "device", "device", "slow"):
        sync_writes("/slow/file", 23)
        sh("dd if=/dev/zero of=/slow/bulk bs=1M count=40 conv=fsync; zpool sync slow")


def txgs(results: Json) -> None:
    with both(results, "txg", "txg", "slow"):
        time.sleep(11)  # at least one by the timer, with the sync before it
        for i in range(13):
            Path(f"/slow/txg{i}").write_bytes(bytes(1 << 20))
            sh("zpool sync slow")
        results["txgs"] = [line.split() for line in TXGS.read_text().splitlines()[1:]]


def arc(results: Json) -> None:
    with both(results, "arc", "arc"):
        sh("cat /tank/db/* > /dev/null")
        time.sleep(1.5)


def overview(results: Json) -> None:
    """All at once, as text."""
    tracer = Tracer("--pool", "tank", "--interval", "1s", json_lines=False, command=CLI)
    sync_writes("/tank/db/file", 31)
    time.sleep(1.5)
    text = tracer.stop()
    results["overview"] = {
        "stdout": text,
        "stderr": tracer.stderr.read_text(),
        "status": tracer.process.returncode,
    }


def killed(results: Json) -> None:
    """A script does not outlive its reader for long."""
    tracer = Tracer("fsync", "tank", command=CLI)
    tracer.process.kill()
    tracer.process.wait()
    for _ in range(300):
        left = run(["pgrep", "-f", "zilevent-json.d"])["status"] == 0
        if not left:
            break
        time.sleep(0.1)
    results["killed"] = {"left": left}


def flame(results: Json) -> None:
    """`zfstune flame`, to its output."""
    out, err = Path("/tmp/flame.folded"), Path("/tmp/flame.err")
    command = [*CLI, "flame", "--pool", "slow", "--duration", "5m", "-o", str(out)]
    with err.open("w") as file:
        process = subprocess.Popen(command, stderr=file)
    while "recording" not in err.read_text() and process.poll() is None:
        time.sleep(0.1)
    sync_writes("/slow/file", 23)
    process.send_signal(signal.SIGINT)
    status = process.wait(120)
    results["flame"] = {"status": status, "stderr": err.read_text(), "stdout": out.read_text()}


STEPS = (fsyncs, slow, throttled, device, txgs, arc, overview, flame, killed)


def main(only: list[str]) -> None:
    results: Json = {"pid": os.getpid()}
    make_pool()
    for dataset in ("db", "two"):
        sh(f"zfs create tank/{dataset}")
    sh("zfs create -o sync=disabled tank/off")
    make_pool("slow", "/dev/mapper/vdc-delay")
    for directory in ("/tank/db", "/tank/two", "/slow"):
        fio(directory, "--fsync=1", "--number_ios=3", name="warm")  # creates the log
    for step in STEPS:
        if only and step.__name__ not in only:
            continue
        try:
            step(results)
        except RuntimeError as error:  # the others are reported nevertheless
            results.setdefault("failed", {})[step.__name__] = str(error)
            progress(str(error))
        finish(results)  # also the results so far when time runs out


main(sys.argv[1:])
