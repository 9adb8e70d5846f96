"""Scenario: sessions of `zfstune tune`: a pool without a load, one that is stopped, and one that is
resumed; tune.py BUDGET BLOCK, e.g. 15m 10s: also a whole one on a slow disk where values matter,
and on a fast one where the defaults are right; tune.py few: without the pool without a load.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from labkit import (
    OUT,
    PARAMETERS,
    Json,
    finish,
    make_pool,
    programs,
    progress,
    run,
    sh,
    values,
    whole,
)

BULK = "--name=bulk --rw=write --bs=1M --size=1500M"
WAL = "--name=wal --rw=write --bs=8k --size=64M --fsync=1"
# Enough committers for a p99 of each block, where few fsyncs end in a second
SLOW = f"{BULK} --directory=/slow/bulk {WAL} --numjobs=8"
FIO = "fio --output=/dev/null --fallocate=none --time_based --runtime=3600"


def changed(before: dict[str, str]) -> dict[str, list[str]]:
    now = values()
    return {name: [before[name], now[name]] for name in before if before[name] != now[name]}


def tune(results: Json, key: str, out: Path, *command: str) -> None:
    """A whole session; the values in force then, and after `zfstune revert`."""
    progress(f"tune {key}: {' '.join(command)}")
    before = values()
    done = run(["zfstune", "tune", *command, "--yes", "--json"], timeout=2400)
    if not out.is_dir():
        raise RuntimeError(f"no session: {done['stderr']}")
    results[key] = {
        "status": done["status"],
        "stderr": done["stderr"],
        "session": json.loads(done["stdout"]) if done["stdout"] else None,
        "in_force": changed(before),
        "zfstune_status": run(["zfstune", "status", "--json"]),
        "revert": run(["zfstune", "revert"]),
        "after_revert": changed(before),
        "files": sorted(path.name for path in out.iterdir()),
        "fio_left": sh("pgrep -c fio || true").strip(),
        "programs_left": programs(),
    }
    shutil.copytree(out, OUT / out.name, dirs_exist_ok=True)


def tried_something(one: Json) -> bool:
    return any(block["phase"] != "aa" for block in (one["session"] or {}).get("blocks", []))


def stopped(results: Json) -> None:
    """Ctrl-C in the midst of the search, then the same goes on: for longer where the machine is too
    slow or too busy to try anything."""
    progress("a session that is stopped")
    default = (PARAMETERS / "zfs_txg_timeout").read_text()
    (PARAMETERS / "zfs_txg_timeout").write_text("1")
    before = values()
    log, out = Path("/tmp/stopped.err"), Path("/tmp/tune-resumed")
    command = ["tank", "--workload", f"{FIO} --directory=/tank/db {WAL}", "--block", "3s"]
    # no parameter that makes txgs longer: each change waits for three of them
    only = "zfs_delay_scale,zfs_commit_timeout_pct"
    command += ["--objective", "fsync.p50", "--parameters", only]
    begin = ["zfstune", "tune", *command, "--out", str(out), "--budget", "10m", "--yes", "--json"]
    with log.open("w") as err:
        process = subprocess.Popen(begin, stdout=subprocess.PIPE, stderr=err)
        end = time.monotonic() + 540
        # the first pair has ended, and what comes next has set its values
        while "candidate 1, 1 pair: " not in log.read_text() or not changed(before):
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"no trial: {log.read_text()}")
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        stdout, _ = process.communicate(timeout=120)
    results["stopped"] = {
        "status": process.returncode,
        "session": json.loads(stdout),
        "stderr": log.read_text(),
        "after": changed(before),
        "fio_left": sh("pgrep -c fio || true").strip(),
    }
    for budget in ("160s", "320s", "640s"):
        tune(results, "resumed", out, *command, "--resume", str(out), "--budget", budget)
        if tried_something(results["resumed"]):
            break
    (PARAMETERS / "zfs_txg_timeout").write_text(default)


def too_few(results: Json) -> None:
    """A load without fsyncs."""
    progress("a pool without a load")
    before = values()
    command = ["zfstune", "tune", "tank", "--observe", "--yes", "--out", "/tmp/idle"]
    results["idle"] = run([*command, "--budget", "10m", "--block", "4s"], timeout=600)
    results["idle"]["after"] = changed(before)


def whole_session(results: Json, key: str, pool: str, jobs: str, *options: str) -> None:
    out = Path(f"/tmp/tune-{key}")
    load = f"{FIO} --directory=/{pool}/db {jobs}"
    tune(results, key, out, pool, "--workload", load, "--seed", "1", "--out", str(out), *options)


def main() -> None:
    results: Json = {}
    make_pool("slow", "/dev/vdb")
    make_pool("tank", "/dev/vdc")
    sh("zfs create slow/bulk; zfs create -o recordsize=8k slow/db; zfs create tank/db")
    if whole(results, "idle"):
        too_few(results)
    stopped(results)
    if len(sys.argv) > 2:
        time_and_block = ("--budget", sys.argv[1], "--block", sys.argv[2])
        whole_session(results, "slow", "slow", SLOW, *time_and_block)
        whole_session(results, "fast", "tank", WAL, *time_and_block, "--objective", "fsync.p50")
    finish(results)


main()
