"""Scenario: `zfstune bench` on a dataset: its counts, what cannot be measured, Ctrl-C at any
moment, and a disk that fails meanwhile. An argument is the number of interruptions."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from labkit import Json, finish, make_pool, programs, progress, run, sh, until_loading

STATE = Path("/proc/spl/kstat/zfs/frail/state")


def bench(*words: str, load: str = "fio") -> Json:
    return run(["zfstune", "bench", *words, "--with", load], 240)


def left(directory: str = "/tank/db") -> list[str]:
    """What a bench may have left: its directories, and fio."""
    made = [str(path) for path in Path(directory).iterdir()]
    found = sh("pgrep -ax fio", check=False).splitlines()
    # the one ends by itself, the other has ended and is only not reaped yet
    return made + [line for line in found if not line.endswith(("--version", "[fio]"))]


def counted(results: Json) -> None:
    """Each sync of fio is a commit of the trace."""
    progress("counts")
    results["json"] = bench(
        "tank/db", "--duration", "400ms", "--size", "1M", "--jobs", "3", "--json"
    )
    results["json_left"] = left()
    words = ["--duration", "300ms", "--size", "64K", "--html", "/out/bench.html", "--stages"]
    results["text"] = bench("/tank/db", "--test", "fsync,plain", *words)
    results["pg"] = None
    if shutil.which("pg_test_fsync"):
        words = ["--duration", "300ms", "--test", "fsync,two-fdatasync,plain", "--json"]
        results["pg"] = bench("tank/db", *words, load="pg_test_fsync")


def without(results: Json) -> None:
    """Runs without a trace, ZFS, a log, a program or a place."""
    progress("without")
    quick = ["--duration", "500ms", "--size", "64K", "--json"]
    fsync = [*quick, "--test", "fsync"]
    sh("zfs create -o sync=disabled tank/quick; zfs create -o readonly=on tank/fixed")
    sh("zfs create -s -V 64M tank/volume; mkdir -p /tmp/bench")
    results["no_zfs"] = bench("/tmp/bench", *fsync)
    results["no_log"] = bench("tank/quick", *fsync)
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]
    sh("chmod 777 /tank/db; mkdir -p /tmp/empty")
    results["nobody"] = run([*nobody, "zfstune", "bench", "/tank/db", *fsync, "--with", "fio"])
    no_fio = ["env", "PATH=/tmp/empty", "/usr/bin/python3", "/zfstune/bin/zfstune", "bench"]
    sh("zfs create -o quota=8M tank/small")
    results["errors"] = {
        "volume": bench("tank/volume"),
        "readonly": bench("tank/fixed", *fsync),
        "no room": bench("tank/small", "--test", "fsync"),
        "no fio": run([*no_fio, "/tank/db"]),
        "not allowed": run([*nobody, "zfstune", "bench", "/tank/quick"]),
    }
    results["without_left"] = left()


def interrupted(results: Json, rounds: int) -> None:
    """A signal at a random moment."""
    results["interrupted"] = []
    for i in range(rounds):
        signum = (signal.SIGINT, signal.SIGTERM)[i % 2]
        after = random.uniform(0, 7) + 7 * (i // 2 % 2)
        progress(f"{signum.name} after {after:.2f} s")
        process = subprocess.Popen(
            [
                "zfstune",
                "bench",
                "tank/db",
                "--with",
                "fio",
                "--size",
                "256K",
                "--jobs",
                "4",
                "--json",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        until_loading(process)
        time.sleep(after)
        process.send_signal(signum)
        out, err = process.communicate(timeout=60)
        results["interrupted"].append(
            {
                "signal": signum.name,
                "after": after,
                "status": process.returncode,
                "stdout": out,
                "stderr": err,
                "left": left(),
                "programs": programs(),
            }
        )


def failing_disk(results: Json) -> None:
    """The only disk of the pool fails during the test, and comes back afterwards."""
    progress("failing disk")
    sectors = int(sh("blockdev --getsz /dev/vdc"))

    def turn(table: str) -> None:
        sh(
            f"dmsetup suspend --noflush frail; dmsetup load frail --table '0 {sectors} {table}'; "
            "dmsetup resume frail"
        )

    sh(f"dmsetup create frail --table '0 {sectors} linear /dev/vdc 0'; udevadm settle")
    make_pool("frail", "/dev/mapper/frail", "-o failmode=wait")
    process = subprocess.Popen(
        [
            "zfstune",
            "bench",
            "frail",
            "--with",
            "fio",
            "--test",
            "fsync,fdatasync",
            "--duration",
            "1h",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + 60
    while not sh("pgrep -x fio", check=False) and time.monotonic() < until:
        time.sleep(0.2)
    time.sleep(2)
    turn("error")
    until = time.monotonic() + 60
    while STATE.read_text().strip() != "SUSPENDED" and time.monotonic() < until:
        time.sleep(0.2)
    state = STATE.read_text().strip()
    start = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    results["failing"] = {
        "state": state,
        "status": process.returncode,
        "took": time.monotonic() - start,
        "stdout": out,
        "stderr": err,
        "again": bench("frail", "--test", "fsync"),
    }
    # a pool that stays so would keep the guest from ending
    turn("linear /dev/vdc 0")
    sh("zpool clear frail", check=False)
    until = time.monotonic() + 30
    while sh("pgrep -x fio", check=False) and time.monotonic() < until:
        time.sleep(0.2)
    results["failing"]["left"] = left("/frail")


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    results: Json = {"rounds": rounds}
    make_pool()
    sh("zfs create tank/db")
    counted(results)
    without(results)
    interrupted(results, rounds)
    failing_disk(results)
    results["others"] = left()
    finish(results)


if __name__ == "__main__":
    main()
