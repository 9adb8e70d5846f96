"""Scenario: `zfstune exporter` with all views: its counts beside those of the kstat and of `zfstune
trace`, its formats, parameters that others write, a budget, hostile scrapers, bad input, and
datasets, pools and the module that come and go; exporter.py few: without a light trace beside it,
hostile scrapers, other ways to run it, and bad input.
"""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from exporting import (
    PATIENT_S,
    VIEWS,
    Exporter,
    get,
    hostile,
    parse,
    run,
    select,
    total,
    unloaded,
    until,
)
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as text_format

from labkit import (
    Json,
    Tracer,
    busy,
    commits,
    finish,
    kstat,
    make_pool,
    programs,
    progress,
    set_parameter,
    sh,
    sync_writes,
    values,
    whole,
)

# Of all views twelve have series of their own, and a few more are written to; of the default ones,
# thirty-two
MOST, WRITTEN, MANY = 12, 15, 32
PRIMES = (7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61)
SLOW = "/dev/mapper/vdc-delay"
OPENMETRICS = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3"
EVERYTHING = ("--views", ",".join(VIEWS), "--max-datasets", str(MOST), "--no-record")
DEFAULT = ("light", "txg", "throttle", "arc")
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--")
TEXT_FILE = Path("/tmp/prom/zfs.prom")
SMALL_PORT, BUDGET_PORT = 9812, 9811
# Programs of others run seldom, and what costs nothing stays
COSTLY = ("device", "read", "fsync")
CHEAP = ("--views", "light,device,read,throttle,fsync", "--budget", "0.001%", "--no-record")
# of comings(): what it wrote, and logs that were closed, each by a commit of ZFS itself
wrote, closed = 0, 0


def counts(results: Json, exporter: Exporter) -> None:
    """Fsyncs, and as many writes, on more datasets than have series; and reads. Two traces count
    beside."""
    progress("counts")
    numbers = {f"tank/d{i}": PRIMES[i] for i in range(WRITTEN)}
    light = Tracer("fsync", "tank", "--light") if whole(results, "light") else None
    tracer = Tracer("fsync", "tank")
    before, zil = exporter.fresh(), kstat("zil")
    for name, number in numbers.items():
        sync_writes(f"/{name}/file", number)
    fd = os.open("/tank/d0/file", os.O_RDONLY)
    for _ in range(41):
        os.pread(fd, 4096, 0)
    os.close(fd)
    after = exporter.fresh()
    results["counts"] = {
        "wrote": numbers,
        "before": before,
        "after": after,
        "kstat": {name: number - zil[name] for name, number in kstat("zil").items()},
        "rows": tracer.rows(),
        "status": tracer.process.returncode,
    }
    if light:
        results["light"] = {"rows": light.rows(), "status": light.process.returncode}


def many(results: Json) -> None:
    """A scrape of 32 datasets with the default views, by an exporter that is killed then."""
    progress("32 datasets")
    exporter = Exporter("--max-datasets", str(MANY), "--no-record", port=SMALL_PORT)
    exporter.until_up(DEFAULT)
    times = []
    for _ in range(3):
        for i in range(MANY):
            sync_writes(f"/tank/d{i}/many", 2)
        time.sleep(1.2)
        start = time.monotonic()
        body = get(exporter.port)
        times.append(time.monotonic() - start)
    exporter.stop(signal.SIGKILL)
    results["many"] = {
        "start_s": exporter.start_s,
        "seconds": times,
        "bytes": len(body),
        "counts": select(parse(body.decode()), "zfstune_zil_commit_duration_seconds_count"),
        "programs_left": programs(),
    }


def formats(results: Json, exporter: Exporter) -> None:
    """Exemplars are those of slow commits."""
    progress("formats")
    sync_writes("/slow/file", 5)
    for _ in range(3):
        sh("zpool sync tank")
    samples = exporter.fresh()
    body = get(exporter.port)
    theirs = get(exporter.port, accept=OPENMETRICS).decode()
    families = list(openmetrics(theirs))  # type: ignore[no-untyped-call]
    request = urllib.request.Request(f"http://127.0.0.1:{exporter.port}/metrics")
    request.add_header("Accept-Encoding", "gzip")
    with urllib.request.urlopen(request, timeout=PATIENT_S) as answer:
        packed = answer.read()
    results["formats"] = {
        "families": len(list(text_format(body.decode()))),
        "openmetrics_families": len(families),
        "openmetrics_end": theirs.endswith("# EOF\n"),
        "exemplars": [
            [sample.name, sample.labels, sample.exemplar.labels, sample.exemplar.value]
            for family in families
            for sample in family.samples
            if sample.exemplar
        ],
        "gzip": gzip.decompress(packed).startswith(b"# HELP zfstune_"),
        "index": get(exporter.port, "/").decode(),
        "samples": samples,
    }


def hostile_scrapers(results: Json, exporter: Exporter) -> None:
    progress("hostile scrapers")
    before, counted = exporter.fresh(), commits()
    with hostile(exporter.port) as facts:
        sync_writes("/tank/d0/file", 101)
        honest = [bool(exporter.fresh()) for _ in range(2)]
    counted = commits() - counted
    results["hostile"] = facts | {
        "honest": honest,
        "before": before,
        "after": exporter.fresh(),
        "kstat_commits": counted,
    }


def by_hand(results: Json, exporter: Exporter) -> None:
    """Parameters that somebody writes, and that zfstune does."""
    progress("parameters")

    def writes() -> Json:
        found = exporter.fresh()
        return {
            name: select(found, f"zfstune_parameter_{name}") for name in ("writes_total", "changed")
        }

    def until(name: str, by: str, least: int) -> Json:
        exporter.until(
            f"a write of {name} by {by}",
            lambda found: total(found, "zfstune_parameter_writes_total", name=name, by=by) >= least,
        )
        return writes()

    steps = {"before": writes()}
    set_parameter("zfs_txg_timeout", "7")
    steps["by hand"] = until("zfs_txg_timeout", "other", 1)
    results["set"] = run(["zfstune", "params", "set", "zfs_dirty_data_sync_percent=25"])
    steps["by zfstune"] = until("zfs_dirty_data_sync_percent", "zfstune", 1)
    results["revert"] = run(["zfstune", "revert"])
    steps["reverted"] = until("zfs_dirty_data_sync_percent", "zfstune", 2)
    set_parameter("zfs_txg_timeout", "5")
    results["parameters"] = steps


def budget(results: Json, exporter: Exporter) -> None:
    """Waits until an exporter that may cost next to nothing has measured what it costs."""
    progress("the budget")
    found = exporter.until(
        "views detached for the budget",
        lambda found: all(
            select(found, "zfstune_trace_off_info", view=view, why="budget") for view in COSTLY
        ),
    )
    results["budget"] = {
        "off": select(found, "zfstune_trace_off_info"),
        "up": select(found, "zfstune_trace_up"),
        "cost": select(found, "zfstune_trace_cost_ratio"),
        "share": total(found, "zfstune_trace_budget_ratio"),
        "cost_without": select(exporter.fresh(), "zfstune_trace_cost_ratio"),
        "status": exporter.stop(),
    } | exporter.facts()


def once(results: Json) -> None:
    """Without a port, and without privilege."""
    progress("once, and as nobody")
    command = ["zfstune", "exporter", "--once"]
    with ThreadPoolExecutor(2) as pool:
        mine, nobody = pool.map(
            run, [[*command, "--views", "txg,arc"], [*NOBODY, *command, "--source", "kstat"]]
        )
    for key, found in {"once": mine, "nobody": nobody}.items():
        samples = parse(found["stdout"]) if not found["status"] else {}
        results[key] = {
            "status": found["status"],
            "stderr": found["stderr"],
            "up": select(samples, "zfstune_trace_up"),
            "commits": total(samples, "zfstune_zil_kstat_total", counter="commit"),
            "kstat": commits(),
            "programs": samples and select(samples, "zfstune_trace_probes"),
        }


def text_file(results: Json) -> None:
    """Read as fast as possible while it is written."""
    progress("a text file")
    TEXT_FILE.parent.mkdir()
    options = ["--interval", "1s", "--views", "arc", "--source", "kstat", "--no-record"]
    process = subprocess.Popen(
        ["zfstune", "exporter", "--textfile", str(TEXT_FILE), *options],
        stderr=subprocess.PIPE,
        text=True,
    )
    reads, seen, broken = 0, dict[bytes, None](), list[str]()
    until = time.monotonic() + PATIENT_S
    while len(seen) < 6 and time.monotonic() < until and process.poll() is None:
        try:
            seen[TEXT_FILE.read_bytes()] = None
            reads += 1
        except FileNotFoundError:
            if seen:
                broken.append("it was not there")
        time.sleep(0.001)
    for body in seen:
        try:
            names = {family.name for family in text_format(body.decode())}
            if "zfstune_build_info" not in names or not body.endswith(b"\n"):
                broken.append(f"{len(body)} bytes")
        except ValueError as error:
            broken.append(repr(error))
    mode = TEXT_FILE.stat().st_mode & 0o777 if seen else 0
    process.terminate()
    _, said = process.communicate(timeout=PATIENT_S)
    results["textfile"] = {
        "reads": reads,
        "versions": len(seen),
        "broken": broken,
        "mode": mode,
        "status": process.returncode,
        "stderr": said,
        "left": [path.name for path in TEXT_FILE.parent.iterdir()],
    }


def bad_input(results: Json, exporter: Exporter) -> None:
    progress("bad input")
    command = ["zfstune", "exporter"]
    port = ["--listen", "127.0.0.1:9899"]
    cases = {
        "port in use": [*command, "--listen", f"127.0.0.1:{exporter.port}", "--no-record"],
        "no privilege": [*NOBODY, *command, *port],
        "unknown view": [*command, *port, "--views", "light,fsnyc"],
        "no budget": [*command, *port, "--budget", "0"],
        "no port": [*command, "--listen", "localhost"],
        "another file": [*command, "--textfile", "/tmp/zfs.txt"],
        "too many": [*command, *port, "--max-datasets", "65"],
        "no trigger": [*command, *port, "--record", "--trigger", "fsync.p99>soon"],
        "dumps on ZFS": [*command, *port, "--record", "--dump-dir", "/tank/d0/dumps"],
        "two ways out": [*command, "--once", "--textfile", str(TEXT_FILE)],
    }
    with ThreadPoolExecutor(3) as pool:
        done = pool.map(run, cases.values())
        results["bad"] = dict(zip(cases, done, strict=True))


def write(paths: Iterable[str], number: int = 23) -> None:
    global wrote
    for path in paths:
        sync_writes(path, number)
        wrote += number


def comings(results: Json, exporter: Exporter) -> None:
    """What the exporter counts of all that is written while everything comes and goes."""
    global closed
    before, counted = exporter.fresh(), -commits()
    with exporter.watching(3):
        progress("datasets and a pool come and go")
        for i in range(4):
            sh(f"zfs create tank/new{i}")
            write([f"/tank/new{i}/file"])
            time.sleep(1.5)  # until its name is known
            sh(f"zfs destroy tank/new{i}")
            closed += 1
        closed += 1
        sh("zpool export slow; zpool import slow")
        write(["/slow/file"], 3)
        progress("the module, again")
        closed += MANY + 2
        sh("zpool export -a")
        waiting = exporter.until(
            "that it waits for a pool",
            lambda found: not any(select(found, "zfstune_trace_up").values()),
        )
        counted += commits()
        until("the module unloaded", unloaded)
        without = exporter.fresh()
        sh("modprobe zfs; zpool import -a")
        exporter.until_up(VIEWS)
        write(["/tank/d0/file", f"/tank/d{MANY - 1}/file"])
        write(["/slow/file"], 3)
        time.sleep(4)  # a scrape of the other thread
    counted += commits()
    results["comings"] = {
        "before": before,
        "after": exporter.fresh(),
        "kstat_commits": counted,
        "wrote": wrote,
        "closed": closed,
        "waiting": select(waiting, "zfstune_trace_off_info"),
        "without": select(without, "zfstune_trace_off_info"),
    }


def main() -> None:
    results: Json = {}
    make_pool()
    sh(f"for i in $(seq 0 {MANY - 1}); do zfs create tank/d$i; done")
    make_pool("slow", SLOW)
    sync_writes("/tank/d0/warm", 3)
    os.sync()
    parameters = values()
    many(results)
    progress("all views")
    exporter = Exporter(*EVERYTHING, "--budget", "100%")
    exporter.until_up(VIEWS)
    results["start_s"] = exporter.start_s
    counts(results, exporter)
    formats(results, exporter)
    if whole(results, "hostile"):
        hostile_scrapers(results, exporter)
    with busy("/tank/d1"), exporter.watching(5):
        cheap = Exporter(*CHEAP, port=BUDGET_PORT)
        with ThreadPoolExecutor(1) as other:
            # what fails in it is raised
            more = whole(results, "once", "nobody", "textfile", "bad")
            beside = [other.submit(what, results) for what in (once, text_file) if more]
            by_hand(results, exporter)
            if more:
                bad_input(results, exporter)
        for one in beside:
            one.result()
        budget(results, cheap)
    comings(results, exporter)
    results["exporter"] = exporter.facts()
    progress("kill -9")
    exporter.stop(signal.SIGKILL)
    results["programs_left"] = programs()
    now = values()
    results["changed"] = {name: now[name] for name in now if now[name] != parameters.get(name)}
    found = results["many"]
    results["summary"] = (
        f"a scrape of {MANY} datasets: {sorted(found['seconds'])[1] * 1000:.0f} ms, "
        f"{found['bytes']:,} bytes; started in {found['start_s']:.0f} s"
    )
    finish(results)


main()
