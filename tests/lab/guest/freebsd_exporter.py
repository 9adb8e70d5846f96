"""Scenario: the exporter on FreeBSD, under the real rc.subr(8) and daemon(8): installed, started,
counting beside `zfstune trace`, killed, and stopped; then a recorder alone, whose file is read when
the pool is gone. /share has prometheus_client."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sysconfig
import time
from pathlib import Path

from exporting import PATIENT_S, Samples, Scraper, run, total, until

from labkit import Json, finish, make_pool, progress, sh, sync_writes, traced

NAME, COMMAND = "zfstune_exporter", "/usr/local/bin/zfstune"
PIDFILE, DIRECTORY = Path(f"/var/run/{NAME}.pid"), Path("/var/run/zfstune-exporter")
FLAGS = "--max-datasets 8 --trigger 'fsync.p99>200ms for 30s'"
ALONE, ANY_FSYNC = Path("/mnt/alone"), "fsync.p99>1us for 1s"
VIEWS = ("fsync", "txg", "throttle", "arc")
COUNT = "zfstune_fsync_duration_seconds_count"
# prometheus_client loads ssl, which nothing uses here, and an image's Python may lack it
NO_SSL = """\
import sys, types; sys.modules["ssl"] = types.SimpleNamespace(SSLContext=None, TLSVersion=None, \
PROTOCOL_TLS_SERVER=0, PROTOCOL_TLS_CLIENT=0)
"""
scraper = Scraper(9810)


def service(action: str) -> Json:
    return run(["service", NAME, action])


def process() -> int:
    """The exporter below daemon(8); 0 if there is none."""
    daemon = PIDFILE.read_text().strip() if PIDFILE.exists() else "none"
    return int(sh(f"pgrep -P {daemon}", check=False) or 0)


def install(results: Json) -> None:
    progress("install")
    packages = Path(sysconfig.get_path("purelib"))
    shutil.copytree("/share/prometheus_client", packages / "prometheus_client")
    if not importlib.util.find_spec("_ssl"):
        (packages / "no_ssl.pth").write_text(NO_SSL)
    results["install"] = run(["python3", "/zfstune/scripts/install.py"])
    results["disabled"] = service("start")
    with Path("/etc/rc.conf").open("a") as file:
        file.write(f'{NAME}_flags="{FLAGS}"\n')


def start(results: Json) -> None:
    progress("start")
    results["before"] = service("onestatus")
    results["start"] = service("onestart")
    until("an answer", scraper.answers)
    scraper.until_up(VIEWS)
    results["status"] = service("onestatus")
    first = process()
    results["again"] = service("onestart")
    results["same"] = first == process() != 0
    results["mounts"] = sh("mount -p")
    results["recorder"] = run([COMMAND, "record", "status", "--json"])


def counted(results: Json, key: str, number: int) -> None:
    """So many fsyncs, as it counts them and as a trace does."""
    progress(f"count {number}")
    before = scraper.fresh()

    def gained(samples: Samples) -> float:
        return total(samples, COUNT) - total(before, COUNT)

    with traced(results, key, "fsync", "tank"):
        sync_writes("/tank/db/file", number)
        time.sleep(1)
    # a D script tells once a second what it has counted, when it gets to run
    scraper.until(f"{number} fsyncs", lambda samples: gained(samples) >= number)
    time.sleep(3)
    results[key] |= {"wrote": number, "exported": gained(scraper.scrape())}


def killed(results: Json) -> None:
    """daemon(8) starts it again after 30 s."""
    progress("killed")
    first, begun = process(), time.monotonic()
    os.kill(first, signal.SIGKILL)
    until("another process", lambda: process() not in (0, first))
    results["pause_s"] = time.monotonic() - begun
    until("an answer", scraper.answers)
    scraper.until_up(VIEWS)


def stop(results: Json) -> None:
    progress("stop")
    results["stop"] = service("onestop")
    results["stopped"] = service("onestatus")
    results["left"] = {
        "answers": scraper.answers(),
        "pidfile": PIDFILE.exists(),
        "dtrace": run(["pgrep", "-l", "dtrace"])["stdout"],
        "files": sorted(path.name for path in DIRECTORY.iterdir()),
    }


def record(results: Json) -> None:
    """In a directory of its own: the record of the exporter would be in its file as well."""
    progress("record")
    ALONE.mkdir()
    sh(f"mount -t tmpfs tmpfs {ALONE}")
    command, places = [COMMAND, "record"], ["--dump-dir", str(ALONE)]
    file, page = "/out/recorded.jsonl.gz", "/out/recorded.html"

    def status() -> Json:
        done = run([*command, "status", "--json", *places])
        found: Json = {} if done["status"] else json.loads(done["stdout"])
        return found

    with Path("/out/recorder.err").open("w") as err:
        recorder = subprocess.Popen([*command, "run", "--trigger", ANY_FSYNC, *places], stderr=err)
    until("its views", lambda: status().get("off") == {})
    with traced(results, "recorded", "fsync", "tank"):
        sync_writes("/tank/db/file", 97)
        time.sleep(1)
    until("the trigger's file", lambda: list(ALONE.glob("incident-*")))
    time.sleep(3)
    found = results["recorded"]
    found |= {"status": status(), "dump": run([*command, "dump", "-o", file, *places])}
    recorder.terminate()
    found["ended"] = recorder.wait(PATIENT_S)
    found["said"] = Path("/out/recorder.err").read_text()
    found["dtrace"] = run(["pgrep", "-l", "dtrace"])["stdout"]
    with gzip.open(file, "rt") as lines:
        found["records"] = [json.loads(line) for line in lines]
    sh(f"umount {ALONE}; zpool destroy tank")
    found["trace"] = run([COMMAND, "trace", "--from", file, "--json"])
    found["diagnose"] = run([COMMAND, "diagnose", "--from", file, "--json"])
    found["report"] = run([COMMAND, "report", "--from", file, "-o", page])


def main() -> None:
    results: Json = {}
    make_pool()
    sh("zfs create tank/db")
    sync_writes("/tank/db/warm", 3)
    install(results)
    start(results)
    counted(results, "counted", 101)
    killed(results)
    counted(results, "counted_again", 53)
    stop(results)
    record(results)
    finish(results)


main()
