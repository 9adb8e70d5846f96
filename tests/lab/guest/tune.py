"""Scenario: whole sessions of `zfstune tune`, on a slow disk where values matter and on a
fast one where the defaults are right; one that is stopped, and one that is resumed.

tune.py BUDGET BLOCK, e.g. 15m 10s; with a third argument only on the slow disk: the dirty limit is
small, txgs end every second, two writers call fsync, and only the depth of the queue is tuned, so
that a short session has time for something. Where it had none, since the machine is slow or busy,
it gets twice the time, and twice that.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from labkit import OUT, Json, finish, make_pool, programs, progress, run, sh

PARAMETERS = Path("/sys/module/zfs/parameters")
DEPTH = "zfs_vdev_async_write_"
BULK = "--name=bulk --rw=write --bs=1M --size=1500M"
WAL = "--name=wal --rw=write --bs=8k --size=64M --fsync=1"
FIO = "fio --output=/dev/null --fallocate=none --time_based --runtime=3600"


def values() -> dict[str, str]:
    """All parameters that can be written."""
    files = (path for path in PARAMETERS.iterdir() if path.stat().st_mode & 0o200)
    return {path.name: path.read_text().strip() for path in sorted(files)}


def changed(before: dict[str, str]) -> dict[str, list[str]]:
    now = values()
    return {name: [before[name], now[name]] for name in before if before[name] != now[name]}


def tune(results: Json, key: str, directory: str, jobs: str, *options: str) -> None:
    """A session to its end; what is in force then, and after `zfstune revert`."""
    progress(f"tune {key}: {' '.join(options)}")
    before = values()
    out = Path(f"/tmp/tune-{key}")
    shutil.rmtree(out, ignore_errors=True)
    workload = f"{FIO} --directory={directory} {jobs}"
    command = ["zfstune", "tune", directory.split("/")[1], "--yes", "--seed", "1", "--json"]
    done = run(
        [*command, "--workload", workload, "--out", str(out), *options],
        timeout=2400,
    )
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


def stopped(results: Json, directory: str, out: Path) -> None:
    """Ctrl-C in the midst of the search, then the same goes on."""
    progress("a session that is stopped")
    default = (PARAMETERS / "zfs_txg_timeout").read_text()
    (PARAMETERS / "zfs_txg_timeout").write_text("1")
    before = values()
    log = Path("/tmp/stopped.err")
    command = ["zfstune", "tune", "tank", "--workload", f"{FIO} --directory={directory} {WAL}"]
    command += ["--yes", "--out", str(out), "--budget", "10m", "--block", "3s", "--no-flame"]
    # none that makes txgs longer: three of them are waited for after each change
    command += [
        "--objective",
        "fsync.p50",
        "--parameters",
        "zfs_delay_scale,zfs_commit_timeout_pct",
    ]
    with log.open("w") as err:
        process = subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, stderr=err)
        end = time.monotonic() + 540
        # the first trial has ended, and what comes next has set its values
        while "trial 1: " not in log.read_text() or not changed(before):
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
    progress("and resumed")
    command[command.index("--out")] = "--resume"
    command[command.index("10m")] = "160s"
    done = run([*command, "--json"], timeout=1200)
    results["resumed"] = {
        "status": done["status"],
        "stderr": done["stderr"],
        "session": json.loads(done["stdout"]) if done["stdout"] else None,
    }
    run(["zfstune", "revert"])
    results["resumed"]["after_revert"] = changed(before)
    (PARAMETERS / "zfs_txg_timeout").write_text(default)


def too_few(results: Json) -> None:
    """Nobody calls fsync."""
    progress("a pool without a load")
    before = values()
    command = ["zfstune", "tune", "tank", "--observe", "--yes", "--out", "/tmp/idle"]
    results["idle"] = run([*command, "--budget", "10m", "--block", "4s"], timeout=600)
    results["idle"]["after"] = changed(before)


def main() -> None:
    minutes, block = int(sys.argv[1].removesuffix("m")), sys.argv[2]
    budgets = [f"{minutes * times}m" for times in (1, 2, 4)]
    slow = f"{BULK} {WAL}"
    only: tuple[str, ...] = ()
    if len(sys.argv) > 3:
        (PARAMETERS / "zfs_dirty_data_max").write_text(str(64 << 20))
        (PARAMETERS / "zfs_txg_timeout").write_text("1")
        slow += " --numjobs=2"
        only = ("--parameters", f"{DEPTH}min_active,{DEPTH}max_active")
    results: Json = {}
    make_pool("slow", "/dev/vdb")
    make_pool("tank", "/dev/vdc")
    sh("zfs create slow/db; zfs create tank/db")
    too_few(results)
    stopped(results, "/tank/db", Path("/tmp/tune-resumed"))
    for budget in budgets if only else budgets[:1]:
        tune(results, "slow", "/slow/db", slow, "--budget", budget, "--block", block, *only)
        if tried_something(results["slow"]):
            break
    if not only:
        time_and_block = ("--budget", budgets[0], "--block", block)
        tune(results, "fast", "/tank/db", WAL, *time_and_block, "--objective", "fsync.p50")
    finish(results)


main()
