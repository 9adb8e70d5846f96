"""Scenario: `zfstune bench` on FreeBSD: its counts, what cannot be measured, Ctrl-C. Without fio
in the image or in /share there are no results."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from pathlib import Path

from labkit import Json, finish, make_pool, progress, run, sh


def bench(*words: str) -> Json:
    return run(["zfstune", "bench", *words], 300)


def left() -> list[str]:
    """What a bench may have left: its directories, and programs."""
    made = [str(path) for path in Path("/tank/db").iterdir()]
    return made + sh("pgrep -l fio dtrace", check=False).splitlines()


def counted(results: Json) -> None:
    """Each sync of fio is a commit of the trace."""
    progress("counts")
    quick = ("--duration", "400ms", "--size", "1M", "--jobs", "3", "--json")
    results["json"] = bench("tank/db", *quick)
    words = ("--duration", "300ms", "--size", "64K", "--stages", "--test", "fsync,plain")
    results["text"] = bench("/tank/db", *words)


def without(results: Json) -> None:
    progress("without")
    fsync = ("--duration", "500ms", "--size", "64K", "--json", "--test", "fsync")
    sh("zfs create -o sync=disabled tank/quick; zfs create -V 64M tank/volume")
    Path("/tmp/bench").mkdir()
    results["no_zfs"] = bench("/tmp/bench", *fsync)
    results["no_log"] = bench("tank/quick", *fsync)
    results["volume"] = bench("tank/volume")


def interrupted(results: Json) -> None:
    progress("interrupted")
    command = ["zfstune", "bench", "tank/db", "--duration", "1h", "--test", "fsync", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 120
    while not list(Path("/tank/db").glob("*/*")) and time.monotonic() < until:
        time.sleep(0.2)
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    results["interrupted"] = {"status": process.returncode, "stdout": out, "stderr": err}


def main() -> None:
    results: Json = {}
    if Path("/share/fio").exists():
        shutil.copy("/share/fio", "/usr/local/bin/fio")
    results["fio"] = shutil.which("fio")
    if results["fio"]:
        make_pool()
        sh("zfs create tank/db")
        counted(results)
        without(results)
        interrupted(results)
        results["left"] = left()
    finish(results)


main()
