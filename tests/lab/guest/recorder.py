"""Scenario: the flight recorder. A disk is slow until that has fired a trigger, and fast again;
dumps are asked for in all ways; clients are hostile, a directory is full, the recorder is killed,
another pool is suspended. At the end ZFS is not loaded, and the incident is read."""

from __future__ import annotations

import contextlib
import gzip
import json
import signal
import socket
import subprocess
import time
from pathlib import Path

from diagnosing import crowd, loaded
from exporting import PATIENT_S, Exporter, Samples, run, total, unloaded, until

from labkit import (
    Json,
    finish,
    make_pool,
    programs,
    progress,
    sh,
    suspended_pool,
    sync_writes,
    turn,
)

DISK, SLOW_MS = "/dev/vdb", 600
DIRECTORY, SMALL = Path("/run/zfstune-exporter"), Path("/mnt/small")
SOCKET = DIRECTORY / "record.sock"
SAVED = DIRECTORY / "recorded.jsonl.gz"
TRIGGER = f"commit.p99>{SLOW_MS - 200}ms for 10s"
RECORDING = ("--record", "--trigger", TRIGGER, "--budget", "100%")
VIEWS = ("light", "txg", "throttle", "arc")
DUMP = ("zfstune", "record", "dump")


def incidents(directory: Path = DIRECTORY) -> list[Path]:
    return sorted(directory.glob("incident-*.jsonl.gz"))


def read(path: Path) -> Json:
    """The head and the end of an incident file, how many records of each type it has, and when."""
    with gzip.open(path, "rt") as file:
        records = [json.loads(line) for line in file]
    types = [record["type"] for record in records]
    return {
        "name": path.name,
        "bytes": path.stat().st_size,
        "mode": path.stat().st_mode & 0o777,
        "head": records[0],
        "end": records[-1],
        "records": len(records) - 2,
        "types": {name: types.count(name) for name in sorted(set(types))},
        "intervals": [record["time"] for record in records if record["type"] == "interval"],
        "notes": [record["text"] for record in records if record["type"] == "note"],
    }


def without_pool(results: Json) -> subprocess.Popen[bytes]:
    """A recorder of its own on a small file system, which nothing of ZFS is imported for yet."""
    progress("without a pool")
    SMALL.mkdir()
    sh(f"mount -t tmpfs -o size=128k,mode=700 small {SMALL}")
    command = ["zfstune", "record", "run", "--views", "txg,arc", "--dump-dir", str(SMALL)]
    with Path("/tmp/small.err").open("w") as err:
        process = subprocess.Popen(command, stderr=err)
    until("the recorder's socket", (SMALL / "record.sock").exists)
    time.sleep(3)
    process.send_signal(signal.SIGUSR1)
    until("a dump", lambda: incidents(SMALL))
    results["without_pool"] = read(incidents(SMALL)[0])
    return process


def an_incident(results: Json, exporter: Exporter) -> None:
    """The disk is slow until the trigger has left its file."""
    sectors = sh(f"blockdev --getsz {DISK}").strip()
    with loaded(crowd("/tank/db", 8, 0.02)):
        progress("fast")
        # the first diagnosis, after 10 s, is of the fast disk; the next need not wait
        time.sleep(20)
        until("its diagnosis", lambda: status()["diagnoses"]["done"])
        progress("slow")
        results["from"] = time.time()
        turn("db", f"0 {sectors} delay {DISK} 0 0 {DISK} 0 0 {DISK} 0 {SLOW_MS}")
        until("the trigger's file", incidents)
        results["to"] = time.time()
        turn("db", f"0 {sectors} linear {DISK} 0")
        progress("fast again")
        time.sleep(15)
    until("the whole file", lambda: not (DIRECTORY / ".part").exists())
    results["incident"] = read(incidents()[0])
    results["said"] = exporter.said()


def dump(*options: str) -> Json:
    """Asks for one; the last option is its file."""
    done = run([*DUMP, *options])
    return done | ({} if done["status"] else {"file": read(Path(options[-1]))})


def status() -> Json:
    found: Json = json.loads(run(["zfstune", "record", "status", "--json"])["stdout"])
    return found


def asked(results: Json, exporter: Exporter) -> None:
    progress("dumps")
    results["status"] = run(["zfstune", "record", "status", "--json"])
    results["status_text"] = run(["zfstune", "record", "status"])
    before = set(incidents())
    exporter.process.send_signal(signal.SIGUSR1)
    until("the file of SIGUSR1", lambda: set(incidents()) - before)
    time.sleep(1)
    results["sigusr1"] = read((set(incidents()) - before).pop())
    results["all"] = dump("-o", "/tmp/all.jsonl.gz")
    results["anonymous"] = dump("--anonymise", "-o", "/tmp/anonymous.jsonl.gz")
    results["nobody"] = run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--", *DUMP]
    )


def hostile_clients(results: Json) -> None:
    progress("hostile clients")
    held = []
    facts: Json = {"got": []}
    for request in (b"x" * (1 << 20), b"[" * 4000 + b"\n", b"\0\xff\n", b'{"do": "rm"}\n', b"{}\n"):
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(15)
            client.connect(str(SOCKET))
            with contextlib.suppress(OSError):
                client.sendall(request)
            try:
                facts["got"].append(client.recv(4096).decode())
            except OSError as error:
                facts["got"].append(repr(error))
    for _ in range(8):
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(15)
        # its backlog is short
        with contextlib.suppress(OSError):
            client.connect(str(SOCKET))
        held.append(client)
    begun = time.monotonic()
    until(
        "an answer of the recorder",
        lambda: run(["zfstune", "record", "status", "--json"])["status"] == 0,
    )
    facts["seconds"] = time.monotonic() - begun
    for client in held:
        client.close()
    results["hostile"] = facts


def full(results: Json, process: subprocess.Popen[bytes]) -> None:
    """The small file system is full, and then not."""
    progress("a full directory")
    before = set(incidents(SMALL))
    sh(f"dd if=/dev/zero of={SMALL}/filler bs=4k 2>/dev/null", check=False)
    process.send_signal(signal.SIGUSR1)
    said = Path("/tmp/small.err")
    until("that it cannot write", lambda: "cannot write an incident" in said.read_text())
    asked_for = run([*DUMP, "--dump-dir", str(SMALL)])
    status = json.loads(
        run(["zfstune", "record", "status", "--json", "--dump-dir", str(SMALL)])["stdout"]
    )
    none = set(incidents(SMALL)) == before
    (SMALL / "filler").unlink()
    process.send_signal(signal.SIGUSR1)
    until("a dump when there is room", lambda: set(incidents(SMALL)) - before)
    time.sleep(1)
    process.terminate()
    results["full"] = {
        "dump": asked_for,
        "failed": status["dumps_failed"],
        "none": none,
        "after": read((set(incidents(SMALL)) - before).pop()),
        "status": process.wait(PATIENT_S),
        "stderr": said.read_text(),
        "left": sorted(path.name for path in SMALL.iterdir()),
    }


def restarts(results: Json, exporter: Exporter) -> None:
    """Ended and started; killed and started, with what it had saved cut short meanwhile."""
    progress("restarts")
    # the record is longer than that by now, and than the minute of a chunk
    results["last"] = dump("--last", "30s", "-o", "/tmp/last.jsonl.gz")
    facts: Json = {"stopped": exporter.stop(), "saved": SAVED.exists()}
    exporter.start()
    facts["continued"] = status()["time_from"]
    exporter.stop(signal.SIGKILL)
    facts["programs"] = programs()
    data = SAVED.read_bytes() if SAVED.exists() else gzip.compress(b'{"type": "incident"}\n')
    SAVED.write_bytes(data[: len(data) // 2])
    exporter.start()
    exporter.until_up(VIEWS)
    sync_writes("/tank/db/after", 11)
    facts["after"] = dump("-o", "/tmp/after.jsonl.gz")
    facts["readable"] = {
        path.name: run(["zfstune", "diagnose", "--from", str(path)]) for path in incidents()
    }
    facts["stderr"] = exporter.said()
    results["restarts"] = facts


def suspended(results: Json, exporter: Exporter) -> None:
    """The disk of another pool fails: neither who asks waits for that, nor what a stop saves. But
    the end of the process may: a writer to that pool can spin in the kernel."""

    def commits(samples: Samples) -> float:
        return total(samples, "zfstune_zil_commit_duration_seconds_count", pool="tank")

    progress("a suspended pool")
    with suspended_pool("/dev/vdc") as state:
        before = commits(exporter.fresh())
        sync_writes("/tank/db/meanwhile", 13)
        facts: Json = {"state": state, "commits": commits(exporter.fresh()) - before}
        facts["dump"] = dump("-o", "/run/suspended.jsonl.gz")
        SAVED.unlink(missing_ok=True)
        exporter.process.terminate()
        until("the record saved", SAVED.exists)
        until("the port closed", lambda: not exporter.answers())
        until("what it says", lambda: "frail is" in exporter.said())
    facts["stopped"] = exporter.process.wait(PATIENT_S)
    facts["said"] = exporter.said()
    sh("zpool destroy -f frail; dmsetup remove frail")
    results["suspended"] = facts


def long_after(results: Json) -> None:
    """The incident is read where there is no ZFS."""
    progress("long after")
    sh("zpool export -a")
    until("the module unloaded", unloaded)
    file = str(DIRECTORY / results["incident"]["name"])
    middle = time.gmtime((results["from"] + results["to"]) / 2)
    moments = {
        "clock": time.strftime("%H:%M:%S", middle),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", middle),
    }
    found: Json = {"loaded": Path("/sys/module/zfs").exists()}
    found["diagnose"] = run(["zfstune", "diagnose", "--from", file, "--json"])
    found["diagnose_text"] = run(["zfstune", "diagnose", "--from", file])
    found["anonymous"] = run(["zfstune", "diagnose", "--from", "/tmp/anonymous.jsonl.gz", "--json"])
    for key, moment in moments.items():
        found[key] = run(["zfstune", "trace", "--from", file, "--at", moment])
    found["trace"] = run(
        ["zfstune", "trace", "fsync", "--from", file, "--at", moments["date"], "--json"]
    )
    found["outside"] = run(["zfstune", "trace", "--from", file, "--at", "2001-01-01T00:00Z"])
    found["report"] = run(["zfstune", "report", "--from", file, "-o", "/out/incident.html"])
    page = Path("/out/incident.html")
    found["page"] = page.read_text() if page.exists() else ""
    cut = Path("/tmp/cut.jsonl.gz")
    whole = Path(file).read_bytes()
    cut.write_bytes(whole[: len(whole) * 2 // 3])
    found["cut"] = run(["zfstune", "trace", "--from", str(cut)])
    results["long_after"] = found


def main() -> None:
    results: Json = {}
    small = without_pool(results)
    sectors = sh(f"blockdev --getsz {DISK}").strip()
    sh(f"dmsetup create db --table '0 {sectors} linear {DISK} 0'; udevadm settle")
    make_pool(disk="/dev/mapper/db")
    sh("zfs create tank/db")
    sync_writes("/tank/db/warm", 3)
    progress("starting")
    exporter = Exporter(*RECORDING)
    exporter.until_up(VIEWS)
    an_incident(results, exporter)
    asked(results, exporter)
    hostile_clients(results)
    full(results, small)
    restarts(results, exporter)
    suspended(results, exporter)
    results["programs_left"] = programs()
    version = sh("cat /sys/module/zfs/version")
    long_after(results)
    sh("modprobe zfs")
    results["zfs_then"] = version
    finish(results)


main()
