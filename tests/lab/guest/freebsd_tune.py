"""Scenario: sessions of `zfstune tune` on FreeBSD, in plain Python, beside writes that fill the
disk: one to its end and its `zfstune revert`; two that are killed, supervisor and all, and then
`zfstune recover` and the rc.d script; freebsd_tune.py BUDGET BLOCK, e.g. 30m 10s.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from diagnosing import bulk, crowd, loaded, pool

from labkit import DISK, Json, finish, progress, run, sh
from zfstune.tunables import catalogue


def values() -> dict[str, str]:
    """All parameters of the catalogue, as sysctl(8) prints them."""
    oids = " ".join(catalogue.freebsd_names().values())
    return dict(line.split("=", 1) for line in sh(f"sysctl -e -i {oids}").splitlines())


def changed(before: dict[str, str]) -> dict[str, list[str]]:
    now = values()
    return {name: [before[name], now[name]] for name in before if before[name] != now[name]}


def whole(time_and_block: list[str]) -> Json:
    progress("a session")
    before = values()
    done = run([*command("/tmp/whole"), *time_and_block, "--json"], timeout=3600)
    progress(done["stderr"])
    return {
        **done,
        "session": json.loads(done["stdout"]) if done["stdout"] else None,
        "in_force": changed(before),
        "revert": run(["zfstune", "revert"]),
        "after_revert": changed(before),
        "files": sorted(path.name for path in Path("/tmp/whole").iterdir()),
    }


def killed(out: str, block: str, recover: Callable[[dict[str, str]], Json]) -> Json:
    """As soon as a candidate is in force, which may take a while on a busy machine."""
    progress("a session that is killed")
    before = values()
    log = Path(f"{out}.err")
    with log.open("w") as err:
        process = subprocess.Popen(
            [*command(out), "--budget", "30m", "--block", block],
            stdout=subprocess.DEVNULL,
            stderr=err,
        )
        end = time.monotonic() + 900
        in_force: dict[str, list[str]] = {}
        while not in_force or in_force != changed(before):  # until all of it is
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"no candidate: {log.read_text()}")
            in_force = changed(before)
            time.sleep(0.2)
        # first the supervisor, which would restore; without it, the session would, too
        process.send_signal(signal.SIGSTOP)
        for pid in reversed(sh(f"pgrep -P {process.pid}").split()):
            with contextlib.suppress(ProcessLookupError):  # a command that has just ended
                os.kill(int(pid), signal.SIGKILL)
        process.kill()
        process.wait()
    sh("pkill dtrace", check=False)
    return {
        "in_force": in_force,
        "left": changed(before),
        "recover": recover(before),
        "after_recover": changed(before),
        "status": run(["zfstune", "status", "--json"]),
    }


def by_command(_before: dict[str, str]) -> Json:
    return run(["zfstune", "recover"])


def by_service(before: dict[str, str]) -> Json:
    """The loop of the rc.d script has seen that the session began."""
    end = time.monotonic() + 120
    while changed(before) and time.monotonic() < end:
        time.sleep(1)
    return run(["service", "zfstune", "status"])


def start_service() -> None:
    progress("the rc.d script")
    sh("python3 /zfstune/scripts/install.py")
    with Path("/etc/rc.conf").open("a") as file:
        file.write('zfstune_enable="YES"\n')
    sh("service zfstune start")


def command(out: str) -> list[str]:
    # the load keeps the only processor busy, which dtrace needs, too; and the p99 of the few
    # hundred fsyncs of a block scatters more than it can gain
    zfstune = ["rtprio", "31", "zfstune", "tune", "tank", "--objective", "fsync.mean"]
    return [*zfstune, "--observe", "--staging", "--yes", "--seed", "1", "--out", out]


def main() -> None:
    results: Json = {}
    with pool(DISK):
        # with 128K, faster fsyncs would take bandwidth from the bulk writer: see demo_guest.sh
        sh("zfs set recordsize=8K tank/db")
        # without pauses the two would compete for the only processor, and the disk would at times
        # not be full
        with loaded(bulk("/tank/bulk/file"), crowd("/tank/db", 8, between=0.1)):
            time_and_block = ["--budget", sys.argv[1], "--block", sys.argv[2]]
            results["whole"] = whole(time_and_block)
            results["by_command"] = killed("/tmp/by_command", sys.argv[2], by_command)
            start_service()
            results["by_service"] = killed("/tmp/by_service", sys.argv[2], by_service)
    finish(results)


main()
